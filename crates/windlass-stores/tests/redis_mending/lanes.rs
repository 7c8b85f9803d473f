//! Lanes that someone has broken: entries, groups, whole streams.

use windlass_core::store::{Applied, Changed};
use windlass_core::{State, TaskId, WorkerId};
use windlass_testkit::draft::draft;
use windlass_testkit::scene::{Run, completed};

use crate::stage::{Stage, sorted, stored};

/// The lane of tasks of normal priority.
const LANE: &str = "s:2";

/// Entries of the lane, oldest first.
async fn entries(stage: &Stage) -> Vec<String> {
    let found: Vec<(String, Vec<Vec<u8>>)> =
        stage.run(stage.on("XRANGE", LANE).arg("-").arg("+")).await;
    found.into_iter().map(|(entry, _)| entry).collect()
}

#[tokio::test]
async fn a_pending_task_without_an_entry_gets_a_new_one() {
    let stage = Stage::new().await;
    let ids = stage.scene.submit_many(3).await;
    let entry = entries(&stage).await.remove(1);
    let _: i64 = stage.run(stage.on("XDEL", LANE).arg(entry)).await;
    stage.mend().await;
    assert_eq!(stage.drain().await, sorted(ids));
    stage.scene.books_balance("after a drain").await;
}

#[tokio::test]
async fn an_entry_without_a_record_is_removed() {
    let stage = Stage::new().await;
    let ids = stage.scene.submit_many(3).await;
    stage.delete_record(&ids[1]).await;
    stage.mend().await;
    assert_eq!(entries(&stage).await.len(), 2);
    assert_eq!(stage.drain().await, sorted(vec![ids[0].clone(), ids[2].clone()]));
    stage.scene.books_balance("after a drain").await;
}

#[tokio::test]
async fn an_entry_that_is_held_without_a_record_is_let_go() {
    let stage = Stage::new().await;
    let run = stage.scene.start(draft()).await;
    stage.delete_record(&run.id).await;
    let held: (i64, String, String, Vec<(String, String)>) =
        stage.run(stage.on("XPENDING", LANE).arg("w")).await;
    assert_eq!(held.0, 1, "its entry is held");
    stage.mend().await;
    stage.expect_refused(&run).await;
}

#[tokio::test]
async fn a_run_whose_entry_someone_acknowledged_is_given_to_another() {
    let stage = Stage::new().await;
    let run = stage.scene.start(draft()).await;
    let entry = entries(&stage).await.remove(0);
    let _: i64 = stage.run(stage.on("XACK", LANE).arg("w").arg(entry)).await;
    stage.mend().await;
    assert_eq!(stage.drain().await, std::slice::from_ref(&run.id));
    stage.expect_refused(&run).await;
    let record = stage.scene.record(&run.id).await;
    assert_eq!((record.attempts, record.crashes), (1, 0), "nobody has failed");
}

/// Submits four tasks, of which the first runs; someone breaks something; the lane must come back.
async fn comes_back(break_it: &[&str]) {
    let stage = Stage::new().await;
    let run = stage.scene.start(draft()).await;
    let waiting = stage.scene.submit_many(3).await;
    let mut words = break_it.iter();
    let mut command = stage.on(words.next().unwrap(), LANE);
    words.for_each(|word| {
        command.arg(*word);
    });
    let _: i64 = stage.run(&command).await;
    // Whoever asks in between is answered, and nothing is given out a second time.
    let worker = stage.scene.worker().await;
    assert_eq!(stage.scene.claim(&worker, 10).await, []);
    assert!(stage.scene.find(&run.id).await.is_some());
    let new = stage.scene.submit(draft()).await;
    stage.mend().await;
    let mut all = waiting;
    all.extend([new, run.id.clone()]);
    assert_eq!(stage.drain().await, sorted(all));
    stage.expect_refused(&run).await;
    stage.scene.books_balance("after a drain").await;
}

#[tokio::test]
async fn a_group_that_was_destroyed_comes_back_with_all_its_tasks() {
    comes_back(&["XGROUP DESTROY", "w"]).await;
}

#[tokio::test]
async fn a_stream_that_was_deleted_comes_back_with_all_its_tasks() {
    comes_back(&["DEL"]).await;
}

/// Nobody has cut what lies behind the group, so that it is in the way of those that count.
#[tokio::test]
async fn a_group_of_many_tasks_comes_back_with_its_counters() {
    let stage = Stage::new().await;
    let ids = stage.scene.submit_many(2_500).await;
    let _: i64 = stage.run(stage.on("XGROUP DESTROY", LANE).arg("w")).await;
    assert!(stage.mend().await > 2_500);
    assert_eq!(stage.drain().await, sorted(ids));
}

