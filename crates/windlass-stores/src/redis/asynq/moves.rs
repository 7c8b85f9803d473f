//! The moves that decisions make of a task.
//!
//! [`Row::settle`] is the one place that keeps times, keys and counters true.

use std::time::Duration;

use prost::Message;
use windlass_core::history::{EndOfRun, Happening, Note};
use windlass_core::limits::clip;
use windlass_core::state::Step;
use windlass_core::unique::{Exit, Hold, Holding, is_freed_by};
use windlass_core::{QueueName, State, TaskId, Timestamp};

use super::row::{Place, Row, second_of};
use crate::redis::options::millis;

/// What a cancelled task says of itself to asynq's tools, which show it as archived.
const CANCELLED: &str = "cancelled by windlass";

/// A task on its way to another place.
#[derive(Debug, Clone)]
pub(super) struct Move {
    /// The task as it was seen.
    pub(super) row: Row,
    /// Nothing when it is removed.
    pub(super) to: Option<Place>,
    /// Its score, or since when it is pending; empty for now.
    pub(super) time: String,
    /// Its message, where it is another.
    pub(super) message: Option<Vec<u8>>,
    pub(super) own: Vec<u8>,
    pub(super) crashes: u32,
    /// Until when a cancelled task is kept.
    pub(super) kept_until: Option<Timestamp>,
    pub(super) frees_lock: bool,
    pub(super) frees_once: bool,
    pub(super) is_back: bool,
    pub(super) counts: Counts,
    pub(super) drops_result: bool,
    /// The state it takes; nothing when it is removed.
    pub(super) state: Option<State>,
}

/// What a run counts as in asynq's statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counts {
    Nothing,
    Processed,
    Failed,
}

impl Counts {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Nothing => "",
            Self::Processed => "p",
            Self::Failed => "f",
        }
    }

    fn of(note: Option<&Note>, state: State) -> Self {
        match note.map(|note| note.what) {
            Some(Happening::Failed | Happening::TimedOut | Happening::Discarded) => Self::Failed,
            Some(Happening::Cancelled) => Self::Processed,
            // Past its deadline, or lost once too often: it will not be processed any more.
            _ if state == State::DeadLetter => Self::Failed,
            _ => Self::Nothing,
        }
    }
}

/// How a run ended.
pub(super) struct RunEnd {
    pub(super) state: State,
    pub(super) step: Step,
    /// What its worker reported; nothing when the store has ended it.
    pub(super) applied: Option<Reported>,
}

/// What a worker reports beside the step.
pub(super) struct Reported {
    pub(super) took: Option<Duration>,
    pub(super) retention: Duration,
}

/// How a task comes to its new state.
struct Settling {
    attempts: u32,
    crashes: u32,
    is_back: bool,
    counts: Counts,
    drops_result: bool,
    has_new_message: bool,
}

impl Row {
    /// As it is, but for its state.
    fn settling(&self) -> Settling {
        Settling {
            attempts: self.attempts(),
            crashes: self.crashes,
            is_back: false,
            counts: Counts::Nothing,
            drops_result: false,
            has_new_message: false,
        }
    }

    /// Ends the run of this task: places it where the step says and frees what it held.
    pub(super) fn end_run(mut self, now: Timestamp, end: RunEnd, error_bytes_max: usize) -> Move {
        let seen = self.clone();
        let RunEnd { state, step, applied } = end;
        let note = step.note.map(|mut note| {
            if let Some(error) = &mut note.error {
                *error = clip(error, error_bytes_max).to_owned();
            }
            note
        });
        let counts = Counts::of(note.as_ref(), state);
        // The reason why a task waits is not a failure in asynq's sense.
        let failure = note.as_ref().filter(|note| note.what != Happening::Snoozed);
        let failed = failure.and_then(|note| note.error.clone());
        let mut history = self.history();
        history.end_run(EndOfRun { at: now, run: self.run(), note, state });
        self.own.set_history(&history);
        if let Some(error) = failed {
            self.message.error_msg = error;
            self.message.last_failed_at = now.as_millis().div_euclid(1_000);
            self.message.retried += i32::from(state == State::Retrying);
        }
        if let Some(Reported { took, retention }) = applied {
            self.own.applied = self.claim.as_ref().map_or(0, |claim| claim.number);
            self.own.started_ms = took.map_or(0, |took| now.before(took).as_millis());
            self.set_retention(retention);
        }
        if matches!(state, State::Scheduled | State::Retrying) {
            self.own.run_at_ms = step.when.due(now).unwrap_or(now).as_millis();
        }
        let how = Settling {
            attempts: step.attempts,
            crashes: step.crashes,
            is_back: true,
            counts,
            drops_result: false,
            has_new_message: self.is_readable && self.message != seen.message,
        };
        self.settle(seen, now, state, how)
    }

    fn set_retention(&mut self, retention: Duration) {
        let ms = millis(retention);
        self.message.retention = i64::try_from(ms.div_ceil(1_000)).unwrap_or(i64::MAX);
        self.own.retention_ms = if ms.is_multiple_of(1_000) { 0 } else { ms };
    }

