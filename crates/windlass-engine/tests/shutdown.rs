//! The graceful end of a worker: what runs may finish, the rest goes back, no attempt is spent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use windlass_core::State;
use windlass_engine::Context;
use windlass_testkit::Method;
use windlass_testkit::fleet::{Do, Fleet, check_ended};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_stopping_worker_claims_no_more_and_finishes_what_runs() {
    let fleet = Fleet::new();
    let seat = fleet.seat();
    let handle = |task: Do, _: Context<()>| async move {
        tokio::time::sleep(SECOND * 20).await;
        Ok(task.0)
    };
    let ids = fleet.submit_all(10).await;
    let worker = seat.worker().handle(handle).concurrency(4).start().await.unwrap();
    tokio::time::sleep(SECOND * 5).await;
    let claims = seat.faults.calls(Method::Claim);
    let asked = Instant::now();
    worker.stop().await.unwrap();
    assert_eq!(asked.elapsed(), SECOND * 15);
    assert_eq!(seat.faults.calls(Method::Claim), claims);
    for (number, id) in ids.iter().enumerate() {
        let record = fleet.record(id).await;
        let (state, attempts) =
            if number < 4 { (State::Completed, 1) } else { (State::Pending, 0) };
        assert_eq!((record.state, record.attempts, record.crashes), (state, attempts, 0));
    }
    assert!(fleet.alive().await.is_empty(), "it has left");
}

#[tokio::test(start_paused = true)]
async fn at_the_shutdown_timeout_runs_are_stopped_and_given_back() {
    let fleet = Fleet::new();
    let fired = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&fired);
    let handle = move |_: Do, cx: Context<()>| {
        let fired = Arc::clone(&seen);
        async move {
            cx.cancelled().await;
            fired.fetch_add(1, Ordering::SeqCst);
            std::future::pending().await
        }
    };
    let ids = fleet.submit_all(4).await;
    let worker = fleet.worker().handle(handle).concurrency(4).start().await.unwrap();
    tokio::time::sleep(SECOND).await;
    let asked = Instant::now();
    worker.stop().await.unwrap();
    assert_eq!(asked.elapsed(), SECOND * 25);
    for id in &ids {
        let record = fleet.record(id).await;
        assert_eq!((record.state, record.attempts, record.crashes), (State::Pending, 0, 0));
    }
    assert_eq!(fired.load(Ordering::SeqCst), 4, "their tokens have fired");
}

#[tokio::test(start_paused = true)]
async fn a_worker_stopped_under_load_loses_nothing_and_spends_no_attempt() {
    let fleet = Fleet::new();
    let runs = Arc::new(AtomicU64::new(0));
    let ids = fleet.submit_all(4_000).await;
    for round in 0..20 {
        let seen = Arc::clone(&runs);
        let handle = move |task: Do, _: Context<()>| {
            seen.fetch_add(1, Ordering::SeqCst);
            async move {
                tokio::time::sleep(Duration::from_millis(task.0 % 13)).await;
                Ok(task.0)
            }
        };
        let worker = fleet.worker().handle(handle).concurrency(8).start().await.unwrap();
        tokio::time::sleep(Duration::from_millis(40 + round * 7)).await;
        worker.stop().await.unwrap();
        assert_eq!(fleet.count(State::Running).await, 0);
    }
    assert!(fleet.count(State::Pending).await > 0, "it was under load");
    let handle = |task: Do, _: Context<()>| async move { Ok(task.0) };
    let before = runs.load(Ordering::SeqCst);
    assert_eq!(before, fleet.count(State::Completed).await, "each run was a completion");
    let worker = fleet.worker().handle(handle).concurrency(8).start().await.unwrap();
    for record in fleet.all_ended(&ids).await {
        check_ended(&record, State::Completed, 1, 0);
    }
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_stopped_while_the_store_is_away_ends_all_the_same() {
    let fleet = Fleet::new();
    let seat = fleet.seat();
    let handle = |task: Do, _: Context<()>| async move {
        tokio::time::sleep(SECOND * 3).await;
        Ok(task.0)
    };
    let worker = seat.worker().handle(handle).start().await.unwrap();
    let task = fleet.submit(1).await;
    tokio::time::sleep(SECOND).await;
    seat.faults.go_away();
    let asked = Instant::now();
    let stopped = tokio::time::timeout(SECOND * 60, worker.stop()).await.expect("it ends");
    assert!(stopped.unwrap_err().is_unavailable(), "and says that it could not leave");
    assert!(asked.elapsed() <= SECOND * 20, "{:?}", asked.elapsed());
    assert_eq!(fleet.record(task.id()).await.crashes, 0);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_dropped_stops() {
    let fleet = Fleet::new();
    let handle = |task: Do, _: Context<()>| async move {
        tokio::time::sleep(SECOND * 3).await;
        Ok(task.0)
    };
    let worker = fleet.worker().handle(handle).start().await.unwrap();
    let running = fleet.submit(1).await;
    tokio::time::sleep(SECOND).await;
    drop(worker);
    check_ended(&fleet.ended(running.id()).await, State::Completed, 1, 0);
    let next = fleet.submit(2).await;
    tokio::time::sleep(SECOND * 60).await;
    assert_eq!(fleet.record(next.id()).await.state, State::Pending);
    assert!(fleet.alive().await.is_empty());
}
