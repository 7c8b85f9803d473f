//! A task as it was looked at.
//!
//! Whatever changes a task otherwise than by a plain submit, claim, success or promote looks at it, lets
//! [`windlass_core::state`] decide, and has it placed if nothing has happened to it meanwhile.

use std::time::Duration;

use bytes::Bytes;
use windlass_core::history::{Entry, Happening, History, Run};
use windlass_core::state::Held;
use windlass_core::store::Parts;
use windlass_core::task::{Progress, Spec};
use windlass_core::{
    Claimed, Epoch, Kind, Lease, Priority, QueueName, Result, State, TaskId, TaskRecord, Timestamp,
};

use super::message::TaskMessage;
use super::record::{ClaimMark, Done, MAX_CRASHES, Own};
use crate::redis::reply::{Reply, next};

/// The kind that is shown for a message that cannot be read.
const UNREADABLE: &str = "unreadable";
/// What a run of a task without timeout and deadline may take; so it is in Go.
const TIMEOUT_UNSAID: Duration = Duration::from_secs(1_800);
/// As good as none, for a task that has only a deadline.
const TIMEOUT_NONE: Duration = Duration::from_secs(365 * 86_400);
/// Where the name of its group is shown.
const GROUP: &str = "asynq.group";

/// Where a task stands, in asynq's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Active,
    Pending,
    Scheduled,
    Retry,
    Archived,
    Completed,
    Aggregating,
}

impl Place {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Pending => "pending",
            Self::Scheduled => "scheduled",
            Self::Retry => "retry",
            Self::Archived => "archived",
            Self::Completed => "completed",
            Self::Aggregating => "aggregating",
        }
    }

    fn read(text: &str) -> Option<Self> {
        let all = [
            Self::Active,
            Self::Pending,
            Self::Scheduled,
            Self::Retry,
            Self::Archived,
            Self::Completed,
            Self::Aggregating,
        ];
        all.into_iter().find(|place| place.as_str() == text)
    }
}

/// A task as it was looked at.
#[derive(Debug, Clone)]
pub(super) struct Row {
    /// As the caller names it.
    pub(super) id: TaskId,
    /// As its keys name it.
    pub(super) key: String,
    pub(super) queue: QueueName,
    pub(super) place: Place,
    /// As the server told it.
    pub(super) score: String,
    pub(super) message: TaskMessage,
    pub(super) message_bytes: usize,
    pub(super) is_readable: bool,
    pub(super) pending_since_ms: Option<i64>,
    pub(super) has_lock: bool,
    group: Option<String>,
    pub(super) own: Own,
    /// The same as it was stored.
    pub(super) own_stored: Bytes,
    pub(super) claim: Option<ClaimMark>,
    pub(super) crashes: u32,
    pub(super) is_cancel_requested: bool,
    is_cancelled: bool,
    progress: Option<Progress>,
    pub(super) done: Option<Done>,
    result: Option<Bytes>,
    seen_at: Timestamp,
}

/// What a claim brings of a task.
pub(super) struct Given {
    pub(super) key: String,
    pub(super) message: Bytes,
    pub(super) own: Bytes,
    pub(super) crashes: u32,
    pub(super) is_cancel_requested: bool,
    pub(super) mark: ClaimMark,
}

impl Row {
    /// Reads a task as the scripts tell it; nothing when its state is none of asynq's.
    pub(super) fn read(
        queue: &QueueName,
        mut parts: std::vec::IntoIter<Reply>,
        seen_at: Timestamp,
    ) -> Result<Option<Self>> {
        let mut part = || next(&mut parts, "look")?.bytes_if_any();
        let key = part()?.unwrap_or_default();
        let score = part()?.unwrap_or_default();
        let result = part()?.map(Bytes::from);
        let state = part()?.unwrap_or_default();
        let stored = Bytes::from(part()?.unwrap_or_default());
        let pending_since = part()?;
        let has_lock = part()?.is_some();
        let group = part()?.map(|group| String::from_utf8_lossy(&group).into_owned());
        let own_stored = Bytes::from(part()?.unwrap_or_default());
        let (number, lease, held) = (part()?, part()?, part()?);
        let crashes = part()?.map(|text| read_number(&text)).unwrap_or_default();
        let (cancel, cancelled, progress, done) = (part()?, part()?, part()?, part()?);
        let key = String::from_utf8_lossy(&key).into_owned();
        let Some(place) = Place::read(&String::from_utf8_lossy(&state)) else {
            return Ok(None);
        };
        let mark = ClaimMark::read(
            &number.unwrap_or_default(),
            &lease.unwrap_or_default(),
            &held.unwrap_or_default(),
        );
        let message_bytes = stored.len();
        let message = TaskMessage::read(stored);
        let own = Own::read(&own_stored);
        Ok(Some(Self {
            id: TaskId::new(&key),
            key,
            queue: queue.clone(),
            place,
            score: String::from_utf8_lossy(&score).into_owned(),
            is_readable: message.is_ok() && own.is_some(),
            message: message.unwrap_or_default(),
            message_bytes,
            // The last six digits are less than a millisecond.
            pending_since_ms: pending_since.map(|text| read_number::<i64>(&text) / 1_000_000),
            has_lock,
            group: group.filter(|group| !group.is_empty()),
            own: own.unwrap_or_default(),
            own_stored,
            claim: mark,
            crashes,
            is_cancel_requested: cancel.is_some(),
            is_cancelled: cancelled.is_some(),
            progress: progress.and_then(|json| serde_json::from_slice(&json).ok()),
            done: done.and_then(|text| Done::read(&text)),
            result,
            seen_at,
        }))
    }

