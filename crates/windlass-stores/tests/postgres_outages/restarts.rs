//! The server goes away and comes back.

use std::time::Duration;

use windlass_testkit::servers::PostgresServer;
use windlass_testkit::servers::postgres::{Care, Stop};

use crate::load::Load;
use crate::{TERMINATE, a_moment, operate};

/// Longer than any pause between two tries to connect.
const AWAY: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts_cut_connections_and_read_only_times_lose_nothing() {
    let server = PostgresServer::start(Care::Durable);
    let load = Load::start(&server.tcp_url("outage")).await;
    a_moment().await;
    for how in [Stop::Fast, Stop::Immediate, Stop::Immediate] {
        server.stop(how);
        a_moment().await;
        server.launch();
        a_moment().await;
    }
    for _ in 0..5 {
        operate(&server, TERMINATE).await;
        a_moment().await;
    }
    operate(&server, "ALTER DATABASE postgres SET default_transaction_read_only = on").await;
    operate(&server, TERMINATE).await;
    a_moment().await;
    let lift = "SET transaction_read_only = off;
        ALTER DATABASE postgres RESET default_transaction_read_only";
    operate(&server, lift).await;
    operate(&server, TERMINATE).await;
    a_moment().await;
    load.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_away_for_long_is_taken_up_again() {
    let server = PostgresServer::start(Care::Durable);
    let load = Load::start(&server.tcp_url("away")).await;
    a_moment().await;
    server.stop(Stop::Immediate);
    tokio::time::sleep(AWAY).await;
    server.launch();
    a_moment().await;
    load.end().await;
}
