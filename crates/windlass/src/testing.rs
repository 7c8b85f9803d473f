//! Tests of handlers without a database, without waiting, and without anything in the background.
//!
//! A [`Harness`] has a store in memory, a clock that only moves when it is told to, and a worker
//! that only works when it is told to. Everything else is as in production: the same builder, the
//! same state machine, the same retries.
//!
//! ```
//! use std::time::Duration;
//! use windlass::core::State;
//! use windlass::prelude::*;
//! use windlass::testing::Harness;
//! # use serde::{Deserialize, Serialize};
//! # #[derive(Serialize, Deserialize)]
//! # struct Fetch;
//! # impl Task for Fetch { const KIND: &'static str = "fetch"; type Output = u32; }
//!
//! async fn fetch(_task: Fetch, cx: Context<()>) -> Outcome<u32> {
//!     match cx.attempt() {
//!         1 => Err("the other side is down".into()),
//!         attempt => Ok(attempt),
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> windlass::Result<()> {
//! let harness = Harness::new(|worker| worker.handle(fetch))?;
//! let handle = harness.client().enqueue(Fetch).await?;
//!
//! assert_eq!(harness.drain().await?, 1);
//! assert_eq!(harness.task(&handle).await?.state, State::Retrying);
//!
//! harness.advance(Duration::from_secs(60)).await?;
//! assert_eq!(harness.drain().await?, 1);
//! assert_eq!(handle.output().await?, Some(2));
//! # Ok(())
//! # }
//! ```

use std::sync::Arc;
use std::time::Duration;

use windlass_core::store::{Filter, GetParams, ListParams, Parts};
use windlass_core::{
    Clock, Error, ErrorKind, Kind, ManualClock, Result, State, TaskId, TaskRecord, Timestamp,
};
use windlass_engine::{Client, Handle, Inline, Task, WorkerBuilder};
use windlass_stores::memory::MemoryStore;

/// Runs in one [`Harness::drain`] after which something must be going round in circles.
const RUNS_MAX: usize = 10_000;
/// Tasks read at once.
const PAGE: usize = 1_000;

/// A client, a worker and a clock for tests; all three do only what the test says.
///
/// Timeouts and sleeps *inside* a handler are the runtime's: they pass in real time, or at once
/// under `#[tokio::test(start_paused = true)]`.
#[derive(Debug)]
pub struct Harness {
    clock: Arc<ManualClock>,
    client: Client,
    worker: Inline,
}

impl Harness {
    /// An empty store and a worker set up as in production: a program that sets its worker up in a
    /// function of its own passes that function.
    ///
    /// A worker that names queues serves just those; one that names none serves all here.
    pub fn new<S: Send + Sync + 'static>(
        set_up: impl FnOnce(WorkerBuilder<()>) -> WorkerBuilder<S>,
    ) -> Result<Self> {
        let clock = Arc::new(ManualClock::default());
        let store = MemoryStore::new(Arc::clone(&clock) as Arc<dyn Clock>);
        let client = Client::new(Arc::new(store));
        let worker = client.worker().driven_by(Arc::clone(&clock) as Arc<dyn Clock>);
        let worker = set_up(worker).inline()?;
        Ok(Self { clock, client, worker })
    }

    /// A client of the harness's store, for the code under test.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// What the harness's clock shows; it starts on 2026-01-01, at 08:00 UTC.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Runs everything that is pending, one after the other, and what that adds, until nothing is
    /// pending. Answers how many runs there were.
    pub async fn drain(&self) -> Result<usize> {
        for runs in 0..RUNS_MAX {
            if self.run_next().await?.is_none() {
                return Ok(runs);
            }
        }
        let text =
            format!("still tasks to run after {RUNS_MAX} runs: do they go round in circles?");
        Err(Error::new(ErrorKind::Conflict, text))
    }

    /// Runs the task whose turn it is; `None` when nothing is pending.
    pub async fn run_next(&self) -> Result<Option<TaskId>> {
        self.worker.promote().await?;
        self.worker.run_next().await
    }

    /// Moves the clock on and makes pending what is due then. Runs nothing: [`Harness::drain`] does.
    pub async fn advance(&self, by: Duration) -> Result<()> {
        self.clock.advance(by);
        self.worker.promote().await.map(drop)
    }

    /// Everything that is kept of a task.
    pub async fn task<T: Task>(&self, handle: &Handle<T>) -> Result<TaskRecord> {
        handle.record().await
    }

    /// All tasks in this state, in the order of their submits.
    pub async fn tasks_in(&self, state: State) -> Result<Vec<TaskRecord>> {
        self.find(Filter { states: vec![state], ..Filter::default() }).await
    }

    /// The payloads of all tasks of a kind that have not started or will start again, in the order
    /// of their submits: what the code under test has asked for.
    pub async fn waiting<T: Task>(&self) -> Result<Vec<T>> {
        let states = vec![State::Scheduled, State::Pending, State::Retrying];
        let filter = Filter { states, kind: Some(Kind::new(T::KIND)?), ..Filter::default() };
        let read = |task: TaskRecord| {
            let bad = |cause| Error::corrupt(format!("the payload of {}", task.id)).because(cause);
            serde_json::from_slice(&task.payload).map_err(bad)
        };
        self.find(filter).await?.into_iter().map(read).collect()
    }

    async fn find(&self, filter: Filter) -> Result<Vec<TaskRecord>> {
        let store = self.client.store();
        let (mut ids, mut cursor) = (Vec::new(), None);
        loop {
            let params = ListParams { filter: filter.clone(), limit: PAGE, cursor };
            let page = store.list(params).await?;
            ids.extend(page.tasks.into_iter().map(|task| task.id));
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        ids.reverse();
        let found = store.get(GetParams { ids, parts: Parts::ALL }).await?;
        Ok(found.into_iter().flatten().collect())
    }
}
