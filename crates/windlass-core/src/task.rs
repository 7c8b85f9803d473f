//! A task: what is submitted, what a worker is given, what is kept.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::clock::{Timestamp, When};
use crate::duration;
use crate::error::{Error, Result};
use crate::history::History;
use crate::limits::{self, Limits};
use crate::name::{Kind, QueueName, Tag};
use crate::retry::Backoff;
use crate::state::State;
use crate::unique::Unique;
use crate::worker::WorkerId;

/// Names a task: opaque text of 1 to 255 bytes, made by the store.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskId(Arc<str>);

impl TaskId {
    /// Takes an id as text, unchecked: an id that no store made is simply not found.
    pub fn new(id: impl AsRef<str>) -> Self {
        Self(id.as_ref().into())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The fencing token of a lease: larger at each claim of the same task, never reused, not dense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u128);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Epoch {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        text.parse()
            .map(Self)
            .map_err(|cause| Error::invalid(format!("not an epoch: {text:?}")).because(cause))
    }
}

// As text in JSON: a number over 2^53 does not survive most readers.
impl Serialize for Epoch {
    fn serialize<S: serde::Serializer>(&self, s: S) -> std::result::Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Epoch {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> std::result::Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The right of one worker to run one claimed task.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lease {
    /// The task.
    pub task: TaskId,
    /// The claim it came from.
    pub epoch: Epoch,
}

/// How urgent a task is inside its queue.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    /// Runs when nothing else waits.
    Low = 0,
    /// What tasks have unless they say otherwise.
    #[default]
    Normal = 1,
    /// Before normal ones.
    High = 2,
    /// Before everything.
    Critical = 3,
}

impl Priority {
    /// All priorities, the most urgent first: the order of claiming.
    pub const DESCENDING: [Self; 4] = [Self::Critical, Self::High, Self::Normal, Self::Low];

    /// The name in lower case.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Normal => "normal",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }

    /// The number that stores keep.
    pub const fn as_number(self) -> u8 {
        self as u8
    }

