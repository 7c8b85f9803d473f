//! Parameters and answers of `beat`, `order` and `workers`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::kinds::{self, HandledKinds};
use super::live::WakeMark;
use crate::clock::Timestamp;
use crate::name::{Kind, QueueName};
use crate::task::{Lease, TaskId};
use crate::worker::WorkerId;

/// How long a store remembers a worker that has left or was declared lost. Upkeep may forget it afterwards, when no task
/// of the store names it.
pub const GONE_WORKER_KEPT: Duration = Duration::from_secs(6 * 3_600);

/// What a worker tells of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerCard {
    /// Its machine.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// Its name among its like, if it has one.
    pub name: String,
    /// The version it runs.
    pub version: String,
    /// The queues it serves.
    pub queues: Vec<QueueName>,
    /// Their weights, in the same order; all alike when there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub weights: Vec<u32>,
    /// It serves them in this order, the next only while those before are empty.
    pub is_strict: bool,
    /// How many tasks it can run at once.
    pub slots: u32,
    /// How many it runs now.
    pub slots_used: u32,
    /// What it does at present.
    pub doing: RunOrder,
    /// Its process leads: it does the upkeep for all.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_leader: bool,
    /// The kinds that it handles; nothing for a worker that handles every kind, and for one that does not say.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "kinds::read_stored")]
    pub kinds: Option<HandledKinds>,
}

/// What a queue or worker is told to do, or does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunOrder {
    /// Work.
    #[default]
    Run,
    /// Take nothing new, until told otherwise.
    Pause,
    /// Take nothing new, finish, and end. (Workers only.)
    Drain,
}

/// A sign of life.
#[derive(Debug, Clone, PartialEq)]
pub struct Beat {
    /// Whose.
    pub worker: WorkerId,
    /// What it tells of itself.
    pub card: WorkerCard,
    /// How long everything it holds is good for, from the moment the store takes this.
    pub lease: Duration,
    /// Everything the worker knows it holds; sent after a claim without an answer, now and then.
    pub held: Option<HeldLeases>,
    /// How far its runs have come.
    pub progress: Vec<ProgressReport>,
}

/// Everything a worker knows it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldLeases {
    /// The leases.
    pub leases: Vec<Lease>,
    /// Only what was claimed longer ago than this counts as unknown to the worker; a claim may be
    /// on its way to it.
    pub older_than: Duration,
}

/// How far one run has come; refused silently when its lease is not valid.
#[derive(Debug, Clone, PartialEq)]
pub struct ProgressReport {
    /// Which run.
    pub lease: Lease,
    /// From 0 to 1.
    pub fraction: f64,
    /// What it is doing.
    pub note: String,
}

/// What a worker is told in answer to a beat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orders {
    /// What to do.
    pub order: RunOrder,
    /// Of the queues on the worker's card: those that are paused, in the card's order. Tasks of these queues that
    /// the worker has claimed and not started should be released.
    pub paused_queues: Vec<QueueName>,
    /// Runs of this worker for which a cancel was requested.
    pub cancels: Vec<Lease>,
    /// Of the leases in `held`: those that are not valid any more.
    pub lost: Vec<Lease>,
    /// Unknown to the worker and given back: what `held` did not name.
    pub given_back: Vec<TaskId>,
    /// The store's clock.
    pub now: Timestamp,
    /// For a [`super::Store::wait`] for later orders.
    pub mark: WakeMark,
}

/// An order to a queue or a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// Run or pause a queue; drain is invalid.
    Queue {
        /// Which queue.
        queue: QueueName,
        /// What it shall do.
        order: RunOrder,
    },
    /// Run, pause or drain a worker, told to it in its next beat.
    Worker {
        /// Which worker.
        worker: WorkerId,
        /// What it shall do.
        order: RunOrder,
    },
}

/// What a store knows of a worker.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerRecord {
    /// Which worker.
    pub id: WorkerId,
    /// What it told of itself last.
    pub card: WorkerCard,
    /// What it was told to do.
    pub order: RunOrder,
    /// Its first beat.
    pub started_at: Timestamp,
    /// Its last beat.
    pub beat_at: Timestamp,
    /// How long its leases are good for.
    pub lease_until: Timestamp,
    /// It was declared lost, or left.
    pub is_gone: bool,
    /// How many tasks it holds.
    pub running_count: u64,
}

impl WorkerCard {
    /// Those of its queues that fulfil a condition, in its order.
    pub fn queues_where(&self, is_wanted: impl Fn(&QueueName) -> bool) -> Vec<QueueName> {
        self.queues.iter().filter(|queue| is_wanted(queue)).cloned().collect()
    }

    /// True where the worker runs tasks of this kind, as far as its card says.
    pub fn handles(&self, kind: &Kind) -> bool {
        self.kinds.as_ref().is_none_or(|kinds| kinds.handles(kind))
    }
}

impl WorkerRecord {
    /// True for a worker that is there and takes tasks from this queue, now or when its pause is over.
    pub fn serves(&self, queue: &QueueName) -> bool {
        let is_leaving = [self.order, self.card.doing].contains(&RunOrder::Drain);
        !self.is_gone && !is_leaving && self.card.queues.contains(queue)
    }

    /// How many tasks it runs now. A worker that leases over HTTP runs what it holds, and may say so seldom;
    /// others may hold what they have not begun.
    pub fn slots_used(&self) -> u32 {
        match self.id.is_remote() {
            true => u32::try_from(self.running_count).unwrap_or(u32::MAX),
            false => self.card.slots_used,
        }
    }
}
