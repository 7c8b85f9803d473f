//! The server goes away and comes back.

use std::time::Duration;

use windlass_testkit::hearing;
use windlass_testkit::servers::PostgresServer;
use windlass_testkit::servers::postgres::{Care, Stop};

use crate::{TERMINATE, load, operate};

/// Longer than any pause between two tries to connect.
const AWAY: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts_cut_connections_and_read_only_times_lose_nothing() {
    let server = PostgresServer::start(Care::Durable);
    let load = load(&server.tcp_url("outage")).await;
    load.goes_on().await;
    for how in [Stop::Fast, Stop::Immediate, Stop::Immediate] {
        load.is_hit_by(async { server.stop(how) }).await;
        server.launch();
        load.goes_on().await;
    }
    for _ in 0..5 {
        operate(&server, TERMINATE).await;
        load.goes_on().await;
    }
    let forbid = async {
        let text = "ALTER DATABASE postgres SET default_transaction_read_only = on";
        operate(&server, text).await;
        operate(&server, TERMINATE).await;
    };
    load.is_hit_by(forbid).await;
    let lift = "SET transaction_read_only = off;
        ALTER DATABASE postgres RESET default_transaction_read_only";
    operate(&server, lift).await;
    operate(&server, TERMINATE).await;
    load.goes_on().await;
    load.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_away_for_long_is_taken_up_again() {
    let server = PostgresServer::start(Care::Durable);
    let load = load(&server.tcp_url("away")).await;
    load.goes_on().await;
    load.is_hit_by(async { server.stop(Stop::Immediate) }).await;
    tokio::time::sleep(AWAY).await;
    server.launch();
    load.goes_on().await;
    load.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broadcasts_are_heard_again_after_connections_were_cut() {
    let server = PostgresServer::start(Care::Durable);
    let store = windlass_stores::open(&server.tcp_url("broadcasts")).await.unwrap();
    hearing::goes_on_after(&*store, operate(&server, TERMINATE)).await;
}
