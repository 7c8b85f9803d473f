//! Live events: what watchers are told as it happens. The complete account is the task's timeline;
//! events may have holes, and say so with [`EventKind::Gap`].

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::name::{Kind, QueueName};
use crate::task::{Epoch, Priority, TaskId};

/// What an event tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum EventKind {
    /// A task entered the store.
    #[serde(rename = "task.submitted")]
    TaskSubmitted,
    /// A worker was given a task.
    #[serde(rename = "task.started")]
    TaskStarted,
    /// A run succeeded.
    #[serde(rename = "task.completed")]
    TaskCompleted,
    /// A run failed.
    #[serde(rename = "task.failed")]
    TaskFailed,
    /// A failed task waits for its next run.
    #[serde(rename = "task.retrying")]
    TaskRetrying,
    /// A task was called off.
    #[serde(rename = "task.cancelled")]
    TaskCancelled,
    /// A task will not run again by itself.
    #[serde(rename = "task.dead_letter")]
    TaskDeadLetter,
    /// Events were left out here.
    #[serde(rename = "gap")]
    Gap,
}

/// One event of one task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// When, by the store's clock.
    pub at: Timestamp,
    /// To which task; absent for a gap.
    pub task: Option<EventTask>,
}

/// The task that an event tells of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventTask {
    /// Which task.
    pub id: TaskId,
    /// Its kind.
    pub kind: Kind,
    /// Its queue.
    pub queue: QueueName,
    /// Its priority.
    pub priority: Priority,
    /// Its last claim; together with the event's place in the life cycle, watchers order by it.
    pub epoch: Option<Epoch>,
}
