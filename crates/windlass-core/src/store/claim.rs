//! Parameters and answer of `claim`.

use super::live::WakeMark;
use crate::name::QueueName;
use crate::task::{Claimed, Priority};
use crate::worker::WorkerId;

/// Payload bytes at which a claim stops: it brings at most so many and one payload more, and at least one task.
pub const CLAIM_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What a worker wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimParams {
    /// Who asks; must be registered by a beat.
    pub worker: WorkerId,
    /// From which queues, in which order, how much of each.
    pub quotas: Vec<Quota>,
    /// How much in all.
    pub limit: usize,
    /// How many suspects (two crashes or more) among them.
    pub suspects_at_most: usize,
}

/// A share of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quota {
    /// The queue.
    pub queue: QueueName,
    /// How much of it.
    pub at_most: usize,
    /// Which priorities of it.
    pub priorities: PrioritySet,
}

impl Quota {
    /// Up to `at_most` tasks of a queue, of every priority.
    pub fn of(queue: QueueName, at_most: usize) -> Self {
        Self { queue, at_most, priorities: PrioritySet::ALL }
    }
}

/// A set of priorities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrioritySet(u8);

impl PrioritySet {
    /// All four.
    pub const ALL: Self = Self(0b1111);

    /// Just these.
    pub fn of(priorities: &[Priority]) -> Self {
        Self(priorities.iter().fold(0, |bits, priority| bits | 1 << priority.as_number()))
    }

    /// True when it is one of them.
    pub const fn contains(self, priority: Priority) -> bool {
        self.0 & (1 << priority.as_number()) != 0
    }

    /// Its members, the most urgent first.
    pub fn descending(self) -> impl Iterator<Item = Priority> {
        Priority::DESCENDING.into_iter().filter(move |priority| self.contains(*priority))
    }
}

/// What a worker was given.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// The leased tasks, in the order of claiming.
    pub tasks: Vec<Claimed>,
    /// For a [`super::Store::wait`] after a claim that found too little.
    pub mark: WakeMark,
    /// Part of the claim had no answer: the store may have leased tasks that are not listed here.
    pub is_cut_short: bool,
}

impl Claim {
    /// A claim of which every part was answered.
    pub const fn new(tasks: Vec<Claimed>, mark: WakeMark) -> Self {
        Self { tasks, mark, is_cut_short: false }
    }
}