    /// Gives a task its new state, with all that goes with a terminal one.
    fn settle(mut self, seen: Row, now: Timestamp, state: State, how: Settling) -> Move {
        // From now on nothing else tells.
        self.own.created_ms = seen.created_at().as_millis();
        self.own.updated_ms = now.as_millis();
        self.own.finished_ms = if state.is_terminal() { now.as_millis() } else { 0 };
        let has_new_message = self.explain_cancel(state) || how.has_new_message;
        let attempts = i32::try_from(how.attempts).unwrap_or(i32::MAX);
        self.own.attempts_more = attempts.saturating_sub(self.message.retried);
        let exit = state
            .is_terminal()
            .then_some(Exit::Finished { state, has_started: how.attempts > 0 || how.crashes > 0 });
        let until = now.after(self.kept_for(state));
        let (to, time) = match state {
            State::Pending => (Place::Pending, self.pending_since(&how)),
            State::Scheduled => (Place::Scheduled, second_of(self.own.run_at_ms).to_string()),
            State::Retrying => (Place::Retry, second_of(self.own.run_at_ms).to_string()),
            State::Completed => (Place::Completed, second_of(until.as_millis()).to_string()),
            State::DeadLetter | State::Cancelled | State::Running => {
                (Place::Archived, now.as_millis().div_euclid(1_000).to_string())
            }
        };
        Move {
            to: Some(to),
            time,
            message: has_new_message.then(|| self.message.write()),
            own: self.own.encode_to_vec(),
            crashes: how.crashes,
            kept_until: (state == State::Cancelled).then_some(until),
            frees_lock: exit.is_some_and(|exit| seen.frees_lock(exit)),
            frees_once: false,
            is_back: how.is_back,
            counts: how.counts,
            drops_result: how.drops_result,
            state: Some(state),
            row: seen,
        }
    }

    /// Has asynq's tools say why a cancelled task lies in the archive, as long as it lies there; true when the message
    /// is another for it.
    fn explain_cancel(&mut self, state: State) -> bool {
        let error = match state {
            State::Cancelled => CANCELLED,
            _ if self.message.error_msg == CANCELLED => "",
            _ => return false,
        };
        self.message.error_msg = error.into();
        self.is_readable
    }

    /// Work that was given back is pending since when it was before.
    fn pending_since(&self, how: &Settling) -> String {
        let since = self.last_claim().map(|claim| claim.since.clone());
        since.filter(|since| how.is_back && since.parse::<i64>().is_ok()).unwrap_or_default()
    }

    /// Puts a waiting or finished task at the end of the line; a finished one starts over.
    pub(super) fn rerun(mut self, now: Timestamp, by: Option<String>) -> Move {
        let (seen, state) = (self.clone(), self.state());
        let mut history = self.history();
        if let (State::Completed, Some(at)) = (state, self.finished_at()) {
            history.keep_completion(at, self.run());
        }
        history.asked(Happening::Rerun, now, by);
        self.own.set_history(&history);
        let mut how = self.settling();
        if state.is_terminal() {
            self.set_retention(seen.retention());
            self.message.retried = 0;
            self.message.completed_at = 0;
            if let Some(done) = seen.done {
                self.own.applied = done.number;
                self.own.started_ms =
                    done.took_ms.map_or(0, |took| done.finished_at.as_millis() - took);
            }
            how = Settling { attempts: 0, crashes: 0, drops_result: true, ..how };
            how.has_new_message = self.is_readable && self.message != seen.message;
        }
        self.settle(seen, now, State::Pending, how)
    }

    /// Calls a waiting task off.
    pub(super) fn cancel(mut self, now: Timestamp, by: Option<String>) -> Move {
        let seen = self.clone();
        self.note(Happening::Cancelled, now, by);
        let how = self.settling();
        self.settle(seen, now, State::Cancelled, how)
    }

    /// Moves a waiting task to another time, in the course of a walk or for itself.
    pub(super) fn reschedule(
        mut self,
        now: Timestamp,
        at: Timestamp,
        by: Option<String>,
        walk: u64,
    ) -> Move {
        let seen = self.clone();
        self.note(Happening::Rescheduled, now, by);
        self.own.run_at_ms = at.as_millis();
        self.own.walk = walk;
        let how = self.settling();
        self.settle(seen, now, State::Scheduled, how)
    }

    /// Removes a task with its keys.
    pub(super) fn delete(self) -> Move {
        Move {
            to: None,
            time: String::new(),
            message: None,
            own: Vec::new(),
            crashes: 0,
            kept_until: None,
            frees_lock: self.frees_lock(Exit::Deleted),
            frees_once: true,
            is_back: false,
            counts: Counts::Nothing,
            drops_result: true,
            state: None,
            row: self,
        }
    }

    /// The record of a running task with the request for its cancellation.
    pub(super) fn ask_to_stop(&self, now: Timestamp, by: Option<String>) -> Vec<u8> {
        let mut asked = self.clone();
        asked.note(Happening::CancelRequested, now, by);
        asked.own.created_ms = self.created_at().as_millis();
        asked.own.updated_ms = now.as_millis();
        asked.own.encode_to_vec()
    }

    fn note(&mut self, what: Happening, now: Timestamp, by: Option<String>) {
        let mut history = self.history();
        history.asked(what, now, by);
        self.own.set_history(&history);
    }

    fn frees_lock(&self, exit: Exit) -> bool {
        let hold = match self.own.hold_ms {
            Some(ms) if ms >= 0 => Hold::For(Duration::from_millis(ms.unsigned_abs())),
            Some(_) => Hold::UntilFinished,
            // A lock of Go's: an archived task keeps it.
            None => return self.has_lock && exit == Exit::Deleted,
        };
        is_freed_by(Holding::Unique(hold), exit)
    }

    /// The task as its caller names it.
    pub(super) fn name(&self) -> TaskId {
        self.id.clone()
    }

    /// Its queue and its name: ids are unique in their queue only.
    pub(super) fn address(&self) -> (QueueName, TaskId) {
        (self.queue.clone(), self.id.clone())
    }
}
