//! Work that goes from one side to the other, and what each side is refused.

use std::time::Duration;

use windlass_core::store::{Applied, Inserted, Refusal};
use windlass_core::{State, TaskId};
use windlass_testkit::asynq::{GoError, GoRun, GoServer, GoTask, Keys, LEASE_EXPIRED};
use windlass_testkit::draft::{draft, held_for, until_finished};
use windlass_testkit::scene::{Scene, completed, failed};

use crate::ground::Ground;

const HOUR: Duration = Duration::from_secs(3_600);
const SECOND: Duration = Duration::from_secs(1);

/// A database with a windlass scene, and a Go server of queue `main`.
async fn fleet() -> (Ground, Scene, GoServer) {
    let ground = Ground::fresh().await;
    ground.strike();
    let scene = ground.scene().await;
    let server = GoServer::start(ground.peer.clone(), ("go", 1, "go"), &[("main", 1)]);
    (ground, scene, server)
}

async fn dequeue(server: &GoServer) -> GoRun {
    server.dequeue(&["main"]).await.expect("there should be work for Go")
}

#[tokio::test]
async fn go_works_what_windlass_submits() {
    let (ground, scene, server) = fleet().await;
    let gone = scene.submit(draft().retention(Duration::ZERO)).await;
    server.succeed(&dequeue(&server).await).await.unwrap();
    scene.expect_gone(&gone, "without a retention nothing is kept").await;

    let kept = scene.submit(draft().retention(HOUR)).await;
    let run = dequeue(&server).await;
    server.write_result(&run, b"{\"sent\":true}").await;
    server.succeed(&run).await.unwrap();
    let record = scene.record(&kept).await;
    assert_eq!(record.state, State::Completed);
    assert_eq!(record.result.as_deref(), Some(&b"{\"sent\":true}"[..]));

    let tried = scene.submit(draft().max_retries(1).tag("red")).await;
    server.fail(&dequeue(&server).await, "boom", 15).await.unwrap();
    let record = scene.record(&tried).await;
    assert_eq!((record.state, record.attempts), (State::Retrying, 1));
    assert_eq!(record.history.last_error(), Some("boom"));
    ground.advance(SECOND * 15);
    ground.peer.forward("main").await;
    scene.expect(&tried, State::Pending, "Go's forwarder has moved it").await;
    server.fail(&dequeue(&server).await, "boom again", 15).await.unwrap();
    let record = scene.record(&tried).await;
    assert_eq!(record.state, State::DeadLetter);
    assert_eq!(record.spec.extras.tags[0].as_str(), "red", "what Go does not know survives it");
    scene.rerun(&tried).await;
    server.succeed(&dequeue(&server).await).await.unwrap();
    ground.sound("after everything").await;
    scene.books_balance("after everything").await;
}

#[tokio::test]
async fn the_failures_of_both_are_in_the_timeline() {
    let (ground, scene, server) = fleet().await;
    let id = scene.submit(draft().max_retries(9)).await;
    let errors = ["ours", "theirs", "theirs again", "ours again"];
    for error in errors {
        if error.starts_with("ours") {
            let worker = scene.worker().await;
            let run = scene.take(&worker, &id).await;
            scene.finish_as(&run, failed(error), State::Retrying).await;
        } else {
            server.fail(&dequeue(&server).await, error, 10).await.unwrap();
        }
        assert_eq!(scene.record(&id).await.history.last_error(), Some(error));
        ground.advance(SECOND * 10);
        scene.promote().await;
    }
    let record = scene.record(&id).await;
    let told: Vec<_> = record.history.entries().iter().filter_map(|e| e.error.clone()).collect();
    // A message has room for one failure: the one before is lost when Go writes the next.
    assert_eq!(
        (told, record.attempts),
        (vec!["ours".into(), errors[2].into(), errors[3].into()], 4)
    );
}

