//! Outages done to a real PostgreSQL: everything resumes by itself, nothing is lost, nothing is
//! completed twice, no attempt and no crash is counted.

#![cfg(feature = "postgres")]
#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

mod ambiguous;
mod crowded;
mod fresh;
mod hung;
mod restarts;

use windlass_stores::postgres::tokio_postgres::{Client, Config, NoTls};
use windlass_testkit::{Load, PostgresServer};

/// Ends all connections but one's own.
const TERMINATE: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'";

/// A connection of the server's operator.
async fn operator(server: &PostgresServer) -> Client {
    let url = server.url("operator");
    let (plain, _) = url.split_once("&schema=").unwrap();
    let config: Config = plain.parse().unwrap();
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Does something to the server as its operator.
async fn operate(server: &PostgresServer, text: &str) {
    operator(server).await.batch_execute(text).await.unwrap();
}

/// A load on a schema of a server.
async fn load(url: &str) -> Load {
    Load::start(windlass_stores::open(url).await.unwrap())
}