    /// The priority of a number.
    pub fn from_number(number: i64) -> Result<Self> {
        Self::DESCENDING
            .into_iter()
            .find(|priority| i64::from(priority.as_number()) == number)
            .ok_or_else(|| Error::invalid(format!("priority {number}: use 0 to 3")))
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Priority {
    type Err = Error;
    /// Takes the name or the number.
    fn from_str(text: &str) -> Result<Self> {
        if let Ok(number) = text.parse() {
            return Self::from_number(number);
        }
        Self::DESCENDING.into_iter().find(|priority| priority.as_str() == text).ok_or_else(|| {
            Error::invalid(format!("priority {text:?}: use critical, high, normal or low"))
        })
    }
}

/// What a submitter settles once for all runs of a task.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// Runs after the first that a failing task may have.
    pub max_retries: u32,
    /// Crashed runs that a task survives.
    pub max_crashes: u32,
    /// Longest run, from the start of the handler.
    pub timeout: Duration,
    /// How long the finished record is kept.
    pub retention: Duration,
    /// Everything that most tasks do without.
    pub extras: Extras,
}

/// The parts of a [`Spec`] that most tasks do without; stores keep nothing for an empty one.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Extras {
    /// No run starts at or after this instant, and a run is stopped at it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// The task's own backoff; wins over those of its kind and queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Backoff>,
    /// Words to find it by.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<Tag>,
    /// The submitter's own notes, handed through.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// W3C trace context of the submitter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// Tasks with the same key will share a concurrency limit (stored now, used later).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_key: Option<String>,
    /// The task that submitted this one (stored now, used later).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<TaskId>,
}

impl Extras {
    /// True when nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A task on its way into a store.
#[derive(Debug, Clone, PartialEq)]
pub struct NewTask {
    /// From [`crate::Store::reserve`]; a repeated insert carries the same id.
    pub id: TaskId,
    /// Names the handler.
    pub kind: Kind,
    /// The line it stands in.
    pub queue: QueueName,
    /// Its place in that line.
    pub priority: Priority,
    /// Opaque to windlass.
    pub payload: Bytes,
    /// When it may run first.
    pub when: When,
    /// Retries, timeout, retention and the rest.
    pub spec: Spec,
    /// Makes a repeated submit return the first task.
    pub idempotency_key: Option<String>,
    /// Keeps a second such task out.
    pub unique: Option<Unique>,
}

impl NewTask {
    /// Checks everything that can be checked without a store.
    pub fn validate(&self, limits: &Limits) -> Result<()> {
        limits::check_key("task id", self.id.as_str())?;
        // Names may have been taken from a store unchecked (a copied task): check them here again.
        QueueName::new(self.queue.as_str())?;
        Kind::new(self.kind.as_str())?;
        limits::check_size("payload", self.payload.len(), limits.payload_bytes_max)?;
        if let Some(key) = &self.idempotency_key {
            limits::check_key("idempotency key", key)?;
        }
        if let Some(Unique { key: Some(key), .. }) = &self.unique {
            limits::check_key("unique key", key)?;
        }
        self.spec.validate()
    }
}

impl NewTask {
    /// The record of this task as it is when a store has just taken it.
    pub fn into_record(self, now: Timestamp) -> TaskRecord {
        let run_at = self.when.due(now);
        // Stores keep whole milliseconds.
        let whole = |time| duration::from_millis(duration::as_millis_ceil(time));
        let (timeout, retention) = (whole(self.spec.timeout), whole(self.spec.retention));
        TaskRecord {
            id: self.id,
            kind: self.kind,
            queue: self.queue,
            priority: self.priority,
            state: if run_at.is_some() { State::Scheduled } else { State::Pending },
            payload: self.payload,
            spec: Spec { timeout, retention, ..self.spec },
            idempotency_key: self.idempotency_key,
            attempts: 0,
            crashes: 0,
            epoch: None,
            worker: None,
            is_cancel_requested: false,
            result: None,
            progress: None,
            created_at: now,
            updated_at: now,
            run_at,
            claimed_at: None,
            started_at: None,
            finished_at: None,
            history: History::default(),
        }
    }
}

impl Spec {
    fn validate(&self) -> Result<()> {
        if self.max_retries > limits::BUDGET_MAX || self.max_crashes > limits::BUDGET_MAX {
            let most = limits::BUDGET_MAX;
            return Err(Error::invalid(format!("max_retries and max_crashes: at most {most}")));
        }
        if self.timeout.is_zero() {
            return Err(Error::invalid("timeout must be longer than zero"));
        }
        let extras = &self.extras;
        if extras.tags.len() > limits::TAGS_MAX {
            return Err(Error::invalid(format!("at most {} tags", limits::TAGS_MAX)));
        }
        for tag in &extras.tags {
            Tag::new(tag.as_str())?;
        }
        if extras.metadata.len() > limits::METADATA_ENTRIES_MAX {
            let most = limits::METADATA_ENTRIES_MAX;
            return Err(Error::invalid(format!("at most {most} metadata entries")));
        }
        let bytes = extras.metadata.iter().map(|(key, value)| key.len() + value.len()).sum();
        limits::check_size("metadata", bytes, limits::METADATA_BYTES_MAX)?;
        if let Some(key) = &extras.limit_key {
            limits::check_key("limit key", key)?;
        }
        if let Some(text) = &extras.traceparent {
            limits::check_key("traceparent", text)?;
        }
        extras.backoff.as_ref().map_or(Ok(()), Backoff::validate)
    }
}

/// A task as a worker is given it.
#[derive(Debug, Clone, PartialEq)]
pub struct Claimed {
    /// Which task.
    pub id: TaskId,
    /// The fencing token of this run.
    pub epoch: Epoch,
    /// Names the handler.
    pub kind: Kind,
    /// Where it stood.
    pub queue: QueueName,
    /// Where it stood.
    pub priority: Priority,
    /// Opaque to windlass.
    pub payload: Bytes,
    /// Runs that count, this one included.
    pub attempts: u32,
    /// Runs that ended with the loss of their worker.
    pub crashes: u32,
    /// What the submitter settled.
    pub spec: Spec,
    /// A cancel was asked for while it ran before (it came back by expire or release).
    pub is_cancel_requested: bool,
    /// When it was submitted.
    pub created_at: Timestamp,
    /// When it became pending, by the store's clock.
    pub pending_at: Timestamp,
    /// When this claim was made, by the store's clock.
    pub claimed_at: Timestamp,
}

impl Claimed {
    /// The lease of this run.
    pub fn lease(&self) -> Lease {
        Lease { task: self.id.clone(), epoch: self.epoch }
    }

