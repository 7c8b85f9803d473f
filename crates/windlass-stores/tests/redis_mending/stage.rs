//! A store on the shared server, with a hand on its keys.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use windlass_core::store::{Applied, Depth, Parts};
use windlass_core::{ManualClock, State, Store, TaskId};
use windlass_stores::redis::RedisOptions;
use windlass_stores::redis::driver::aio::MultiplexedConnection;
use windlass_stores::redis::driver::{Client, Cmd, FromRedisValue, cmd};
use windlass_stores::redis::streams::StreamsStore;
use windlass_testkit::scene::{Run, Scene, completed};
use windlass_testkit::{RedisServer, Subject};

struct Mended {
    clock: Arc<ManualClock>,
    store: Arc<StreamsStore>,
    prefix: String,
}

#[async_trait]
impl Subject for Mended {
    async fn fresh() -> Self {
        let (clock, prefix) = (Arc::new(ManualClock::default()), RedisServer::new_prefix());
        let options = RedisOptions::of_url(&RedisServer::shared().url(&prefix)).unwrap();
        let store = Arc::new(StreamsStore::open(options.clock(clock.clone())).await.unwrap());
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
    stem: String,
}

impl Stage {
    pub(crate) async fn new() -> Self {
        let subject = Mended::fresh().await;
        let stem = format!("{}:{{main}}:", subject.prefix);
        let url = format!("redis://127.0.0.1:{}/", RedisServer::shared().port());
        let connection = Client::open(url).unwrap().get_multiplexed_async_connection().await;
        Self { scene: Scene::on(Arc::new(subject)), connection: connection.unwrap(), stem }
    }

    /// Begins a command on a key of the queue `main`.
    pub(crate) fn on(&self, command: &str, key: &str) -> Cmd {
        Self::begin(command, &format!("{}{key}", self.stem))
    }

    /// Begins a command on a key of the fleet.
    pub(crate) fn on_fleet(&self, command: &str, key: &str) -> Cmd {
        Self::begin(command, &format!("{}{key}", self.stem.replace("{main}", "{~}")))
    }

    fn begin(command: &str, key: &str) -> Cmd {
        let mut words = command.split(' ');
        let mut made = cmd(words.next().unwrap());
        words.for_each(|word| {
            made.arg(word);
        });
        made.arg(key);
        made
    }

    /// Does something that windlass never does.
    pub(crate) async fn run<T: FromRedisValue>(&self, command: &Cmd) -> T {
        command.query_async(&mut self.connection.clone()).await.unwrap()
    }

    /// Deletes a key, which must be there.
    pub(crate) async fn delete_key(&self, key: &str) {
        let count: i64 = self.run(&self.on("DEL", key)).await;
        assert_eq!(count, 1, "{key} should be there to be deleted");
    }

    /// Gives a key another name.
    pub(crate) async fn rename(&self, key: &str, name: &str) {
        self.run::<()>(self.on("RENAME", key).arg(format!("{}{name}", self.stem))).await;
    }

    /// Deletes the record of a task.
    pub(crate) async fn delete_record(&self, id: &TaskId) {
        let count: i64 = self.run(self.on("HDEL", "d").arg(&stored(id)[..])).await;
        assert_eq!(count, 1, "{id} should be there to be deleted");
    }

    /// Lets the sweep mend; it must have found something, and nothing any more afterwards.
    pub(crate) async fn mend(&self) -> u64 {
        let repaired = self.scene.tend().await.repaired;
        assert!(repaired > 0, "nothing was mended");
        assert_eq!(self.scene.tend().await.repaired, 0, "what is mended stays so");
        self.scene.books_balance("after the sweep").await;
        repaired
    }

    /// Has a new worker run everything that is pending, to its end; answers what it ran.
    pub(crate) async fn drain(&self) -> Vec<TaskId> {
        let (worker, mut ran) = (self.scene.worker().await, Vec::new());
        loop {
            let tasks = self.scene.claim(&worker, 100).await;
            if tasks.is_empty() {
                ran.sort();
                return ran;
            }
            for task in tasks {
                let run = Run { worker: worker.clone(), task };
                self.scene.finish_as(&run, completed(), State::Completed).await;
                ran.push(run.id.clone());
            }
        }
    }

    /// Reports a success of a run whose lease is lost: it must be refused.
    pub(crate) async fn expect_refused(&self, run: &Run) {
        let outcome = self.scene.finish(run, completed()).await;
        assert!(matches!(outcome, Applied::Refused(_)), "a late report: {outcome:?}");
    }

    /// The findings of the doctor of a subject, as text.
    pub(crate) async fn findings(&self, subject: &str) -> Vec<String> {
        let findings = self.scene.store.inspect(Depth::Full).await.unwrap().findings;
        let found = findings.into_iter().filter(|finding| finding.subject == subject);
        found.map(|finding| finding.text).collect()
    }

    /// The payload that a get shows.
    pub(crate) async fn payload(&self, id: &TaskId) -> Option<Vec<u8>> {
        let params = windlass_core::store::GetParams { ids: vec![id.clone()], parts: Parts::ALL };
        let record = self.scene.store.get(params).await.unwrap().remove(0);
        record.map(|record| record.payload.to_vec())
    }
}

/// An id as it is kept.
pub(crate) fn stored(id: &TaskId) -> [u8; 16] {
    uuid::Uuid::parse_str(id.as_str()).unwrap().into_bytes()
}

pub(crate) fn sorted(mut ids: Vec<TaskId>) -> Vec<TaskId> {
    ids.sort();
    ids
}
