//! A connection that looks healthy and says nothing any more: every call gives it up before a lease
//! is over, and the next one has another connection.
//!
//! Time is paused while calls hang: it jumps to the moment at which somebody gives up.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use windlass_core::store::{
    Applied, ApplyParams, Beat, ClaimParams, GetParams, HeldLeases, Parts, Quota, Reservation,
    WorkerCard,
};
use windlass_core::{Claimed, State, Store, TaskId, WorkerId};
use windlass_testkit::draft::{draft, queue};
use windlass_testkit::proxy::{Flow, Way};
use windlass_testkit::scene::completed;
use windlass_testkit::servers::PostgresServer;
use windlass_testkit::{Proxy, assert_healthy};

/// That of a worker as it is by default.
const LEASE: Duration = Duration::from_secs(15);
/// Timers are coarse.
const SLACK: Duration = Duration::from_millis(20);

fn sign(worker: &WorkerId, held: Option<HeldLeases>) -> Beat {
    let card = WorkerCard::default();
    Beat { worker: worker.clone(), card, lease: LEASE, held, progress: Vec::new() }
}

fn wish(worker: &WorkerId) -> ClaimParams {
    ClaimParams {
        worker: worker.clone(),
        quotas: vec![Quota::of(queue("main"), 5)],
        limit: 5,
        suspects_at_most: 5,
    }
}

fn ending(task: &Claimed, worker: &WorkerId) -> ApplyParams {
    let dice = &mut windlass_core::dice::Dice::seeded(1);
    let backoff = windlass_core::retry::Backoff::default();
    let done = windlass_core::state::finish(task, completed(), &backoff, dice);
    ApplyParams { worker: worker.clone(), transitions: vec![done], then_claim: None }
}

async fn submit(store: &Arc<dyn Store>) -> TaskId {
    let wanted = vec![Reservation { queue: queue("main"), count: 1 }];
    let id = store.reserve(wanted).await.unwrap().remove(0);
    let answers = store.insert(vec![draft().with_id(id.clone())]).await.unwrap();
    assert!(answers[0].is_new());
    id
}

/// Fails as a store does that is away, before a lease is over.
macro_rules! gives_up {
    ($call:expr) => {
        async {
            let began = Instant::now();
            let error = tokio::time::timeout(LEASE * 10, $call)
                .await
                .expect(concat!(stringify!($call), " should give up"))
                .expect_err("nothing can be answered");
            assert!(error.is_unavailable(), "{error:?}");
            began.elapsed()
        }
    };
}

#[tokio::test]
async fn calls_on_a_hung_connection_are_given_up_before_the_lease_is_over() {
    let server = PostgresServer::shared();
    let proxy = Proxy::start(server.port()).await;
    let url = server.url_through(proxy.port(), &PostgresServer::new_schema());
    let store = windlass_stores::open(&url).await.unwrap();
    let beating = store.dedicated().await.unwrap();
    let worker = WorkerId::new("worker");
    beating.beat(sign(&worker, None)).await.unwrap();
    let (first, second) = (submit(&store).await, submit(&store).await);
    let mut tasks = store.claim(wish(&worker)).await.unwrap().tasks;
    assert_eq!(tasks.len(), 2);
    let (done, open) = (tasks.remove(0), tasks.remove(0));
    let third = submit(&store).await;

    proxy.flow(Way::Answers, Flow::Stopped);
    tokio::time::pause();
    let new = draft().with_id(first.clone());
    let took = tokio::join!(
        gives_up!(beating.beat(sign(&worker, None))),
        gives_up!(store.claim(wish(&worker))),
        gives_up!(store.apply(ending(&done, &worker))),
        gives_up!(store.insert(vec![new.clone()])),
    );
    // A beat that hangs leaves room for another one; the rest is over before the lease is.
    assert!(took.0 <= LEASE / 3 + SLACK, "{took:?}");
    assert!(took.1 < LEASE && took.2 < LEASE && took.3 < LEASE, "{took:?}");
    // And so do calls that have to make a connection first, or read.
    let (beat_took, read_took) = tokio::join!(
        gives_up!(beating.beat(sign(&worker, None))),
        gives_up!(store.get(GetParams { ids: vec![first.clone()], parts: Parts::NONE })),
    );
    assert!(
        beat_took <= LEASE / 3 + SLACK && read_took <= LEASE * 3,
        "{beat_took:?} {read_took:?}"
    );
    tokio::time::resume();

    proxy.flow(Way::Answers, Flow::Free);
    let known = vec![done.lease(), open.lease()];
    let held = HeldLeases { leases: known, older_than: Duration::ZERO };
    // What hung may still be under way on the server.
    let mut pending = State::Running;
    for _ in 0..500 {
        match beating
            .beat(sign(&worker, Some(HeldLeases { leases: held.leases.clone(), ..held })))
            .await
        {
            Ok(orders) => assert!(!orders.lost.contains(&open.lease()), "it is still held"),
            Err(error) => assert!(error.is_unavailable(), "{error:?}"),
        }
        let ids = vec![third.clone()];
        if let Ok(found) = store.get(GetParams { ids, parts: Parts::NONE }).await {
            pending = found[0].as_ref().unwrap().state;
        }
        if pending == State::Pending {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(pending, State::Pending, "what a lost claim brought goes back");
    let again = store.apply(ending(&done, &worker)).await.unwrap().outcomes;
    assert!(
        matches!(again[..], [Applied::Already | Applied::Applied(State::Completed)]),
        "{again:?}"
    );
    let tasks = store.claim(wish(&worker)).await.unwrap().tasks;
    assert_eq!(tasks.iter().map(|task| &task.id).collect::<Vec<_>>(), [&third]);
    assert_eq!((tasks[0].attempts, tasks[0].crashes), (1, 0));
    let ids = vec![first, second];
    let records = store.get(GetParams { ids, parts: Parts::NONE }).await.unwrap();
    assert!(records.iter().all(Option::is_some));
    assert_healthy(store.as_ref()).await;
}