    /// A task that was just claimed.
    pub(super) fn claimed(queue: &QueueName, given: Given) -> Self {
        let Given { key, message, own, crashes, is_cancel_requested, mark } = given;
        let (message_bytes, own_stored) = (message.len(), own);
        let message = TaskMessage::read(message);
        let own = Own::read(&own_stored);
        Self {
            id: TaskId::new(&key),
            key,
            queue: queue.clone(),
            place: Place::Active,
            score: mark.lease.map(|lease| lease.to_string()).unwrap_or_default(),
            is_readable: message.is_ok() && own.is_some(),
            message: message.unwrap_or_default(),
            message_bytes,
            pending_since_ms: None,
            has_lock: false,
            group: None,
            own: own.unwrap_or_default(),
            own_stored,
            seen_at: mark.claimed_at,
            claim: Some(mark),
            crashes,
            is_cancel_requested,
            is_cancelled: false,
            progress: None,
            done: None,
            result: None,
        }
    }

    pub(super) fn state(&self) -> State {
        match self.place {
            Place::Active => State::Running,
            Place::Pending => State::Pending,
            Place::Scheduled | Place::Aggregating => State::Scheduled,
            Place::Retry => State::Retrying,
            // Someone else may have archived it since.
            Place::Archived
                if self.is_cancelled
                    && self.score_number() == Some(self.own.finished_ms.div_euclid(1_000)) =>
            {
                State::Cancelled
            }
            Place::Archived => State::DeadLetter,
            Place::Completed => State::Completed,
        }
    }

    /// True while it runs under the lease that windlass wrote, and not under one of a Go worker.
    pub(super) fn is_own_run(&self) -> bool {
        self.place == Place::Active
            && self.claim.as_ref().is_some_and(|claim| claim.lease == self.score_number())
    }

    fn score_number(&self) -> Option<i64> {
        self.score.split('.').next().unwrap_or_default().parse().ok()
    }

    fn score_time(&self) -> Option<Timestamp> {
        self.score_number().map(|second| Timestamp::from_millis(second.saturating_mul(1_000)))
    }

    /// How it succeeded, unless someone else has completed it since.
    fn done(&self) -> Option<Done> {
        let is_its = |done: &Done| {
            let until = done.finished_at.after(Duration::from_millis(done.retention_ms));
            Some(second_of(until.as_millis())) == self.score_number()
        };
        self.done.filter(|done| self.place != Place::Completed || is_its(done))
    }

    /// The present or last claim by windlass; none while a Go worker has it.
    pub(super) fn last_claim(&self) -> Option<&ClaimMark> {
        let is_told = self.place != Place::Active || self.is_own_run();
        self.claim.as_ref().filter(|_| is_told)
    }

    pub(super) fn epoch(&self) -> Option<Epoch> {
        self.last_claim().map(|claim| Epoch(claim.number.into()))
    }

    pub(super) fn lease(&self) -> Option<Lease> {
        Some(Lease { task: self.id.clone(), epoch: self.epoch()? })
    }

    /// True when this is the epoch of the last run whose end was reported.
    pub(super) fn is_applied(&self, epoch: Epoch) -> bool {
        let done = self.done.map(|done| done.number);
        let told = [Some(self.own.applied), done];
        epoch.0 > 0 && told.into_iter().flatten().any(|number| u128::from(number) == epoch.0)
    }

