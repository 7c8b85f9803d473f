//! Queues, priorities and slots: what a worker claims, how much of it, and in what order.

#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use windlass_core::history::Happening;
use windlass_core::store::{Order, RunOrder};
use windlass_core::{ErrorKind, Priority, QueueName, State};
use windlass_engine::{Configure, Context, Options, WorkerBuilder};
use windlass_testkit::Method;
use windlass_testkit::fleet::{Do, Fleet, check_ended};

const SECOND: Duration = Duration::from_secs(1);

fn in_queue(queue: &str) -> Options {
    Options::new().queue(queue)
}

async fn order_queue(fleet: &Fleet, order: RunOrder) {
    let queue = QueueName::new("default").unwrap();
    fleet.store.order(Order::Queue { queue, order }).await.unwrap();
}

async fn order_worker(fleet: &Fleet, order: RunOrder) {
    let worker = fleet.alive().await[0].id.clone();
    fleet.store.order(Order::Worker { worker, order }).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_paused_queue_gives_out_nothing_and_resume_wakes() {
    let fleet = Fleet::new();
    let handle = |task: Do, _: Context<()>| async move { Ok(task.0) };
    let worker = fleet.worker().handle(handle).start().await.unwrap();
    order_queue(&fleet, RunOrder::Pause).await;
    let task = fleet.submit(1).await;
    tokio::time::sleep(SECOND * 120).await;
    assert_eq!(fleet.record(task.id()).await.state, State::Pending);
    let resumed = tokio::time::Instant::now();
    order_queue(&fleet, RunOrder::Run).await;
    task.wait().await.unwrap();
    assert!(resumed.elapsed() < SECOND / 100, "woken after {:?}", resumed.elapsed());
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_worker_obeys_pause_and_resume_within_a_heartbeat() {
    let fleet = Fleet::new();
    let handle = |task: Do, _: Context<()>| async move { Ok(task.0) };
    let worker = fleet.worker().handle(handle).start().await.unwrap();
    order_worker(&fleet, RunOrder::Pause).await;
    tokio::time::sleep(SECOND * 5).await;
    let task = fleet.submit(1).await;
    tokio::time::sleep(SECOND * 60).await;
    assert_eq!(fleet.record(task.id()).await.state, State::Pending);
    assert_eq!(fleet.alive().await[0].card.doing, RunOrder::Pause);
    let resumed = tokio::time::Instant::now();
    order_worker(&fleet, RunOrder::Run).await;
    task.wait().await.unwrap();
    assert!(resumed.elapsed() <= SECOND * 5, "{:?}", resumed.elapsed());
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_worker_told_to_drain_finishes_and_ends() {
    let fleet = Fleet::new();
    let handle = |task: Do, _: Context<()>| async move {
        tokio::time::sleep(SECOND * 12).await;
        Ok(task.0)
    };
    let runs = fleet.worker().handle(handle).run_until(std::future::pending());
    let worker = tokio::spawn(runs);
    let running = fleet.submit(1).await;
    tokio::time::sleep(SECOND).await;
    order_worker(&fleet, RunOrder::Drain).await;
    tokio::time::sleep(SECOND * 5).await;
    let left = fleet.submit(2).await;
    worker.await.unwrap().unwrap();
    check_ended(&fleet.record(running.id()).await, State::Completed, 1, 0);
    assert_eq!(fleet.record(left.id()).await.state, State::Pending);
    assert!(fleet.alive().await.is_empty());
}

/// The queues of the first `count` runs of a worker with one slot, while all queues are backed up.
async fn first_runs(
    fleet: &Fleet,
    count: usize,
    queues: impl FnOnce(WorkerBuilder<()>) -> WorkerBuilder<()>,
) -> Vec<String> {
    let (tell, mut told) = mpsc::unbounded_channel();
    let handle = move |_: Do, cx: Context<()>| {
        let _ = tell.send(cx.queue().to_string());
        async { Ok(0) }
    };
    let worker = queues(fleet.worker()).handle(handle).concurrency(5).start().await.unwrap();
    let mut runs = Vec::new();
    while runs.len() < count {
        runs.push(told.recv().await.unwrap());
    }
    worker.stop().await.unwrap();
    runs
}

async fn fill(fleet: &Fleet, queue: &str, count: u64) {
    for number in 0..count {
        fleet.submit_with(number, in_queue(queue)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn weighted_queues_get_their_shares_while_all_are_backed_up() {
    let fleet = Fleet::new();
    for queue in ["a", "b", "c"] {
        fill(&fleet, queue, 1_200).await;
    }
    let weights = |worker: WorkerBuilder<()>| worker.queue("a", 6).queue("b", 3).queue("c", 1);
    let runs = first_runs(&fleet, 1_500, weights).await;
    for (queue, percent) in [("a", 60.0), ("b", 30.0), ("c", 10.0)] {
        let share = 100.0 * runs.iter().filter(|run| *run == queue).count() as f64 / 1_500.0;
        assert!((share - percent).abs() < 5.0, "{queue} got {share} %");
    }
}

#[tokio::test(start_paused = true)]
async fn a_weighted_queue_that_is_empty_holds_up_nobody() {
    let fleet = Fleet::new();
    fill(&fleet, "b", 50).await;
    let weights = |worker: WorkerBuilder<()>| worker.queue("a", 99).queue("b", 1);
    let began = tokio::time::Instant::now();
    first_runs(&fleet, 50, weights).await;
    assert!(began.elapsed() < SECOND, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn strict_queues_are_served_in_order() {
    let fleet = Fleet::new();
    fill(&fleet, "b", 50).await;
    fill(&fleet, "a", 50).await;
    let strict = |worker: WorkerBuilder<()>| worker.queue("a", 1).queue("b", 9).strict();
    let runs = first_runs(&fleet, 100, strict).await;
    assert!(runs[..50].iter().all(|queue| queue == "a"), "{runs:?}");
}

#[tokio::test(start_paused = true)]
async fn the_more_urgent_goes_first_and_a_worker_serves_only_its_priorities() {
    let fleet = Fleet::new();
    let urgent = [Priority::High, Priority::Critical];
    let mut ids = Vec::new();
    for (number, priority) in Priority::DESCENDING.iter().rev().enumerate() {
        let options = Options::new().priority(*priority);
        ids.push(fleet.submit_with(number as u64, options).await.id().clone());
    }
    let order = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&order);
    let handle = move |task: Do, _: Context<()>| {
        seen.lock().unwrap().push(task.0);
        async { Ok(0) }
    };
    let worker = fleet.worker().handle(handle).priorities(&urgent).start().await.unwrap();
    tokio::time::sleep(SECOND * 60).await;
    worker.stop().await.unwrap();
    assert_eq!(*order.lock().unwrap(), [3, 2]);
    assert_eq!(fleet.count(State::Pending).await, 2);
}

#[tokio::test(start_paused = true)]
async fn never_more_is_leased_than_slots_and_the_bound_of_what_is_fetched_ahead() {
    const SLOTS: usize = 3;
    let fleet = Fleet::new();
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counters = (Arc::clone(&running), Arc::clone(&most));
    let store = Arc::clone(&fleet.store);
    let leased_most = Arc::new(AtomicUsize::new(0));
    let leased = Arc::clone(&leased_most);
    let handle = move |task: Do, _: Context<()>| {
        let ((running, most), store) = (counters.clone(), Arc::clone(&store));
        let leased = Arc::clone(&leased);
        async move {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(task.0 % 7)).await;
            let counts = store.queues().await.unwrap()[0].counts;
            let now = usize::try_from(counts.get(State::Running)).unwrap();
            leased.fetch_max(now, Ordering::SeqCst);
            running.fetch_sub(1, Ordering::SeqCst);
            Ok(0)
        }
    };
    let ids = fleet.submit_all(2_000).await;
    let worker = fleet.worker().handle(handle).concurrency(SLOTS).start().await.unwrap();
    let records = fleet.all_ended(&ids).await;
    worker.stop().await.unwrap();
    assert!(records.iter().all(|record| record.attempts == 1));
    assert_eq!(most.load(Ordering::SeqCst), SLOTS, "all slots are used, and no more");
    let leased = leased_most.load(Ordering::SeqCst);
    assert!(leased <= SLOTS * 5, "{leased} leased");
}

#[tokio::test(start_paused = true)]
async fn what_could_not_start_for_a_second_is_given_back() {
    let fleet = Fleet::new();
    let seat = fleet.seat();
    let gate = Arc::new(Semaphore::new(0));
    let door = Arc::clone(&gate);
    let handle = move |task: Do, _: Context<()>| {
        let gate = Arc::clone(&door);
        async move {
            if task.0 >= 100 {
                gate.acquire().await.unwrap().forget();
            }
            Ok(task.0)
        }
    };
    // Short runs let the worker fetch ahead; then long ones block all slots.
    let ids = fleet.submit_all(100 + 40).await;
    let worker = seat.worker().handle(handle).concurrency(2).start().await.unwrap();
    tokio::time::sleep(SECOND * 2).await;
    assert_eq!(fleet.count(State::Running).await, 2, "only what has a slot is still leased");
    gate.add_permits(40);
    for record in fleet.all_ended(&ids).await {
        check_ended(&record, State::Completed, 1, 0);
    }
    worker.stop().await.unwrap();
}

/// Makes tasks suspects: a worker that dies twice with all of them.
async fn make_suspects(fleet: &Fleet, count: u64) {
    fleet.submit_all(count).await;
    for _ in 0..2 {
        let seat = fleet.seat();
        let hang = |_: Do, _: Context<()>| std::future::pending();
        let slots = usize::try_from(count).unwrap();
        let worker = seat.worker().handle(hang).concurrency(slots).start().await.unwrap();
        tokio::time::sleep(SECOND * 3).await;
        assert_eq!(fleet.count(State::Running).await, count);
        seat.faults.cut();
        drop(worker);
        let other = fleet.idle_worker().queue("other", 1).start().await.unwrap();
        tokio::time::sleep(SECOND * 25).await;
        other.stop().await.unwrap();
        assert_eq!(fleet.count(State::Pending).await, count);
    }
}

#[tokio::test(start_paused = true)]
async fn suspects_run_one_at_a_time_and_beside_innocent_tasks() {
    let fleet = Fleet::new();
    make_suspects(&fleet, 6).await;
    let ids: Vec<_> = fleet.all().await.into_iter().map(|record| record.id).collect();
    let (suspects, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counters = (Arc::clone(&suspects), Arc::clone(&most));
    let handle = move |_: Do, cx: Context<()>| {
        let (suspects, most) = counters.clone();
        async move {
            let is_suspect = usize::from(cx.crashes() >= 2);
            let now = suspects.fetch_add(is_suspect, Ordering::SeqCst) + is_suspect;
            most.fetch_max(now, Ordering::SeqCst);
            tokio::time::sleep(SECOND).await;
            suspects.fetch_sub(is_suspect, Ordering::SeqCst);
            Ok(0)
        }
    };
    let innocent = fleet.submit_all(40).await;
    let began = tokio::time::Instant::now();
    let worker = fleet.worker().handle(handle).concurrency(8).start().await.unwrap();
    for record in fleet.all_ended(&innocent).await {
        check_ended(&record, State::Completed, 1, 0);
    }
    assert!(began.elapsed() < SECOND * 9, "suspects hold up nobody: {:?}", began.elapsed());
    for record in fleet.all_ended(&ids).await {
        check_ended(&record, State::Completed, 1, 2);
    }
    assert_eq!(most.load(Ordering::SeqCst), 1);
    worker.stop().await.unwrap();
}

/// Two claims are on their way together while two suspects are pending: the first has no answer yet,
/// the second goes with the report of an innocent task. Then the first is answered, or fails.
async fn check_claims_together(does_fail: bool) {
    let fleet = Fleet::new();
    make_suspects(&fleet, 2).await;
    let ids: Vec<_> = fleet.all().await.into_iter().map(|record| record.id).collect();
    let seat = fleet.seat();
    let gate = Arc::new(Semaphore::new(0));
    let handle = {
        let gate = Arc::clone(&gate);
        move |task: Do, cx: Context<()>| {
            let gate = Arc::clone(&gate);
            async move {
                if cx.crashes() == 0 {
                    gate.acquire().await.unwrap().forget();
                }
                Ok(task.0)
            }
        }
    };
    order_queue(&fleet, RunOrder::Pause).await;
    let innocent = fleet.submit_with(9, in_queue("second")).await;
    let worker = seat.worker().queue("default", 1).queue("second", 1).handle(handle);
    let worker = worker.concurrency(4).start().await.unwrap();
    tokio::time::sleep(SECOND).await;
    assert_eq!(fleet.record(innocent.id()).await.state, State::Running);
    if does_fail {
        seat.faults.hold(Method::Claim);
        seat.faults.fail(Method::Claim, 1, ErrorKind::Unavailable);
    } else {
        seat.faults.hold_replies(Method::Claim);
    }
    order_queue(&fleet, RunOrder::Run).await;
    seat.faults.called(Method::Claim).await;
    gate.add_permits(1);
    tokio::time::sleep(SECOND).await;
    assert!(fleet.record(innocent.id()).await.state.is_terminal());
    let brought = u64::from(!does_fail);
    assert_eq!(fleet.count(State::Running).await, brought, "the second claim brings none");
    seat.faults.release(Method::Claim);
    let released = tokio::time::Instant::now();
    let records = fleet.all_ended(&ids).await;
    assert!(released.elapsed() < SECOND, "left behind for {:?}", released.elapsed());
    for record in records {
        check_ended(&record, State::Completed, 1, 2);
        let was_put_off = record.history.entries().iter().any(|e| e.what == Happening::PutOff);
        assert!(!was_put_off, "{:?}", record.history);
    }
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn claims_on_their_way_together_bring_one_suspect_in_all() {
    check_claims_together(false).await;
}

#[tokio::test(start_paused = true)]
async fn a_suspect_left_behind_for_a_claim_that_failed_is_fetched_soon() {
    check_claims_together(true).await;
}
