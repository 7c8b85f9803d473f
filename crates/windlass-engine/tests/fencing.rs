//! A worker that cannot reach its store stops by itself before others may take its tasks, and comes
//! back; nobody is declared lost by someone who was away.

#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use windlass_core::State;
use windlass_engine::{Client, Context, Outcome};
use windlass_testkit::fleet::{Do, Fleet, check_ended, memory_at, pass};
use windlass_testkit::{Method, TokioClock};

const SECOND: Duration = Duration::from_secs(1);

/// What a run tells of its end, with the instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Started,
    TokenFired,
    Dropped,
}

type Log = Arc<Mutex<Vec<(Told, Instant)>>>;

struct Guard(Log);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.lock().unwrap().push((Told::Dropped, Instant::now()));
    }
}

/// A handler that never ends by itself and tells what is done to it.
fn endless(log: &Log) -> impl windlass_engine::Handler<Do, ()> + use<> {
    let log = Arc::clone(log);
    move |_: Do, cx: Context<()>| {
        let log = Arc::clone(&log);
        async move {
            let _guard = Guard(Arc::clone(&log));
            log.lock().unwrap().push((Told::Started, Instant::now()));
            cx.cancelled().await;
            log.lock().unwrap().push((Told::TokenFired, Instant::now()));
            std::future::pending::<Outcome<u64>>().await
        }
    }
}

fn first(log: &Log, what: Told) -> Option<Instant> {
    log.lock().unwrap().iter().find(|(told, _)| *told == what).map(|(_, at)| *at)
}

#[tokio::test(start_paused = true)]
async fn a_worker_without_an_answered_beat_gives_up_its_runs_before_its_lease_is_over() {
    let fleet = Fleet::new();
    let seat = fleet.seat();
    let log = Log::default();
    let worker = seat.worker().handle(endless(&log)).start().await.unwrap();
    let task = fleet.submit(1).await;
    tokio::time::sleep(SECOND * 7).await;
    seat.faults.hold(Method::Beat);
    let lease_until = fleet.alive().await[0].lease_until;
    let left = Duration::from_millis(
        u64::try_from(
            lease_until.as_millis() - windlass_core::Clock::now(&*fleet.clock).as_millis(),
        )
        .unwrap(),
    );
    let lease_over = Instant::now() + left;
    tokio::time::sleep(left).await;
    let fired = first(&log, Told::TokenFired).expect("the token has fired");
    let dropped = first(&log, Told::Dropped).expect("the run was dropped");
    assert!(fired < lease_over && dropped < lease_over, "{:?}", log.lock().unwrap());
    assert!(lease_over - fired <= SECOND * 2, "and not much earlier than needed");
    let given_back = fleet.record(task.id()).await;
    assert_eq!((given_back.attempts, given_back.crashes), (0, 0), "applied as released");
    seat.faults.release(Method::Beat);
    tokio::time::sleep(SECOND).await;
    let again = fleet.record(task.id()).await;
    assert_eq!((again.state, again.attempts, again.crashes), (State::Running, 1, 0));
    assert_eq!(fleet.alive().await.len(), 1, "it goes on under its id, which nobody took");
    worker.stop().await.unwrap();
}

