//! Upkeep without a worker: a process that runs no tasks leads and does all duties.

#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

use std::time::Duration;

use tokio::time::Instant;
use windlass_core::State;
use windlass_engine::{Configure, Context, Options, Upkeep};
use windlass_testkit::Method;
use windlass_testkit::fleet::{Do, Fleet, Seat};

const SECOND: Duration = Duration::from_secs(1);

fn upkeep(fleet: &Fleet, seat: &Seat) -> Upkeep {
    seat.client.upkeep().driven_by(fleet.clock.clone()).start()
}

/// A worker that holds so many tasks and never ends one.
async fn hang(seat: &Seat, slots: usize) -> windlass_engine::Worker {
    let hang = |_: Do, _: Context<()>| std::future::pending();
    seat.worker().handle(hang).concurrency(slots).start().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_upkeep_promotes_what_is_due_and_is_no_worker() {
    let fleet = Fleet::new();
    let seat = fleet.seat();
    let upkeep = upkeep(&fleet, &seat);
    let task = fleet.submit_with(1, Options::new().delay(SECOND * 7)).await;
    tokio::time::sleep(SECOND * 6).await;
    assert_eq!(fleet.record(task.id()).await.state, State::Scheduled);
    tokio::time::sleep(SECOND * 3 / 2).await;
    assert_eq!(fleet.record(task.id()).await.state, State::Pending);
    assert!(fleet.store.workers().await.unwrap().is_empty(), "it is not registered");
    upkeep.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_upkeep_takes_back_what_a_lost_worker_held() {
    let fleet = Fleet::new();
    let (dying, seat) = (fleet.seat(), fleet.seat());
    let upkeep = upkeep(&fleet, &seat);
    // So that the upkeep leads, and not the worker.
    seat.faults.called(Method::Promote).await;
    let worker = hang(&dying, 3).await;
    fleet.submit_all(3).await;
    tokio::time::sleep(SECOND * 20).await;
    assert_eq!(fleet.count(State::Running).await, 3);
    dying.faults.cut();
    tokio::time::sleep(SECOND * 25).await;
    assert_eq!(fleet.count(State::Pending).await, 3);
    assert_eq!(dying.faults.calls(Method::Expire), 0, "it was the upkeep");
    drop(worker);
    upkeep.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn of_two_upkeeps_one_leads_and_when_it_stops_or_is_dropped_the_other_does() {
    for is_dropped in [false, true] {
        let fleet = Fleet::new();
        let (first, second) = (fleet.seat(), fleet.seat());
        let leading = upkeep(&fleet, &first);
        first.faults.called(Method::Promote).await;
        let standing_by = upkeep(&fleet, &second);
        tokio::time::sleep(SECOND * 60).await;
        assert_eq!(second.faults.calls(Method::Promote), 0, "the second stands by");
        let stopped = Instant::now();
        if is_dropped {
            drop(leading);
        } else {
            leading.stop().await.unwrap();
        }
        second.faults.called(Method::Promote).await;
        // Less than a term: the first has resigned.
        assert!(stopped.elapsed() <= SECOND * 6, "{:?}", stopped.elapsed());
        let promotes = first.faults.calls(Method::Promote);
        tokio::time::sleep(SECOND * 60).await;
        assert_eq!(first.faults.calls(Method::Promote), promotes, "the first has ended");
        standing_by.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn after_an_outage_an_upkeep_declares_nobody_lost() {
    let fleet = Fleet::new();
    let (seat, workers) = (fleet.seat(), [fleet.seat(), fleet.seat()]);
    let upkeep = upkeep(&fleet, &seat);
    seat.faults.called(Method::Promote).await;
    let mut running = Vec::new();
    for worker in &workers {
        running.push(hang(worker, 1).await);
    }
    for outage in [3, 10, 20, 60, 600] {
        tokio::time::sleep(SECOND * 40).await;
        [&seat, &workers[0], &workers[1]].iter().for_each(|seat| seat.faults.go_away());
        tokio::time::sleep(SECOND * outage).await;
        // Whoever judges is back first, and the judged are not.
        for seat in [&seat, &workers[0], &workers[1]] {
            seat.faults.come_back();
            tokio::time::sleep(SECOND * 3).await;
        }
        tokio::time::sleep(SECOND * 40).await;
        fleet.clock.jump(SECOND * outage);
    }
    tokio::time::sleep(SECOND * 40).await;
    assert!(seat.faults.calls(Method::Expire) > 10, "it leads, and looks for lost workers");
    assert_eq!(fleet.store.workers().await.unwrap().len(), 2, "all under their first id");
    for worker in running {
        worker.stop().await.unwrap();
    }
    upkeep.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_upkeep_waits_for_a_store_that_is_away_and_tells_so() {
    let fleet = Fleet::new();
    let seat = fleet.seat();
    seat.faults.go_away();
    let upkeep = upkeep(&fleet, &seat);
    let mut health = upkeep.health();
    assert!(health.wait_for(|health| !health.is_reachable).await.is_ok());
    seat.faults.come_back();
    assert!(health.wait_for(|health| health.is_reachable).await.is_ok());
    seat.faults.called(Method::Promote).await;
    upkeep.stop().await.unwrap();
}
