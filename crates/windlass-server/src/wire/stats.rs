//! Counts of everything, and what a store is, as the API tells them.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use windlass_core::store::{Durability, Profile, QueueRecord, StateCounts, WorkerRecord};

use super::Counts;
use super::queue::{add, by_state};
use super::statistics::Windows;
use super::words::CountsWord;

/// Counts of everything.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Stats {
    tasks: Tasks,
    queues: Queues,
    workers: Workers,
    store: StoreStats,
    /// What was done lately, by all workers and clients whose statistics are on.
    #[schemars(with = "Windows")]
    windows: Arc<Windows>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TaskStats")]
struct Tasks {
    total: u64,
    #[schemars(with = "CountsWord")]
    by_state: Counts,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "QueueStats")]
struct Queues {
    total: usize,
    paused: usize,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "WorkerStats")]
struct Workers {
    live: usize,
    slots: u64,
    slots_used: u64,
}

#[derive(Serialize, JsonSchema)]
struct StoreStats {
    name: &'static str,
    /// `durable`, `window` or `volatile`.
    durability: &'static str,
    /// What may be lost.
    loss: Option<String>,
    /// What the store has mended while this process led.
    repairs_total: u64,
}

/// What is told of the store itself.
pub(crate) struct Stored<'a> {
    pub(crate) profile: &'a Profile,
    /// What it has mended while this process led.
    pub(crate) repairs_total: u64,
}

impl Stats {
    /// Adds up what a store has.
    pub(crate) fn new(
        store: Stored<'_>,
        queues: &[QueueRecord],
        workers: &[WorkerRecord],
        windows: Arc<Windows>,
    ) -> Self {
        let Stored { profile, repairs_total } = store;
        let mut counts = StateCounts::default();
        for queue in queues {
            add(&mut counts, &queue.counts);
        }
        let live = || workers.iter().filter(|worker| !worker.is_gone);
        let (durability, loss) = durability(&profile.durability);
        Self {
            tasks: Tasks { total: counts.total(), by_state: by_state(&counts) },
            queues: Queues {
                total: queues.len(),
                paused: queues.iter().filter(|queue| queue.is_paused).count(),
            },
            workers: Workers {
                live: live().count(),
                slots: live().map(|worker| u64::from(worker.card.slots)).sum(),
                slots_used: live().map(|worker| u64::from(worker.slots_used())).sum(),
            },
            store: StoreStats { name: profile.name, durability, loss, repairs_total },
            windows,
        }
    }
}

/// What a store promises in one word, and what it may lose, in words.
pub(crate) fn durability(durability: &Durability) -> (&'static str, Option<String>) {
    match durability {
        Durability::Durable => ("durable", None),
        Durability::Window { loss } => ("window", Some(loss.clone())),
        Durability::Volatile => ("volatile", Some("everything, with the process".into())),
    }
}
