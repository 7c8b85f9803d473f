//! Servers that are set up otherwise than PostgreSQL comes: a small lock table, another isolation level.

#![cfg(feature = "postgres")]
#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use windlass_core::store::{Beat, Depth, Inserted, Reservation, Severity, WorkerCard};
use windlass_core::{NewTask, Reason, Store, WorkerId};
use windlass_stores::postgres::tokio_postgres::{Client, Config, NoTls};
use windlass_testkit::PostgresServer;
use windlass_testkit::draft::{draft, held_for, queue};
use windlass_testkit::scene::claim_of;
use windlass_testkit::servers::PgBouncer;
use windlass_testkit::servers::postgres::{Care, Stop};

/// A server with these settings, which need a restart.
async fn start_with(settings: &[&str]) -> PostgresServer {
    let server = PostgresServer::start(Care::Careless);
    let client = connect(&server).await;
    for setting in settings {
        client.batch_execute(&format!("ALTER SYSTEM SET {setting}")).await.unwrap();
    }
    drop(client);
    server.stop(Stop::Fast);
    server.launch();
    server
}

/// A connection behind the store's back.
async fn connect(server: &PostgresServer) -> Client {
    let url = server.url("windlass");
    let config: Config = url.split_once("&schema=").unwrap().0.parse().unwrap();
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Tasks with two keys each.
async fn keyed_tasks(store: &dyn Store, count: usize, name: &str) -> Vec<NewTask> {
    let ids = store.reserve(vec![Reservation { queue: queue("main"), count }]).await.unwrap();
    let keyed = |(number, id)| {
        let key = format!("{name}-{number}");
        let hour = Duration::from_secs(3_600);
        draft().idempotency(&key).unique(held_for(&key, hour)).with_id(id)
    };
    ids.into_iter().enumerate().map(keyed).collect()
}

/// 500 connections may be made: a lock table of 10 for each has some thousand places, less than this batch has keys.
#[tokio::test]
async fn a_batch_has_more_keys_than_the_server_has_locks() {
    let server = start_with(&["max_locks_per_transaction = 10"]).await;
    let store = windlass_stores::open(&server.url("windlass")).await.unwrap();
    let tasks = keyed_tasks(&*store, 12_000, "many").await;
    let inserted = store.insert(tasks.clone()).await.unwrap();
    assert!(inserted.iter().all(Inserted::is_new));
    // A client that repeats the batch gets the same tasks.
    assert!(store.insert(tasks).await.unwrap().iter().all(Inserted::is_new));
    let queues = store.queues().await.unwrap();
    assert_eq!(queues[0].counts.total(), 12_000);
}

#[tokio::test]
async fn a_full_lock_table_is_named_and_passes() {
    let server = start_with(&["max_locks_per_transaction = 10"]).await;
    let store = windlass_stores::open(&server.url("windlass")).await.unwrap();
    let tasks = keyed_tasks(&*store, 50, "few").await;
    // So that nothing is left to be looked up or prepared but the keys.
    let first = keyed_tasks(&*store, 1, "first").await;
    assert!(store.insert(first).await.unwrap()[0].is_new());
    let other = connect(&server).await;
    other.batch_execute("BEGIN").await.unwrap();
    // Locks are taken until there are none left; the savepoint keeps those that were taken before.
    for number in 0.. {
        let text = format!(
            "SAVEPOINT more; SELECT pg_advisory_xact_lock(n) FROM generate_series({}, {}) AS n",
            number * 10,
            number * 10 + 9
        );
        if other.batch_execute(&text).await.is_err() {
            other.batch_execute("ROLLBACK TO SAVEPOINT more").await.unwrap();
            break;
        }
    }
    let error = store.insert(tasks.clone()).await.expect_err("there is no room for locks");
    assert!(error.is_unavailable(), "{error:?}");
    assert_eq!(error.reason(), Reason::LockTableFull, "{error:?}");
    assert!(error.to_string().contains("raise max_locks_per_transaction"), "{error}");
    other.batch_execute("ROLLBACK").await.unwrap();
    assert!(store.insert(tasks).await.unwrap().iter().all(Inserted::is_new));
}

/// Several workers claim from one queue at the same time until it is empty.
async fn drain_by_many(stores: Vec<Arc<dyn Store>>) {
    const TASKS: usize = 400;
    let wanted = vec![Reservation { queue: queue("main"), count: TASKS }];
    let ids = stores[0].reserve(wanted).await.unwrap();
    for id in ids {
        let answers = stores[0].insert(vec![draft().with_id(id)]).await.unwrap();
        assert!(answers[0].is_new());
    }
    let mut claims = tokio::task::JoinSet::new();
    for (number, store) in stores.into_iter().enumerate() {
        claims.spawn(async move {
            let worker = WorkerId::new(format!("worker-{number}"));
            let beat = Beat {
                worker: worker.clone(),
                card: WorkerCard::default(),
                lease: Duration::from_secs(3_600),
                held: None,
                progress: Vec::new(),
            };
            store.beat(beat).await.unwrap();
            let mut given = Vec::new();
            loop {
                let claim = store.claim(claim_of(&worker, 3)).await.unwrap();
                if claim.tasks.is_empty() {
                    return given;
                }
                given.extend(claim.tasks.into_iter().map(|task| task.id));
            }
        });
    }
    let given: Vec<_> = claims.join_all().await.into_iter().flatten().collect();
    let once: HashSet<_> = given.iter().collect();
    assert_eq!(once.len(), given.len(), "each task is given to one worker");
    assert_eq!(given.len(), TASKS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_do_not_fail_where_serializable_is_the_default() {
    let server = start_with(&["default_transaction_isolation = 'serializable'"]).await;
    let mut stores = Vec::new();
    for _ in 0..4 {
        stores.push(windlass_stores::open(&server.url("windlass")).await.unwrap());
    }
    let findings = stores[0].inspect(Depth::Full).await.unwrap().findings;
    let found = findings.iter().find(|one| one.subject == "isolation").expect("named");
    assert_eq!(found.severity, Severity::Info, "{found:?}");
    assert!(found.text.contains("serializable"), "{found:?}");
    drain_by_many(stores).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_through_a_pooler_do_not_fail_where_repeatable_read_is_the_default() {
    let server = start_with(&["default_transaction_isolation = 'repeatable read'"]).await;
    let pooler = PgBouncer::start(&server);
    let mut stores = Vec::new();
    for _ in 0..4 {
        stores.push(windlass_stores::open(&pooler.url("windlass")).await.unwrap());
    }
    let findings = stores[0].inspect(Depth::Full).await.unwrap().findings;
    assert!(findings.iter().any(|one| one.text.contains("is repeatable read")), "{findings:?}");
    drain_by_many(stores).await;
}
