//! A task as it was looked at.
//!
//! Whatever changes a task otherwise than by a plain submit, claim, success or promote looks at it, lets
//! [`windlass_core::state`] decide, and has it placed if nothing has happened to it meanwhile.

use bytes::Bytes;
use windlass_core::history::Run;
use windlass_core::state::Held;
use windlass_core::task::Progress;
use windlass_core::{Epoch, Lease, QueueName, Result, State, TaskId, Timestamp, WorkerId};

use super::damage::DAMAGED;
use super::message::TaskMessage;
use super::record::{ClaimMark, Done, MAX_CRASHES, Own};
use crate::redis::reply::{Reply, next};

/// In place of a score: a Go server has the task.
const HELD: &str = "held";

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
    pub(super) group: Option<String>,
    pub(super) own: Own,
    /// The same as it was stored.
    pub(super) own_stored: Bytes,
    pub(super) claim: Option<ClaimMark>,
    pub(super) crashes: u32,
    pub(super) is_cancel_requested: bool,
    is_cancelled: bool,
    pub(super) progress: Option<Progress>,
    pub(super) done: Option<Done>,
    pub(super) result: Option<Bytes>,
    pub(super) seen_at: Timestamp,
    /// When a sweep of windlass first met a task that does not say when it was submitted.
    pub(super) met_at: Option<Timestamp>,
    /// The run of a Go server, where it was asked for.
    pub(super) go_run: Option<GoRun>,
}

/// A run of a Go server, as the server says.
#[derive(Debug, Clone)]
pub(super) struct GoRun {
    pub(super) server: WorkerId,
    pub(super) started_at: Timestamp,
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
        let (_once, met) = (part()?, part()?);
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
            met_at: met.map(|text| Timestamp::from_millis(read_number(&text))),
            go_run: None,
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
            met_at: None,
            go_run: None,
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

    /// True when its place is a key of another type, so that nothing can be done with it.
    pub(super) fn is_damaged(&self) -> bool {
        self.score == DAMAGED
    }

    /// True while a Go server is aggregating it.
    pub(super) fn is_held_by_go(&self) -> bool {
        self.place == Place::Aggregating && self.score == HELD
    }

    /// True while it runs under the lease that windlass wrote, and not under one of a Go worker.
    pub(super) fn is_own_run(&self) -> bool {
        self.place == Place::Active
            && self.claim.as_ref().is_some_and(|claim| claim.lease == self.score_number())
    }

    pub(super) fn score_number(&self) -> Option<i64> {
        self.score.split('.').next().unwrap_or_default().parse().ok()
    }

    pub(super) fn score_time(&self) -> Option<Timestamp> {
        self.score_number().map(|second| Timestamp::from_millis(second.saturating_mul(1_000)))
    }

    /// True while a worker runs it that is none of windlass's.
    pub(super) fn is_go_run(&self) -> bool {
        self.place == Place::Active && !self.is_own_run()
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
    pub(super) fn is_archived_here(&self) -> bool {
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
}

/// The first whole second that is not before a time: nothing is ever early.
pub(super) fn second_of(ms: i64) -> i64 {
    ms.div_euclid(1_000) + i64::from(ms.rem_euclid(1_000) > 0)
}

fn read_number<T: std::str::FromStr + Default>(text: &[u8]) -> T {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or_default()
}