    /// True when earlier crashes make it the likely cause of the next.
    pub fn is_suspect(&self) -> bool {
        is_suspect(self.crashes)
    }
}

/// True when a task with this many crashes may be their cause.
pub const fn is_suspect(crashes: u32) -> bool {
    crashes >= SUSPECT_CRASHES
}

/// From this many crashes on, a task may be the cause and runs alone of its sort.
pub const SUSPECT_CRASHES: u32 = 2;

/// How far a run has come, by its own account.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// From 0 to 1.
    pub fraction: f64,
    /// What it is doing.
    pub note: String,
    /// When the store heard of it.
    pub at: Timestamp,
}

impl Progress {
    /// A fraction as it is kept: from 0 to 1, and 0 for what is no number.
    pub fn part(fraction: f64) -> f64 {
        if fraction.is_nan() { 0.0 } else { fraction.clamp(0.0, 1.0) }
    }
}

impl TaskRecord {
    /// How far the task has come: what its run last reported, and all of it once the task is completed.
    pub fn progress(&self) -> Option<Progress> {
        let progress = self.progress.clone()?;
        match (self.state, self.finished_at) {
            (State::Completed, Some(at)) => Some(Progress { fraction: 1.0, at, ..progress }),
            _ => Some(progress),
        }
    }
}

/// Everything a store keeps of a task.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskRecord {
    /// Which task.
    pub id: TaskId,
    /// Names the handler.
    pub kind: Kind,
    /// The line it stands in.
    pub queue: QueueName,
    /// Its place in that line.
    pub priority: Priority,
    /// Where it is in its life.
    pub state: State,
    /// Opaque to windlass; empty when not asked for.
    pub payload: Bytes,
    /// What the submitter settled.
    pub spec: Spec,
    /// As submitted.
    pub idempotency_key: Option<String>,
    /// Runs that count against the retry budget.
    pub attempts: u32,
    /// Runs that ended with the loss of their worker.
    pub crashes: u32,
    /// The last claim, also of finished tasks.
    pub epoch: Option<Epoch>,
    /// The worker of the last claim, also of finished tasks.
    pub worker: Option<WorkerId>,
    /// A cancel waits for the run to end.
    pub is_cancel_requested: bool,
    /// What the handler returned; absent when not asked for.
    pub result: Option<Bytes>,
    /// The last progress of the present or last run.
    pub progress: Option<Progress>,
    /// When it was submitted.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// When it was last due later: by its submitter, a retry or a snooze.
    pub run_at: Option<Timestamp>,
    /// When the last claim was made.
    pub claimed_at: Option<Timestamp>,
    /// When the last handler started, where its worker has told.
    pub started_at: Option<Timestamp>,
    /// When it reached a terminal state.
    pub finished_at: Option<Timestamp>,
    /// What went otherwise than straight; empty when not asked for.
    pub history: History,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_priority_is_read_by_name_and_by_number() {
        for priority in Priority::DESCENDING {
            assert_eq!(priority.as_str().parse::<Priority>().unwrap(), priority);
            assert_eq!(priority.as_number().to_string().parse::<Priority>().unwrap(), priority);
        }
        assert!("urgent".parse::<Priority>().is_err());
        assert!("4".parse::<Priority>().is_err());
    }

    #[test]
    fn an_epoch_is_text_in_json() {
        let epoch = Epoch(u128::MAX);
        let json = serde_json::to_string(&epoch).unwrap();
        assert_eq!(json, format!("\"{}\"", u128::MAX));
        assert_eq!(serde_json::from_str::<Epoch>(&json).unwrap(), epoch);
    }

    #[test]
    fn empty_extras_are_written_as_nothing() {
        assert_eq!(serde_json::to_string(&Extras::default()).unwrap(), "{}");
        assert!(Extras::default().is_empty());
    }
}
