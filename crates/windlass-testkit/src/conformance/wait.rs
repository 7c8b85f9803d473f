//! Wait: no wake-up that comes after the mark is missed.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use windlass_core::store::{Changed, Order, RunOrder, WaitParams, Wake, WakeMark};
use windlass_core::{Ending, State, TaskId, WorkerId};

use crate::draft::{RETENTION, draft, queue};
use crate::scene::{MS, Run, SECOND, Scene, claim_of, completed, failed};

/// Longer than any wake-up may take; a wait that needs it has missed its wake-up.
const LONG: Duration = Duration::from_secs(40);
/// Within this a wake-up must have come.
const SOON: Duration = Duration::from_secs(10);

fn for_work(queues: &[&str], since: Option<WakeMark>) -> WaitParams {
    WaitParams {
        queues: queues.iter().map(|name| queue(name)).collect(),
        since,
        at_most: LONG,
        ..WaitParams::default()
    }
}

fn for_end(tasks: &[&TaskId]) -> WaitParams {
    WaitParams {
        tasks: tasks.iter().copied().cloned().collect(),
        at_most: LONG,
        ..WaitParams::default()
    }
}

/// For orders that come after the worker's last beat.
async fn for_orders(s: &Scene, worker: &WorkerId) -> WaitParams {
    let since = Some(s.beat(worker).await.mark);
    WaitParams { orders: Some(worker.clone()), since, at_most: LONG, ..WaitParams::default() }
}

/// Checks that an act wakes a worker's wait for orders: one under way, and one that comes after it.
async fn check_ordered(s: &Scene, worker: &WorkerId, by: &str, act: impl AsyncFnOnce(&Scene)) {
    let params = for_orders(s, worker).await;
    let early = wait(s, params.clone());
    tokio::task::yield_now().await;
    act(s).await;
    for waiting in [early, wait(s, params)] {
        assert_eq!(woken(waiting, by).await, Wake::Orders, "after {by}");
    }
}

pub async fn a_cancel_request_wakes_the_worker_that_runs_the_task(s: Scene) {
    let run = s.start(draft()).await;
    let worker = run.worker.clone();
    let cancel = async |s: &Scene| assert_eq!(s.cancel(&run.id).await, Changed::Requested);
    check_ordered(&s, &worker, "a cancel", cancel).await;
}

pub async fn an_order_to_a_worker_wakes_it(s: Scene) {
    let worker = s.worker().await;
    for order in [RunOrder::Pause, RunOrder::Run, RunOrder::Drain] {
        let order = Order::Worker { worker: worker.clone(), order };
        check_ordered(&s, &worker, "an order", async |s| s.store.order(order).await.unwrap()).await;
    }
}

pub async fn orders_to_others_wake_no_worker(s: Scene) {
    let (worker, other) = (s.worker().await, s.start(draft()).await);
    let params = WaitParams { at_most: MS * 50, ..for_orders(&s, &worker).await };
    let waiting = wait(&s, params);
    s.cancel(&other.id).await;
    let order = Order::Worker { worker: other.worker.clone(), order: RunOrder::Pause };
    s.store.order(order).await.unwrap();
    assert_eq!(woken(waiting, "orders to another").await, Wake::TimedOut);
}

pub async fn orders_before_the_last_beat_wake_no_worker(s: Scene) {
    let run = s.start(draft()).await;
    s.cancel(&run.id).await;
    let params = WaitParams { at_most: MS * 50, ..for_orders(&s, &run.worker).await };
    assert_eq!(woken(wait(&s, params), "nothing").await, Wake::TimedOut);
}

/// For orders to a worker that serves this queue, from a beat on that lists it as running.
async fn for_pauses(s: &Scene, worker: &WorkerId, name: &str) -> WaitParams {
    let orders = s.beat_serving(worker, &[name]).await;
    assert_eq!(orders.paused_queues, [], "{name} should run");
    let served_queues = vec![queue(name)];
    let (orders, since) = (Some(worker.clone()), Some(orders.mark));
    WaitParams { orders, served_queues, since, at_most: LONG, ..WaitParams::default() }
}

pub async fn a_pause_wakes_the_workers_that_serve_the_queue(s: Scene) {
    let workers = [s.worker().await, s.worker().await];
    for _ in 0..2 {
        let mut waiting = Vec::new();
        for worker in &workers {
            let params = for_pauses(&s, worker, "main").await;
            waiting.push((worker, wait(&s, params.clone()), params));
        }
        tokio::task::yield_now().await;
        s.order_queue("main", RunOrder::Pause).await;
        for (worker, early, params) in waiting {
            for waiting in [early, wait(&s, params)] {
                assert_eq!(woken(waiting, "a pause").await, Wake::Orders);
            }
            let paused = s.beat_serving(worker, &["main"]).await.paused_queues;
            assert_eq!(paused, [queue("main")], "the beat that follows lists it");
        }
        s.order_queue("main", RunOrder::Run).await;
    }
}

