//! A transaction that stays open beside claims: the rows they leave behind cannot be cleared away, and
//! claims begin where the last one ended. What comes back before that must be found all the same.

#![cfg(feature = "postgres")]
#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use windlass_core::store::{Beat, Reservation, WorkerCard};
use windlass_core::{Store, TaskId, WorkerId};
use windlass_stores::postgres::tokio_postgres::{Config, NoTls};
use windlass_testkit::PostgresServer;
use windlass_testkit::draft::{draft, queue};
use windlass_testkit::scene::claim_of;

const TASKS: usize = 300;
const AT_ONCE: usize = 10;
/// A transaction counts as long, and the store has looked, after these.
const NOTICED_AFTER: Duration = Duration::from_millis(3_300);

async fn sign_in(store: &dyn Store, name: &str) -> WorkerId {
    let worker = WorkerId::new(name);
    let beat = Beat {
        worker: worker.clone(),
        card: WorkerCard::default(),
        lease: Duration::from_secs(3_600),
        held: None,
        progress: Vec::new(),
    };
    store.beat(beat).await.unwrap();
    worker
}

/// Each task is a range of its own: it came by itself.
async fn submit(store: &dyn Store, count: usize) {
    let wanted = vec![Reservation { queue: queue("main"), count }];
    for id in store.reserve(wanted).await.unwrap() {
        store.insert(vec![draft().with_id(id)]).await.unwrap();
    }
}

async fn claim(store: &dyn Store, worker: &WorkerId) -> Vec<TaskId> {
    let claimed = store.claim(claim_of(worker, AT_ONCE)).await.unwrap().tasks;
    claimed.into_iter().map(|task| task.id).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_back_is_found_beside_an_open_transaction() {
    let (server, schema) = (PostgresServer::shared(), PostgresServer::new_schema());
    let store = windlass_stores::open(&server.tcp_url(&schema)).await.unwrap();
    let url = server.url(&schema);
    let config: Config = url.split_once("&schema=").unwrap().0.parse().unwrap();
    let (other, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    let opened = Instant::now();
    let hold = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM pg_class LIMIT 1";
    other.batch_execute(hold).await.unwrap();

    let (early, worker) = (sign_in(&*store, "early").await, sign_in(&*store, "worker").await);
    submit(&*store, TASKS).await;
    let held: BTreeSet<_> = claim(&*store, &early).await.into_iter().collect();
    assert_eq!(held.len(), AT_ONCE);
    // Claims go on until the store must have noticed the transaction, and begin where the last ended.
    let mut seen = BTreeSet::new();
    while opened.elapsed() < NOTICED_AFTER {
        seen.extend(claim(&*store, &worker).await);
        submit(&*store, AT_ONCE).await;
    }
    // What is given back stands before everything that is looked at now.
    store.leave(early).await.unwrap();
    loop {
        let claimed = claim(&*store, &worker).await;
        if claimed.is_empty() {
            break;
        }
        seen.extend(claimed);
    }
    assert!(held.is_subset(&seen), "what came back was not found: {held:?}");
    other.batch_execute("COMMIT").await.unwrap();
}