#[tokio::test]
async fn keys_of_windlass_are_free_when_go_is_done() {
    let (ground, scene, server) = fleet().await;
    for unique in [until_finished("key"), held_for("key", HOUR)] {
        let task = draft().unique(unique).payload("{\"a\":1}");
        scene.submit(task.clone()).await;
        let (_, answer) = scene.offer(task.clone()).await;
        assert!(matches!(answer, Inserted::Conflict { .. }), "{answer:?}");
        server.succeed(&dequeue(&server).await).await.unwrap();
        ground.sound("no lock is left").await;
        scene.submit(task).await;
        server.succeed(&dequeue(&server).await).await.unwrap();
    }
    let keyed = draft().idempotency("order-7").retention(Duration::ZERO);
    scene.submit(keyed.clone()).await;
    server.succeed(&dequeue(&server).await).await.unwrap();
    scene.submit(keyed).await;
    ground.sound("after the last").await;
}

#[tokio::test]
async fn a_lock_of_go_keeps_windlass_out_and_the_reverse() {
    let (ground, scene, _) = fleet().await;
    let theirs = GoTask { unique_s: 60, ..GoTask::new("kind", "{\"a\":1}").queue("main") };
    let unique = windlass_core::unique::Unique { key: None, ..held_for("", HOUR) };
    let ours = draft().kind("kind").payload("{\"a\":1}").unique(unique.clone());
    let message = ground.peer.enqueue(&theirs).await.unwrap();
    let (_, answer) = scene.offer(ours).await;
    let Inserted::Conflict { holder } = answer else { panic!("Go holds the lock: {answer:?}") };
    assert_eq!(holder.as_str(), message.id);
    scene.submit(draft().kind("kind").payload("{\"b\":1}").unique(unique)).await;
    let same = GoTask { payload: b"{\"b\":1}".to_vec(), ..theirs };
    assert_eq!(ground.peer.enqueue(&same).await, Err(GoError::DuplicateTask));
    ground.sound("two tasks, two locks").await;
}

#[tokio::test]
async fn what_go_wrote_in_a_header_reaches_the_handler() {
    let (ground, scene, _) = fleet().await;
    let headers = [("tenant".to_owned(), "a".to_owned())].into();
    let task = GoTask { headers, ..GoTask::new("kind", "{}").queue("main").id("one") };
    ground.peer.enqueue(&task).await.unwrap();
    let worker = scene.worker().await;
    let run = scene.take(&worker, &TaskId::new("one")).await;
    assert_eq!(run.spec.extras.metadata["tenant"], "a");
    scene.finish_as(&run, failed("boom"), State::Retrying).await;
    let info = ground.peer.task_info("main", "one").await.unwrap();
    assert_eq!(info.message.headers["tenant"], "a");
}

#[tokio::test]
async fn a_stale_report_of_windlass_is_refused_after_go_took_the_task() {
    let (ground, scene, server) = fleet().await;
    let run = scene.start(draft()).await;
    ground.advance(SECOND * 61);
    // No windlass is left that looks after its own; a Go server does it in asynq's way.
    assert_eq!(ground.peer.recover("main", 15).await, [run.id.as_str()]);
    assert!(matches!(scene.finish(&run, completed()).await, Applied::Refused(_)));
    let record = scene.record(&run.id).await;
    assert_eq!((record.state, record.history.last_error()), (State::Retrying, Some(LEASE_EXPIRED)));
    ground.advance(SECOND * 15);
    ground.peer.forward("main").await;
    assert!(matches!(scene.finish(&run, completed()).await, Applied::Refused(_)), "it is pending");
    let theirs = dequeue(&server).await;
    assert!(matches!(scene.finish(&run, completed()).await, Applied::Refused(_)), "Go runs it");
    server.beat().await;
    assert!(matches!(scene.finish(&run, completed()).await, Applied::Refused(_)), "and renews it");
    ground.sound("a refused report writes nothing").await;
    server.succeed(&theirs).await.unwrap();
    ground.sound("after Go's success").await;
}

