//! Parameters and answers of `get`, `list` and `queues`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::name::{Kind, QueueName, Tag};
use crate::state::State;
use crate::task::{Priority, TaskId, TaskRecord};

/// Which tasks to read, and how much of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GetParams {
    /// The tasks.
    pub ids: Vec<TaskId>,
    /// The large parts of them.
    pub parts: Parts,
}

/// The parts of a record that may be large.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Parts {
    /// The payload.
    pub payload: bool,
    /// The result.
    pub result: bool,
    /// The timeline.
    pub history: bool,
}

impl Parts {
    /// Everything.
    pub const ALL: Self = Self { payload: true, result: true, history: true };
    /// Nothing that may be large.
    pub const NONE: Self = Self { payload: false, result: false, history: false };
}

/// What tasks must have in common; an absent part allows everything.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Filter {
    /// One of these states.
    pub states: Vec<State>,
    /// This queue.
    pub queue: Option<QueueName>,
    /// This kind.
    pub kind: Option<Kind>,
    /// This priority.
    pub priority: Option<Priority>,
    /// This tag among theirs.
    pub tag: Option<Tag>,
    /// Submitted at this instant or later.
    pub created_after: Option<Timestamp>,
    /// Submitted before this instant.
    pub created_before: Option<Timestamp>,
    /// Finished before this instant.
    pub finished_before: Option<Timestamp>,
}

impl std::fmt::Display for Filter {
    /// In words, as the audit has it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let states: Vec<_> = self.states.iter().map(ToString::to_string).collect();
        let parts = [
            ("queue", self.queue.as_ref().map(ToString::to_string)),
            ("state", (!states.is_empty()).then(|| states.join(","))),
            ("type", self.kind.as_ref().map(ToString::to_string)),
            ("priority", self.priority.map(|priority| priority.to_string())),
            ("tag", self.tag.as_ref().map(ToString::to_string)),
            ("created_after", self.created_after.map(|at| at.to_string())),
            ("created_before", self.created_before.map(|at| at.to_string())),
            ("finished_before", self.finished_before.map(|at| at.to_string())),
        ];
        let told = parts.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", value?)));
        let told = told.collect::<Vec<_>>().join(" ");
        f.write_str(if told.is_empty() { "all tasks" } else { &told })
    }
}

/// A wish for a page of tasks, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListParams {
    /// Which.
    pub filter: Filter,
    /// How many at most.
    pub limit: usize,
    /// Where the last page ended.
    pub cursor: Option<String>,
}

/// A page of tasks.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Page {
    /// The tasks, without payload, result and history.
    pub tasks: Vec<TaskRecord>,
    /// Where to go on; absent at the end.
    pub next_cursor: Option<String>,
}

/// How many tasks are in each state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StateCounts([u64; State::ALL.len()]);

impl StateCounts {
    /// How many are in a state.
    pub const fn get(&self, state: State) -> u64 {
        self.0[state as usize]
    }

    /// Adds to a state.
    pub const fn add(&mut self, state: State, count: u64) {
        self.0[state as usize] += count;
    }

    /// All states together.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// How long a queue without tasks is still listed after the last write there. Upkeep forgets it afterwards, unless it
/// was ever given an order; the next insert lists it again.
pub const IDLE_QUEUE_KEPT: Duration = Duration::from_secs(24 * 3_600);

/// What a store knows of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueRecord {
    /// Which queue.
    pub name: QueueName,
    /// It gives out nothing.
    pub is_paused: bool,
    /// Tasks by state.
    pub counts: StateCounts,
    /// Pending tasks by priority, `low` first.
    pub pending: [u64; 4],
    /// When the task that has been pending longest became so.
    pub oldest_pending_at: Option<Timestamp>,
}
