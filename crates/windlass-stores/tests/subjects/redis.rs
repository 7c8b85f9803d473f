//! Redis Streams as the test kit asks for it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use windlass_core::{ManualClock, Store, TaskId};
use windlass_stores::redis::RedisOptions;
use windlass_stores::redis::driver::aio::MultiplexedConnection;
use windlass_stores::redis::driver::{Client, cmd};
use windlass_stores::redis::streams::StreamsStore;
use windlass_testkit::{RedisServer, Subject};

/// A prefix of its own on the server that all tests of the process share, with a clock that only the
/// test moves.
pub(crate) struct RedisSubject {
    clock: Arc<ManualClock>,
    store: Arc<StreamsStore>,
    prefix: String,
}

async fn open(prefix: &str, clock: &Arc<ManualClock>) -> StreamsStore {
    let url = RedisServer::shared().url(prefix);
    let options = RedisOptions::of_url(&url).unwrap().clock(clock.clone());
    StreamsStore::open(options).await.unwrap()
}

/// A connection behind the store's back.
async fn connect() -> MultiplexedConnection {
    let url = format!("redis://127.0.0.1:{}/", RedisServer::shared().port());
    Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap()
}

/// All keys of a subject that end like this.
async fn keys(connection: &mut MultiplexedConnection, prefix: &str, end: &str) -> Vec<String> {
    cmd("KEYS").arg(format!("{prefix}:*:{end}")).query_async(connection).await.unwrap()
}

#[async_trait]
impl Subject for RedisSubject {
    async fn fresh() -> Self {
        let clock = Arc::new(ManualClock::default());
        let prefix = RedisServer::new_prefix();
        let store = Arc::new(open(&prefix, &clock).await);
        Self { clock, store, prefix }
    }

    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn another(&self) -> Arc<dyn Store> {
        Arc::new(open(&self.prefix, &self.clock).await)
    }

    fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn spoil(&self, task: &TaskId) -> bool {
        let mut connection = connect().await;
        let id = uuid::Uuid::parse_str(task.as_str()).unwrap().into_bytes();
        for key in keys(&mut connection, &self.prefix, "d").await {
            let get = cmd("HGET").arg(&key).arg(&id[..]).query_async(&mut connection).await;
            let record: Option<Vec<u8>> = get.unwrap();
            let Some(mut record) = record else { continue };
            // All that follows the head: a body that says it is longer than it is.
            let head = record.iter().position(|byte| *byte == b' ').unwrap() + 1;
            record.truncate(head + 38);
            record.extend([0xff; 3]);
            let set =
                cmd("HSET").arg(&key).arg(&id[..]).arg(record).query_async(&mut connection).await;
            let _: i64 = set.unwrap();
            return true;
        }
        panic!("task {task} should be there to be spoiled");
    }

    async fn rows_kept(&self) -> Option<u64> {
        let mut connection = connect().await;
        let mut count = 0;
        for hash in ["d", "u", "b", "g"] {
            for key in keys(&mut connection, &self.prefix, hash).await {
                let length: u64 = cmd("HLEN").arg(key).query_async(&mut connection).await.unwrap();
                count += length;
            }
        }
        Some(count)
    }
}
