//! asynq's keys in Redis as the test kit asks for them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use windlass_core::{ManualClock, QueueName, Store, TaskId};
use windlass_stores::redis::RedisOptions;
use windlass_stores::redis::asynq::AsynqStore;
use windlass_stores::redis::driver::aio::MultiplexedConnection;
use windlass_stores::redis::driver::{Client, cmd};
use windlass_testkit::{RedisCluster, RedisServer, Subject};

use super::damage;
use super::documented_user::{AsynqUser, assert_not_denied};

/// A prefix of its own instead of `asynq` on the server that all tests of the process share, with a clock that
/// only the test moves.
pub(crate) struct AsynqSubject(OnRedis);

/// The same on a Cluster of three nodes.
pub(crate) struct AsynqClusterSubject(OnRedis);

/// Under the rights that docs/asynq.md names.
pub(crate) struct AsynqUserSubject(OnRedis);

struct OnRedis {
    clock: Arc<ManualClock>,
    store: Arc<AsynqStore>,
    url: String,
    prefix: String,
    ports: Vec<u16>,
}

async fn open(url: &str, clock: &Arc<ManualClock>) -> Arc<AsynqStore> {
    let options = RedisOptions::of_url(url).unwrap().clock(clock.clone());
    Arc::new(AsynqStore::open(options).await.unwrap())
}

impl OnRedis {
    async fn fresh(url: impl FnOnce(&str) -> String, ports: Vec<u16>) -> Self {
        let clock = Arc::new(ManualClock::default());
        let prefix = RedisServer::new_prefix();
        let url = url(&prefix);
        let store = open(&url, &clock).await;
        Self { clock, store, url, prefix, ports }
    }

    /// All keys of a pattern, each with a connection to its node behind the store's back.
    async fn keys(&self, pattern: &str) -> Vec<(MultiplexedConnection, String)> {
        let mut found = Vec::new();
        for port in &self.ports {
            let client = Client::open(format!("redis://127.0.0.1:{port}/")).unwrap();
            let mut connection = client.get_multiplexed_async_connection().await.unwrap();
            let keys: Vec<String> =
                cmd("KEYS").arg(pattern).query_async(&mut connection).await.unwrap();
            found.extend(keys.into_iter().map(|key| (connection.clone(), key)));
        }
        found
    }

    async fn spoil(&self, task: &TaskId) -> bool {
        let found = self.keys(&format!("{}:*:t:{task}", self.prefix)).await.pop();
        let (mut connection, key) = found.expect("the task should be there to be spoiled");
        let mut set = cmd("HSET");
        // A message that says it is longer than it is, and a record that is none.
        set.arg(&key).arg("msg").arg(&b"\x0a\xff\xff"[..]).arg("wl").arg(&b"\xff"[..]);
        let _: i64 = set.query_async(&mut connection).await.unwrap();
        true
    }

    /// A key that every insert and claim of a queue needs.
    fn damaged_key(&self, queue: &QueueName) -> String {
        format!("{}:{{{queue}}}:pending", self.prefix)
    }

    async fn rows_kept(&self) -> u64 {
        let mut count = 0;
        for pattern in [":*:t:*", ":*:unique:*"] {
            count += self.keys(&format!("{}{pattern}", self.prefix)).await.len() as u64;
        }
        for hash in ["i", "u"] {
            for (mut connection, key) in self.keys(&format!("wl:{}:*:{hash}", self.prefix)).await {
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

            fn skipped_rules() -> &'static [&'static str] {
                &["counters::a_queue_that_is_idle_for_long_is_forgotten_until_the_next_insert"]
            }

            /// A Go client publishes the name of a queue once and relies on it from then on.
            fn forgets_queues(&self) -> bool {
                false
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

subject!(AsynqSubject, RedisServer);
subject!(AsynqClusterSubject, RedisCluster);
subject!(AsynqUserSubject, AsynqUser);

impl Drop for AsynqUserSubject {
    fn drop(&mut self) {
        assert_not_denied(&self.0.prefix);
    }
}
