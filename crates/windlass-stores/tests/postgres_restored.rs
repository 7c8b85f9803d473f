//! Databases that others than the store change: made anew, closed to it for a while, or migrated by a script.

#![cfg(feature = "postgres")]
#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

use std::sync::Arc;
use std::time::Duration;

use windlass_core::store::{Beat, ClaimParams, GetParams, Parts, Quota, Reservation, WorkerCard};
use windlass_core::{Result, Store, TaskId, WorkerId};
use windlass_stores::postgres::PostgresOptions;
use windlass_stores::postgres::tokio_postgres::{Config, NoTls};
use windlass_testkit::draft::{draft, queue};
use windlass_testkit::servers::PostgresServer;
use windlass_testkit::servers::postgres::Care;

/// Runs statements, one by one, as the server's owner.
async fn operate(server: &PostgresServer, statements: &[&str]) {
    let mut config = Config::new();
    config.host("127.0.0.1").port(server.port()).user("windlass").dbname("postgres");
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    for statement in statements {
        client.batch_execute(statement).await.unwrap();
    }
}

/// A store in a database and for a user of its own.
async fn open(server: &PostgresServer, database: &str, user: &str) -> Arc<dyn Store> {
    let url = server.tcp_url("windlass");
    let url = url.replace("windlass@", &format!("{user}@"));
    windlass_stores::open(&url.replace("/postgres?", &format!("/{database}?"))).await.unwrap()
}

async fn submit(store: &Arc<dyn Store>, name: &str) -> Result<TaskId> {
    let wanted = vec![Reservation { queue: queue(name), count: 1 }];
    let id = store.reserve(wanted).await?.remove(0);
    let answers = store.insert(vec![draft().queue(name).with_id(id.clone())]).await?;
    assert!(answers[0].is_new(), "{answers:?}");
    Ok(id)
}

