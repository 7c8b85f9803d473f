//! A task as callers are told of it: its times, its settings and its story, put together from what asynq and
//! windlass have written. Where someone else has moved a task since, asynq's own keys rule.

use std::time::Duration;

use bytes::Bytes;
use uuid::Uuid;
use windlass_core::history::{Entry, Happening, History};
use windlass_core::store::{Parts, RETENTION_DEFAULT};
use windlass_core::task::Spec;
use windlass_core::{Claimed, Epoch, Kind, Priority, State, TaskRecord, Timestamp};

use super::record::{ClaimMark, Done};
use super::row::{Place, Row, second_of};

/// The kind that is shown for a message that cannot be read.
const UNREADABLE: &str = "unreadable";
/// What a run of a task without timeout and deadline may take; so it is in Go.
const TIMEOUT_UNSAID: Duration = Duration::from_secs(1_800);
/// As good as none, for a task that has only a deadline.
const TIMEOUT_NONE: Duration = Duration::from_secs(365 * 86_400);
/// How long a cancelled task is kept that is to leave nothing when it succeeds.
const CANCELLED_KEPT: Duration = RETENTION_DEFAULT;
/// Where the name of its group is shown.
const GROUP: &str = "asynq.group";

impl Row {
    /// How it succeeded, unless someone else has completed it since.
    fn done(&self) -> Option<Done> {
        let is_its = |done: &Done| {
            let until = done.finished_at.after(Duration::from_millis(done.retention_ms));
            Some(second_of(until.as_millis())) == self.score_number()
        };
        self.done.filter(|done| self.place != Place::Completed || is_its(done))
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

    /// How long it is kept once it has come to this state. Without retention a success leaves nothing, but who
    /// called a task off may ask what became of it, and so may who submitted it.
    pub(super) fn kept_for(&self, state: State) -> Duration {
        match (state, self.retention()) {
            (State::Cancelled, Duration::ZERO) => CANCELLED_KEPT,
            (_, retention) => retention,
        }
    }

    /// When it was submitted. The id of a task of windlass's carries it, should a Go worker have moved the task. A
    /// task of Go's does not say: then when windlass first met it, or the earliest that is known of it.
    pub(super) fn created_at(&self) -> Timestamp {
        if self.own.created_ms > 0 {
            return Timestamp::from_millis(self.own.created_ms);
        }
        let pending = self.pending_since_ms.or_else(|| self.claim.as_ref()?.pending_since_ms());
        // A failure that windlass did not record is one of a Go worker, and it is pending since that.
        let has_go_failed = self.message.retried > 0 || self.message.last_failed_at > 0;
        let submitted = pending.filter(|_| !has_go_failed).map(Timestamp::from_millis);
        if let Some(at) = submitted.or_else(|| self.made_at()).or(self.met_at) {
            return at;
        }
        let seconds = [self.message.last_failed_at, self.message.completed_at];
        let told = seconds.into_iter().filter(|second| *second > 0).map(|second| second * 1_000);
        let earliest = pending.or_else(|| told.min());
        let earliest = earliest.map(Timestamp::from_millis);
        earliest
            .or_else(|| self.score_time().filter(|at| *at <= self.seen_at))
            .unwrap_or(self.seen_at)
    }

    /// When its id was made, if it is one of windlass's (a UUIDv7).
    fn made_at(&self) -> Option<Timestamp> {
        let made = Uuid::try_parse(&self.key).ok()?.get_timestamp()?;
        let (seconds, nanos) = made.to_unix();
        let ms = i64::try_from(seconds).ok()?.checked_mul(1_000)? + i64::from(nanos / 1_000_000);
        // A clock that runs ahead, or an id with another meaning, says nothing.
        Some(Timestamp::from_millis(ms)).filter(|at| *at <= self.seen_at)
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
            (state @ (State::Completed | State::Cancelled), _) => {
                self.finished_at().map(|at| at.after(self.kept_for(state)))
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
        let told = told.filter(|_| self.place != Place::Active).map(Timestamp::from_millis);
        told.or_else(|| self.go_run.as_ref().map(|run| run.started_at))
    }

    /// What went otherwise than straight, and the last failure of a Go worker, or that asynq archived it, where that
    /// came later.
    pub(super) fn history(&self) -> History {
        let mut history = self.own.history();
        let failed_at = self.message.last_failed_at;
        let is_told = history.entries().iter().any(|entry| {
            let last_at = entry.again.map_or(entry.at, |again| again.last_at);
            is_end_of_run(entry.what) && last_at.as_millis().div_euclid(1_000) >= failed_at
        });
        let entry = |what, at, error| Entry { what, at, run: None, error, by: None, again: None };
        if failed_at > 0 && !is_told {
            let at = Timestamp::from_millis(failed_at.saturating_mul(1_000));
            let error = Some(self.message.error_msg.clone());
            history.push(entry(Happening::Failed, at, error));
        }
        if let (Place::Archived, false, Some(at)) =
            (self.place, self.is_archived_here(), self.score_time())
        {
            history.push(entry(Happening::DeadLetter, at, None));
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
            worker: claim
                .map(|claim| claim.worker.clone())
                .or_else(|| self.go_run.as_ref().map(|run| run.server.clone())),
            is_cancel_requested: self.is_cancel_requested && self.place == Place::Active,
            created_at: self.created_at(),
            updated_at: self.updated_at(),
            run_at: self.run_at(),
            claimed_at: claim
                .map(|claim| claim.claimed_at)
                .or_else(|| self.go_run.as_ref().map(|run| run.started_at)),
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
            pending_at: mark
                .pending_since_ms()
                .map_or(mark.claimed_at, |ms| Timestamp::from_millis(ms).min(mark.claimed_at)),
            claimed_at: mark.claimed_at,
            id: self.id,
            queue: self.queue,
            payload: self.message.payload,
        }
    }
}

/// True for what a run comes to that leaves an error in the message.
fn is_end_of_run(what: Happening) -> bool {
    matches!(
        what,
        Happening::Failed
            | Happening::TimedOut
            | Happening::Discarded
            | Happening::DeadlinePassed
            | Happening::Crashed
            | Happening::DeadLetter
    )
}