    /// True when it lies in the archive since windlass put it there; a Go worker may have done so later.
    fn is_archived_here(&self) -> bool {
        let finished = self.own.finished_ms;
        finished > 0 && self.score_number() == Some(finished.div_euclid(1_000))
    }

    /// Runs that count: failures are in the message, but for the last one of a task that Go archives.
    pub(super) fn attempts(&self) -> u32 {
        let runs = i32::from(match self.place {
            Place::Active | Place::Completed => true,
            // What an inspector archives has not failed in that moment.
            Place::Archived => {
                !self.is_archived_here() && self.score_number() == Some(self.message.last_failed_at)
            }
            Place::Pending | Place::Scheduled | Place::Retry | Place::Aggregating => false,
        });
        let sum = self.message.retried.saturating_add(self.own.attempts_more).saturating_add(runs);
        u32::try_from(sum).unwrap_or(0)
    }

    pub(super) fn max_crashes(&self) -> u32 {
        self.own.max_crashes.unwrap_or(MAX_CRASHES)
    }

    /// What the state machine wants to know of a task that runs.
    pub(super) fn held(&self) -> Held {
        Held {
            attempts: self.attempts(),
            crashes: self.crashes,
            max_crashes: self.max_crashes(),
            is_cancel_requested: self.is_cancel_requested,
        }
    }

    pub(super) fn run(&self) -> Option<Run> {
        let claim = self.last_claim()?;
        Some(Run {
            attempt: self.attempts(),
            epoch: Epoch(claim.number.into()),
            worker: claim.worker.clone(),
            claimed_at: claim.claimed_at,
        })
    }

    pub(super) fn retention(&self) -> Duration {
        let seconds = u64::try_from(self.message.retention).unwrap_or(0);
        let ms = match (self.done(), self.own.retention_ms) {
            (Some(done), _) => done.retention_ms,
            (None, 0) => seconds.saturating_mul(1_000),
            (None, ms) => ms,
        };
        Duration::from_millis(ms)
    }

    /// When it was submitted. A task of Go's does not tell: then the earliest that is known of it.
    pub(super) fn created_at(&self) -> Timestamp {
        if self.own.created_ms > 0 {
            return Timestamp::from_millis(self.own.created_ms);
        }
        let since = self.claim.as_ref().and_then(|claim| claim.since.parse::<i64>().ok());
        let pending = self.pending_since_ms.or(since.map(|ns| ns / 1_000_000));
        let seconds = [self.message.last_failed_at, self.message.completed_at];
        let told = seconds.into_iter().filter(|second| *second > 0).map(|second| second * 1_000);
        let earliest = pending.or_else(|| told.min());
        let earliest = earliest.map(Timestamp::from_millis);
        earliest
            .or_else(|| self.score_time().filter(|at| *at <= self.seen_at))
            .unwrap_or(self.seen_at)
    }

    pub(super) fn finished_at(&self) -> Option<Timestamp> {
        match self.place {
            Place::Completed => self
                .done()
                .map(|done| done.finished_at)
                .or(Some(Timestamp::from_millis(self.message.completed_at.saturating_mul(1_000)))),
            Place::Archived if self.is_archived_here() => {
                Some(Timestamp::from_millis(self.own.finished_ms))
            }
            Place::Archived => self.score_time(),
            Place::Active
            | Place::Pending
            | Place::Scheduled
            | Place::Retry
            | Place::Aggregating => None,
        }
    }

