//! A task as it was looked at, and the moves that decisions make of it.
//!
//! Whatever changes a task otherwise than by a plain submit, claim, success or promote looks at it, lets
//! [`windlass_core::state`] decide, and has it placed if nothing has happened to it meanwhile.
//! [`Row::settle`] is the one place that keeps times, keys and marks true.

use std::time::Duration;

use bytes::Bytes;
use windlass_core::history::{EndOfRun, Happening, History, Run};
use windlass_core::limits::clip;
use windlass_core::state::{Held, Step};
use windlass_core::store::Parts;
use windlass_core::task::{Extras, Progress, Spec};
use windlass_core::unique::{Exit, Hold, Holding, is_freed_by};
use windlass_core::{
    Claimed, Epoch, Kind, QueueName, Result, State, TaskId, TaskRecord, Timestamp, WorkerId,
    duration,
};

use super::id::Id;
use super::record::{LARGE_IN, LARGE_OUT, Lane, LastRun, Record, TIMED, Value, letter};
use super::reply::{Reply, next};

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
    fn last_run(&self) -> Option<LastRun> {
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

    fn run(&self) -> Option<Run> {
        let run = self.last_run()?;
        Some(Run {
            attempt: self.attempts(),
            epoch: run.epoch(self.id),
            worker: run.worker,
            claimed_at: run.claimed_at,
        })
    }

    fn history(&self) -> History {
        History::decode(self.record.body.history.as_deref()).unwrap_or_default()
    }

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

    fn kind(&self) -> Kind {
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
            claimed_at: running.claimed_at,
        }
    }

    pub(super) fn task_id(&self) -> TaskId {
        self.id.task_id()
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

struct Settling {
    is_back: bool,
    large: LargeResult,
}

impl Settling {
    const PLAIN: Self = Self { is_back: false, large: LargeResult::Keep };
}

/// Whole milliseconds, cut to what can be written everywhere.
pub(super) fn millis(time: Duration) -> u64 {
    let most = Timestamp::MAX.as_millis();
    duration::as_millis_ceil(time).min(most).unsigned_abs()
}
