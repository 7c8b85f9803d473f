//! Workers that die without a word, tasks that kill them, and who leads after that.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use windlass_core::State;
use windlass_engine::Context;
use windlass_testkit::Method;
use windlass_testkit::fleet::{Do, Fleet, check_ended};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn the_tasks_of_a_dead_worker_run_elsewhere_within_lease_and_sweep_and_lose_no_attempt() {
    // Whoever was first leads; once the leader dies, once the other.
    for does_leader_die in [true, false] {
        let fleet = Fleet::new();
        let seats = [fleet.seat(), fleet.seat()];
        let (dying, living) = if does_leader_die { (0, 1) } else { (1, 0) };
        let started = Arc::new(Notify::new());
        let mut workers = Vec::new();
        for (number, seat) in seats.iter().enumerate() {
            let started = Arc::clone(&started);
            let handle = move |task: Do, _: Context<()>| {
                let started = Arc::clone(&started);
                async move {
                    if number == dying {
                        started.notify_one();
                        std::future::pending::<()>().await;
                    }
                    Ok(task.0)
                }
            };
            let queue = if number == dying { "default" } else { "none" };
            workers.push(seat.worker().queue(queue, 1).handle(handle).start().await.unwrap());
            tokio::time::sleep(SECOND * 20).await;
        }
        let task = fleet.submit(1).await;
        started.notified().await;
        tokio::time::sleep(SECOND * 7).await;
        let good = |task: Do, _: Context<()>| async move { Ok(task.0) };
        let heir = seats[living].worker().handle(good).start().await.unwrap();
        seats[dying].faults.cut();
        let died = Instant::now();
        check_ended(&fleet.ended(task.id()).await, State::Completed, 1, 1);
        assert!(died.elapsed() <= SECOND * 25, "{:?}", died.elapsed());
        heir.stop().await.unwrap();
        workers.swap_remove(living).stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn when_every_worker_has_died_the_first_that_starts_takes_over() {
    let fleet = Fleet::new();
    let seat = fleet.seat();
    let hang = |_: Do, _: Context<()>| std::future::pending();
    let worker = seat.worker().handle(hang).concurrency(3).start().await.unwrap();
    let ids = fleet.submit_all(3).await;
    tokio::time::sleep(SECOND).await;
    seat.faults.cut();
    drop(worker);
    tokio::time::sleep(SECOND * 3_600).await;
    let restarted = Instant::now();
    let good = |task: Do, _: Context<()>| async move { Ok(task.0) };
    let worker = fleet.worker().handle(good).start().await.unwrap();
    for record in fleet.all_ended(&ids).await {
        check_ended(&record, State::Completed, 1, 1);
    }
    assert!(restarted.elapsed() <= SECOND * 25, "{:?}", restarted.elapsed());
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_task_that_kills_its_worker_each_time_ends_dead_alone() {
    const POISON: u64 = 37;
    let fleet = Fleet::new();
    let ids = fleet.submit_all(101).await;
    let (deaths, mut died) = mpsc::unbounded_channel();
    let mut workers = Vec::new();
    let mut deaths_count = 0;
    loop {
        let (seat, deaths) = (fleet.seat(), deaths.clone());
        let faults = seat.faults.clone();
        let handle = move |task: Do, _: Context<()>| {
            let (faults, deaths) = (faults.clone(), deaths.clone());
            async move {
                tokio::time::sleep(SECOND / 2).await;
                if task.0 == POISON {
                    faults.cut();
                    deaths.send(()).unwrap();
                    std::future::pending::<()>().await;
                }
                Ok(task.0)
            }
        };
        workers.push(seat.worker().handle(handle).concurrency(10).start().await.unwrap());
        let poisoned = fleet.ended(&ids[usize::try_from(POISON).unwrap()]);
        tokio::select! {
            () = async { died.recv().await.unwrap() } => deaths_count += 1,
            record = poisoned => {
                check_ended(&record, State::DeadLetter, 0, 4);
                break;
            }
        }
    }
    assert_eq!(deaths_count, 4);
    for (number, record) in fleet.all_ended(&ids).await.iter().enumerate() {
        if number as u64 != POISON {
            assert_eq!((record.state, record.attempts), (State::Completed, 1), "{record:?}");
        }
    }
    workers.pop().unwrap().stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn leadership_moves_when_the_leader_dies() {
    let fleet = Fleet::new();
    let (first, second) = (fleet.seat(), fleet.seat());
    let old = first.idle_worker().start().await.unwrap();
    tokio::time::sleep(SECOND * 5).await;
    let new = second.idle_worker().start().await.unwrap();
    tokio::time::sleep(SECOND * 20).await;
    assert!(first.faults.calls(Method::Promote) > 0, "the first leads");
    assert_eq!(second.faults.calls(Method::Promote), 0, "and the second does not");
    first.faults.cut();
    let died = Instant::now();
    second.faults.called(Method::Promote).await;
    assert!(died.elapsed() <= SECOND * 13, "{:?}", died.elapsed());
    drop(old);
    new.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_renewals_are_held_stops_its_duties_by_its_own_clock() {
    let fleet = Fleet::new();
    let (first, second) = (fleet.seat(), fleet.seat());
    let old = first.idle_worker().start().await.unwrap();
    let new = second.idle_worker().start().await.unwrap();
    tokio::time::sleep(SECOND * 20).await;
    first.faults.hold(Method::Lead);
    tokio::time::sleep(SECOND * 11).await;
    let promotes = first.faults.calls(Method::Promote);
    tokio::time::sleep(SECOND * 30).await;
    assert_eq!(first.faults.calls(Method::Promote), promotes, "it has stopped");
    assert!(second.faults.calls(Method::Promote) > 0, "the second leads");
    assert_eq!(first.faults.refusals(Method::Promote), 0, "before it could be refused");
    first.faults.release(Method::Lead);
    tokio::time::sleep(SECOND * 30).await;
    assert_eq!(first.faults.calls(Method::Promote), promotes, "and it follows now");
    old.stop().await.unwrap();
    new.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_late_duties_of_a_former_leader_are_refused() {
    let fleet = Fleet::new();
    let (first, second) = (fleet.seat(), fleet.seat());
    let old = first.idle_worker().start().await.unwrap();
    let new = second.idle_worker().start().await.unwrap();
    tokio::time::sleep(SECOND * 21).await;
    // As if it were paused in the middle of its duties.
    let duties = [Method::Promote, Method::Expire, Method::Prune, Method::Tend];
    duties.iter().for_each(|duty| first.faults.hold(*duty));
    first.faults.hold(Method::Lead);
    tokio::time::sleep(SECOND * 30).await;
    assert!(second.faults.calls(Method::Promote) > 0, "the second leads");
    duties.iter().for_each(|duty| first.faults.release(*duty));
    first.faults.release(Method::Lead);
    tokio::time::sleep(SECOND * 20).await;
    for duty in [Method::Promote, Method::Prune] {
        assert_eq!(first.faults.refusals(duty), 1, "{duty:?}");
        assert_eq!(second.faults.refusals(duty), 0, "{duty:?}");
    }
    old.stop().await.unwrap();
    new.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_stops_resigns_so_that_another_leads_soon() {
    let fleet = Fleet::new();
    let (first, second) = (fleet.seat(), fleet.seat());
    let old = first.idle_worker().start().await.unwrap();
    tokio::time::sleep(SECOND * 2).await;
    let new = second.idle_worker().start().await.unwrap();
    tokio::time::sleep(SECOND * 20).await;
    old.stop().await.unwrap();
    let stopped = Instant::now();
    second.faults.called(Method::Promote).await;
    assert!(stopped.elapsed() <= SECOND * 6, "{:?}", stopped.elapsed());
    new.stop().await.unwrap();
}