/// Repeats a submit until it is answered; the store may be away for a moment.
async fn submit_at_last(store: &Arc<dyn Store>, name: &str) -> TaskId {
    for _ in 0..1_000 {
        match submit(store, name).await {
            Ok(id) => return id,
            Err(error) => assert!(error.is_unavailable(), "{error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the store did not come back");
}

async fn claimed(store: &Arc<dyn Store>, name: &str) -> Vec<TaskId> {
    let worker = WorkerId::new("worker");
    let beat = Beat {
        worker: worker.clone(),
        card: WorkerCard::default(),
        lease: Duration::from_secs(60),
        held: None,
        progress: Vec::new(),
    };
    store.beat(beat).await.unwrap();
    let quotas = vec![Quota::of(queue(name), 10)];
    let params = ClaimParams { worker, quotas, limit: 10, suspects_at_most: 1 };
    store.claim(params).await.unwrap().tasks.into_iter().map(|task| task.id).collect()
}

#[tokio::test]
async fn a_database_made_anew_gives_names_other_numbers() {
    let server = PostgresServer::start(Care::Careless);
    operate(&server, &["CREATE DATABASE shop"]).await;
    let old = open(&server, "shop", "windlass").await;
    submit(&old, "first").await.unwrap();
    submit(&old, "mail").await.unwrap();
    operate(&server, &["DROP DATABASE shop WITH (FORCE)", "CREATE DATABASE shop"]).await;
    let new = open(&server, "shop", "windlass").await;
    // In the old database the queue had number 2; here another one has.
    submit(&new, "mail").await.unwrap();
    submit(&new, "other").await.unwrap();
    let id = submit_at_last(&old, "mail").await;
    assert!(claimed(&new, "mail").await.contains(&id), "it went into another queue");
}

#[tokio::test]
async fn a_user_who_is_locked_out_for_a_while_is_told_to_come_back() {
    let server = PostgresServer::start(Care::Careless);
    operate(&server, &["CREATE ROLE clerk LOGIN SUPERUSER"]).await;
    let store = open(&server, "postgres", "clerk").await;
    let id = submit(&store, "mail").await.unwrap();
    let away = [
        "ALTER ROLE clerk NOLOGIN",
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = 'clerk'",
    ];
    operate(&server, &away).await;
    // Not `Invalid`: what the caller wants is not wrong, and the next try may succeed.
    for error in [
        submit(&store, "mail").await.unwrap_err(),
        store.get(GetParams { ids: vec![id.clone()], parts: Parts::NONE }).await.unwrap_err(),
    ] {
        assert!(error.is_unavailable(), "{error:?}");
    }
    operate(&server, &["ALTER ROLE clerk LOGIN"]).await;
    submit_at_last(&store, "mail").await;
}

/// Everything that is in a schema, under one name for all of them.
async fn catalog(server: &PostgresServer, schema: &str) -> String {
    let options = PostgresOptions::of_url(&server.url(schema)).unwrap().existing();
    windlass_stores::postgres::schema_dump(options).await.unwrap().replace(schema, "SCHEMA")
}

#[tokio::test]
async fn the_script_for_a_dba_leaves_what_a_migration_does() {
    let server = PostgresServer::start(Care::Careless);
    operate(&server, &["CREATE ROLE dba LOGIN; GRANT CREATE ON DATABASE postgres TO dba"]).await;
    let as_dba = |script: &str| format!("SET SESSION AUTHORIZATION dba; {script}");
    drop(windlass_stores::open(&server.url("by_windlass")).await.unwrap());
    let expected = catalog(&server, "by_windlass").await;

    let url = |schema: &str| server.url(schema);
    let script = windlass_stores::schema_script(&url("by_script")).await.unwrap();
    operate(&server, &[&as_dba(&script)]).await;
    assert_eq!(catalog(&server, "by_script").await, expected);
    let status = windlass_stores::schema_status(&url("by_script")).await.unwrap();
    assert_eq!(status.applied, status.migrations.len());
    let store = windlass_stores::open(&url("by_script")).await.unwrap();
    submit(&store, "mail").await.unwrap();
    assert_eq!(claimed(&store, "mail").await.len(), 1);
    let script = windlass_stores::schema_script(&url("by_script")).await.unwrap();
    assert!(script.lines().all(|line| line.starts_with("--")), "nothing is left to do: {script}");

    // From an older version, under a name that must be quoted, by an owner who may not make schemas.
    let old = status.migrations[..3].iter().map(|step| step.sql).collect::<String>();
    let make = "REVOKE CREATE ON DATABASE postgres FROM dba;
        CREATE SCHEMA \"it's old\" AUTHORIZATION dba; SET SESSION AUTHORIZATION dba; BEGIN;
        SET LOCAL search_path TO \"it's old\";";
    operate(&server, &[&format!("{make} {old} UPDATE meta SET version = 3; COMMIT")]).await;
    let script = windlass_stores::schema_script(&url("it's%20old")).await.unwrap();
    assert!(!script.contains("0003_") && script.contains("0004_"), "{script}");
    operate(&server, &[&as_dba(&script)]).await;
    let options = PostgresOptions::of_url(&url("it's%20old")).unwrap().existing();
    let dump = windlass_stores::postgres::schema_dump(options).await.unwrap();
    assert_eq!(dump.replace("\"it's old\"", "SCHEMA"), expected);

    let (client, connection) = {
        let mut config = Config::new();
        config.host("127.0.0.1").port(server.port()).user("windlass").dbname("postgres");
        config.connect(NoTls).await.unwrap()
    };
    tokio::spawn(connection);
    let again = client.batch_execute(&script).await.unwrap_err();
    assert_eq!(again.code().unwrap().code(), "55000", "it is for version 3 only: {again}");
    client.batch_execute("ROLLBACK").await.unwrap();
    let text = "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace";
    assert_eq!(client.query_one(text, &[]).await.unwrap().get::<_, i64>(0), 0);
}
