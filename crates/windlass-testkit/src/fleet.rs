//! Workers on one store in memory, all driven by tokio's paused time.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass_core::config::Config;
use windlass_core::store::{GetParams, ListParams, Parts, WaitParams, WorkerRecord};
use windlass_core::{Clock, State, Store, SystemClock, TaskId, TaskRecord};
use windlass_engine::{Client, Configure, Context, Handle, Options, RawTask, Task, WorkerBuilder};
use windlass_stores::memory::MemoryStore;

use crate::clock::TokioClock;
use crate::faults::{Faults, FaultyStore};

/// After so much (paused) time a test gives up waiting.
const PATIENCE: Duration = Duration::from_secs(3_600);

/// Settings for tests with real processes and real time: lost workers are noticed within seconds.
pub const SHORT_LEASE: &str = r#"
    [worker]
    lease = "3s"
    heartbeat = "1s"
    [upkeep]
    leader_term = "3s"
    leader_renewal = "1s"
    sweep = "1s"
"#;

/// From this number on, a worker process never ends a task.
pub const ENDLESS: u64 = 1_000_000;

/// The task of most tests; each test says what its handler does with the number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Do(pub u64);

impl Task for Do {
    const KIND: &'static str = "do";
    type Output = u64;
}

/// What the handlers of a worker process do that nobody should do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each says what it does")]
pub enum Animal {
    Aborts,
    Exits,
    Overflows,
    BlocksForEver,
    IgnoresCancel { for_ms: u64 },
    Leaks,
    Returns { bytes: usize },
}

impl Task for Animal {
    const KIND: &'static str = "animal";
    type Output = String;
}

/// One store in memory, and a clean way to it for looking on.
pub struct Fleet {
    /// The clock of the store and of all workers.
    pub clock: Arc<TokioClock>,
    /// The store, without faults.
    pub store: Arc<dyn Store>,
    /// A client without faults.
    pub client: Client,
    config: Config,
}

/// The place of one worker: its own way to the store, with faults of its own.
pub struct Seat {
    /// A client that goes this way.
    pub client: Client,
    /// What goes wrong on this way.
    pub faults: Faults,
    clock: Arc<TokioClock>,
}

impl Fleet {
    /// An empty store and the default settings.
    pub fn new() -> Self {
        Self::with("")
    }

    /// An empty store and settings in TOML, over the defaults.
    pub fn with(settings: &str) -> Self {
        let config = Config::parse(settings).unwrap();
        let clock = Arc::new(TokioClock::new());
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(clock.clone()));
        let client = Client::with_config(Arc::clone(&store), config.clone());
        Self { clock, store, client, config }
    }

    /// A place for one more worker.
    pub fn seat(&self) -> Seat {
        let (store, faults) = FaultyStore::around(Arc::clone(&self.store));
        let client = Client::with_config(store, self.config.clone());
        Seat { client, faults, clock: Arc::clone(&self.clock) }
    }

    /// A worker without faults.
    pub fn worker(&self) -> WorkerBuilder<()> {
        self.seat().worker()
    }

    /// A worker without faults for a kind that nobody submits.
    pub fn idle_worker(&self) -> WorkerBuilder<()> {
        self.seat().idle_worker()
    }

    /// Submits a task.
    pub async fn submit(&self, number: u64) -> Handle<Do> {
        self.client.enqueue(Do(number)).await.unwrap()
    }

    /// Submits a task with options.
    pub async fn submit_with(&self, number: u64, options: Options) -> Handle<Do> {
        let mut submit = self.client.enqueue(Do(number));
        *submit.options_mut() = options;
        submit.await.unwrap()
    }

    /// Submits the numbers from 0 up to this one.
    pub async fn submit_all(&self, count: u64) -> Vec<TaskId> {
        let handles = self.client.enqueue_all((0..count).map(Do)).await.unwrap();
        handles.into_iter().map(|handle| handle.unwrap().id().clone()).collect()
    }

    /// What is kept of a task.
    pub async fn record(&self, id: &TaskId) -> TaskRecord {
        self.client.get(id).await.unwrap().expect("the task is kept")
    }

    /// Waits until a task has reached a terminal state.
    pub async fn ended(&self, id: &TaskId) -> TaskRecord {
        let ended = async {
            loop {
                let record = self.record(id).await;
                if record.state.is_terminal() {
                    return record;
                }
                let (queues, since, tasks) = (Vec::new(), None, vec![id.clone()]);
                let params =
                    WaitParams { queues, since, tasks, at_most: PATIENCE, ..WaitParams::default() };
                self.store.wait(params).await.unwrap();
            }
        };
        match tokio::time::timeout(PATIENCE, ended).await {
            Ok(record) => record,
            Err(_) => panic!("not ended: {:?}", self.record(id).await),
        }
    }

    /// Waits until all of these have reached a terminal state.
    pub async fn all_ended(&self, ids: &[TaskId]) -> Vec<TaskRecord> {
        let mut records = Vec::with_capacity(ids.len());
        for id in ids {
            self.ended(id).await;
        }
        let params = GetParams { ids: ids.to_vec(), parts: Parts::ALL };
        for record in self.store.get(params).await.unwrap() {
            records.push(record.expect("the task is kept"));
        }
        records
    }

    /// How many tasks are in a state.
    pub async fn count(&self, state: State) -> u64 {
        let queues = self.store.queues().await.unwrap();
        queues.iter().map(|queue| queue.counts.get(state)).sum()
    }

    /// Everything in the store, newest first.
    pub async fn all(&self) -> Vec<TaskRecord> {
        let params = ListParams { limit: 100_000, ..ListParams::default() };
        self.store.list(params).await.unwrap().tasks
    }

    /// The workers that are neither lost nor gone.
    pub async fn alive(&self) -> Vec<WorkerRecord> {
        let workers = self.store.workers().await.unwrap();
        workers.into_iter().filter(|worker| !worker.is_gone).collect()
    }
}

impl Default for Fleet {
    fn default() -> Self {
        Self::new()
    }
}

impl Seat {
    /// A worker at this place.
    pub fn worker(&self) -> WorkerBuilder<()> {
        self.client.worker().driven_by(self.clock.clone())
    }

    /// A worker at this place for a kind that nobody submits.
    pub fn idle_worker(&self) -> WorkerBuilder<()> {
        let never = |task: RawTask, _: Context<()>| async move { Ok(task.payload) };
        self.worker().handle_raw("never", never)
    }
}

/// An empty store in memory that goes by the machine's clock.
pub fn memory() -> Arc<dyn Store> {
    memory_at(Arc::new(SystemClock))
}

/// An empty store in memory that goes by this clock.
pub fn memory_at(clock: Arc<dyn Clock>) -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(clock))
}

/// Lets (paused) time pass in small steps; unlike a sleep also while a blocking handler runs, which
/// keeps tokio from moving the time by itself.
pub async fn pass(time: Duration) {
    const STEP: Duration = Duration::from_millis(50);
    let mut left = time;
    while !left.is_zero() {
        let step = left.min(STEP);
        tokio::time::advance(step).await;
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        left -= step;
    }
}

/// Checks that a task ended so, after so many runs that count and so many crashes.
#[track_caller]
pub fn check_ended(record: &TaskRecord, state: State, attempts: u32, crashes: u32) {
    let (is, should) =
        ((record.state, record.attempts, record.crashes), (state, attempts, crashes));
    assert_eq!(is, should, "state, attempts, crashes; history: {:?}", record.history);
}
