//! A store on the shared server, with a hand on its keys.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use windlass_core::{ManualClock, Store, TaskId};
use windlass_stores::redis::RedisOptions;
use windlass_stores::redis::asynq::AsynqStore;
use windlass_stores::redis::asynq::message::TaskMessage;
use windlass_stores::redis::driver::aio::{Monitor, MultiplexedConnection};
use windlass_stores::redis::driver::{Client, FromRedisValue, cmd};
use windlass_testkit::scene::Scene;
use windlass_testkit::{RedisServer, Subject};

struct Shared {
    clock: Arc<ManualClock>,
    store: Arc<AsynqStore>,
    prefix: String,
}

#[async_trait]
impl Subject for Shared {
    async fn fresh() -> Self {
        let (clock, prefix) = (Arc::new(ManualClock::default()), RedisServer::new_prefix());
        let options = RedisOptions::of_url(&RedisServer::shared().url(&prefix)).unwrap();
        let store = Arc::new(AsynqStore::open(options.clock(clock.clone())).await.unwrap());
        Self { clock, store, prefix }
    }

    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn another(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn spoil(&self, _task: &TaskId) -> bool {
        false
    }

    async fn rows_kept(&self) -> Option<u64> {
        None
    }
}

/// A scene, and a plain connection to the server behind its back.
pub(crate) struct Stage {
    pub(crate) scene: Scene,
    connection: MultiplexedConnection,
    pub(crate) prefix: String,
}

/// The second at which all clocks of a stage begin.
pub(crate) const START: i64 = 1_767_254_400;

impl Stage {
    pub(crate) async fn new() -> Self {
        Self::on(Shared::fresh().await).await
    }

    /// One whose store goes by the time of the server, which no test can move.
    pub(crate) async fn on_the_servers_clock() -> Self {
        let (clock, prefix) = (Arc::new(ManualClock::default()), RedisServer::new_prefix());
        let options = RedisOptions::of_url(&RedisServer::shared().url(&prefix)).unwrap();
        let store = Arc::new(AsynqStore::open(options).await.unwrap());
        Self::on(Shared { clock, store, prefix }).await
    }

    async fn on(subject: Shared) -> Self {
        let prefix = subject.prefix.clone();
        let client = Client::open(RedisServer::shared().url("").replace("?prefix=", "")).unwrap();
        let connection = client.get_multiplexed_async_connection().await.unwrap();
        Self { scene: Scene::on(Arc::new(subject)), connection, prefix }
    }

    /// Hears every command that the server is sent, from now on.
    pub(crate) async fn monitor(&self) -> Monitor {
        let client = Client::open(RedisServer::shared().url("").replace("?prefix=", "")).unwrap();
        client.get_async_monitor().await.unwrap()
    }

    /// A key of queue `main`.
    pub(crate) fn key(&self, rest: &str) -> String {
        format!("{}:{{main}}:{rest}", self.prefix)
    }

    /// Sends a command: its name, a key of queue `main`, and the rest.
    pub(crate) async fn send<T: FromRedisValue>(&self, name: &str, key: &str, rest: &[&str]) -> T {
        let mut command = cmd(name);
        command.arg(self.key(key)).arg(rest);
        command.query_async(&mut self.connection.clone()).await.unwrap()
    }

    /// Sends a command as it is.
    pub(crate) async fn send_all<T: FromRedisValue>(&self, name: &str, rest: &[&[u8]]) -> T {
        let mut command = cmd(name);
        command.arg(rest);
        command.query_async(&mut self.connection.clone()).await.unwrap()
    }

    /// The message of a task of queue `main`.
    pub(crate) async fn message(&self, id: &str) -> TaskMessage {
        let stored: Vec<u8> = self.send("HGET", &format!("t:{id}"), &["msg"]).await;
        TaskMessage::read(stored.into()).unwrap()
    }

    /// Writes a task's hash as a program in Go does.
    pub(crate) async fn put_hash(&self, message: &TaskMessage, state: &str) {
        let key = self.key(&format!("t:{}", message.id));
        let bytes = message.write();
        let fields = [key.as_bytes(), b"msg", &bytes, b"state", state.as_bytes()];
        let _: i64 = self.send_all("HSET", &fields).await;
        let queues = format!("{}:queues", self.prefix);
        let _: i64 = self.send_all("SADD", &[queues.as_bytes(), b"main"]).await;
    }

    /// Enqueues a task as a program in Go does.
    pub(crate) async fn enqueue_as_go(&self, id: &str) -> TaskId {
        self.put_hash(&go_message(id), "pending").await;
        let since = format!("{START}000000000");
        let _: i64 = self.send("HSET", &format!("t:{id}"), &["pending_since", &since]).await;
        let _: i64 = self.send("LPUSH", "pending", &[id]).await;
        TaskId::new(id)
    }

    /// Dequeues the next task as a program in Go does.
    pub(crate) async fn dequeue_as_go(&self, lease: i64) -> String {
        let active = self.key("active");
        let id: String = self.send("RPOPLPUSH", "pending", &[&active]).await;
        let _: i64 = self.send("HSET", &format!("t:{id}"), &["state", "active"]).await;
        let _: i64 = self.send("HDEL", &format!("t:{id}"), &["pending_since"]).await;
        let _: i64 = self.send("ZADD", "lease", &[&lease.to_string(), &id]).await;
        id
    }
}

/// A task as Go's client makes it with its defaults.
pub(crate) fn go_message(id: &str) -> TaskMessage {
    TaskMessage {
        r#type: "work".into(),
        payload: "{}".into(),
        id: id.into(),
        queue: "main".into(),
        retry: 25,
        timeout: 1_800,
        ..TaskMessage::default()
    }
}
