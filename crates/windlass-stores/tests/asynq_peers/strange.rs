//! What Go allows and windlass would not make: names and ids of any text, one id in two queues, groups that
//! are being aggregated.

use std::time::Duration;

use windlass_core::store::{ClaimParams, GetParams, Parts, Quota};
use windlass_core::{QueueName, State, TaskId};
use windlass_testkit::asynq::GoTask;
use windlass_testkit::scene::{Run, Scene, claim_of, completed, failed};

use crate::ground::Ground;

/// Claims the next task of a queue of any name.
async fn take(scene: &Scene, queue: &str) -> Run {
    let worker = scene.worker().await;
    let quotas = vec![Quota::of(QueueName::stored(queue), 1)];
    let mut tasks = scene.claim_by(ClaimParams { quotas, ..claim_of(&worker, 1) }).await;
    assert_eq!(tasks.len(), 1, "{queue} has one");
    Run { worker, task: tasks.remove(0) }
}

#[tokio::test]
async fn names_and_ids_are_any_text() {
    let ground = Ground::fresh().await;
    let scene = ground.scene().await;
    for (queue, id, kind) in [
        ("größe {1}", "ein Name: t:{x}", "Art / β"),
        ("q:t:", "unique:a:b", "g:"),
        ("%s*[?]", "0 1 -", "\\"),
    ] {
        let task = GoTask { max_retry: 9, ..GoTask::new(kind, "x").queue(queue).id(id) };
        ground.peer.enqueue(&task).await.unwrap();
        let name = TaskId::new(id);
        let record = scene.record(&name).await;
        assert_eq!((record.queue.as_str(), record.kind.as_str()), (queue, kind));
        let run = take(&scene, queue).await;
        scene.finish_as(&run, failed("boom"), State::Retrying).await;
        scene.rerun(&name).await;
        let run = take(&scene, queue).await;
        assert_eq!((run.id.as_str(), run.attempts), (id, 2));
        ground.sound("while it runs").await;
        scene.finish_as(&run, completed(), State::Completed).await;
        assert_eq!(ground.peer.stats(queue).await.unwrap().total, (2, 1));
        ground.peer.enqueue(&task).await.unwrap();
        scene.delete(&name).await;
        assert_eq!(scene.tend().await.repaired, 0);
        ground.sound("after the delete").await;
    }
}

#[tokio::test]
async fn an_id_in_two_queues_is_asked_for_by_both_names() {
    let ground = Ground::fresh().await;
    let scene = ground.scene().await;
    for queue in ["one", "two"] {
        ground.peer.enqueue(&GoTask::new("kind", queue).queue(queue).id("same")).await.unwrap();
    }
    let get = |id: &str| GetParams { ids: vec![TaskId::new(id)], parts: Parts::ALL };
    assert!(scene.store.get(get("same")).await.is_err(), "which of the two?");
    for queue in ["one", "two"] {
        let name = format!("{queue}/same");
        let record = scene.store.get(get(&name)).await.unwrap().remove(0).unwrap();
        assert_eq!((record.queue.as_str(), &record.payload[..]), (queue, queue.as_bytes()));
    }
    let run = take(&scene, "two").await;
    assert_eq!(&run.payload[..], b"two");
    scene.finish_as(&run, completed(), State::Completed).await;
    assert_eq!(&scene.record(&TaskId::new("same")).await.payload[..], b"one", "it is the only one");
    ground.sound("after one of them").await;
}

#[tokio::test]
async fn an_aggregation_goes_on_undisturbed() {
    let ground = Ground::fresh().await;
    let scene = ground.scene().await;
    for id in ["a", "b"] {
        let task = GoTask { group: "all:of".into(), ..GoTask::new("kind", id).id(id) };
        ground.peer.enqueue(&task).await.unwrap();
    }
    ground.advance(Duration::from_secs(60));
    let set = ground.peer.aggregate("default", "all:of", 60).await.unwrap();
    let before = ground.sound("while it is aggregated").await;
    let record = scene.record(&TaskId::new("a")).await;
    assert_eq!(record.spec.extras.metadata["asynq.group"], "all:of");
    scene.expire().await;
    scene.promote().await;
    assert_eq!(scene.tend().await.repaired, 0);
    assert_eq!(ground.peer.dump().await, before);
    ground.peer.aggregated("default", &set).await.unwrap();
    scene.expect_gone(&TaskId::new("a"), "it went into another task").await;
    scene.books_balance("after the aggregation").await;
    assert_eq!(scene.tend().await.repaired, 0);
    ground.sound("after the aggregation").await;
}
