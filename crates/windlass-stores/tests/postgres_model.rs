//! The model check of `windlass_testkit::model` on PostgreSQL, with upkeep that opens, copies, merges and drops
//! generations all the while.

#![cfg(feature = "postgres")]
#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

use std::sync::Arc;
use std::time::Duration;

use windlass_stores::postgres::tokio_postgres::{Config, NoTls};
use windlass_stores::postgres::{GenerationRules, PostgresOptions, PostgresStore};
use windlass_testkit::{PostgresServer, model};

/// A new generation every few hundred tasks.
const RESTLESS: GenerationRules = GenerationRules {
    used_max: 300,
    used_when_busy: i64::MAX,
    age_when_busy: Duration::MAX,
    age_max: Duration::MAX,
    count_max: 5,
    merged_at_once: 3,
    garbage_min: 1,
    // Whoever had to make a missing one again must be able to use it before it is dropped for being empty.
    rest: Duration::from_millis(50),
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_happens_at_once_no_task_is_held_twice_lost_or_ended_twice() {
    let url = PostgresServer::shared().url(&PostgresServer::new_schema());
    let options =
        PostgresOptions::of_url(&url).unwrap().fast().generations(RESTLESS).ids_at_once(200);
    let one = PostgresStore::open(options.clone()).await.unwrap();
    let other = PostgresStore::open(options).await.unwrap();
    model::play(Arc::new(one), Arc::new(other), std::future::pending()).await;
    check_generations(&url).await;
}

/// Some generations were dropped, and there are only as many as there should be.
async fn check_generations(url: &str) {
    let (plain, schema) = url.split_once("&schema=").unwrap();
    let config: Config = plain.parse().unwrap();
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    let text = format!("SELECT count(*), max(number), min(lo) FROM {schema}.generation");
    let row = client.query_one(&text, &[]).await.unwrap();
    let (count, last, lowest): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
    // How many were opened depends on the machine's speed.
    assert!(last > count && count <= 10, "{count} generations, {last}, from {lowest}");
}
