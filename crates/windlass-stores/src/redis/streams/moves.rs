//! The moves that decisions make of a task.
//!
//! [`Row::settle`] is the one place that keeps times, keys and marks true.

use std::time::Duration;

use bytes::Bytes;
use windlass_core::history::{EndOfRun, Happening};
use windlass_core::limits::clip;
use windlass_core::state::Step;
use windlass_core::unique::{Exit, Hold, Holding, is_freed_by};
use windlass_core::{State, Timestamp, duration};

use super::id::Id;
use super::record::{LARGE_OUT, Lane, TIMED, Value, letter};
use super::row::{LARGE_BYTES, Row};
use crate::redis::options::millis;

/// A task on its way to another place.
#[derive(Debug, Clone)]
pub(super) struct Move {
    pub(super) id: Id,
    pub(super) begins: Vec<u8>,
    /// Where it stands: `r` runs, `w` waits in its lane, `o` stands elsewhere.
    pub(super) stands: &'static str,
    /// Its new record without an entry; nothing when it is removed.
    pub(super) after: Option<Vec<u8>>,
    /// When it is due, or the ms that it is kept.
    pub(super) time: i64,
    pub(super) is_back: bool,
    pub(super) freed: Vec<u8>,
    pub(super) result: LargeResult,
    /// The state it takes; nothing when it is removed.
    pub(super) state: Option<State>,
}

/// What becomes of a large result.
#[derive(Debug, Clone)]
pub(super) enum LargeResult {
    Keep,
    Drop,
    Set(Bytes),
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

struct Settling {
    is_back: bool,
    large: LargeResult,
}

impl Settling {
    const PLAIN: Self = Self { is_back: false, large: LargeResult::Keep };
}

impl Row {
    /// Ends the run of this task: places it where the step says and frees what it held.
    pub(super) fn end_run(mut self, now: Timestamp, end: RunEnd, error_bytes_max: usize) -> Move {
        let RunEnd { state, step, applied } = end;
        let note = step.note.map(|mut note| {
            if let Some(error) = &mut note.error {
                *error = clip(error, error_bytes_max).to_owned();
            }
            note
        });
        let run = self.run();
        let mut history = self.history();
        history.end_run(EndOfRun { at: now, run, note, state });
        self.record.body.history = history.encode();
        let mut last = self.last_run();
        if let Some(Reported { took, retention }) = applied {
            self.record.body.applied = self.record.entry;
            self.record.body.retention_ms = millis(retention);
            if let Some(last) = &mut last {
                last.started_at = took.map(|took| now.before(took));
            }
        }
        self.record.body.run = last;
        self.record.body.attempts = step.attempts;
        self.record.body.crashes = step.crashes;
        let mut large = LargeResult::Keep;
        if state == State::Completed {
            large = self.put_result(step.result);
        }
        if matches!(state, State::Scheduled | State::Retrying) {
            self.record.head.run_at = Some(step.when.due(now).unwrap_or(now));
        }
        self.settle(now, state, Settling { is_back: true, large })
    }

    fn put_result(&mut self, result: Option<Bytes>) -> LargeResult {
        let had_large = self.record.head.marks & LARGE_OUT > 0;
        self.record.head.marks &= !LARGE_OUT;
        match result {
            Some(result) if result.len() > LARGE_BYTES => {
                self.record.head.marks |= LARGE_OUT;
                self.record.body.result = Value::Large;
                LargeResult::Set(result)
            }
            result => {
                self.record.body.result = result.map_or(Value::None, Value::Here);
                if had_large { LargeResult::Drop } else { LargeResult::Keep }
            }
        }
    }

