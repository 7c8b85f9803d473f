//! A pause of a queue: what a worker has claimed of it and not started goes back.

#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use windlass_core::store::{Order, RunOrder};
use windlass_core::{QueueName, State, TaskId};
use windlass_engine::{Configure, Context, Handler, Options, Outcome};
use windlass_testkit::Method;
use windlass_testkit::fleet::{Do, Fleet, Seat, check_ended};

/// Far less than a task may wait before it is released without a pause.
const MOMENT: Duration = Duration::from_millis(10);
/// Less than the time between two heartbeats.
const SECOND: Duration = Duration::from_secs(1);
const SLOTS: usize = 2;
/// Tasks from this number on end when the test lets them.
const SLOW: u64 = 100;

async fn order(fleet: &Fleet, queue: &str, order: RunOrder) {
    let queue = QueueName::new(queue).unwrap();
    fleet.store.order(Order::Queue { queue, order }).await.unwrap();
}

/// How many tasks of a queue are in a state.
async fn count(fleet: &Fleet, name: &str, state: State) -> u64 {
    let queues = fleet.store.queues().await.unwrap();
    let queue = queues.iter().find(|queue| queue.name.as_str() == name).unwrap();
    queue.counts.get(state)
}

/// Slow tasks and how many of them have started.
#[derive(Clone)]
struct SlowTasks {
    may_end: Arc<Semaphore>,
    started: Arc<AtomicUsize>,
}

impl SlowTasks {
    fn new() -> Self {
        Self { may_end: Arc::new(Semaphore::new(0)), started: Arc::default() }
    }

    /// Quick tasks end at once, and let a worker fetch ahead.
    fn handler(&self) -> impl Handler<Do, ()> {
        let slow = self.clone();
        move |task: Do, _: Context<()>| {
            let slow = slow.clone();
            async move {
                if task.0 >= SLOW {
                    slow.started.fetch_add(1, Ordering::SeqCst);
                    slow.may_end.acquire().await.unwrap().forget();
                }
                Outcome::Ok(task.0)
            }
        }
    }

    fn started(&self) -> usize {
        self.started.load(Ordering::SeqCst)
    }

    fn let_end(&self, count: usize) {
        self.may_end.add_permits(count);
    }
}

