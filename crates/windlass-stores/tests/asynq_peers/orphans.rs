//! What asynq's own scripts leave behind, made with the peer's, and put right by windlass.

use std::time::Duration;

use windlass_core::{State, TaskId};
use windlass_stores::redis::driver::cmd;
use windlass_testkit::asynq::{GoError, GoServer, GoTask, Keys, audit};
use windlass_testkit::scene::{Scene, completed};

use crate::ground::Ground;

/// Lets windlass sweep; it must have found something, and leave everything as asynq takes for granted.
async fn mend(ground: &Ground, scene: &Scene) {
    let found = audit::complaints(&ground.peer.dump().await);
    assert!(!found.is_empty(), "there should be something to mend");
    assert!(scene.tend().await.repaired > 0, "nothing was mended of {found:#?}");
    assert_eq!(scene.tend().await.repaired, 0, "what is mended stays so");
    ground.sound("after the sweep").await;
    scene.books_balance("after the sweep").await;
}

fn server(ground: &Ground) -> GoServer {
    GoServer::start(ground.peer.clone(), ("go", 1, "go"), &[("default", 1)])
}

#[tokio::test]
async fn a_lock_of_a_refused_task_is_freed() {
    let ground = Ground::fresh().await;
    let scene = ground.scene().await;
    ground.peer.enqueue(&GoTask::new("kind", "a").id("one")).await.unwrap();
    let refused = GoTask { unique_s: 86_400, ..GoTask::new("kind", "b").id("one") };
    assert_eq!(ground.peer.enqueue(&refused).await, Err(GoError::TaskIdConflict));
    mend(&ground, &scene).await;
    ground.peer.enqueue(&refused.id("two")).await.unwrap();
}

#[tokio::test]
async fn a_group_whose_aggregation_died_is_known_again() {
    let ground = Ground::fresh().await;
    let scene = ground.scene().await;
    let grouped = GoTask { group: "all".into(), ..GoTask::new("kind", "").id("one") };
    ground.peer.enqueue(&grouped).await.unwrap();
    ground.advance(Duration::from_secs(60));
    assert!(ground.peer.aggregate("default", "all", 60).await.is_some());
    ground.advance(Duration::from_secs(120));
    ground.peer.reclaim("default").await;
    mend(&ground, &scene).await;
    assert_eq!(ground.peer.groups("default").await, ["all"]);
}

#[tokio::test]
async fn a_group_that_a_failed_run_came_back_to_is_known_again() {
    let ground = Ground::fresh().await;
    let scene = ground.scene().await;
    let grouped = GoTask { group: "all".into(), ..GoTask::new("kind", "").id("one") };
    ground.peer.enqueue(&grouped).await.unwrap();
    ground.peer.run_task("default", "one").await.unwrap();
    let server = server(&ground);
    let run = server.dequeue(&["default"]).await.unwrap();
    server.fail(&run, "boom", 15).await.unwrap();
    ground.advance(Duration::from_secs(15));
    ground.peer.forward("default").await;
    mend(&ground, &scene).await;
    assert_eq!(ground.peer.groups("default").await, ["all"]);
}

#[tokio::test]
async fn a_run_that_windlass_tries_again_goes_back_to_its_group() {
    let ground = Ground::fresh().await;
    let scene = ground.scene().await;
    let grouped = GoTask { group: "all".into(), ..GoTask::new("kind", "").id("one") };
    ground.peer.enqueue(&grouped).await.unwrap();
    ground.peer.run_task("default", "one").await.unwrap();
    let worker = scene.worker().await;
    let run = scene.take(&worker, &TaskId::new("one")).await;
    let failed = windlass_testkit::scene::failed("boom");
    scene.finish_as(&run, failed, State::Retrying).await;
    ground.advance(Duration::from_secs(11));
    scene.promote().await;
    ground.sound("after the promotion").await;
}

#[tokio::test]
async fn a_running_task_without_a_lease_runs_again() {
    let ground = Ground::fresh().await;
    let scene = ground.scene().await;
    ground.peer.enqueue(&GoTask::new("kind", "").id("one")).await.unwrap();
    let run = server(&ground).dequeue(&["default"]).await.unwrap();
    let lease = Keys::of("default").key("lease");
    ground.peer.plain::<i64>(cmd("ZREM").arg(lease).arg("one")).await;
    mend(&ground, &scene).await;
    ground.advance(Duration::from_secs(60));
    scene.expire().await;
    let worker = scene.worker().await;
    let again = scene.take(&worker, &TaskId::new("one")).await;
    assert_eq!(again.payload.as_ref(), run.message.payload);
    scene.finish_as(&again, completed(), State::Completed).await;
    ground.sound("after the success").await;
}

#[tokio::test]
async fn the_hash_that_a_success_without_a_lease_leaves_is_removed() {
    let ground = Ground::fresh().await;
    let scene = ground.scene().await;
    ground.peer.enqueue(&GoTask::new("kind", "").id("one")).await.unwrap();
    let run = server(&ground).dequeue(&["default"]).await.unwrap();
    let lease = Keys::of("default").key("lease");
    ground.peer.plain::<i64>(cmd("ZREM").arg(lease).arg("one")).await;
    assert_eq!(ground.peer.finish(&run).await, Err(GoError::NotFound));
    // Neither active nor anywhere else, but its message is there: whether it ran to its end is not known,
    // and nothing may be lost, so it runs again.
    mend(&ground, &scene).await;
    let worker = scene.worker().await;
    let again = scene.take(&worker, &TaskId::new("one")).await;
    scene.finish_as(&again, completed(), State::Completed).await;
    ground.sound("after the success").await;
}

#[tokio::test]
async fn an_id_without_a_hash_is_removed_wherever_it_lies() {
    let ground = Ground::fresh().await;
    let scene = ground.scene().await;
    let keys = Keys::of("default");
    let peer = &ground.peer;
    peer.enqueue(&GoTask::new("kind", "").id("taken")).await.unwrap();
    peer.plain::<i64>(cmd("DEL").arg(keys.task("taken"))).await;
    assert!(server(&ground).dequeue(&["default"]).await.is_none(), "a ghost is active now");
    for (place, task) in [
        ("waiting", GoTask::new("kind", "")),
        ("later", GoTask { process_in_s: 3_600, ..GoTask::new("kind", "") }),
        ("grouped", GoTask { group: "all".into(), ..GoTask::new("kind", "") }),
    ] {
        peer.enqueue(&task.id(place)).await.unwrap();
        peer.plain::<i64>(cmd("DEL").arg(keys.task(place))).await;
    }
    assert!(matches!(peer.memory_usage("default").await, Err(GoError::Internal(_))));
    ground.advance(Duration::from_secs(120));
    mend(&ground, &scene).await;
    assert_eq!(peer.list("default", windlass_testkit::asynq::Shelf::Active).await.unwrap(), []);
    peer.memory_usage("default").await.unwrap();
}
