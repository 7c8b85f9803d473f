//! Redis Streams as the test kit asks for it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use windlass_core::{ManualClock, QueueName, Store, TaskId};
use windlass_stores::redis::RedisOptions;
use windlass_stores::redis::driver::aio::MultiplexedConnection;
use windlass_stores::redis::driver::{Client, cmd};
use windlass_stores::redis::streams::StreamsStore;
use windlass_testkit::{RedisCluster, RedisServer, Subject};

use super::damage;
use super::documented_user::{StreamsUser, assert_not_denied};

/// A prefix of its own on the server that all tests of the process share, with a clock that only the
/// test moves.
pub(crate) struct RedisSubject(OnRedis);

/// The same on a Cluster of three nodes.
pub(crate) struct ClusterSubject(OnRedis);

/// Under the rights that docs/redis.md names.
pub(crate) struct RedisUserSubject(OnRedis);

struct OnRedis {
    clock: Arc<ManualClock>,
    store: Arc<StreamsStore>,
    url: String,
    prefix: String,
    ports: Vec<u16>,
}

async fn open(url: &str, clock: &Arc<ManualClock>) -> Arc<StreamsStore> {
    let options = RedisOptions::of_url(url).unwrap().clock(clock.clone());
    Arc::new(StreamsStore::open(options).await.unwrap())
}

impl OnRedis {
    async fn fresh(url: impl FnOnce(&str) -> String, ports: Vec<u16>) -> Self {
        let clock = Arc::new(ManualClock::default());
        let prefix = RedisServer::new_prefix();
        let url = url(&prefix);
        let store = open(&url, &clock).await;
        Self { clock, store, url, prefix, ports }
    }

    /// All keys that end like this, each with a connection to its node behind the store's back.
    async fn keys(&self, end: &str) -> Vec<(MultiplexedConnection, String)> {
        let mut found = Vec::new();
        for port in &self.ports {
            let client = Client::open(format!("redis://127.0.0.1:{port}/")).unwrap();
            let mut connection = client.get_multiplexed_async_connection().await.unwrap();
            let pattern = format!("{}:*:{end}", self.prefix);
            let keys: Vec<String> =
                cmd("KEYS").arg(pattern).query_async(&mut connection).await.unwrap();
            found.extend(keys.into_iter().map(|key| (connection.clone(), key)));
        }
        found
    }

    async fn spoil(&self, task: &TaskId) -> bool {
        let id = uuid::Uuid::parse_str(task.as_str()).unwrap().into_bytes();
        for (mut connection, key) in self.keys("d").await {
            let get = cmd("HGET").arg(&key).arg(&id[..]).query_async(&mut connection).await;
            let record: Option<Vec<u8>> = get.unwrap();
            let Some(mut record) = record else { continue };
            // All that follows the head: a body that says it is longer than it is.
            let head = record.iter().position(|byte| *byte == b' ').unwrap() + 1;
            record.truncate(head + 38);
            record.extend([0xff; 3]);
            let mut set = cmd("HSET");
            set.arg(&key).arg(&id[..]).arg(record);
            let _: i64 = set.query_async(&mut connection).await.unwrap();
            return true;
        }
        panic!("task {task} should be there to be spoiled");
    }

    /// A key that every insert and claim of a queue needs.
    fn damaged_key(&self, queue: &QueueName) -> String {
        format!("{}:{{{queue}}}:st", self.prefix)
    }

    async fn rows_kept(&self) -> u64 {
        let mut count = 0;
        for hash in ["d", "u", "b", "g"] {
            for (mut connection, key) in self.keys(hash).await {
                let length: u64 = cmd("HLEN").arg(key).query_async(&mut connection).await.unwrap();
                count += length;
            }
        }
        count
    }
}

macro_rules! subject {
    ($name:ident, $server:ident) => {
        #[async_trait]
        impl Subject for $name {
            async fn fresh() -> Self {
                let server = $server::shared();
                Self(OnRedis::fresh(|prefix| server.url(prefix), server.ports()).await)
            }

            fn store(&self) -> Arc<dyn Store> {
                self.0.store.clone()
            }

            async fn another(&self) -> Arc<dyn Store> {
                open(&self.0.url, &self.0.clock).await
            }

            fn advance(&self, by: Duration) {
                self.0.clock.advance(by);
            }

            async fn spoil(&self, task: &TaskId) -> bool {
                self.0.spoil(task).await
            }

            async fn damage(&self, queue: &QueueName) -> bool {
                damage::damage(&self.0.ports, &self.0.damaged_key(queue)).await;
                true
            }

            async fn undo_damage(&self, queue: &QueueName) {
                damage::undo_damage(&self.0.ports, &self.0.damaged_key(queue)).await;
            }

            async fn rows_kept(&self) -> Option<u64> {
                Some(self.0.rows_kept().await)
            }
        }
    };
}

subject!(RedisSubject, RedisServer);
subject!(ClusterSubject, RedisCluster);
subject!(RedisUserSubject, StreamsUser);

impl Drop for RedisUserSubject {
    fn drop(&mut self) {
        assert_not_denied(&self.0.prefix);
    }
}
