//! Timeouts, deadlines and cancels of runs.

#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use windlass_core::store::Changed;
use windlass_core::{Clock, State};
use windlass_engine::{Configure, Context, Options, Outcome, cancelled};
use windlass_testkit::fleet::{Do, Fleet, check_ended, pass};

const SECOND: Duration = Duration::from_secs(1);

/// Tells when it is dropped.
struct Dropped(mpsc::UnboundedSender<Instant>);

impl Drop for Dropped {
    fn drop(&mut self) {
        let _ = self.0.send(Instant::now());
    }
}

#[tokio::test(start_paused = true)]
async fn an_async_run_is_dropped_at_its_timeout() {
    let fleet = Fleet::new();
    let (tell, mut dropped) = mpsc::unbounded_channel();
    let handle = move |_: Do, _: Context<()>| {
        let guard = Dropped(tell.clone());
        async move {
            let _guard = guard;
            std::future::pending::<()>().await;
            Ok(0)
        }
    };
    let worker = fleet.worker().handle(handle).start().await.unwrap();
    let began = Instant::now();
    let task = fleet.submit_with(1, Options::new().timeout(SECOND * 40).max_retries(0)).await;
    assert_eq!(dropped.recv().await.unwrap() - began, SECOND * 40);
    let record = fleet.ended(task.id()).await;
    check_ended(&record, State::DeadLetter, 1, 0);
    assert_eq!(record.history.last_error(), Some("ran longer than its timeout of 40s"));
    worker.stop().await.unwrap();
}

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "as planned");
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_panics_when_it_is_dropped_is_reported_as_failed() {
    let fleet = Fleet::new();
    let handle = move |_: Do, _: Context<()>| async move {
        let _bomb = Bomb;
        std::future::pending::<()>().await;
        Ok(0)
    };
    let worker = fleet.worker().handle(handle).concurrency(1).start().await.unwrap();
    let options = || Options::new().timeout(SECOND).max_retries(0);
    for number in 0..2 {
        let task = fleet.submit_with(number, options()).await;
        let record = fleet.ended(task.id()).await;
        check_ended(&record, State::DeadLetter, 1, 0);
        assert_eq!(record.history.last_error(), Some("panicked: as planned"));
    }
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_blocking_handler_past_its_timeout_keeps_its_slot_and_its_late_result_is_dropped() {
    let fleet = Fleet::new();
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = std::sync::Mutex::new(blocked);
    let runs = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&runs);
    let handle = move |task: Do, _: Context<()>| -> Outcome<u64> {
        seen.fetch_add(1, Ordering::SeqCst);
        if task.0 == 1 {
            blocked.lock().unwrap().recv().unwrap();
        }
        Ok(task.0)
    };
    let worker = fleet.worker().handle_blocking(handle).start().await.unwrap();
    let stuck = fleet.submit_with(1, Options::new().timeout(SECOND * 10).max_retries(0)).await;
    let next = fleet.submit(2).await;
    pass(SECOND * 30).await;
    let record = fleet.record(stuck.id()).await;
    check_ended(&record, State::DeadLetter, 1, 0);
    assert_eq!(fleet.record(next.id()).await.state, State::Pending, "the only slot is taken");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert_eq!(fleet.alive().await[0].card.slots_used, 1, "and counted as such");
    release.send(()).unwrap();
    assert_eq!(next.wait().await.unwrap(), 2);
    check_ended(&fleet.record(stuck.id()).await, State::DeadLetter, 1, 0);
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_task_not_started_by_its_deadline_is_dead_and_its_attempt_is_given_back() {
    let fleet = Fleet::new();
    let worker = fleet
        .worker()
        .handle(|_: Do, _: Context<()>| async { panic!("it must not run") })
        .start()
        .await
        .unwrap();
    let deadline = fleet.clock.now();
    let task = fleet.submit_with(1, Options::new().deadline(deadline)).await;
    let record = fleet.ended(task.id()).await;
    check_ended(&record, State::DeadLetter, 0, 0);
    assert_eq!(record.history.last_error(), Some("deadline passed"));
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_run_is_stopped_at_its_deadline() {
    let fleet = Fleet::new();
    let (tell, mut dropped) = mpsc::unbounded_channel();
    let handle = move |_: Do, _: Context<()>| {
        let guard = Dropped(tell.clone());
        async move {
            let _guard = guard;
            std::future::pending::<()>().await;
            Ok(0)
        }
    };
    let worker = fleet.worker().handle(handle).start().await.unwrap();
    let began = Instant::now();
    let deadline = fleet.clock.now().after(SECOND * 25);
    let task = fleet.submit_with(1, Options::new().deadline(deadline)).await;
    let stopped_after = dropped.recv().await.unwrap() - began;
    assert!(stopped_after.abs_diff(SECOND * 25) <= SECOND / 500, "{stopped_after:?}");
    check_ended(&fleet.ended(task.id()).await, State::DeadLetter, 1, 0);
    worker.stop().await.unwrap();
}

/// Cancels a running task; answers how long after that its handler heard of it, and its record.
async fn cancel_a_run(outcome: fn() -> Outcome<u64>) -> (Duration, windlass_core::TaskRecord) {
    let fleet = Fleet::new();
    let (started, heard) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let signals = (Arc::clone(&started), Arc::clone(&heard));
    let handle = move |_: Do, cx: Context<()>| {
        let (started, heard) = signals.clone();
        async move {
            started.notify_one();
            cx.cancelled().await;
            heard.notify_one();
            outcome()
        }
    };
    let worker = fleet.worker().handle(handle).start().await.unwrap();
    let task = fleet.submit(1).await;
    started.notified().await;
    assert_eq!(task.cancel().await.unwrap(), Changed::Requested);
    let asked = Instant::now();
    heard.notified().await;
    let passed = asked.elapsed();
    let record = fleet.ended(task.id()).await;
    worker.stop().await.unwrap();
    (passed, record)
}

#[tokio::test(start_paused = true)]
async fn a_cancel_reaches_the_handler_within_a_heartbeat_and_the_task_ends_cancelled() {
    let failures: [fn() -> Outcome<u64>; 3] =
        [|| Err(cancelled()), || Err("gave up".into()), || panic!("in alarm")];
    for outcome in failures {
        let (passed, record) = cancel_a_run(outcome).await;
        assert!(passed <= SECOND * 5, "{passed:?}");
        assert_eq!(record.state, State::Cancelled, "{record:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancel_is_pushed_and_does_not_wait_for_the_next_heartbeat() {
    let (passed, _) = cancel_a_run(|| Err(cancelled())).await;
    assert!(passed < SECOND / 10, "{passed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_success_under_cancel_ends_completed() {
    let (_, record) = cancel_a_run(|| Ok(1)).await;
    check_ended(&record, State::Completed, 1, 0);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_ignores_its_cancel_ends_cancelled_at_its_timeout() {
    let fleet = Fleet::new();
    let started = Arc::new(Notify::new());
    let signal = Arc::clone(&started);
    let handle = move |_: Do, _: Context<()>| {
        signal.notify_one();
        std::future::pending()
    };
    let worker = fleet.worker().handle(handle).start().await.unwrap();
    let task = fleet.submit_with(1, Options::new().timeout(SECOND * 60)).await;
    started.notified().await;
    task.cancel().await.unwrap();
    check_ended(&fleet.ended(task.id()).await, State::Cancelled, 1, 0);
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_task_cancelled_before_its_start_never_starts() {
    let fleet = Fleet::new();
    let has_run = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&has_run);
    let handle = move |_: Do, _: Context<()>| {
        seen.store(true, Ordering::SeqCst);
        async { Ok(0) }
    };
    let task = fleet.submit(1).await;
    assert_eq!(task.cancel().await.unwrap(), Changed::Done(Some(State::Cancelled)));
    let worker = fleet.worker().handle(handle).start().await.unwrap();
    tokio::time::sleep(SECOND * 30).await;
    assert!(!has_run.load(Ordering::SeqCst));
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_claimed_task_whose_cancel_is_known_before_its_start_does_not_start() {
    let fleet = Fleet::with("[worker]\nheartbeat = \"200ms\"");
    let starts = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&starts);
    let handle = move |task: Do, _: Context<()>| {
        seen.fetch_add(1, Ordering::SeqCst);
        async move {
            // The second run blocks the slot while the third is fetched ahead.
            tokio::time::sleep(SECOND * u32::from(task.0 == 1) * 7 / 10).await;
            Ok(0)
        }
    };
    let ids = fleet.submit_all(3).await;
    let worker = fleet.worker().handle(handle).start().await.unwrap();
    tokio::time::sleep(SECOND / 10).await;
    assert_eq!(fleet.count(State::Running).await, 2, "one runs, one waits");
    assert_eq!(fleet.client.cancel(&ids[2]).await.unwrap(), Changed::Requested);
    let record = fleet.ended(&ids[2]).await;
    check_ended(&record, State::Cancelled, 0, 0);
    assert_eq!(starts.load(Ordering::SeqCst), 2);
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_jump_of_the_wall_clock_kills_no_task_that_has_a_deadline() {
    let fleet = Fleet::new();
    let ahead = Arc::new(windlass_testkit::TokioClock::new());
    let handle = |task: Do, _: Context<()>| async move { Ok(task.0) };
    // Only this machine's clock jumps; the store's goes on.
    let worker =
        fleet.client.worker().driven_by(ahead.clone()).handle(handle).start().await.unwrap();
    let deadline = fleet.clock.now().after(SECOND * 600);
    ahead.jump(SECOND * 3_600);
    let task = fleet.submit_with(1, Options::new().deadline(deadline)).await;
    check_ended(&fleet.ended(task.id()).await, State::Completed, 1, 0);
    worker.stop().await.unwrap();
}
