//! A database of its own for each test, and a Go program on it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use windlass_core::{Clock, ManualClock, Store, TaskId, Timestamp};
use windlass_stores::redis::RedisOptions;
use windlass_stores::redis::asynq::AsynqStore;
use windlass_testkit::asynq::{Dump, Peer, audit, fixture};
use windlass_testkit::servers::redis::Keeping;
use windlass_testkit::{RedisServer, Scene, Subject};

/// asynq's keys have no prefix: each test has a database of its own instead.
const DATABASES: u32 = 200;

static SERVER: OnceLock<RedisServer> = OnceLock::new();
static TAKEN: AtomicU32 = AtomicU32::new(0);

/// A database, a clock for everybody, and a Go program.
pub(crate) struct Ground {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) peer: Peer,
    address: String,
    _server: Option<RedisServer>,
}

impl Ground {
    /// An empty database, at the time of the fixture.
    pub(crate) async fn fresh() -> Self {
        let start =
            || RedisServer::start_with(Keeping::Nothing, &["--databases", &DATABASES.to_string()]);
        let port = SERVER.get_or_init(start).port();
        let database = TAKEN.fetch_add(1, Ordering::Relaxed);
        assert!(database < DATABASES, "there are more tests than databases");
        Self::on(format!("127.0.0.1:{port}/{database}"), None).await
    }

    /// The same on a server of its own: what is published is heard in all databases of a server.
    pub(crate) async fn alone() -> Self {
        let server = RedisServer::start(Keeping::Nothing);
        Self::on(format!("127.0.0.1:{}/0", server.port()), Some(server)).await
    }

    async fn on(address: String, server: Option<RedisServer>) -> Self {
        let now = Timestamp::from_millis(fixture::NOW_NANOS / 1_000_000);
        let clock = Arc::new(ManualClock::starting_at(now));
        let peer = Peer::connect(&format!("redis://{address}"), clock.clone()).await;
        Self { clock, peer, address, _server: server }
    }

    /// What a real asynq wrote, at the time at which it did.
    pub(crate) async fn with_fixture() -> Self {
        let ground = Self::fresh().await;
        fixture::load(&ground.peer).await;
        ground
    }

    /// The store on this database, as another process would open it.
    pub(crate) async fn open(&self) -> Arc<AsynqStore> {
        let options = RedisOptions::of_url(&format!("redis+asynq://{}", self.address)).unwrap();
        Arc::new(AsynqStore::open(options.clock(self.clock.clone())).await.unwrap())
    }

    /// Whatever people do with a store, done to the store on this database.
    pub(crate) async fn scene(&self) -> Scene {
        let store = self.open().await;
        Scene::on(Arc::new(OnGround { clock: self.clock.clone(), store }))
    }

    /// Moves the clock to the next whole second: what Go cuts off, windlass rounds up.
    pub(crate) fn strike(&self) {
        let millis = self.clock.now().as_millis();
        self.clock.set(Timestamp::from_millis((millis + 999) / 1_000 * 1_000));
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    /// Whole seconds of the clock.
    pub(crate) fn seconds(&self) -> i64 {
        self.clock.now().as_millis() / 1_000
    }

    /// All keys; they must be as asynq takes for granted.
    pub(crate) async fn sound(&self, when: &str) -> Dump {
        let dump = self.peer.dump().await;
        audit::assert_sound(&dump, when);
        dump
    }
}

struct OnGround {
    clock: Arc<ManualClock>,
    store: Arc<AsynqStore>,
}

#[async_trait]
impl Subject for OnGround {
    async fn fresh() -> Self {
        panic!("a scene is made from a ground")
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
