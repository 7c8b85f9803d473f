//! Tasks for a fleet, and what became of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use windlass_core::store::{GetParams, Inserted, Parts, Reservation};
use windlass_core::{QueueName, State, Store, TaskId, TaskRecord};
use windlass_testkit::draft::draft;

use super::{PATIENCE, TICK, patiently, rounded};
use crate::Result;
use crate::torture::guard;

/// The queue that workers serve unless they are told otherwise, and a kind that does nothing.
const QUEUE: &str = "default";
const KIND: &str = "noop";
/// Tasks in one call.
const TOGETHER: usize = 500;

/// Tasks that were accepted.
#[derive(Default)]
pub(super) struct Tasks(Vec<TaskId>);

/// What became of tasks.
pub(super) struct Outcome {
    pub(super) count: usize,
    /// Not completed, or with a crash or a retry on their record.
    pub(super) lost: usize,
    /// From submit to claim, sorted.
    pick_up_ms: Vec<f64>,
}

impl Tasks {
    pub(super) async fn submit(store: &Arc<dyn Store>, count: usize) -> Result<Self> {
        let mut tasks = Self::default();
        while tasks.0.len() < count {
            tasks.add(store, TOGETHER.min(count - tasks.0.len())).await?;
        }
        Ok(tasks)
    }

    async fn add(&mut self, store: &Arc<dyn Store>, count: usize) -> Result {
        let wanted = vec![Reservation { queue: QueueName::new(QUEUE)?, count }];
        let ids = patiently(|| store.reserve(wanted.clone())).await?;
        let made = ids.iter().map(|id| draft().queue(QUEUE).kind(KIND).with_id(id.clone()));
        let made: Vec<_> = made.collect();
        for inserted in patiently(|| store.insert(made.clone())).await? {
            if !matches!(inserted, Inserted::New { .. }) {
                return Err(format!("a submit was answered {inserted:?}").into());
            }
        }
        self.0.extend(ids);
        Ok(())
    }

    /// Waits until all have ended, or for as long as that may take.
    pub(super) async fn finish(self, store: &dyn Store) -> Result<Outcome> {
        let end = Instant::now() + PATIENCE;
        let mut records: Vec<TaskRecord> = Vec::new();
        let mut left = self.0;
        let count = left.len();
        while !left.is_empty() && Instant::now() < end {
            guard::check_interrupted()?;
            let mut going = Vec::new();
            for ids in left.chunks(TOGETHER) {
                let params = GetParams { ids: ids.to_vec(), parts: Parts::NONE };
                let found = patiently(|| store.get(params.clone())).await?;
                for (id, record) in ids.iter().zip(found) {
                    match record {
                        Some(record) if record.state.is_terminal() => records.push(record),
                        _ => going.push(id.clone()),
                    }
                }
            }
            left = going;
            tokio::time::sleep(TICK).await;
        }
        let is_well = |record: &&TaskRecord| {
            record.state == State::Completed && record.attempts == 1 && record.crashes == 0
        };
        let pick_up = |record: &TaskRecord| {
            Some(record.claimed_at?.since(record.created_at).as_secs_f64() * 1_000.0)
        };
        let mut pick_up_ms: Vec<f64> = records.iter().filter_map(pick_up).collect();
        pick_up_ms.sort_by(f64::total_cmp);
        Ok(Outcome { count, lost: count - records.iter().filter(is_well).count(), pick_up_ms })
    }
}

impl Outcome {
    pub(super) fn told(&self, took: Duration) -> Value {
        let at = |part: f64| {
            let index = (self.pick_up_ms.len().saturating_sub(1) as f64 * part) as usize;
            self.pick_up_ms.get(index).copied().map(rounded)
        };
        json!({
            "tasks": self.count,
            "lost": self.lost,
            "seconds": rounded(took.as_secs_f64()),
            "pick_up_ms": { "p50": at(0.5), "p99": at(0.99), "max": at(1.0) },
        })
    }
}

/// Submits that go on until they are stopped.
pub(super) struct Trickle {
    stop: CancellationToken,
    submits: JoinHandle<Result<Tasks>>,
}

pub(super) fn trickle(store: Arc<dyn Store>, every: Duration) -> Trickle {
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let submits = tokio::spawn(async move {
        let mut tasks = Tasks::default();
        while !stopped.is_cancelled() {
            tasks.add(&store, 1).await?;
            tokio::time::sleep(every).await;
        }
        Ok(tasks)
    });
    Trickle { stop, submits }
}

impl Trickle {
    pub(super) async fn stop(self) -> Result<Tasks> {
        self.stop.cancel();
        self.submits.await?
    }
}
