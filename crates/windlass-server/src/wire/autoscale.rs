//! What an autoscaler goes by, as the API tells it.

use schemars::JsonSchema;
use serde::Serialize;
use windlass_core::store::{QueueRecord, WorkerRecord};
use windlass_core::{QueueName, State};
use windlass_engine::Figures;

use super::Seconds;
use super::words::SecondsWord;

/// Work and room for it, flat, so that any tool can pick a number.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Autoscale {
    pending: u64,
    running: u64,
    /// How long the task that is pending longest has been so; 0 when none is.
    #[schemars(with = "SecondsWord")]
    oldest_age_s: Seconds,
    slots_used: u64,
    slots_total: u64,
}

impl Autoscale {
    /// Of one queue and the workers that serve it and take tasks, or of all.
    pub(crate) fn new(figures: &Figures, queue: Option<&QueueName>) -> Self {
        let is_meant = |name: &QueueName| queue.is_none_or(|queue| queue == name);
        let queues = || figures.queues.iter().filter(|record| is_meant(&record.name));
        let count = |state| queues().map(|record| record.counts.get(state)).sum();
        let age = |record: &QueueRecord| Some(figures.now.since(record.oldest_pending_at?));
        let workers = figures.workers.iter().filter(|worker| Figures::is_active(worker));
        let serves = |worker: &&WorkerRecord| worker.card.queues.iter().any(is_meant);
        let workers: Vec<_> = workers.filter(serves).collect();
        Self {
            pending: count(State::Pending),
            running: count(State::Running),
            oldest_age_s: Seconds(queues().filter_map(age).max().unwrap_or_default()),
            slots_used: workers.iter().map(|worker| u64::from(worker.slots_used())).sum(),
            slots_total: workers.iter().map(|worker| u64::from(worker.card.slots)).sum(),
        }
    }
}
