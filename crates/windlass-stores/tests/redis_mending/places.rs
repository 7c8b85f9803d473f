//! Places without their task, and tasks without their place.

use windlass_core::State;
use windlass_core::store::{Beat, Filter, Inserted, ProgressReport};
use windlass_testkit::draft::{draft, held_for, until_finished};
use windlass_testkit::scene::{HOUR, SECOND};

use crate::stage::{Stage, sorted};

#[tokio::test]
async fn a_scheduled_task_that_nobody_would_promote_runs_in_time() {
    for state in [State::Scheduled, State::Retrying] {
        let stage = Stage::new().await;
        let id = match state {
            State::Scheduled => stage.scene.submit(draft().after(SECOND * 10)).await,
            _ => stage.scene.bring(draft(), state).await,
        };
        stage.delete_key("z").await;
        stage.mend().await;
        assert_eq!(stage.scene.promote().await.done, 0, "not before its time");
        stage.scene.advance(SECOND * 10);
        assert_eq!(stage.scene.promote().await.done, 1);
        assert_eq!(stage.drain().await, [id]);
        stage.scene.books_balance("after a drain").await;
    }
}

#[tokio::test]
async fn places_of_tasks_that_are_gone_are_cleared() {
    for (state, place) in
        [(State::Scheduled, "z"), (State::Retrying, "z"), (State::DeadLetter, "dead")]
    {
        let stage = Stage::new().await;
        let id = stage.scene.bring(draft(), state).await;
        stage.delete_record(&id).await;
        stage.mend().await;
        let left: i64 = stage.run(&stage.on("ZCARD", place)).await;
        assert_eq!((left, stage.scene.count("main", state).await), (0, 0), "{state}");
    }
}

#[tokio::test]
async fn a_dead_letter_that_no_index_names_is_listed_again() {
    let stage = Stage::new().await;
    let id = stage.scene.bring(draft(), State::DeadLetter).await;
    stage.delete_key("dead").await;
    stage.mend().await;
    let filter = Filter { states: vec![State::DeadLetter], ..Filter::default() };
    let listed: Vec<_> = stage.scene.list(filter).await.into_iter().map(|task| task.id).collect();
    assert_eq!(listed, [id]);
}

/// A list of them costs what there is of them, however many other tasks there are.
#[tokio::test]
async fn dead_letters_are_listed_by_their_own_index() {
    let stage = Stage::new().await;
    let mut ids = vec![stage.scene.bring(draft(), State::DeadLetter).await];
    // More than are read at once, most of them submitted by one call.
    ids.extend(stage.scene.submit_many(700).await);
    let worker = stage.scene.worker().await;
    while let tasks = stage.scene.claim(&worker, 200).await
        && !tasks.is_empty()
    {
        let end = |task| stage.scene.transition(task, windlass_testkit::scene::discarded("no"));
        stage.scene.apply(&worker, tasks.iter().map(end).collect()).await;
    }
    stage.delete_key("j").await;
    let filter = Filter { states: vec![State::DeadLetter], ..Filter::default() };
    let listed = stage.scene.list(filter).await;
    assert!(listed.is_sorted_by(|one, other| one.created_at >= other.created_at));
    assert_eq!(sorted(listed.into_iter().map(|task| task.id).collect()), sorted(ids));
}

/// Without their list nobody would ever remove them.
#[tokio::test]
async fn finished_tasks_are_removed_in_time_though_their_list_is_gone() {
    for (name, is_repair) in [("k:3600000", false), ("ks", true)] {
        let stage = Stage::new().await;
        stage.scene.bring(draft(), State::Completed).await;
        stage.scene.bring(draft(), State::Cancelled).await;
        stage.delete_key(name).await;
        assert_eq!(stage.scene.tend().await.repaired > 0, is_repair, "{name}");
        stage.scene.advance(HOUR + HOUR / 10 + SECOND * 61);
        stage.scene.prune().await;
        stage.scene.tend().await;
        let left: i64 = stage.run(&stage.on("HLEN", "d")).await;
        assert_eq!(left, 0, "without {name}");
        stage.scene.books_balance("after they were removed").await;
    }
}

#[tokio::test]
async fn a_unique_key_whose_holder_is_gone_is_free_again() {
    let stage = Stage::new().await;
    let keyed = || draft().unique(until_finished("only one"));
    let id = stage.scene.submit(keyed()).await;
    stage.delete_record(&id).await;
    let (_, answer) = stage.scene.offer(keyed()).await;
    assert!(matches!(answer, Inserted::Conflict { .. }), "{answer:?}");
    stage.mend().await;
    let next = stage.scene.submit(keyed()).await;
    assert_eq!(stage.drain().await, [next]);
}

#[tokio::test]
async fn a_key_that_is_held_for_a_time_ends_though_nobody_knows_when() {
    let stage = Stage::new().await;
    stage.scene.submit(draft().unique(held_for("a while", SECOND * 10))).await;
    stage.delete_key("ut").await;
    stage.mend().await;
    stage.scene.advance(SECOND * 11);
    stage.scene.tend().await;
    let left: i64 = stage.run(&stage.on("EXISTS", "u")).await;
    assert_eq!(left, 0);
}

#[tokio::test]
async fn progress_of_a_task_that_is_gone_is_removed() {
    let stage = Stage::new().await;
    let run = stage.scene.start(draft()).await;
    let report = ProgressReport { lease: run.lease(), fraction: 0.5, note: "half".into() };
    let beat = Beat { progress: vec![report], ..stage.scene.sign(&run.worker) };
    stage.scene.store.beat(beat).await.unwrap();
    assert!(stage.scene.record(&run.id).await.progress.is_some());
    stage.delete_record(&run.id).await;
    stage.mend().await;
    let left: i64 = stage.run(&stage.on("EXISTS", "g")).await;
    assert_eq!(left, 0);
}

#[tokio::test]
async fn tasks_that_the_journal_has_lost_are_listed_again() {
    let stage = Stage::new().await;
    let mut ids = stage.scene.submit_many(3).await;
    ids.push(stage.scene.bring(draft().queue("main"), State::Cancelled).await);
    stage.delete_key("j").await;
    assert_eq!(stage.scene.list(Filter::default()).await, []);
    ids.push(stage.scene.submit(draft()).await);
    stage.mend().await;
    let listed = stage.scene.list(Filter::default()).await;
    assert_eq!(sorted(listed.into_iter().map(|task| task.id).collect()), sorted(ids));
}

#[tokio::test]
async fn a_large_payload_whose_task_is_gone_is_removed() {
    let stage = Stage::new().await;
    let id = stage.scene.submit(draft().payload(vec![b'x'; 5_000])).await;
    stage.delete_record(&id).await;
    stage.mend().await;
    let left: i64 = stage.run(&stage.on("EXISTS", "b")).await;
    assert_eq!(left, 0);
}

/// A task must not run without what it was submitted with.
#[tokio::test]
async fn a_task_whose_large_payload_is_gone_is_a_dead_letter() {
    let stage = Stage::new().await;
    let id = stage.scene.submit(draft().payload(vec![b'x'; 5_000])).await;
    assert_eq!(stage.payload(&id).await.unwrap().len(), 5_000);
    stage.delete_key("b").await;
    let worker = stage.scene.worker().await;
    assert_eq!(stage.scene.claim(&worker, 1).await, []);
    stage.scene.expect(&id, State::DeadLetter, "its payload is gone").await;
    stage.scene.books_balance("after a claim").await;
}
