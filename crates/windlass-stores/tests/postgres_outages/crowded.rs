//! All connections are taken by others.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::store::{Beat, WorkerCard};
use windlass_core::{Result, Store, WorkerId};
use windlass_testkit::servers::PostgresServer;
use windlass_testkit::servers::postgres::Care;

use crate::{load, operate};

/// Longest that a call may take when there is no connection for it.
const BOUND: Duration = Duration::from_secs(15);

const CLERK: &str = "CREATE ROLE clerk LOGIN; GRANT CREATE ON DATABASE postgres TO clerk";
const NO_ROOM: &str = "ALTER ROLE clerk CONNECTION LIMIT 0";
const ROOM: &str = "ALTER ROLE clerk CONNECTION LIMIT -1";
const EVICT: &str =
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'clerk'";

/// A server and the URL of a schema for somebody whose connections can be limited, as those of the
/// first user cannot.
async fn start(schema: &str) -> (PostgresServer, String) {
    let server = PostgresServer::start(Care::Careless);
    operate(&server, CLERK).await;
    let url = server.tcp_url(schema).replace("windlass@", "clerk@");
    (server, url)
}

async fn beat(store: &Arc<dyn Store>, name: &str) -> Result<()> {
    let sign = Beat {
        worker: WorkerId::new(name),
        card: WorkerCard::default(),
        lease: Duration::from_secs(15),
        held: None,
        progress: Vec::new(),
    };
    let beaten = tokio::time::timeout(BOUND, store.beat(sign)).await;
    beaten.expect("an answer in time, whatever it is").map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_any_connection_calls_fail_and_resume_when_there_is_room() {
    let (server, url) = start("crowded").await;
    let load = load(&url).await;
    load.goes_on().await;
    for _ in 0..3 {
        let evict = async {
            operate(&server, NO_ROOM).await;
            operate(&server, EVICT).await;
        };
        load.is_hit_by(evict).await;
        operate(&server, ROOM).await;
        load.goes_on().await;
    }
    load.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_keeps_the_connection_of_its_heartbeat() {
    let (server, url) = start("kept").await;
    let store = windlass_stores::open(&url).await.unwrap();
    let (old, new) = (store.dedicated().await.unwrap(), store.dedicated().await.unwrap());
    beat(&old, "old").await.unwrap();
    operate(&server, NO_ROOM).await;
    for _ in 0..20 {
        beat(&old, "old").await.unwrap();
    }
    let error = beat(&new, "new").await.unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
    operate(&server, ROOM).await;
    beat(&new, "new").await.unwrap();
}