pub async fn a_pause_wakes_no_worker_that_does_not_serve_the_queue(s: Scene) {
    let worker = s.worker().await;
    let params = WaitParams { at_most: MS * 50, ..for_pauses(&s, &worker, "other").await };
    let waiting = wait(&s, params);
    s.order_queue("main", RunOrder::Pause).await;
    assert_eq!(woken(waiting, "a pause of another queue").await, Wake::TimedOut);
}

pub async fn a_pause_before_the_last_beat_wakes_no_worker(s: Scene) {
    let worker = s.worker().await;
    s.order_queue("main", RunOrder::Pause).await;
    let since = Some(s.beat_serving(&worker, &["main"]).await.mark);
    let params = WaitParams {
        orders: Some(worker),
        served_queues: vec![queue("main")],
        since,
        at_most: MS * 50,
        ..WaitParams::default()
    };
    assert_eq!(woken(wait(&s, params), "nothing").await, Wake::TimedOut);
}

pub async fn a_pause_elsewhere_wakes_the_workers_that_serve_the_queue(s: Scene) {
    if !s.capabilities().has_broadcasts {
        return s.skip("nothing is pushed between processes");
    }
    let (worker, elsewhere) = (s.worker().await, s.elsewhere().await);
    let params = for_pauses(&s, &worker, "main").await;
    let mut waiting = wait(&s, params);
    // A process that has just begun to wait may not be listening yet; it hears the next pause.
    let pauses = async {
        loop {
            elsewhere.order_queue("main", RunOrder::Pause).await;
            if let Ok(wake) = timeout(MS * 500, &mut waiting).await {
                return wake.unwrap();
            }
            elsewhere.order_queue("main", RunOrder::Run).await;
        }
    };
    let wake = timeout(SOON, pauses).await;
    assert_eq!(wake, Ok(Wake::Orders), "after pauses elsewhere");
    let paused = s.beat_serving(&worker, &["main"]).await.paused_queues;
    assert_eq!(paused, [queue("main")]);
}

/// Starts to wait; the wait is under way, or about to be, when this returns.
fn wait(s: &Scene, params: WaitParams) -> JoinHandle<Wake> {
    let store = s.store.clone();
    tokio::spawn(async move { store.wait(params).await.unwrap() })
}

async fn woken(waiting: JoinHandle<Wake>, by: &str) -> Wake {
    match timeout(SOON, waiting).await {
        Ok(wake) => wake.unwrap(),
        Err(_) => panic!("no wake-up within {SOON:?} after {by}"),
    }
}

/// The mark of a claim that finds nothing in queue `main`.
async fn mark(s: &Scene) -> Option<WakeMark> {
    let worker = s.worker().await;
    let claim = s.store.claim(claim_of(&worker, 9)).await.unwrap();
    assert_eq!(claim.tasks, [], "queue main should be empty");
    Some(claim.mark)
}

/// Checks that an act wakes a wait that is under way, and one that comes only after it.
async fn check_wakes(s: &Scene, by: &str, act: impl AsyncFnOnce(&Scene)) {
    let since = mark(s).await;
    let early = wait(s, for_work(&["other", "main"], since));
    tokio::task::yield_now().await;
    act(s).await;
    let late = wait(s, for_work(&["main"], since));
    for waiting in [early, late] {
        assert_eq!(woken(waiting, by).await, Wake::Work, "after {by}");
    }
}

pub async fn an_insert_wakes_who_waits_for_its_queue(s: Scene) {
    check_wakes(&s, "an insert", async |s| drop(s.submit(draft()).await)).await;
}

pub async fn an_insert_elsewhere_wakes_who_waits_for_its_queue(s: Scene) {
    let elsewhere = s.elsewhere().await;
    check_wakes(&s, "an insert elsewhere", async |_| {
        elsewhere.submit(draft()).await;
    })
    .await;
}

pub async fn a_promote_wakes_who_waits(s: Scene) {
    s.submit(draft().after(SECOND)).await;
    check_wakes(&s, "a promote", async |s| {
        s.advance(SECOND);
        s.promote().await;
    })
    .await;
}

pub async fn a_release_wakes_who_waits(s: Scene) {
    let run = s.start(draft()).await;
    check_wakes(&s, "a release", async |s| {
        s.finish(&run, Ending::Released).await;
    })
    .await;
}

pub async fn a_task_handled_elsewhere_wakes_who_waits(s: Scene) {
    let run = s.start(draft()).await;
    check_wakes(&s, "a release for others", async |s| {
        s.finish(&run, Ending::HandledElsewhere).await;
    })
    .await;
}

pub async fn a_crash_wakes_who_waits(s: Scene) {
    s.start(draft()).await;
    check_wakes(&s, "an expire", async |s| {
        s.lose_all_workers().await;
    })
    .await;
}

pub async fn a_leave_wakes_who_waits(s: Scene) {
    let run = s.start(draft()).await;
    check_wakes(&s, "a leave", async |s| {
        s.leave(&run.worker).await;
    })
    .await;
}

