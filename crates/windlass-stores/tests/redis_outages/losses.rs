//! What a server that keeps nothing loses, and how that is told.

use std::time::Duration;

use windlass_core::store::Depth;
use windlass_core::store::{
    Beat, Bid, ClaimParams, Durability, Leadership, Quota, Reservation, Severity, WorkerCard,
};
use windlass_core::{ErrorKind, Store, WorkerId};
use windlass_stores::redis::RedisOptions;
use windlass_stores::redis::streams::StreamsStore;
use windlass_testkit::RedisServer;
use windlass_testkit::draft::{draft, queue};
use windlass_testkit::servers::redis::Keeping;

async fn open(server: &RedisServer) -> StreamsStore {
    let options = RedisOptions::of_url(&server.url("losses")).unwrap();
    StreamsStore::open(options).await.unwrap()
}

async fn beat(store: &StreamsStore, worker: &WorkerId) {
    let sign = Beat {
        worker: worker.clone(),
        card: WorkerCard::default(),
        lease: Duration::from_secs(60),
        held: None,
        progress: Vec::new(),
    };
    store.beat(sign).await.unwrap();
}

/// Submits and claims a task; answers its epoch.
async fn run(store: &StreamsStore, worker: &WorkerId) -> windlass_core::Epoch {
    let wanted = vec![Reservation { queue: queue("main"), count: 1 }];
    let id = store.reserve(wanted).await.unwrap().remove(0);
    let answers = store.insert(vec![draft().with_id(id)]).await.unwrap();
    assert!(answers[0].is_new(), "{answers:?}");
    let quotas = vec![Quota::of(queue("main"), 1)];
    let params = ClaimParams { worker: worker.clone(), quotas, limit: 1, suspects_at_most: 1 };
    store.claim(params).await.unwrap().tasks[0].epoch
}

async fn lead(store: &StreamsStore, holder: &str) -> windlass_core::store::Term {
    let bid = Bid::Seek { holder: WorkerId::new(holder), term_length: Duration::from_secs(9) };
    match store.lead(bid).await.unwrap() {
        Leadership::Leading(term) => term,
        other => panic!("{holder} should lead: {other:?}"),
    }
}

#[tokio::test]
async fn ids_epochs_and_terms_do_not_go_back_when_the_server_comes_back_empty() {
    let server = RedisServer::start(Keeping::Nothing);
    let store = open(&server).await;
    let first = WorkerId::new("first");
    beat(&store, &first).await;
    let (epoch, term) = (run(&store, &first).await, lead(&store, "a").await);
    server.kill();
    server.launch();
    // The first call meets the connection that broke.
    let _ = store.inspect(Depth::Ping).await;
    let second = WorkerId::new("second");
    beat(&store, &second).await;
    assert!(run(&store, &second).await > epoch, "a later epoch");
    assert!(lead(&store, "b").await > term, "a later term");
}

/// Wiped data are not those that were there before: queues are put on record again, so that upkeep finds
/// them, and whoever beats is told in the log.
#[tokio::test]
async fn after_a_wipe_everything_goes_on_with_what_comes_in() {
    let server = RedisServer::start(Keeping::Nothing);
    let store = open(&server).await;
    let worker = WorkerId::new("worker");
    beat(&store, &worker).await;
    run(&store, &worker).await;
    assert_eq!(server.operate(&["FLUSHALL"]).unwrap(), "+OK\r\n");
    let quotas = vec![Quota::of(queue("main"), 1)];
    let params = ClaimParams { worker: worker.clone(), quotas, limit: 1, suspects_at_most: 1 };
    let error = store.claim(params).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LeaseLost, "nobody knows the worker any more: {error:?}");
    beat(&store, &worker).await;
    run(&store, &worker).await;
    let queues = store.queues().await.unwrap();
    assert_eq!(queues.len(), 1, "the queue is on record again: {queues:?}");
    let findings = store.inspect(Depth::Full).await.unwrap().findings;
    let wiped = findings.iter().find(|finding| finding.subject == "data");
    assert!(wiped.is_some_and(|found| found.severity == Severity::Problem), "{findings:#?}");
}

#[tokio::test]
async fn what_a_server_promises_is_read_from_it() {
    for (keeping, is_durable) in [(Keeping::Always, true), (Keeping::EverySecond, false)] {
        let server = RedisServer::start(keeping);
        let store = open(&server).await;
        let durability = store.profile().durability;
        assert_eq!(durability == Durability::Durable, is_durable, "{durability:?}");
        let findings = store.inspect(Depth::Full).await.unwrap().findings;
        let told = findings.iter().any(|finding| finding.subject == "durability");
        assert_eq!(told, !is_durable, "{findings:#?}");
    }
}

#[tokio::test]
async fn a_server_that_throws_keys_away_is_refused_unless_it_is_wanted() {
    let server = RedisServer::start_with(Keeping::Nothing, &["--maxmemory-policy", "allkeys-lru"]);
    let url = server.url("evicting");
    let error = windlass_stores::open(&url).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}");
    assert!(error.to_string().contains("allkeys-lru"), "{error}");
    windlass_stores::open(&format!("{url}&eviction=allow")).await.unwrap();
}
