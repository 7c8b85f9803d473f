//! What is kept of a task that asks for no retention, as tasks of Go's do: nothing, unless someone waits for its
//! end, or has called it off.

use std::time::Duration;

use windlass_core::store::{Action, Changed, WaitParams, Wake};
use windlass_core::{Ending, State, TaskId};
use windlass_testkit::draft::{Draft, draft};
use windlass_testkit::scene::{HOUR, MS, SECOND, failed};

use crate::stage::{START, Stage};

fn forgotten() -> Draft {
    draft().retention(Duration::ZERO)
}

/// Waits for a moment: long enough to be known.
async fn wait_for(stage: &Stage, id: &str) {
    let params = WaitParams { tasks: vec![TaskId::new(id)], ..WaitParams::default() };
    assert_eq!(stage.scene.store.wait(params).await.unwrap(), Wake::TimedOut);
}

fn sent() -> Ending {
    Ending::Completed { result: Some("sent".into()) }
}

#[tokio::test]
async fn a_success_that_someone_waits_for_is_kept_for_a_minute_with_its_result() {
    let stage = Stage::new().await;
    let s = &stage.scene;
    let run = s.start(forgotten()).await;
    wait_for(&stage, run.id.as_str()).await;
    s.finish_as(&run, sent(), State::Completed).await;
    let record = s.record(&run.id).await;
    assert_eq!((record.state, record.result.as_deref()), (State::Completed, Some(&b"sent"[..])));
    let until: i64 = stage.send("ZSCORE", "completed", &[run.id.as_str()]).await;
    assert_eq!(until, START + 60, "asynq's own janitor would remove it then");
    s.advance(SECOND * 60 - MS);
    s.prune().await;
    s.expect(&run.id, State::Completed, "a millisecond before").await;
    s.advance(MS);
    s.prune().await;
    let left: i64 = stage.send("EXISTS", &format!("t:{}", run.id), &[]).await;
    assert_eq!(left, 0, "and no longer");
    s.books_balance("after all of it").await;
}

#[tokio::test]
async fn a_success_that_nobody_waits_for_any_more_is_forgotten() {
    let stage = Stage::new().await;
    let s = &stage.scene;
    let run = s.start(forgotten()).await;
    wait_for(&stage, run.id.as_str()).await;
    s.advance(SECOND * 14);
    s.beat(&run.worker).await;
    s.advance(SECOND);
    s.finish_as(&run, sent(), State::Completed).await;
    s.expect_gone(&run.id, "whoever waited has gone").await;
    let other = s.start(forgotten()).await;
    let another = s.submit(forgotten()).await;
    wait_for(&stage, another.as_str()).await;
    s.finish_as(&other, sent(), State::Completed).await;
    s.expect_gone(&other.id, "the wait was for another").await;
}

#[tokio::test]
async fn a_task_that_is_waited_for_by_the_name_of_its_queue_is_kept_as_well() {
    let stage = Stage::new().await;
    let run = stage.scene.start(forgotten()).await;
    wait_for(&stage, &format!("main/{}", run.id)).await;
    stage.scene.finish_as(&run, sent(), State::Completed).await;
    stage.scene.expect(&run.id, State::Completed, "someone waits for it").await;
}

#[tokio::test]
async fn what_was_waited_for_and_fails_has_no_trace_of_the_wait() {
    let stage = Stage::new().await;
    let run = stage.scene.start(forgotten().max_retries(0)).await;
    wait_for(&stage, run.id.as_str()).await;
    stage.scene.finish_as(&run, failed("boom"), State::DeadLetter).await;
    let left: i64 = stage.send("HEXISTS", &format!("t:{}", run.id), &["wl_a"]).await;
    assert_eq!(left, 0);
}

#[tokio::test]
async fn a_cancelled_task_without_retention_lies_in_the_archive_for_a_day() {
    let stage = Stage::new().await;
    let s = &stage.scene;
    let waiting = s.submit(forgotten()).await;
    assert_eq!(s.cancel(&waiting).await, Changed::Done(Some(State::Cancelled)));
    let running = s.start(forgotten()).await;
    assert_eq!(s.change(&running.id, Action::Cancel).await, Changed::Requested);
    s.finish_as(&running, failed("told to stop"), State::Cancelled).await;
    s.advance(HOUR * 24 - SECOND);
    s.prune().await;
    for (id, why) in [(&waiting, None), (&running.id, Some("told to stop"))] {
        let record = s.record(id).await;
        assert_eq!((record.state, record.history.last_error()), (State::Cancelled, why));
        let died: i64 = stage.send("ZSCORE", "archived", &[id.as_str()]).await;
        assert_eq!(died, START);
    }
    s.books_balance("while they are kept").await;
    s.advance(SECOND);
    s.prune().await;
    let left: Vec<String> = stage.send_all("KEYS", &[stage.key("t:*").as_bytes()]).await;
    assert_eq!(left, [""; 0]);
}