    /// True when it was kept its time.
    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        let until = match (self.state(), self.done()) {
            (State::Completed, None) => self.score_time(),
            (State::Completed | State::Cancelled, _) => {
                self.finished_at().map(|at| at.after(self.retention()))
            }
            _ => None,
        };
        until.is_some_and(|until| until <= now)
    }

    fn updated_at(&self) -> Timestamp {
        let told = [
            Some(self.created_at()),
            Some(Timestamp::from_millis(self.own.updated_ms)),
            self.pending_since_ms.map(Timestamp::from_millis),
            self.last_claim().map(|claim| claim.claimed_at),
            self.finished_at(),
        ];
        told.into_iter().flatten().max().unwrap_or_default()
    }

    /// When it is, or was last, due later. The score rules where someone else has moved it.
    fn run_at(&self) -> Option<Timestamp> {
        let exact = Some(self.own.run_at_ms).filter(|ms| *ms > 0);
        match self.place {
            Place::Scheduled | Place::Retry => {
                let exact = exact.filter(|ms| Some(second_of(*ms)) == self.score_number());
                exact.map(Timestamp::from_millis).or_else(|| self.score_time())
            }
            _ => exact.map(Timestamp::from_millis),
        }
    }

    fn started_at(&self) -> Option<Timestamp> {
        if let (Place::Completed, Some(done)) = (self.place, self.done()) {
            let took = done.took_ms?;
            return Some(Timestamp::from_millis(done.finished_at.as_millis() - took));
        }
        let is_of_last = self.claim.as_ref().is_some_and(|claim| claim.number == self.own.applied);
        let told = Some(self.own.started_ms).filter(|ms| *ms > 0 && is_of_last);
        told.filter(|_| self.place != Place::Active).map(Timestamp::from_millis)
    }

    fn history(&self) -> History {
        let mut history = self.own.history();
        let message = &self.message;
        // What a Go worker has left of a failure.
        if history.entries().is_empty() && message.last_failed_at > 0 {
            history.push(Entry {
                what: Happening::Failed,
                at: Timestamp::from_millis(message.last_failed_at.saturating_mul(1_000)),
                run: None,
                error: Some(message.error_msg.clone()),
                by: None,
                again: None,
            });
        }
        history
    }

    fn spec(&self) -> Spec {
        let message = &self.message;
        let mut extras = self.own.extras();
        extras.metadata.clone_from(&message.headers);
        if let Some(group) = self.group.clone().filter(|_| self.place == Place::Aggregating) {
            extras.metadata.insert(GROUP.into(), group);
        }
        if extras.deadline.is_none() && message.deadline > 0 {
            extras.deadline = Some(Timestamp::from_millis(message.deadline.saturating_mul(1_000)));
        }
        let timeout = match (self.own.timeout_ms, u64::try_from(message.timeout).unwrap_or(0)) {
            (0, 0) if message.deadline > 0 => TIMEOUT_NONE,
            (0, 0) => TIMEOUT_UNSAID,
            (0, seconds) => Duration::from_secs(seconds),
            (ms, _) => Duration::from_millis(ms),
        };
        Spec {
            max_retries: u32::try_from(message.retry).unwrap_or(0),
            max_crashes: self.max_crashes(),
            timeout,
            retention: self.retention(),
            extras,
        }
    }

    fn kind(&self) -> Kind {
        Kind::stored(if self.is_readable { &self.message.r#type } else { UNREADABLE })
    }

    /// The record as callers see it.
    pub(super) fn into_record(self, parts: Parts) -> TaskRecord {
        let claim = self.last_claim();
        TaskRecord {
            kind: self.kind(),
            priority: Priority::Normal,
            state: self.state(),
            spec: self.spec(),
            attempts: self.attempts(),
            crashes: self.crashes,
            epoch: self.epoch(),
            worker: claim.map(|claim| claim.worker.clone()),
            is_cancel_requested: self.is_cancel_requested && self.place == Place::Active,
            created_at: self.created_at(),
            updated_at: self.updated_at(),
            run_at: self.run_at(),
            claimed_at: claim.map(|claim| claim.claimed_at),
            started_at: self.started_at(),
            finished_at: self.finished_at(),
            history: if parts.history { self.history() } else { History::default() },
            idempotency_key: self.own.idempotency_key,
            id: self.id,
            queue: self.queue,
            payload: if parts.payload { self.message.payload } else { Bytes::new() },
            result: self.result.filter(|_| parts.result),
            progress: self.progress,
        }
    }

    /// The task as its worker is given it.
    pub(super) fn into_claimed(self, mark: &ClaimMark) -> Claimed {
        Claimed {
            epoch: Epoch(mark.number.into()),
            kind: self.kind(),
            priority: Priority::Normal,
            attempts: self.attempts(),
            crashes: self.crashes,
            spec: self.spec(),
            is_cancel_requested: self.is_cancel_requested,
            created_at: self.created_at(),
            claimed_at: mark.claimed_at,
            id: self.id,
            queue: self.queue,
            payload: self.message.payload,
        }
    }
}

/// The first whole second that is not before a time: nothing is ever early.
pub(super) fn second_of(ms: i64) -> i64 {
    ms.div_euclid(1_000) + i64::from(ms.rem_euclid(1_000) > 0)
}

fn read_number<T: std::str::FromStr + Default>(text: &[u8]) -> T {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or_default()
}
