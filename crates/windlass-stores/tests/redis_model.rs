//! The model check of `windlass_testkit::model` on Redis, while an operator has the server forget all scripts,
//! again and again.

#![cfg(feature = "redis")]
#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use windlass_core::Store;
use windlass_stores::redis::RedisOptions;
use windlass_stores::redis::asynq::AsynqStore;
use windlass_testkit::{RedisServer, model};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_happens_at_once_no_task_is_held_twice_lost_or_ended_twice() {
    let url = RedisServer::shared().url(&RedisServer::new_prefix());
    play(windlass_stores::open(&url).await.unwrap(), windlass_stores::open(&url).await.unwrap())
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_holds_on_the_keys_of_asynq() {
    let url = RedisServer::shared().url(&RedisServer::new_prefix());
    // By its options: a URL of asynq's keys takes no prefix.
    let open = || AsynqStore::open(RedisOptions::of_url(&url).unwrap());
    play(Arc::new(open().await.unwrap()), Arc::new(open().await.unwrap())).await;
}

async fn play(one: Arc<dyn Store>, other: Arc<dyn Store>) {
    model::play(one, other, flush_scripts()).await;
}

async fn flush_scripts() -> Infallible {
    let mut pauses = tokio::time::interval(Duration::from_millis(7));
    loop {
        pauses.tick().await;
        let answer = RedisServer::shared().operate(&["SCRIPT", "FLUSH"]).unwrap();
        assert_eq!(answer, "+OK\r\n");
    }
}
