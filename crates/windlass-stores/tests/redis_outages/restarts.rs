//! Restarts, cut connections, forgotten scripts, a server that hangs or is full.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::store::Reservation;
use windlass_core::{Reason, Store};
use windlass_stores::redis::RedisOptions;
use windlass_stores::redis::driver::{Client, Cmd, cmd};
use windlass_stores::redis::streams::StreamsStore;
use windlass_testkit::RedisServer;
use windlass_testkit::draft::{draft, queue};
use windlass_testkit::servers::redis::Keeping;

use crate::load::Load;

/// Does something to the server as its operator.
pub(crate) async fn operate(server: &RedisServer, command: &Cmd) {
    let url = format!("redis://127.0.0.1:{}/", server.port());
    let client = Client::open(url).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    // Whoever kills all connections gets no answer over its own.
    let _ = command.query_async::<()>(&mut connection).await;
}

pub(crate) async fn a_moment() {
    tokio::time::sleep(Duration::from_millis(400)).await;
}

async fn open(server: &RedisServer) -> Arc<dyn Store> {
    let options = RedisOptions::of_url(&server.url("outage")).unwrap();
    Arc::new(StreamsStore::open(options.answer_within(Duration::from_secs(2))).await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts_of_a_durable_server_lose_nothing() {
    let server = RedisServer::start(Keeping::Always);
    let load = Load::start(open(&server).await).await;
    a_moment().await;
    for _ in 0..3 {
        server.kill();
        a_moment().await;
        server.launch();
        a_moment().await;
    }
    load.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_connections_and_forgotten_scripts_lose_nothing() {
    let server = RedisServer::start(Keeping::Nothing);
    let load = Load::start(open(&server).await).await;
    a_moment().await;
    for sort in ["normal", "pubsub"].into_iter().cycle().take(10) {
        let mut kill = cmd("CLIENT");
        kill.arg("KILL").arg("TYPE").arg(sort).arg("SKIPME").arg("yes");
        operate(&server, &kill).await;
        let mut flush = cmd("SCRIPT");
        flush.arg("FLUSH");
        operate(&server, &flush).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    load.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_longer_than_its_answers_may_take_loses_nothing() {
    let server = RedisServer::start_with(Keeping::Nothing, &["--enable-debug-command", "yes"]);
    let load = Load::start(open(&server).await).await;
    a_moment().await;
    let mut sleep = cmd("DEBUG");
    sleep.arg("SLEEP").arg(3);
    operate(&server, &sleep).await;
    a_moment().await;
    load.end().await;
}

/// A full server refuses what needs memory and says why; when there is room again, it goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_says_that_it_is_full_and_goes_on_afterwards() {
    let server = RedisServer::start(Keeping::Nothing);
    let store = open(&server).await;
    let load = Load::start(Arc::clone(&store)).await;
    a_moment().await;
    let limit = |bytes: &str| {
        let mut limit = cmd("CONFIG");
        limit.arg("SET").arg("maxmemory").arg(bytes);
        limit
    };
    operate(&server, &limit("1mb")).await;
    a_moment().await;
    let wanted = vec![Reservation { queue: queue("main"), count: 1 }];
    let id = store.reserve(wanted).await.unwrap().remove(0);
    let error = store.insert(vec![draft().with_id(id)]).await;
    let told = error.map_or_else(|error| error.reason(), |_| Reason::Unspecified);
    operate(&server, &limit("0")).await;
    load.end().await;
    assert_eq!(told, Reason::StorageFull, "an insert into a full server");
}
