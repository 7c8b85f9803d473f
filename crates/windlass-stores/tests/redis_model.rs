//! The model check of `windlass_testkit::model` on Redis, while an operator has the server forget all scripts,
//! again and again.

#![cfg(feature = "redis")]
#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

use std::convert::Infallible;
use std::time::Duration;

use windlass_testkit::{RedisServer, model};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_happens_at_once_no_task_is_held_twice_lost_or_ended_twice() {
    play(RedisServer::shared().url(&RedisServer::new_prefix())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_holds_on_the_keys_of_asynq() {
    let url = RedisServer::shared().url(&RedisServer::new_prefix());
    play(url.replacen("redis", "redis+asynq", 1)).await;
}

async fn play(url: String) {
    let one = windlass_stores::open(&url).await.unwrap();
    let other = windlass_stores::open(&url).await.unwrap();
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