/// Every task of the fleet has run once.
async fn check_all_ran(fleet: &Fleet, ids: &[TaskId]) {
    for record in fleet.all_ended(ids).await {
        check_ended(&record, State::Completed, 1, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn prefetched_tasks_of_a_paused_queue_are_released_at_once() {
    let (fleet, slow) = (Fleet::new(), SlowTasks::new());
    let ids = fleet.submit_all(SLOW + 40).await;
    let worker = fleet.worker().handle(slow.handler()).concurrency(SLOTS).start().await.unwrap();
    tokio::time::sleep(MOMENT).await;
    let claimed = fleet.count(State::Running).await;
    assert!(claimed > SLOTS as u64, "{claimed} claimed: nothing was fetched ahead");
    order(&fleet, "default", RunOrder::Pause).await;
    tokio::time::sleep(MOMENT).await;
    assert_eq!(fleet.count(State::Running).await, SLOTS as u64, "only what had started");
    let unstarted: Vec<_> =
        fleet.all().await.into_iter().filter(|r| !r.state.is_terminal()).collect();
    for record in unstarted.iter().filter(|record| record.state != State::Running) {
        check_ended(record, State::Pending, 0, 0);
    }
    slow.let_end(SLOTS);
    tokio::time::sleep(SECOND * 60).await;
    assert_eq!(slow.started(), SLOTS, "none starts while the queue is paused");
    slow.let_end(40);
    order(&fleet, "default", RunOrder::Run).await;
    check_all_ran(&fleet, &ids).await;
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn prefetched_tasks_of_other_queues_start_all_the_same() {
    let (fleet, slow) = (Fleet::new(), SlowTasks::new());
    let in_queue = |queue: &str| Options::new().queue(queue);
    let (mut paused, mut others) = (Vec::new(), Vec::new());
    for number in 0..SLOW + 20 {
        paused.push(fleet.submit_with(number, in_queue("paused")).await.id().clone());
        others.push(fleet.submit_with(number, in_queue("other")).await.id().clone());
    }
    let worker = fleet.worker().queue("paused", 1).queue("other", 1).handle(slow.handler());
    let worker = worker.concurrency(SLOTS).start().await.unwrap();
    tokio::time::sleep(MOMENT).await;
    let started = slow.started() as u64;
    let (of_paused, of_other) = (
        count(&fleet, "paused", State::Running).await,
        count(&fleet, "other", State::Running).await,
    );
    assert!(of_paused + of_other > started, "nothing was fetched ahead");
    order(&fleet, "paused", RunOrder::Pause).await;
    tokio::time::sleep(MOMENT).await;
    assert!(count(&fleet, "paused", State::Running).await <= started);
    assert!(count(&fleet, "other", State::Running).await >= of_other, "these keep their lease");
    slow.let_end(100);
    check_all_ran(&fleet, &others).await;
    let left = count(&fleet, "paused", State::Pending).await;
    assert!(left > 0, "the paused queue has tasks left");
    order(&fleet, "paused", RunOrder::Run).await;
    check_all_ran(&fleet, &paused).await;
    worker.stop().await.unwrap();
}

/// Pauses a queue; the worker has heard of it, from a heartbeat before its time, when this returns.
async fn pause_heard_by(fleet: &Fleet, seat: &Seat, queue: &str) {
    let beats = seat.faults.calls(Method::Beat);
    order(fleet, queue, RunOrder::Pause).await;
    tokio::time::sleep(MOMENT).await;
    assert_eq!(seat.faults.calls(Method::Beat), beats + 1, "the pause is pushed");
}

/// How a claim travels.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Travels {
    Alone,
    BehindReport,
}

/// A claim takes a task before its queue is paused, and is answered after the worker has heard of the pause.
async fn check_late_claim(travels: Travels) {
    let (fleet, slow) = (Fleet::new(), SlowTasks::new());
    let seat = fleet.seat();
    let first = fleet.submit(SLOW).await;
    let worker = seat.worker().handle(slow.handler()).concurrency(SLOTS).start().await.unwrap();
    tokio::time::sleep(MOMENT).await;
    assert_eq!(slow.started(), 1, "one slot is busy, the other one waits for work");
    let method = match travels {
        Travels::Alone => Method::Claim,
        Travels::BehindReport => Method::Apply,
    };
    seat.faults.hold_replies(method);
    if travels == Travels::BehindReport {
        seat.faults.hold(Method::Claim);
    }
    let second = fleet.submit(0).await;
    if travels == Travels::BehindReport {
        slow.let_end(1);
    }
    tokio::time::sleep(MOMENT).await;
    assert_eq!(fleet.record(second.id()).await.state, State::Running, "it is claimed");
    pause_heard_by(&fleet, &seat, "default").await;
    seat.faults.release(method);
    tokio::time::sleep(MOMENT).await;
    check_ended(&fleet.record(second.id()).await, State::Pending, 0, 0);
    seat.faults.release(Method::Claim);
    slow.let_end(1);
    order(&fleet, "default", RunOrder::Run).await;
    check_all_ran(&fleet, &[first.id().clone(), second.id().clone()]).await;
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_claim_answered_after_the_pause_starts_nothing() {
    check_late_claim(Travels::Alone).await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_behind_a_report_starts_nothing_after_the_pause() {
    check_late_claim(Travels::BehindReport).await;
}

#[tokio::test(start_paused = true)]
async fn tasks_claimed_after_a_resume_start_before_the_next_heartbeat() {
    let fleet = Fleet::new();
    let seat = fleet.seat();
    let handle = |task: Do, _: Context<()>| async move { Ok(task.0) };
    let worker = seat.worker().handle(handle).concurrency(SLOTS).start().await.unwrap();
    tokio::time::sleep(MOMENT).await;
    pause_heard_by(&fleet, &seat, "default").await;
    // From here on the worker believes that the queue is paused.
    seat.faults.hold(Method::Beat);
    let ids = fleet.submit_all(50).await;
    order(&fleet, "default", RunOrder::Run).await;
    let resumed = tokio::time::Instant::now();
    check_all_ran(&fleet, &ids).await;
    assert!(resumed.elapsed() < SECOND, "held back for {:?}", resumed.elapsed());
    seat.faults.release(Method::Beat);
    worker.stop().await.unwrap();
}
