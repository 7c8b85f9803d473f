//! A store on a server of its own, with a clock that the test moves and a hand on the server.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use windlass_core::{ManualClock, Store, TaskId};
use windlass_stores::redis::RedisOptions;
use windlass_stores::redis::asynq::AsynqStore;
use windlass_stores::redis::driver::aio::MultiplexedConnection;
use windlass_stores::redis::driver::{Client, Cmd, FromRedisValue, cmd};
use windlass_stores::redis::streams::StreamsStore;
use windlass_testkit::scene::Scene;
use windlass_testkit::servers::redis::Keeping;
use windlass_testkit::{RedisServer, Subject};

/// The layouts of keys in Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    Streams,
    Asynq,
}

struct OnServer {
    layout: Layout,
    clock: Arc<ManualClock>,
    store: Arc<dyn Store>,
    url: String,
}

async fn open(layout: Layout, url: &str, clock: &Arc<ManualClock>) -> Arc<dyn Store> {
    let options = RedisOptions::of_url(url).unwrap().clock(clock.clone());
    match layout {
        Layout::Streams => Arc::new(StreamsStore::open(options).await.unwrap()),
        Layout::Asynq => Arc::new(AsynqStore::open(options).await.unwrap()),
    }
}

#[async_trait]
impl Subject for OnServer {
    async fn fresh() -> Self {
        unreachable!("each test starts a server of its own")
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    async fn another(&self) -> Arc<dyn Store> {
        open(self.layout, &self.url, &self.clock).await
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

/// A scene on a server of its own.
pub(crate) struct Stage {
    pub(crate) scene: Scene,
    server: RedisServer,
    connection: MultiplexedConnection,
}

impl Stage {
    pub(crate) async fn new(layout: Layout) -> Self {
        let server = RedisServer::start(Keeping::Nothing);
        let (clock, url) = (Arc::new(ManualClock::default()), server.url("up"));
        let store = open(layout, &url, &clock).await;
        let plain = format!("redis://127.0.0.1:{}/", server.port());
        let connection = Client::open(plain).unwrap().get_multiplexed_async_connection().await;
        let scene = Scene::on(Arc::new(OnServer { layout, clock, store, url }));
        Self { scene, server, connection: connection.unwrap() }
    }

    /// Runs a command behind the store's back.
    pub(crate) async fn run<T: FromRedisValue>(&self, command: &Cmd) -> T {
        command.query_async(&mut self.connection.clone()).await.unwrap()
    }

    /// Sets the limit of the server's memory; 0 takes it away.
    pub(crate) fn limit_memory(&self, bytes: u64) {
        let answer = self.server.operate(&["CONFIG", "SET", "maxmemory", &bytes.to_string()]);
        assert_eq!(answer.unwrap(), "+OK\r\n");
    }

    /// A number that the server says of itself.
    pub(crate) async fn info(&self, section: &str, name: &str) -> u64 {
        let text: String = self.run(cmd("INFO").arg(section)).await;
        let lines: HashMap<_, _> =
            text.lines().filter_map(|line| line.trim().split_once(':')).collect();
        lines[name].parse().unwrap()
    }

    /// Forgets which commands the server has done so far.
    pub(crate) async fn reset_counts(&self) {
        let _: () = self.run(cmd("CONFIG").arg("RESETSTAT")).await;
    }

    /// How many commands of each name the server has done since, those of scripts among them.
    async fn counts(&self) -> HashMap<String, u64> {
        let text: String = self.run(cmd("INFO").arg("commandstats")).await;
        let count = |line: &str| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
        };
        text.lines().filter_map(count).collect()
    }

    /// How many commands the server has done since.
    pub(crate) async fn commands(&self) -> u64 {
        self.counts().await.values().sum()
    }

    /// How many commands of this name the server has done since.
    pub(crate) async fn count_of(&self, name: &str) -> u64 {
        self.counts().await.get(name).copied().unwrap_or(0)
    }
}
