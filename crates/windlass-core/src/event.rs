//! Live events: what watchers are told as it happens. The complete account is the task's timeline;
//! events may have holes, and say so with [`EventKind::Gap`].

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::limits::clip;
use crate::name::{Kind, QueueName};
use crate::state::State;
use crate::store::StateCounts;
use crate::task::{Epoch, Priority, TaskId};
use crate::worker::WorkerId;

/// Longest text of an error or a note in an event; the timeline has it all.
pub const TEXT_BYTES_MAX: usize = 400;

/// What an event tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
#[non_exhaustive]
pub enum EventKind {
    /// A task entered the store.
    TaskSubmitted,
    /// A worker was given a task.
    TaskStarted,
    /// A run says how far it has come.
    TaskProgress,
    /// A run succeeded.
    TaskCompleted,
    /// A run failed.
    TaskFailed,
    /// A task waits for another run: it failed, or was snoozed, given back or rerun.
    TaskRetrying,
    /// A task was called off.
    TaskCancelled,
    /// A task will not run again by itself.
    TaskDeadLetter,
    /// A worker is there.
    WorkerJoined,
    /// A worker has left, or was lost.
    WorkerLeft,
    /// A worker takes nothing new.
    WorkerPaused,
    /// A worker takes tasks again.
    WorkerResumed,
    /// A queue has other counts than a second ago.
    QueueDepth,
    /// A queue gives out nothing.
    QueuePaused,
    /// A queue gives out tasks again.
    QueueResumed,
    /// The counts of everything, once a second.
    SystemMetrics,
    /// Events were left out here.
    Gap,
}

impl EventKind {
    /// All of them, in the order of a task's life.
    pub const ALL: [Self; 17] = [
        Self::TaskSubmitted,
        Self::TaskStarted,
        Self::TaskProgress,
        Self::TaskCompleted,
        Self::TaskFailed,
        Self::TaskRetrying,
        Self::TaskCancelled,
        Self::TaskDeadLetter,
        Self::WorkerJoined,
        Self::WorkerLeft,
        Self::WorkerPaused,
        Self::WorkerResumed,
        Self::QueueDepth,
        Self::QueuePaused,
        Self::QueueResumed,
        Self::SystemMetrics,
        Self::Gap,
    ];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TaskSubmitted => "task.submitted",
            Self::TaskStarted => "task.started",
            Self::TaskProgress => "task.progress",
            Self::TaskCompleted => "task.completed",
            Self::TaskFailed => "task.failed",
            Self::TaskRetrying => "task.retrying",
            Self::TaskCancelled => "task.cancelled",
            Self::TaskDeadLetter => "task.dead_letter",
            Self::WorkerJoined => "worker.joined",
            Self::WorkerLeft => "worker.left",
            Self::WorkerPaused => "worker.paused",
            Self::WorkerResumed => "worker.resumed",
            Self::QueueDepth => "queue.depth",
            Self::QueuePaused => "queue.paused",
            Self::QueueResumed => "queue.resumed",
            Self::SystemMetrics => "system.metrics",
            Self::Gap => "gap",
        }
    }

    /// True for what is told of a task.
    pub const fn is_of_task(self) -> bool {
        (self as u8) <= Self::TaskDeadLetter as u8
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for EventKind {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|kind| kind.as_str() == text);
        found.ok_or_else(|| Error::invalid(format!("there is no event {:?}", clip(text, 64))))
    }
}

impl TryFrom<String> for EventKind {
    type Error = Error;
    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<EventKind> for &'static str {
    fn from(kind: EventKind) -> Self {
        kind.as_str()
    }
}

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// When, by the store's clock.
    pub at: Timestamp,
    /// To what.
    pub subject: Subject,
}

/// What an event tells of; the member `data` of its JSON.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Subject {
    /// A task.
    Task(EventTask),
    /// A worker.
    Worker(EventWorker),
    /// A queue.
    Queue(EventQueue),
    /// The whole.
    System(EventSystem),
    /// Why something is missing.
    Gap {
        /// In words.
        reason: &'static str,
    },
}

impl Event {
    /// The queue that it concerns.
    pub fn queue(&self) -> Option<&QueueName> {
        match &self.subject {
            Subject::Task(task) => Some(&task.queue),
            Subject::Queue(queue) => Some(&queue.queue),
            Subject::Worker(_) | Subject::System(_) | Subject::Gap { .. } => None,
        }
    }
}

/// The task that an event tells of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventTask {
    /// Which task.
    #[serde(rename = "task_id")]
    pub id: TaskId,
    /// Its kind.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// Its queue.
    pub queue: QueueName,
    /// Its priority.
    pub priority: Priority,
    /// Its last claim; together with the event's place in the life cycle, watchers order by it.
    pub epoch: Option<Epoch>,
    /// What only some events tell.
    #[serde(flatten)]
    pub more: EventDetails,
}

/// What only some events tell of a task.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct EventDetails {
    /// Its state now, where the event's name does not say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// Who runs it, or ran it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<WorkerId>,
    /// Runs that count, this one included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// How long the handler ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// It will run again by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub will_retry: Option<bool>,
    /// In how long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// What went wrong, the beginning of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How far it has come, from 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<f64>,
    /// What it is doing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// When it was submitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
}

/// The worker that an event tells of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventWorker {
    /// Which worker.
    #[serde(rename = "worker_id")]
    pub id: WorkerId,
    /// Its name among its like.
    pub name: String,
    /// Its machine.
    pub host: String,
    /// How many tasks it can run at once.
    pub slots: u32,
}

/// The queue that an event tells of.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EventQueue {
    /// Which queue.
    pub queue: QueueName,
    /// It gives out nothing.
    pub paused: bool,
    /// Tasks by state.
    #[serde(serialize_with = "by_state")]
    pub counts: StateCounts,
}

/// The counts of everything.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EventSystem {
    /// Tasks by state.
    #[serde(serialize_with = "by_state")]
    pub counts: StateCounts,
    /// Queues.
    pub queues: u64,
    /// Workers that live.
    pub workers: u64,
    /// Tasks that they can run at once.
    pub slots_total: u64,
    /// Tasks that they run now.
    pub slots_used: u64,
}

fn by_state<S: serde::Serializer>(
    counts: &StateCounts,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_map(State::ALL.into_iter().map(|state| (state, counts.get(state))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_read_by_its_name() {
        for kind in EventKind::ALL {
            assert_eq!(kind.as_str().parse::<EventKind>().unwrap(), kind);
            assert_eq!(kind.is_of_task(), kind.as_str().starts_with("task."), "{kind}");
        }
        assert!("task.odd".parse::<EventKind>().is_err());
    }

    #[test]
    fn the_data_of_a_task_has_only_what_is_known() {
        let task = EventTask {
            id: TaskId::new("t"),
            kind: Kind::stored("a"),
            queue: QueueName::stored("q"),
            priority: Priority::High,
            epoch: Some(Epoch(7)),
            more: EventDetails { duration_ms: Some(150), ..EventDetails::default() },
        };
        let json = serde_json::to_string(&Subject::Task(task.clone())).unwrap();
        assert_eq!(
            json,
            r#"{"task_id":"t","type":"a","queue":"q","priority":"high","epoch":"7","duration_ms":150}"#
        );
        assert_eq!(serde_json::from_str::<EventTask>(&json).unwrap(), task);
    }
}
