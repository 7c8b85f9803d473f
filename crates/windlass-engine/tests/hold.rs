//! A handler that holds its run: the end is reported, and the slot is free, when the hold is dropped.

use std::time::Duration;

use tokio::sync::mpsc;
use windlass_core::State;
use windlass_engine::{Configure, Context, Options, Outcome, RunHold};
use windlass_testkit::Method;
use windlass_testkit::fleet::{Do, Fleet, pass};

const SECOND: Duration = Duration::from_secs(1);

/// A handler that never ends by itself and hands its hold to the test.
fn holding(holds: mpsc::UnboundedSender<RunHold>) -> impl windlass_engine::Handler<Do, ()> {
    move |_: Do, cx: Context<()>| {
        let _ = holds.send(cx.hold());
        std::future::pending::<Outcome<u64>>()
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_over_its_timeout_is_reported_when_its_hold_is_dropped() {
    let fleet = Fleet::new();
    let (send, mut holds) = mpsc::unbounded_channel();
    let worker = fleet.worker().handle(holding(send)).concurrency(1).start().await.unwrap();
    let options = Options::new().max_retries(0).timeout(SECOND);
    let task = fleet.submit_with(1, options).await;
    let hold = holds.recv().await.unwrap();
    let _next = fleet.submit(2).await;
    // Much longer than a lease, which is renewed meanwhile.
    pass(SECOND * 60).await;
    assert_eq!(fleet.record(task.id()).await.state, State::Running);
    assert_eq!(hold.lease_end(), None);
    assert!(holds.try_recv().is_err(), "its slot is taken");
    drop(hold);
    assert_eq!(fleet.ended(task.id()).await.state, State::DeadLetter);
    let next = holds.recv().await.unwrap();
    drop(next);
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_hold_knows_before_the_end_of_its_lease_that_it_is_lost() {
    let fleet = Fleet::new();
    let seat = fleet.seat();
    let (send, mut holds) = mpsc::unbounded_channel();
    let worker = seat.worker().handle(holding(send)).start().await.unwrap();
    fleet.submit(1).await;
    let hold = holds.recv().await.unwrap();
    pass(SECOND * 7).await;
    seat.faults.hold(Method::Beat);
    let lease_until = fleet.alive().await[0].lease_until;
    let lease_end = loop {
        pass(SECOND / 10).await;
        if let Some(end) = hold.lease_end() {
            break end;
        }
    };
    let now = windlass_core::Clock::now(&*fleet.clock);
    assert!(now < lease_until, "the lease is still held");
    let left = lease_end.saturating_duration_since(tokio::time::Instant::now());
    assert!(left > SECOND && left <= lease_until.since(now), "{left:?}");
    drop(hold);
    seat.faults.release(Method::Beat);
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_stops_waits_for_holds_and_keeps_the_lease() {
    let fleet = Fleet::with("[worker]\nshutdown_timeout = \"1s\"");
    let (send, mut holds) = mpsc::unbounded_channel();
    let worker = fleet.worker().handle(holding(send)).start().await.unwrap();
    let task = fleet.submit(1).await;
    let hold = holds.recv().await.unwrap();
    let stopped = tokio::spawn(worker.stop());
    pass(SECOND * 60).await;
    assert!(!stopped.is_finished());
    assert_eq!((hold.lease_end(), fleet.record(task.id()).await.state), (None, State::Running));
    drop(hold);
    stopped.await.unwrap().unwrap();
    assert_eq!(fleet.record(task.id()).await.state, State::Pending);
}
