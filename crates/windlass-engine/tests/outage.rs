//! The store away, and replies lost: nothing is counted, nothing is lost, nothing happens twice.

#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use windlass_core::{ErrorKind, QueueName, State, TaskId};
use windlass_engine::{Configure, Context, Options, Worker};
use windlass_testkit::fleet::{Do, Fleet, Seat, check_ended};
use windlass_testkit::{Faults, Method};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_store_away_for_a_minute_under_load_costs_no_attempt_and_no_crash() {
    let fleet = Fleet::new();
    let seats = [fleet.seat(), fleet.seat()];
    let handle = |task: Do, _: Context<()>| async move {
        tokio::time::sleep(Duration::from_millis(100 + task.0 * 7 % 400)).await;
        Ok(task.0)
    };
    let ids = fleet.submit_all(1_000).await;
    let mut workers = Vec::new();
    for seat in &seats {
        workers.push(seat.worker().handle(handle).concurrency(5).start().await.unwrap());
    }
    tokio::time::sleep(SECOND * 20).await;
    seats.iter().for_each(|seat| seat.faults.go_away());
    tokio::time::sleep(SECOND * 60).await;
    let left = 1_000 - fleet.count(State::Completed).await;
    assert!((100..900).contains(&left), "it was under load, {left} left");
    seats.iter().for_each(|seat| seat.faults.come_back());
    let back = Instant::now();
    for record in fleet.all_ended(&ids).await {
        check_ended(&record, State::Completed, 1, 0);
    }
    assert!(back.elapsed() < SECOND * 60, "{:?}", back.elapsed());
    assert_eq!(fleet.store.workers().await.unwrap().len(), 2, "nobody was declared lost");
    for worker in workers {
        worker.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn while_endings_cannot_be_stored_nothing_more_is_claimed() {
    let fleet = Fleet::new();
    let seat = fleet.seat();
    let handle = |task: Do, _: Context<()>| async move { Ok(task.0) };
    let ids = fleet.submit_all(1_000).await;
    seat.faults.fail(Method::Apply, 40, ErrorKind::Unavailable);
    let worker = seat.worker().handle(handle).concurrency(4).start().await.unwrap();
    tokio::time::sleep(SECOND * 5).await;
    assert!(seat.faults.is_planned(Method::Apply), "it still fails");
    let running = fleet.count(State::Running).await;
    assert!(running <= 4 + 16 + 4, "{running} are held by a worker with 4 slots");
    for record in fleet.all_ended(&ids).await {
        check_ended(&record, State::Completed, 1, 0);
    }
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn endings_of_a_queue_that_cannot_be_used_wait_and_hold_up_nothing() {
    let (fleet, damaged) = (Fleet::new(), QueueName::new("damaged").unwrap());
    let seat = fleet.seat();
    let runs = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&runs);
    let handle = move |task: Do, _: Context<()>| {
        counted.fetch_add(1, Ordering::Relaxed);
        async move { Ok(task.0) }
    };
    let in_damaged = || Options::new().queue("damaged");
    let mut waiting = Vec::new();
    for number in 0..100 {
        waiting.push(fleet.submit_with(number, in_damaged()).await.id().clone());
    }
    seat.faults.damage(&damaged);
    let worker = seat.worker().queue("damaged", 1).queue("default", 1).handle(handle);
    let worker = worker.concurrency(4).start().await.unwrap();
    let sound = fleet.submit_all(1_000).await;
    for record in fleet.all_ended(&sound).await {
        check_ended(&record, State::Completed, 1, 0);
    }
    let held = fleet.count(State::Running).await;
    assert!((1..=4 + 16 + 4).contains(&held), "{held} are held by a worker with 4 slots");
    tokio::time::sleep(SECOND * 300).await;
    assert_eq!(fleet.count(State::Running).await, held, "no ending is lost, no task given back");
    seat.faults.undo_damage(&damaged);
    for record in fleet.all_ended(&waiting).await {
        check_ended(&record, State::Completed, 1, 0);
    }
    assert_eq!(runs.load(Ordering::Relaxed), 1_100, "each task has run once");
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_worker_with_endings_that_cannot_be_recorded_stops() {
    let (fleet, queue) = (Fleet::new(), QueueName::new("default").unwrap());
    let seat = fleet.seat();
    let handle = |task: Do, _: Context<()>| async move { Ok(task.0) };
    seat.faults.damage(&queue);
    let worker = seat.worker().handle(handle).start().await.unwrap();
    let task = fleet.submit(1).await;
    seat.faults.called(Method::Apply).await;
    worker.stop().await.unwrap();
    assert_eq!(fleet.record(task.id()).await.state, State::Pending, "it was given back");
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_reply_was_lost_comes_back_within_twenty_seconds() {
    for phase in 0..10 {
        let fleet = Fleet::new();
        let seat = fleet.seat();
        let handle = |task: Do, _: Context<()>| async move { Ok(task.0) };
        let worker = seat.worker().handle(handle).concurrency(4).start().await.unwrap();
        tokio::time::sleep(SECOND / 2 * phase).await;
        seat.faults.lose_reply(Method::Claim);
        let ids = fleet.submit_all(4).await;
        let lost = Instant::now();
        for record in fleet.all_ended(&ids).await {
            check_ended(&record, State::Completed, 1, 0);
        }
        assert!(lost.elapsed() <= SECOND * 20, "{:?}", lost.elapsed());
        assert!(!seat.faults.is_planned(Method::Claim), "the reply was lost");
        worker.stop().await.unwrap();
    }
}

/// A worker whose third end of a run travels with a claim, and tasks for it: the claim of its processor has no
/// answer until [`Method::Claim`] is released.
async fn claims_behind_an_apply(fleet: &Fleet, seat: &Seat, phase: u32) -> (Worker, Vec<TaskId>) {
    let handle = |task: Do, _: Context<()>| async move {
        tokio::time::sleep(SECOND + Duration::from_millis(task.0)).await;
        Ok(task.0)
    };
    let worker = seat.worker().handle(handle).concurrency(4).start().await.unwrap();
    tokio::time::sleep(SECOND / 2 * phase).await;
    let mut ids = fleet.submit_all(4).await;
    tokio::time::sleep(SECOND / 2).await;
    assert_eq!(fleet.count(State::Running).await, 4);
    seat.faults.hold(Method::Claim);
    ids.extend(fleet.submit_all(4).await);
    (worker, ids)
}

/// Loses the claim behind an apply as `lose` says; every task must have ended 20 s later.
async fn check_lost_claim(lose: impl Fn(&Faults)) {
    for phase in 0..10 {
        let fleet = Fleet::new();
        let seat = fleet.seat();
        let (worker, ids) = claims_behind_an_apply(&fleet, &seat, phase).await;
        lose(&seat.faults);
        tokio::time::sleep(SECOND).await;
        assert!(seat.faults.were_claims_spoiled() && !seat.faults.is_planned(Method::Apply));
        assert!(fleet.count(State::Running).await > 0, "they are leased, and nobody knows");
        let lost = Instant::now();
        seat.faults.release(Method::Claim);
        for record in fleet.all_ended(&ids).await {
            check_ended(&record, State::Completed, 1, 0);
        }
        assert!(lost.elapsed() <= SECOND * 20, "{:?}", lost.elapsed());
        worker.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_lost_behind_an_apply_comes_back_within_twenty_seconds() {
    for kind in [ErrorKind::Unavailable, ErrorKind::Corrupt, ErrorKind::Invalid] {
        check_lost_claim(|faults| faults.lose_claim(kind)).await;
        check_lost_claim(|faults| {
            faults.pass_one(Method::Apply);
            faults.pass_one(Method::Apply);
            faults.lose_reply_as(Method::Apply, kind);
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_cut_short_comes_back_within_twenty_seconds() {
    check_lost_claim(|faults| faults.cut_claim_short(1)).await;
    check_lost_claim(|faults| faults.cut_claim_short(0)).await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_behind_an_apply_that_hangs_leaves_no_task_leased() {
    let fleet = Fleet::new();
    let (seat, other) = (fleet.seat(), fleet.seat());
    let (worker, ids) = claims_behind_an_apply(&fleet, &seat, 0).await;
    seat.faults.called_again(Method::Apply, 2).await;
    tokio::task::yield_now().await;
    seat.faults.hold_replies(Method::Apply);
    tokio::time::sleep(SECOND).await;
    assert!(fleet.count(State::Running).await > 0, "they are leased, and nobody knows");
    let handle = |task: Do, _: Context<()>| async move { Ok(task.0) };
    let second = other.worker().handle(handle).start().await.unwrap();
    let since = Instant::now();
    // The last of the first four has ended, too, but its end waits behind the apply that hangs.
    for record in fleet.all_ended(&ids[4..]).await {
        check_ended(&record, State::Completed, 1, 0);
    }
    assert!(since.elapsed() <= SECOND * 25, "{:?}", since.elapsed());
    seat.faults.release(Method::Apply);
    seat.faults.release(Method::Claim);
    worker.stop().await.unwrap();
    second.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_reply_was_lost_at_the_start_of_an_outage_comes_back_soon_after_it() {
    let fleet = Fleet::new();
    let seat = fleet.seat();
    let handle = |task: Do, _: Context<()>| async move { Ok(task.0) };
    let worker = seat.worker().handle(handle).concurrency(4).start().await.unwrap();
    tokio::time::sleep(SECOND * 2).await;
    seat.faults.hold_replies(Method::Claim);
    let ids = fleet.submit_all(4).await;
    tokio::time::sleep(SECOND).await;
    assert_eq!(fleet.count(State::Running).await, 4);
    seat.faults.go_away();
    seat.faults.release(Method::Claim);
    tokio::time::sleep(SECOND * 63).await;
    seat.faults.come_back();
    let back = Instant::now();
    for record in fleet.all_ended(&ids).await {
        check_ended(&record, State::Completed, 1, 0);
    }
    assert!(back.elapsed() <= SECOND * 20, "{:?}", back.elapsed());
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_claim_answered_later_than_its_tasks_may_have_gone_back_runs_nothing_twice() {
    let fleet = Fleet::new();
    let (slow, other) = (fleet.seat(), fleet.seat());
    let starts = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&starts);
    let handle = move |task: Do, _: Context<()>| {
        seen.fetch_add(1, Ordering::SeqCst);
        async move {
            tokio::time::sleep(SECOND * 30).await;
            Ok(task.0)
        }
    };
    let worker = slow.worker().handle(handle.clone()).start().await.unwrap();
    slow.faults.hold_replies(Method::Claim);
    let task = fleet.submit(1).await;
    tokio::time::sleep(SECOND).await;
    assert_eq!(fleet.count(State::Running).await, 1);
    let second = other.worker().handle(handle).start().await.unwrap();
    // The worker's own beats give the unknown task back; the other takes it.
    tokio::time::sleep(SECOND * 20).await;
    assert_eq!(starts.load(Ordering::SeqCst), 1, "the other runs it");
    slow.faults.release(Method::Claim);
    check_ended(&fleet.ended(task.id()).await, State::Completed, 1, 0);
    assert_eq!(starts.load(Ordering::SeqCst), 1, "the late answer starts nothing");
    worker.stop().await.unwrap();
    second.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_completion_whose_reply_was_lost_is_done_once() {
    let fleet = Fleet::new();
    let seat = fleet.seat();
    let runs = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&runs);
    let handle = move |task: Do, _: Context<()>| {
        seen.fetch_add(1, Ordering::SeqCst);
        async move { Ok(task.0) }
    };
    let worker = seat.worker().handle(handle).start().await.unwrap();
    seat.faults.lose_reply(Method::Apply);
    let task = fleet.submit(1).await;
    check_ended(&fleet.ended(task.id()).await, State::Completed, 1, 0);
    tokio::time::sleep(SECOND * 120).await;
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert!(seat.faults.calls(Method::Apply) >= 2, "it was repeated");
    check_ended(&fleet.record(task.id()).await, State::Completed, 1, 0);
    let metrics = seat.client.metrics().text().await;
    assert!(metrics.contains("completed_total{status=\"completed\",type=\"do\"} 1\n"), "{metrics}");
    assert!(metrics.contains("duration_seconds_count{type=\"do\"} 1\n"), "{metrics}");
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_submit_whose_reply_was_lost_makes_one_task() {
    let fleet = Fleet::new();
    let seat = fleet.seat();
    seat.faults.lose_reply(Method::Insert);
    let task = seat.client.enqueue(Do(1)).await.unwrap();
    assert!(task.is_new());
    let all = fleet.all().await;
    assert_eq!(all.iter().map(|record| &record.id).collect::<Vec<_>>(), [task.id()]);
    let metrics = seat.client.metrics().text().await;
    assert!(metrics.contains("submitted_total{priority=\"normal\",type=\"do\"} 1\n"), "{metrics}");
}

#[tokio::test(start_paused = true)]
async fn a_submit_to_a_store_that_stays_away_is_an_error() {
    let seat = Fleet::new().seat();
    seat.faults.go_away();
    let error = seat.client.enqueue(Do(1)).await.unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_refused_submit_with_a_key_makes_no_plain_task_of_its_batch_twice() {
    let fleet = Fleet::new();
    let seat = fleet.seat();
    // Hold the batcher up, so that the next two share a flush.
    seat.faults.hold(Method::Insert);
    let first = tokio::spawn(seat.client.enqueue(Do(0)).into_future());
    tokio::time::sleep(SECOND).await;
    let plain = tokio::spawn(seat.client.enqueue(Do(1)).into_future());
    let keyed = tokio::spawn(seat.client.enqueue(Do(2)).unique("key").into_future());
    tokio::time::sleep(SECOND).await;
    // The first and the plain one go well; then the keyed one fails for a reason of its own.
    seat.faults.pass_one(Method::Insert);
    seat.faults.pass_one(Method::Insert);
    seat.faults.fail(Method::Insert, 1, ErrorKind::Corrupt);
    seat.faults.release(Method::Insert);
    first.await.unwrap().unwrap();
    let accepted = [plain.await.unwrap(), keyed.await.unwrap()].iter().flatten().count();
    assert_eq!(fleet.all().await.len(), 1 + accepted, "each that was accepted is there once");
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_was_stored_in_part_and_failed_is_stored_once() {
    let fleet = Fleet::new();
    let seat = fleet.seat();
    seat.faults.store_part(60, ErrorKind::Corrupt);
    seat.faults.store_part(50, ErrorKind::Invalid);
    seat.faults.store_part(10, ErrorKind::Corrupt);
    let handles = seat.client.enqueue_all((0..100).map(Do)).await.unwrap();
    let mut ids: Vec<_> = handles.into_iter().map(|handle| handle.unwrap().id().clone()).collect();
    let mut stored: Vec<_> = fleet.all().await.into_iter().map(|record| record.id).collect();
    ids.sort_unstable();
    stored.sort_unstable();
    assert_eq!(stored, ids, "each task is stored once, under the id that was answered");
    assert_eq!(seat.faults.calls(Method::Reserve), 1, "ids are drawn once");
}

#[tokio::test(start_paused = true)]
async fn an_ending_that_the_store_refuses_hurts_no_other() {
    let fleet = Fleet::new();
    let seat = fleet.seat();
    let runs = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&runs);
    let handle = move |task: Do, _: Context<()>| {
        seen.fetch_add(1, Ordering::SeqCst);
        async move {
            tokio::time::sleep(SECOND).await;
            Ok(task.0)
        }
    };
    let ids = fleet.submit_all(10).await;
    let worker = seat.worker().handle(handle).concurrency(10).start().await.unwrap();
    // The batch is refused as a whole; then, each alone, the store is away for a moment.
    seat.faults.fail(Method::Apply, 1, ErrorKind::Corrupt);
    seat.faults.fail(Method::Apply, 2, ErrorKind::Unavailable);
    for record in fleet.all_ended(&ids).await {
        check_ended(&record, State::Completed, 1, 0);
    }
    assert_eq!(runs.load(Ordering::SeqCst), 10, "none had to run again");
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_task_waits_for_the_store_too() {
    let fleet = Fleet::new();
    let seat = fleet.seat();
    let task = seat.client.enqueue(Do(7)).await.unwrap();
    let waiting = tokio::spawn(async move { task.wait().await });
    tokio::time::sleep(SECOND).await;
    seat.faults.go_away();
    let handle = |task: Do, _: Context<()>| async move { Ok(task.0) };
    let worker = fleet.worker().handle(handle).start().await.unwrap();
    tokio::time::sleep(SECOND * 60).await;
    let calls = seat.faults.calls_in_all();
    assert!((100..700).contains(&calls), "it pauses between its tries: {calls}");
    assert!(!waiting.is_finished());
    // The wait is answered, and what it is answered with cannot be read at first.
    seat.faults.fail(Method::Get, 3, ErrorKind::Unavailable);
    seat.faults.come_back();
    assert_eq!(waiting.await.unwrap().unwrap(), 7);
    assert!(!seat.faults.is_planned(Method::Get));
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_task_hears_of_an_error_that_will_not_pass() {
    let fleet = Fleet::new();
    let seat = fleet.seat();
    let task = seat.client.enqueue(Do(7)).await.unwrap();
    seat.faults.fail(Method::Wait, 1, ErrorKind::Corrupt);
    assert_eq!(task.wait().await.unwrap_err().kind(), ErrorKind::Corrupt);
}