/// A handler that ends in its own way as soon as it is asked to stop.
async fn check_obedient<R>(end: R)
where
    R: Fn() -> Outcome<u64> + Send + Sync + Copy + 'static,
{
    let fleet = Fleet::new();
    let seat = fleet.seat();
    let obedient = move |_: Do, cx: Context<()>| async move {
        cx.cancelled().await;
        end()
    };
    let worker = seat.worker().handle(obedient).start().await.unwrap();
    let task = fleet.submit(1).await;
    pass(SECOND * 7).await;
    seat.faults.hold(Method::Beat);
    pass(SECOND * 14).await;
    let record = fleet.record(task.id()).await;
    assert_eq!((record.state, record.attempts, record.crashes), (State::Pending, 0, 0));
    seat.faults.release(Method::Beat);
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_a_run_says_because_it_was_given_up_is_not_its_verdict() {
    check_obedient(|| Err(windlass_engine::cancelled())).await;
    check_obedient(|| Err("interrupted".into())).await;
    check_obedient(|| Err(windlass_engine::discard("interrupted"))).await;
    check_obedient(|| panic!("interrupted")).await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_declared_lost_comes_back_under_a_new_id_and_its_late_completion_is_refused() {
    let fleet = Fleet::new();
    let (cut, healthy) = (fleet.seat(), fleet.seat());
    let (tell, mut told) = mpsc::unbounded_channel();
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = Mutex::new(blocked);
    // Blocking: nobody can stop it from outside, so it does complete, far too late.
    let stubborn = move |_: Do, cx: Context<()>| -> Outcome<u64> {
        blocked.lock().unwrap().recv().unwrap();
        tell.send(cx.is_cancelled()).unwrap();
        Ok(666)
    };
    let worker = cut.worker().handle_blocking(stubborn).start().await.unwrap();
    let task = fleet.submit(1).await;
    pass(SECOND).await;
    let first_id = fleet.alive().await[0].id.clone();
    let good = |task: Do, _: Context<()>| async move { Ok(task.0) };
    let other = healthy.worker().handle(good).start().await.unwrap();
    pass(SECOND * 20).await;
    cut.faults.go_away();
    pass(SECOND * 30).await;
    let record = fleet.record(task.id()).await;
    check_ended(&record, State::Completed, 1, 1);
    release.send(()).unwrap();
    assert!(told.recv().await.unwrap(), "its token has fired");
    cut.faults.come_back();
    pass(SECOND * 5).await;
    assert_eq!(fleet.record(task.id()).await, record, "nothing of it was accepted");
    let alive = fleet.alive().await;
    assert_eq!(alive.len(), 2, "it has come back");
    assert!(alive.iter().all(|worker| worker.id != first_id), "under another id");
    // And it works again.
    other.stop().await.unwrap();
    let next = fleet.submit(2).await;
    release.send(()).unwrap();
    assert_eq!(next.wait().await.unwrap(), 666);
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_waited_for_a_slot_when_the_worker_was_fenced_does_not_start() {
    let fleet = Fleet::with("[worker]\nlease = \"1s\"\nheartbeat = \"300ms\"");
    let seat = fleet.seat();
    let log = Log::default();
    let seen = Arc::clone(&log);
    let handle = move |task: Do, cx: Context<()>| {
        seen.lock().unwrap().push((Told::Started, Instant::now()));
        async move {
            if task.0 >= 1 {
                cx.cancelled().await;
            }
            Ok(task.0)
        }
    };
    fleet.submit_all(5).await;
    let worker = seat.worker().handle(handle).start().await.unwrap();
    tokio::time::sleep(SECOND / 100).await;
    // The last accepted beat is 10 ms old; what is fetched ahead waits less than a second more.
    seat.faults.hold_replies(Method::Claim);
    seat.faults.go_away();
    tokio::time::sleep(SECOND * 3).await;
    let starts = log.lock().unwrap().len();
    assert_eq!(starts, 2, "nothing starts on a lease that is over: {:?}", log.lock().unwrap());
    seat.faults.come_back();
    seat.faults.release(Method::Claim);
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_claim_answered_while_the_worker_is_fenced_starts_nothing() {
    let fleet = Fleet::new();
    let seat = fleet.seat();
    let log = Log::default();
    let worker = seat.worker().handle(endless(&log)).start().await.unwrap();
    tokio::time::sleep(SECOND * 8).await;
    seat.faults.hold(Method::Beat);
    // The last beat was 3 s ago: at 13 s and 125 ms after it, the worker's time is over.
    tokio::time::sleep(SECOND * 9).await;
    seat.faults.hold_replies(Method::Claim);
    let task = fleet.submit(1).await;
    tokio::time::sleep(SECOND / 100).await;
    assert_eq!(fleet.count(State::Running).await, 1);
    tokio::time::sleep(SECOND * 2).await;
    seat.faults.release(Method::Claim);
    tokio::time::sleep(SECOND * 2).await;
    assert_eq!(first(&log, Told::Started), None);
    seat.faults.release(Method::Beat);
    tokio::time::sleep(SECOND * 5).await;
    assert_eq!(fleet.record(task.id()).await.state, State::Running, "it has come back and runs");
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_jump_of_the_wall_clock_over_the_lease_gives_up_the_runs_at_once() {
    let fleet = Fleet::new();
    let log = Log::default();
    let worker = fleet.worker().handle(endless(&log)).start().await.unwrap();
    fleet.submit(1).await;
    tokio::time::sleep(SECOND * 6).await;
    // As after the suspend of a laptop: the monotonic clock stood still.
    fleet.clock.jump(SECOND * 3_600);
    let jumped = Instant::now();
    tokio::time::sleep(SECOND * 2).await;
    let fired = first(&log, Told::TokenFired).expect("the token has fired");
    assert!(fired - jumped <= SECOND, "{:?}", fired - jumped);
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_step_ahead_of_the_stores_clock_costs_no_worker_its_tasks() {
    let (store_clock, wall) = (Arc::new(TokioClock::new()), Arc::new(TokioClock::new()));
    let store = memory_at(store_clock.clone());
    let client = || Client::new(Arc::clone(&store));
    let handle = |task: Do, _: Context<()>| async move {
        tokio::time::sleep(Duration::from_secs(task.0)).await;
        Ok(task.0)
    };
    let mut workers = Vec::new();
    for _ in 0..3 {
        let worker = client().worker().driven_by(wall.clone()).handle(handle).concurrency(1);
        workers.push(worker.start().await.unwrap());
        tokio::time::sleep(SECOND * 2).await;
    }
    for phase in 0..5 {
        tokio::time::sleep(SECOND * 40 + SECOND * phase).await;
        let tasks = client().enqueue_all([Do(60), Do(60), Do(60)]).await.unwrap();
        tokio::time::sleep(SECOND).await;
        store_clock.jump(SECOND * 3_600);
        for task in tasks {
            let task = task.unwrap();
            assert_eq!(task.wait().await.unwrap(), 60);
            check_ended(&client().get(task.id()).await.unwrap().unwrap(), State::Completed, 1, 0);
        }
    }
    assert_eq!(store.workers().await.unwrap().len(), 3, "all under their first id");
    for worker in workers {
        worker.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_the_store_has_given_back_is_stopped() {
    let fleet = Fleet::new();
    let (slow, other) = (fleet.seat(), fleet.seat());
    let log = Log::default();
    let worker = slow.worker().handle(endless(&log)).start().await.unwrap();
    tokio::time::sleep(SECOND).await;
    slow.faults.hold_replies(Method::Claim);
    let task = fleet.submit(1).await;
    let claimed = Instant::now();
    // The second beat after the claim names all leases; it is on its way when the claim is answered, and arrives when
    // the store takes the claim for lost.
    slow.faults.called(Method::Beat).await;
    slow.faults.hold(Method::Beat);
    slow.faults.called(Method::Beat).await;
    assert!(claimed.elapsed() < SECOND * 10, "{:?}", claimed.elapsed());
    slow.faults.release(Method::Claim);
    tokio::time::sleep_until(claimed + SECOND * 11).await;
    assert!(first(&log, Told::Started).is_some(), "it runs");
    let idle = |task: Do, _: Context<()>| async move { Ok(task.0) };
    let second = other.worker().handle(idle).start().await.unwrap();
    slow.faults.hold(Method::Claim);
    slow.faults.release(Method::Beat);
    check_ended(&fleet.ended(task.id()).await, State::Completed, 1, 0);
    let given_back = Instant::now();
    tokio::time::sleep(SECOND).await;
    let fired = first(&log, Told::TokenFired).expect("the first run is stopped");
    assert!(fired <= given_back + SECOND, "at once");
    slow.faults.release(Method::Claim);
    worker.stop().await.unwrap();
    second.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nobody_is_declared_lost_after_an_outage_or_a_jump_of_the_clock() {
    let fleet = Fleet::new();
    let seats = [fleet.seat(), fleet.seat(), fleet.seat()];
    let mut workers = Vec::new();
    for seat in &seats {
        let idle = |task: Do, _: Context<()>| async move { Ok(task.0) };
        workers.push(seat.worker().handle(idle).start().await.unwrap());
    }
    for outage in [3, 10, 20, 60, 600] {
        tokio::time::sleep(SECOND * 40).await;
        seats.iter().for_each(|seat| seat.faults.go_away());
        tokio::time::sleep(SECOND * outage).await;
        // Not all come back at once.
        for seat in &seats {
            seat.faults.come_back();
            tokio::time::sleep(SECOND * 3).await;
        }
        tokio::time::sleep(SECOND * 40).await;
        fleet.clock.jump(SECOND * outage);
    }
    tokio::time::sleep(SECOND * 40).await;
    assert_eq!(fleet.alive().await.len(), 3);
    assert_eq!(fleet.store.workers().await.unwrap().len(), 3, "all under their first id");
    for worker in workers {
        worker.stop().await.unwrap();
    }
}