    /// Gives a task its new state, with all that goes with a terminal one.
    fn settle(mut self, now: Timestamp, state: State, how: Settling) -> Move {
        let stands = self.stands();
        let begins = std::mem::take(&mut self.record.begins);
        let freed = match state.is_terminal() {
            true => {
                let body = &self.record.body;
                let has_started = body.attempts > 0 || body.crashes > 0;
                self.freed_by(Exit::Finished { state, has_started })
            }
            false => Vec::new(),
        };
        let priority = self.record.head.lane.priority();
        let crashes = self.record.body.crashes;
        let retention =
            duration::from_millis(self.record.body.retention_ms.min(i64::MAX as u64) as i64);
        let head = &mut self.record.head;
        head.state = letter(state);
        if self.record.body.unread.is_none() {
            head.lane = Lane::of(priority, crashes);
        }
        head.is_cancel_requested = false;
        head.revision = head.revision.wrapping_add(1);
        head.updated_at = now;
        self.record.body.finished_at = state.is_terminal().then_some(now);
        let time = match state {
            State::Scheduled | State::Retrying => head.run_at.unwrap_or(now).as_millis(),
            State::Completed | State::Cancelled => {
                head.since_or_until = now.after(retention);
                i64::try_from(self.record.body.retention_ms)
                    .unwrap_or(i64::MAX)
                    .min(Timestamp::MAX.as_millis())
            }
            State::Pending | State::Running | State::DeadLetter => 0,
        };
        Move {
            id: self.id,
            begins,
            stands,
            after: Some(self.record.write()),
            time,
            is_back: how.is_back,
            freed,
            result: how.large,
            state: Some(state),
        }
    }

    /// Puts a waiting or finished task at the end of its lane; a finished one starts over.
    pub(super) fn rerun(mut self, now: Timestamp, by: Option<String>) -> Move {
        let state = self.state();
        let mut history = self.history();
        if let (State::Completed, Some(at)) = (state, self.record.body.finished_at) {
            history.keep_completion(at, self.run());
        }
        history.asked(Happening::Rerun, now, by);
        self.record.body.history = history.encode();
        let mut large = LargeResult::Keep;
        if state.is_terminal() {
            self.record.body.attempts = 0;
            self.record.body.crashes = 0;
            large = self.put_result(None);
        }
        self.record.head.since_or_until = now;
        self.settle(now, State::Pending, Settling { is_back: false, large })
    }

    /// Calls a waiting task off.
    pub(super) fn cancel(mut self, now: Timestamp, by: Option<String>) -> Move {
        self.note(Happening::Cancelled, now, by);
        self.settle(now, State::Cancelled, Settling::PLAIN)
    }

    /// Moves a waiting task to another time.
    pub(super) fn reschedule(mut self, now: Timestamp, at: Timestamp, by: Option<String>) -> Move {
        self.note(Happening::Rescheduled, now, by);
        self.record.head.run_at = Some(at);
        self.settle(now, State::Scheduled, Settling::PLAIN)
    }

    /// Removes a task with its keys.
    pub(super) fn delete(self) -> Move {
        Move {
            id: self.id,
            stands: self.stands(),
            freed: self.freed_by(Exit::Deleted),
            begins: self.record.begins,
            after: None,
            time: 0,
            is_back: false,
            result: LargeResult::Drop,
            state: None,
        }
    }

    /// The record of a running task with the request for its cancellation.
    pub(super) fn ask_to_stop(mut self, now: Timestamp, by: Option<String>) -> (Vec<u8>, Vec<u8>) {
        self.note(Happening::CancelRequested, now, by);
        let head = &mut self.record.head;
        head.is_cancel_requested = true;
        head.revision = head.revision.wrapping_add(1);
        head.updated_at = now;
        (std::mem::take(&mut self.record.begins), self.record.write())
    }

    fn note(&mut self, what: Happening, now: Timestamp, by: Option<String>) {
        let mut history = self.history();
        history.asked(what, now, by);
        self.record.body.history = history.encode();
    }

    fn stands(&self) -> &'static str {
        match self.state() {
            State::Running => "r",
            State::Pending => "w",
            _ => "o",
        }
    }

    /// The digests of the keys that an exit frees.
    fn freed_by(&self, exit: Exit) -> Vec<u8> {
        let body = &self.record.body;
        let hold = match self.record.head.marks & TIMED > 0 {
            true => Hold::For(Duration::from_millis(body.hold_ms.unwrap_or(0))),
            false => Hold::UntilFinished,
        };
        let once = body.once.map(|digest| (digest, Holding::Idempotency));
        let alone = body.alone.map(|digest| (digest, Holding::Unique(hold)));
        let keys = once.into_iter().chain(alone);
        keys.filter(|(_, holding)| is_freed_by(*holding, exit))
            .flat_map(|(digest, _)| digest)
            .collect()
    }
}