/// The task is accepted from whoever ran it, as long as it was not given to another.
#[tokio::test]
async fn a_run_of_a_destroyed_group_is_accepted_once_if_it_ends_before_the_sweep() {
    let stage = Stage::new().await;
    let run = stage.scene.start(draft()).await;
    let _: i64 = stage.run(stage.on("XGROUP DESTROY", LANE).arg("w")).await;
    stage.scene.finish_as(&run, completed(), State::Completed).await;
    assert_eq!(stage.scene.finish(&run, completed()).await, Applied::Already);
    // Something that looks at the lane finds the group gone and has it made.
    stage.scene.submit(draft()).await;
    stage.mend().await;
    assert_eq!(stage.drain().await.len(), 1, "the other one only");
}

/// Everything that a worker or an operator does goes on while a group is away.
#[tokio::test]
async fn nobody_is_refused_for_want_of_a_group() {
    let stage = Stage::new().await;
    let (run, other) = (stage.scene.start(draft()).await, stage.scene.start(draft()).await);
    let waiting = stage.scene.submit(draft()).await;
    let _: i64 = stage.run(stage.on("XGROUP DESTROY", LANE).arg("w")).await;
    assert_eq!(stage.scene.cancel(&waiting).await, Changed::Done(Some(State::Cancelled)));
    let _: i64 = stage.run(stage.on("XGROUP DESTROY", LANE).arg("w")).await;
    assert_eq!(stage.scene.leave(&other.worker).await, 0, "what it held is nobody's");
    let _: i64 = stage.run(stage.on("XGROUP DESTROY", LANE).arg("w")).await;
    stage.scene.store.workers().await.unwrap();
    stage.scene.store.queues().await.unwrap();
    let beaten =
        stage.scene.beat_holding(&run.worker, vec![run.lease()], std::time::Duration::ZERO);
    assert_eq!(beaten.await.lost, [run.lease()], "its worker is told");
    stage.mend().await;
    assert_eq!(stage.drain().await, sorted(vec![run.id.clone(), other.id.clone()]));
}

/// As after a clock that went back: the new stream begins before the old one.
#[tokio::test]
async fn entries_of_a_stream_that_was_deleted_do_not_come_again() {
    let stage = Stage::new().await;
    stage.scene.bring(draft(), State::Cancelled).await;
    let _: String = stage.run(stage.on("XSETID", LANE).arg("4000000000000-0")).await;
    let run = stage.scene.start(draft()).await;
    stage.delete_key(LANE).await;
    stage.mend().await;
    let worker = stage.scene.worker().await;
    let again = Run { task: stage.scene.claim(&worker, 1).await.remove(0), worker };
    assert_eq!(again.id, run.id);
    assert!(again.epoch > run.epoch, "{:?} after {:?}", again.epoch, run.epoch);
    stage.expect_refused(&run).await;
    stage.scene.finish_as(&again, completed(), State::Completed).await;
}

#[tokio::test]
async fn a_cancellation_that_nobody_hears_of_is_told() {
    let stage = Stage::new().await;
    let run = stage.scene.start(draft()).await;
    assert_eq!(stage.scene.cancel(&run.id).await, Changed::Requested);
    stage.delete_key("cr").await;
    assert_eq!(stage.scene.beat(&run.worker).await.cancels, []);
    stage.mend().await;
    assert_eq!(stage.scene.beat(&run.worker).await.cancels, [run.lease()]);
    // The other way round: a request of a task that is gone.
    stage.delete_record(&run.id).await;
    stage.mend().await;
    let left: Option<Vec<u8>> = stage.run(stage.on("HGET", "cr").arg(&stored(&run.id)[..])).await;
    assert_eq!(left, None);
}

/// A worker that holds a page of tasks without records, and these behind them.
async fn holder_of_a_bad_page(stage: &Stage) -> (WorkerId, Vec<TaskId>) {
    let mut ids = stage.scene.submit_many(250).await;
    let worker = stage.scene.worker().await;
    assert_eq!(stage.scene.claim(&worker, 250).await.len(), 250);
    let good = ids.split_off(210);
    for id in &ids {
        stage.delete_record(id).await;
    }
    (worker, good)
}

#[tokio::test]
async fn what_a_lost_worker_holds_is_found_behind_a_page_without_records() {
    let stage = Stage::new().await;
    let (_, good) = holder_of_a_bad_page(&stage).await;
    assert_eq!(stage.scene.lose_all_workers().await.done, 40);
    assert_eq!(stage.drain().await, sorted(good));
}

#[tokio::test]
async fn what_a_worker_that_leaves_holds_is_found_behind_a_page_without_records() {
    let stage = Stage::new().await;
    let (worker, good) = holder_of_a_bad_page(&stage).await;
    assert_eq!(stage.scene.leave(&worker).await, 40);
    assert_eq!(stage.drain().await, sorted(good));
}
