//! A task as it was looked at.
//!
//! Whatever changes a task otherwise than by a plain submit, claim, success or promote looks at it, lets
//! [`windlass_core::state`] decide, and has it placed if nothing has happened to it meanwhile.

use std::time::Duration;

use bytes::Bytes;
use windlass_core::history::{History, Run};
use windlass_core::state::Held;
use windlass_core::store::Parts;
use windlass_core::task::{Extras, Progress, Spec};
use windlass_core::{
    Claimed, Epoch, Kind, QueueName, Result, State, TaskId, TaskRecord, Timestamp, WorkerId,
};

use super::id::Id;
use super::record::{LARGE_IN, LARGE_OUT, LastRun, Record, Value};
use crate::redis::reply::{Reply, next};

/// Values over this many bytes are kept beside the records: scripts move records around.
pub(super) const LARGE_BYTES: usize = 1_024;

/// The kind that is shown for a record that cannot be read.
const UNREADABLE: &str = "unreadable";

/// A task as it was looked at.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) id: Id,
    pub(super) queue: QueueName,
    pub(super) record: Record,
    pub(super) running: Option<Running>,
    progress: Option<Progress>,
}

/// Who runs a task, and since when.
#[derive(Debug, Clone)]
pub(super) struct Running {
    pub(super) worker: WorkerId,
    pub(super) claimed_at: Timestamp,
}

impl Row {
    /// Reads an answer of `look` or `held`: record, progress and, of a task that runs, worker and time.
    pub(super) fn read(
        id: Id,
        queue: &QueueName,
        mut parts: std::vec::IntoIter<Reply>,
    ) -> Result<Self> {
        let record = Record::read(&next(&mut parts, "look")?.bytes()?)?;
        let progress = next(&mut parts, "look")?.bytes()?;
        let running = match (parts.next(), parts.next()) {
            (Some(worker), Some(claimed_at)) => Some(Running {
                worker: WorkerId::new(worker.text()?),
                claimed_at: claimed_at.time()?,
            }),
            _ => None,
        };
        let progress = serde_json::from_slice(&progress).ok();
        Ok(Self { id, queue: queue.clone(), record, running, progress })
    }

    /// A task that was just claimed.
    pub(super) fn claimed(id: Id, queue: &QueueName, record: Record, running: Running) -> Self {
        Self { id, queue: queue.clone(), record, running: Some(running), progress: None }
    }

    pub(super) fn state(&self) -> State {
        let waiting = if self.running.is_some() { State::Running } else { State::Pending };
        self.record.head.resting_state().unwrap_or(waiting)
    }

    pub(super) fn is_readable(&self) -> bool {
        self.record.body.unread.is_none()
    }

    pub(super) fn attempts(&self) -> u32 {
        self.record.body.attempts.saturating_add(u32::from(self.running.is_some()))
    }

    /// What the state machine wants to know of a task that runs.
    pub(super) fn held(&self) -> Held {
        Held {
            attempts: self.attempts(),
            crashes: self.record.body.crashes,
            max_crashes: self.record.body.max_crashes,
            is_cancel_requested: self.record.head.is_cancel_requested,
        }
    }

    /// The present or last run.
    pub(super) fn last_run(&self) -> Option<LastRun> {
        match (&self.running, self.record.entry) {
            (Some(running), Some(entry)) => Some(LastRun {
                entry,
                claimed_at: running.claimed_at,
                worker: running.worker.clone(),
                started_at: None,
            }),
            _ => self.record.body.run.clone(),
        }
    }

    /// The epoch of the present or last run.
    pub(super) fn epoch(&self) -> Option<Epoch> {
        self.last_run().map(|run| run.epoch(self.id))
    }

    /// True when this is the epoch of the last run whose end was reported.
    pub(super) fn is_applied(&self, epoch: Epoch) -> bool {
        self.record.body.is_applied(self.id, epoch)
    }

    pub(super) fn run(&self) -> Option<Run> {
        let run = self.last_run()?;
        Some(Run {
            attempt: self.attempts(),
            epoch: run.epoch(self.id),
            worker: run.worker,
            claimed_at: run.claimed_at,
        })
    }

    pub(super) fn history(&self) -> History {
        History::decode(self.record.body.history.as_deref()).unwrap_or_default()
    }

    /// True when its payload or result lies beside the records.
    pub(super) fn has_large(&self, parts: Parts) -> bool {
        let marks = self.record.head.marks;
        (parts.payload && marks & LARGE_IN > 0) || (parts.result && marks & LARGE_OUT > 0)
    }

    fn spec(&self) -> Spec {
        let body = &self.record.body;
        let extras: Option<Extras> =
            body.extras.as_deref().and_then(|json| serde_json::from_slice(json).ok());
        Spec {
            max_retries: body.max_retries,
            max_crashes: body.max_crashes,
            timeout: Duration::from_millis(body.timeout_ms),
            retention: Duration::from_millis(body.retention_ms),
            extras: extras.unwrap_or_default(),
        }
    }

    pub(super) fn kind(&self) -> Kind {
        Kind::stored(if self.is_readable() { &self.record.body.kind } else { UNREADABLE })
    }

    /// The record as callers see it; large values are filled in by whoever has fetched them.
    pub(super) fn into_record(self, parts: Parts) -> TaskRecord {
        let (state, epoch, run, spec, kind) =
            (self.state(), self.epoch(), self.last_run(), self.spec(), self.kind());
        let attempts = self.attempts();
        let history = if parts.history { self.history() } else { History::default() };
        let (head, body) = (self.record.head, self.record.body);
        let here = |value: Value| match value {
            Value::Here(bytes) => Some(bytes),
            Value::None | Value::Large => None,
        };
        let claimed_at = self.running.as_ref().map(|running| running.claimed_at);
        TaskRecord {
            id: self.id.task_id(),
            kind,
            queue: self.queue,
            priority: head.lane.priority(),
            state,
            payload: here(body.payload).filter(|_| parts.payload).unwrap_or_default(),
            spec,
            idempotency_key: body.idempotency_key,
            attempts,
            crashes: body.crashes,
            epoch,
            worker: run.as_ref().map(|run| run.worker.clone()),
            is_cancel_requested: head.is_cancel_requested,
            result: here(body.result).filter(|_| parts.result),
            progress: self.progress,
            created_at: head.created_at,
            updated_at: claimed_at.map_or(head.updated_at, |at| at.max(head.updated_at)),
            run_at: head.run_at,
            claimed_at: run.as_ref().map(|run| run.claimed_at),
            started_at: run.and_then(|run| run.started_at),
            finished_at: body.finished_at,
            history,
        }
    }

    /// The task as its worker is given it.
    pub(super) fn into_claimed(self, running: &Running, epoch: Epoch) -> Claimed {
        let (spec, kind, attempts) = (self.spec(), self.kind(), self.attempts());
        let (head, body) = (self.record.head, self.record.body);
        Claimed {
            id: self.id.task_id(),
            epoch,
            kind,
            queue: self.queue,
            priority: head.lane.priority(),
            payload: match body.payload {
                Value::Here(bytes) => bytes,
                Value::None | Value::Large => Bytes::new(),
            },
            attempts,
            crashes: body.crashes,
            spec,
            is_cancel_requested: head.is_cancel_requested,
            created_at: head.created_at,
            pending_at: head.since_or_until.min(running.claimed_at),
            claimed_at: running.claimed_at,
        }
    }

    pub(super) fn task_id(&self) -> TaskId {
        self.id.task_id()
    }
}
