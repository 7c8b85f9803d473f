//! Restarts, a server that hangs or is full.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::store::Reservation;
use windlass_core::{Reason, Store};
use windlass_stores::redis::RedisOptions;
use windlass_stores::redis::streams::StreamsStore;
use windlass_testkit::draft::{draft, queue};
use windlass_testkit::hearing;
use windlass_testkit::servers::redis::Keeping;
use windlass_testkit::{Load, RedisServer};

/// A store that does not wait for an answer as long as others do.
pub(crate) async fn open(server: &RedisServer) -> Arc<dyn Store> {
    let options = RedisOptions::of_url(&server.url("outage")).unwrap();
    Arc::new(StreamsStore::open(options.answer_within(Duration::from_secs(2))).await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts_of_a_durable_server_lose_nothing() {
    let server = RedisServer::start(Keeping::Always);
    let load = Load::start(open(&server).await);
    load.goes_on().await;
    for _ in 0..3 {
        load.is_hit_by(async { server.kill() }).await;
        server.launch();
        load.goes_on().await;
    }
    load.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_longer_than_its_answers_may_take_loses_nothing() {
    let server = RedisServer::start_with(Keeping::Nothing, &["--enable-debug-command", "yes"]);
    let load = Load::start(open(&server).await);
    load.goes_on().await;
    let hang = async {
        // Nobody waits as long for its answer as it sleeps.
        let _ = server.operate(&["DEBUG", "SLEEP", "3"]);
    };
    load.is_hit_by(hang).await;
    load.goes_on().await;
    load.end().await;
}

/// A full server refuses what needs memory and says why; when there is room again, it goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_says_that_it_is_full_and_goes_on_afterwards() {
    let server = RedisServer::start(Keeping::Nothing);
    let store = open(&server).await;
    let load = Load::start(Arc::clone(&store));
    load.goes_on().await;
    let limit = |bytes: &str| {
        let answer = server.operate(&["CONFIG", "SET", "maxmemory", bytes]).unwrap();
        assert_eq!(answer, "+OK\r\n");
    };
    load.is_hit_by(async { limit("1mb") }).await;
    let wanted = vec![Reservation { queue: queue("main"), count: 1 }];
    let id = store.reserve(wanted).await.unwrap().remove(0);
    let error = store.insert(vec![draft().with_id(id)]).await;
    let told = error.map_or_else(|error| error.reason(), |_| Reason::Unspecified);
    limit("0");
    load.goes_on().await;
    load.end().await;
    assert_eq!(told, Reason::StorageFull, "an insert into a full server");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broadcasts_are_heard_again_after_a_restart() {
    let server = RedisServer::start(Keeping::Nothing);
    let store = open(&server).await;
    let restart = async {
        server.kill();
        server.launch();
    };
    hearing::goes_on_after(&*store, restart).await;
}