pub async fn a_give_back_by_held_wakes_who_waits(s: Scene) {
    let run = s.start(draft()).await;
    check_wakes(&s, "a give-back", async |s| {
        s.advance(MS * 2);
        s.beat_holding(&run.worker, vec![], MS).await;
    })
    .await;
}

pub async fn a_rerun_wakes_who_waits(s: Scene) {
    let id = s.bring(draft(), State::Completed).await;
    check_wakes(&s, "a rerun", async |s| {
        s.rerun(&id).await;
    })
    .await;
}

pub async fn a_resumed_queue_wakes_who_waits(s: Scene) {
    s.order_queue("main", RunOrder::Pause).await;
    s.submit(draft()).await;
    check_wakes(&s, "a resume", async |s| {
        s.order_queue("main", RunOrder::Run).await;
    })
    .await;
}

pub async fn every_one_of_many_that_wait_is_woken(s: Scene) {
    let since = mark(&s).await;
    let waiting: Vec<_> = (0..8).map(|_| wait(&s, for_work(&["main"], since))).collect();
    s.submit(draft()).await;
    for one in waiting {
        assert_eq!(woken(one, "an insert").await, Wake::Work);
    }
}

pub async fn a_wait_for_work_without_a_mark_ends_at_once(s: Scene) {
    let waiting = wait(&s, for_work(&["main"], None));
    assert_eq!(woken(waiting, "nothing").await, Wake::Work);
}

pub async fn a_wait_in_which_nothing_happens_ends_in_time(s: Scene) {
    let params = WaitParams { at_most: MS * 30, ..for_work(&["main"], mark(&s).await) };
    let start = Instant::now();
    // A spurious wake-up is allowed, a wait without an end is not.
    let wake = woken(wait(&s, params), "its own time").await;
    assert!(matches!(wake, Wake::TimedOut | Wake::Work), "{wake:?}");
    let took = start.elapsed();
    assert!(took < SOON, "{took:?} instead of 30 ms");
}

/// Checks that an act ends a wait for a task, under way or not yet begun.
async fn check_ends(s: &Scene, run: &Run, by: &str, act: impl AsyncFnOnce(&Scene)) {
    let other = s.submit(draft().queue("unfinished")).await;
    let early = wait(s, for_end(&[&other, &run.id]));
    tokio::task::yield_now().await;
    act(s).await;
    let late = wait(s, for_end(&[&run.id, &other]));
    for waiting in [early, late] {
        let wake = woken(waiting, by).await;
        assert_eq!(wake, Wake::Finished(vec![run.id.clone()]), "after {by}");
    }
}

pub async fn the_end_of_a_task_ends_a_wait_for_it(s: Scene) {
    for ending in [completed(), crate::scene::discarded("no use")] {
        let run = s.start(draft()).await;
        check_ends(&s, &run, "its end", async |s| {
            s.finish(&run, ending).await;
        })
        .await;
    }
}

pub async fn the_end_of_a_task_told_elsewhere_ends_a_wait_for_it(s: Scene) {
    let run = s.start(draft()).await;
    let elsewhere = s.elsewhere().await;
    check_ends(&s, &run, "its end elsewhere", async |_| {
        elsewhere.finish(&run, completed()).await;
    })
    .await;
}

pub async fn a_cancel_delete_or_crash_to_death_ends_a_wait_for_it(s: Scene) {
    for way in ["cancel", "delete", "crash"] {
        let run = s.start(draft().max_crashes(0)).await;
        if way != "crash" {
            s.finish(&run, failed("boom")).await;
        }
        check_ends(&s, &run, way, async |s| match way {
            "cancel" => drop(s.cancel(&run.id).await),
            "delete" => drop(s.delete(&run.id).await),
            _ => drop(s.lose_all_workers().await),
        })
        .await;
    }
}

pub async fn a_wait_for_a_task_that_is_gone_ends_at_once(s: Scene) {
    let id = s.bring(draft(), State::Completed).await;
    s.advance(RETENTION);
    let never = TaskId::new("never was");
    let wake = woken(wait(&s, for_end(&[&id, &never])), "nothing").await;
    assert_eq!(wake, Wake::Finished(vec![id, never]));
}

pub async fn a_failure_that_is_retried_does_not_end_a_wait(s: Scene) {
    let run = s.start(draft()).await;
    let params = WaitParams { at_most: MS * 100, ..for_end(&[&run.id]) };
    let waiting = wait(&s, params);
    s.finish(&run, failed("boom")).await;
    let wake = woken(waiting, "its own time").await;
    assert_eq!(wake, Wake::TimedOut, "it is not finished");
}

pub async fn a_wait_that_is_dropped_takes_no_wake_up_from_others(s: Scene) {
    let since = mark(&s).await;
    let dropped = wait(&s, for_work(&["main"], since));
    let kept = wait(&s, for_work(&["main"], since));
    tokio::task::yield_now().await;
    dropped.abort();
    s.submit(draft()).await;
    assert_eq!(woken(kept, "an insert").await, Wake::Work);
}
