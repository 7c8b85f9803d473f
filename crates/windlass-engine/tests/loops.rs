//! Every periodic loop survives an error of any kind and goes on; an idle worker asks little.

#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

use std::sync::Arc;
use std::time::Duration;

use windlass_core::store::{AUDIT, DocQuery, SaveDoc};
use windlass_core::{ErrorKind, ManualClock, State};
use windlass_engine::{Client, Configure, Context, Options};
use windlass_testkit::Method;
use windlass_testkit::faults::FaultyStore;
use windlass_testkit::fleet::{Do, Fleet, check_ended, memory_at};

const SECOND: Duration = Duration::from_secs(1);

/// Gives a loop one error of each kind and checks that it goes on, and the worker works.
async fn check_goes_on(method: Method) {
    for kind in [ErrorKind::Unavailable, ErrorKind::Corrupt, ErrorKind::Invalid] {
        let fleet = Fleet::new();
        let seat = fleet.seat();
        let handle = |task: Do, _: Context<()>| async move { Ok(task.0) };
        let worker = seat.worker().handle(handle).start().await.unwrap();
        tokio::time::sleep(SECOND * 20).await;
        seat.faults.fail(method, 1, kind);
        // Work and time for everything to be called that there is.
        let task = fleet.submit_with(1, Options::new().delay(SECOND * 2)).await;
        tokio::time::sleep(SECOND * 60).await;
        assert!(!seat.faults.is_planned(method), "{method:?} was not called");
        let calls = seat.faults.calls(method);
        let second = fleet.submit(2).await;
        tokio::time::sleep(SECOND * 60).await;
        assert!(seat.faults.calls(method) > calls, "{method:?} is not called any more");
        for id in [task.id(), second.id()] {
            check_ended(&fleet.record(id).await, State::Completed, 1, 0);
        }
        worker.stop().await.unwrap();
    }
}

macro_rules! goes_on {
    ($($name:ident: $method:ident),* $(,)?) => {$(
        #[tokio::test(start_paused = true)]
        async fn $name() {
            check_goes_on(Method::$method).await;
        }
    )*};
}

goes_on! {
    promote_goes_on_after_an_error: Promote,
    expire_goes_on_after_an_error: Expire,
    prune_goes_on_after_an_error: Prune,
    tend_goes_on_after_an_error: Tend,
    lead_goes_on_after_an_error: Lead,
    beat_goes_on_after_an_error: Beat,
    wait_goes_on_after_an_error: Wait,
    claim_goes_on_after_an_error: Claim,
    inspect_goes_on_after_an_error: Inspect,
}

#[tokio::test(start_paused = true)]
async fn old_dead_letters_go_on_being_removed_after_an_error() {
    let fleet = Fleet::with("[task]\ndead_letter_retention = \"10s\"");
    let seat = fleet.seat();
    let handle = |_: Do, _: Context<()>| async { Err(windlass_engine::discard("no")) };
    let worker = seat.worker().handle(handle).start().await.unwrap();
    fleet.submit(1).await;
    tokio::time::sleep(SECOND).await;
    assert_eq!(fleet.count(State::DeadLetter).await, 1);
    seat.faults.fail(Method::Change, 1, ErrorKind::Corrupt);
    tokio::time::sleep(SECOND * 20).await;
    assert_eq!(fleet.count(State::DeadLetter).await, 0);
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn what_is_on_record_for_90_days_is_removed_and_nothing_younger() {
    let clock = Arc::new(ManualClock::default());
    let (store, faults) = FaultyStore::around(memory_at(clock.clone()));
    let note = |at: &str| {
        let (class, key) = (AUDIT.into(), at.into());
        SaveDoc { class, key, expected: None, body: Some("{}".into()) }
    };
    store.save(note("old")).await.unwrap();
    clock.advance(SECOND * 60 * 60 * 24 * 89);
    store.save(note("young")).await.unwrap();
    clock.advance(SECOND * 60 * 60 * 24 * 2);
    let client = Client::new(store.clone());
    let (upkeep, ()) = tokio::join!(async { client.upkeep().start() }, faults.called(Method::Save));
    upkeep.stop().await.unwrap();
    let all = DocQuery::Class { class: AUDIT.into(), after: None, limit: 9 };
    let left: Vec<_> = store.load(all).await.unwrap().into_iter().map(|left| left.key).collect();
    assert_eq!(left, ["young"]);
}

#[tokio::test(start_paused = true)]
async fn an_idle_worker_asks_little() {
    let fleet = Fleet::new();
    let (leader, follower) = (fleet.seat(), fleet.seat());
    let first = leader.idle_worker().start().await.unwrap();
    tokio::time::sleep(SECOND).await;
    let second = follower.idle_worker().start().await.unwrap();
    tokio::time::sleep(SECOND * 30).await;
    let before = [leader.faults.calls_in_all(), follower.faults.calls_in_all()];
    tokio::time::sleep(SECOND * 60).await;
    let of_leader = leader.faults.calls_in_all() - before[0];
    let of_follower = follower.faults.calls_in_all() - before[1];
    // A minute has 12 heartbeats, 12 claims, 2 pings and 10 to 20 looks who leads. A leader promotes 4 times a
    // second, and reads the store's clock before each of 12 sweeps for lost workers.
    assert!(of_follower <= 50, "{of_follower}");
    assert!(of_leader <= 50 + 240 + 40 + 12, "{of_leader}");
    first.stop().await.unwrap();
    second.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn health_tells_when_the_store_is_away_and_back() {
    let fleet = Fleet::new();
    let seat = fleet.seat();
    let worker = seat.idle_worker().start().await.unwrap();
    let mut health = worker.health();
    assert!(health.wait_for(|health| health.is_reachable).await.is_ok());
    seat.faults.go_away();
    let away = *health.wait_for(|health| !health.is_reachable).await.unwrap();
    assert!(away.silent_for <= SECOND * 6, "{away:?}");
    seat.faults.come_back();
    assert!(health.wait_for(|health| health.is_reachable).await.is_ok());
    worker.stop().await.unwrap();
}