#[tokio::test]
async fn a_beat_of_windlass_does_not_renew_what_go_took() {
    let (ground, scene, server) = fleet().await;
    let run = scene.start(draft()).await;
    ground.advance(SECOND * 61);
    ground.peer.recover("main", 0).await;
    ground.peer.forward("main").await;
    let theirs = dequeue(&server).await;
    let lease = Keys::of("main").key("lease");
    let before = ground.peer.dump().await.0.remove(&lease);
    ground.advance(SECOND * 5);
    // Whether it is still taken for alive or was declared lost: it renews nothing that is not its own.
    let _ = scene.store.beat(scene.sign(&run.worker)).await;
    assert_eq!(ground.peer.dump().await.0.remove(&lease), before);
    server.succeed(&theirs).await.unwrap();
}

#[tokio::test]
async fn a_stale_report_of_go_is_stopped_by_gos_own_clock_and_by_nothing_else() {
    let (ground, scene, server) = fleet().await;
    scene.submit(draft()).await;
    let theirs = dequeue(&server).await;
    ground.advance(SECOND * 61);
    scene.expire().await;
    assert_eq!(server.succeed(&theirs).await, Err(GoError::LeaseOver));
    assert_eq!(ground.peer.finish(&theirs).await, Err(GoError::NotFound), "it is pending");
    let worker = scene.worker().await;
    let run = scene.take(&worker, &TaskId::new(&theirs.message.id)).await;
    // A Go worker that was halted between the look at its clock and its write. asynq compares nothing, so
    // its report counts; the one of windlass comes to nothing, and is told so.
    ground.peer.finish(&theirs).await.unwrap();
    assert!(matches!(scene.finish(&run, completed()).await, Applied::Refused(_)));
    ground.sound("one of the two reports has counted").await;
    assert_eq!(ground.peer.history("main", 1).await, [(1, 0)]);
}

#[tokio::test]
async fn windlass_takes_over_from_its_own_before_go_does() {
    let (ground, scene, _) = fleet().await;
    let run = scene.start(draft()).await;
    ground.advance(SECOND * 40);
    assert!(ground.peer.recover("main", 15).await.is_empty(), "Go waits for a minute");
    scene.expire().await;
    let worker = scene.worker().await;
    let again = scene.take(&worker, &run.id).await;
    assert_eq!((again.attempts, again.crashes), (1, 1), "a crash spends no retry");
    assert!(matches!(scene.finish(&run, completed()).await, Applied::Refused(_)));
    scene.finish_as(&again, completed(), State::Completed).await;
    ground.sound("after the second run").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_reports_at_once_one_counts_and_the_other_is_told_so() {
    const COUNT: usize = 200;
    let (ground, scene, server) = fleet().await;
    scene.submit_all(vec![draft().retention(Duration::ZERO); COUNT]).await;
    let mut theirs = Vec::new();
    while theirs.len() < COUNT {
        theirs.push(dequeue(&server).await);
    }
    ground.advance(SECOND * 61);
    scene.expire().await;
    let worker = scene.worker().await;
    let tasks = scene.claim(&worker, COUNT).await;
    let reports: Vec<_> = tasks.iter().map(|task| scene.transition(task, failed("boom"))).collect();
    let peer = ground.peer.clone();
    // Each of these was halted between the look at its clock and its write.
    let late = tokio::spawn(async move {
        let mut accepted = Vec::new();
        for run in theirs.iter().rev() {
            if peer.finish(run).await.is_ok() {
                accepted.push(TaskId::new(&run.message.id));
            }
        }
        accepted
    });
    let outcomes = scene.apply(&worker, reports).await;
    let accepted = late.await.unwrap();
    for (task, outcome) in tasks.iter().zip(&outcomes) {
        let is_theirs = accepted.contains(&task.id);
        let expected = match is_theirs {
            true => Applied::Refused(Refusal::Gone),
            false => Applied::Applied(State::Retrying),
        };
        assert_eq!(*outcome, expected, "{} of them were Go's", accepted.len());
    }
    ground.sound("after all reports").await;
    let ours = i64::try_from(COUNT - accepted.len()).unwrap();
    assert_eq!(ground.peer.history("main", 1).await, [(200, ours)]);
}
