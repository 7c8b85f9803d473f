//! A task's row inside a write transaction: read, decide, place.
//!
//! `Row` holds what decisions need. Whatever changes a task's state goes through [`Row::settle`],
//! the one place that keeps counts, keys and times true.

use std::borrow::Cow;

use bytes::Bytes;
use rusqlite::Row as SqlRow;
use uuid::Uuid;
use windlass_core::history::{EndOfRun, History, Run};
use windlass_core::state::{Held, Step};
use windlass_core::unique::{Exit, Hold, Holding, KeyDigest, idempotency_digest, is_freed_by};
use windlass_core::{
    Epoch, Error, Priority, QueueName, Result, State, TaskId, Timestamp, WorkerId, duration,
};

use super::sql;
use super::transaction::Tx;

/// Bytes from which a payload or result is kept beside its row.
const LARGE: usize = 1_024;
/// Bits of the column `large`.
pub(super) const LARGE_PAYLOAD: i64 = 1;
pub(super) const LARGE_RESULT: i64 = 2;

#[derive(Debug)]
pub(super) struct Row {
    pub(super) number: i64,
    pub(super) id: Uuid,
    pub(super) state: State,
    pub(super) queue: QueueName,
    pub(super) priority: Priority,
    pub(super) kind: String,
    position: i64,
    pending_at: i64,
    pub(super) attempts: u32,
    pub(super) crashes: u32,
    max_crashes: u32,
    pub(super) retention_ms: i64,
    pub(super) run_at: Option<i64>,
    claimed_at: Option<i64>,
    pub(super) started_at: Option<i64>,
    pub(super) finished_at: Option<i64>,
    pub(super) epoch: Option<i64>,
    pub(super) applied_epoch: Option<i64>,
    worker: Option<i64>,
    pub(super) is_cancel_requested: bool,
    idempotency_key: Option<String>,
    unique: Option<(KeyDigest, Hold)>,
    pub(super) large: i64,
    history: Option<Vec<u8>>,
    expires_at: Option<i64>,
}

impl Row {
    pub(super) fn by_id(tx: &Tx<'_>, id: Uuid) -> Result<Option<Self>> {
        tx.one(sql::ROW_BY_ID, [id.as_bytes()], read)?.transpose()
    }

    pub(super) fn by_number(tx: &Tx<'_>, number: i64) -> Result<Self> {
        tx.one(sql::ROW_BY_NUMBER, [number], read)?
            .transpose()?
            .ok_or_else(|| Error::corrupt(format!("an index of sqlite names no task {number}")))
    }

    pub(super) fn task_id(&self) -> TaskId {
        task_id(self.id)
    }

    /// True when the retention of the record is over.
    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now.as_millis())
    }

    /// What the state machine wants to know of a running task.
    pub(super) fn held(&self) -> Held {
        Held {
            attempts: self.attempts,
            crashes: self.crashes,
            max_crashes: self.max_crashes,
            is_cancel_requested: self.is_cancel_requested,
        }
    }

    /// The present or last run.
    pub(super) fn run(&self, tx: &Tx<'_>) -> Result<Option<Run>> {
        let (Some(epoch), Some(worker), Some(claimed_at)) =
            (self.epoch, self.worker, self.claimed_at)
        else {
            return Ok(None);
        };
        let name = tx.one(sql::WORKER_NAME, [worker], |row| row.get::<_, String>(0))?;
        Ok(name.map(|name| Run {
            attempt: self.attempts,
            epoch: epoch_of(epoch),
            worker: WorkerId::new(name),
            claimed_at: Timestamp::from_millis(claimed_at),
        }))
    }

    /// Adds to the timeline. One that cannot be read is begun anew: it must not keep the task from
    /// going on.
    pub(super) fn remember(&mut self, tell: impl FnOnce(&mut History)) {
        let mut history = History::decode(self.history.as_deref()).unwrap_or_else(|error| {
            tracing::warn!(task = %self.id, error = error.chain(), "timeline begun anew");
            History::default()
        });
        tell(&mut history);
        self.history = history.encode();
    }

    pub(super) fn history(&self) -> Option<&[u8]> {
        self.history.as_deref()
    }

    /// Ends the run of a task: places it where the step says and frees what it held.
    pub(super) fn end_run(mut self, tx: &mut Tx<'_>, state: State, step: Step) -> Result<()> {
        if let Some(mut note) = step.note {
            if let Some(error) = &mut note.error {
                error.truncate(error.floor_char_boundary(tx.error_bytes_max));
            }
            let (at, run, note) = (tx.now, self.run(tx)?, Some(note));
            self.remember(|history| history.end_run(EndOfRun { at, run, note, state }));
        }
        self.attempts = step.attempts;
        self.crashes = step.crashes;
        self.is_cancel_requested = false;
        if matches!(state, State::Scheduled | State::Retrying) {
            self.run_at = Some(step.when.due(tx.now).unwrap_or(tx.now).as_millis());
        }
        let result = step.result.filter(|_| state == State::Completed);
        self.settle(tx, state, result.as_ref())
    }

    /// Makes a task pending at the end of its lane.
    pub(super) fn queue_up(mut self, tx: &mut Tx<'_>) -> Result<()> {
        self.position = tx.next_number()?;
        self.pending_at = tx.now.as_millis();
        self.settle(tx, State::Pending, None)
    }

    /// Gives a task its new state, with all that goes with it.
    pub(super) fn settle(
        mut self,
        tx: &mut Tx<'_>,
        state: State,
        result: Option<&Bytes>,
    ) -> Result<()> {
        let now = tx.now.as_millis();
        let retention = duration::from_millis(self.retention_ms);
        let expires_at = matches!(state, State::Completed | State::Cancelled)
            .then(|| tx.now.after(retention).as_millis());
        let finished_at = state.is_terminal().then_some(now);
        if self.large & LARGE_RESULT != 0 {
            let key = self.number * 2 + 1;
            tx.execute(sql::BLOB_DELETE, (key, key))?;
            self.large &= !LARGE_RESULT;
        }
        let inline = self.put_aside(tx, result)?;
        if state == State::Completed && self.history.is_none() {
            let params = (
                self.number,
                self.attempts,
                now,
                self.started_at,
                expires_at,
                self.retention_ms,
                self.large,
                inline,
            );
            tx.execute(sql::COMPLETE, params)?;
        } else {
            self.place(tx, state, finished_at, expires_at, inline)?;
        }
        tx.count(&self.queue, self.priority, self.state, -1);
        tx.count(&self.queue, self.priority, state, 1);
        if state == State::Pending {
            tx.tell_ready(&self.queue);
        }
        if state.is_terminal() {
            let has_started = self.attempts > 0 || self.crashes > 0;
            self.free_keys(tx, Exit::Finished { state, has_started })?;
            tx.news.ended.push(self.task_id());
        }
        Ok(())
    }

    /// Removes a task with its keys.
    pub(super) fn forget(self, tx: &mut Tx<'_>, exit: Exit) -> Result<()> {
        tx.execute(sql::FORGET, [self.number])?;
        if self.large != 0 {
            tx.execute(sql::BLOB_DELETE, (self.number * 2, self.number * 2 + 1))?;
        }
        self.free_keys(tx, exit)?;
        tx.count(&self.queue, self.priority, self.state, -1);
        tx.news.ended.push(self.task_id());
        Ok(())
    }

    fn place(
        &self,
        tx: &Tx<'_>,
        state: State,
        finished_at: Option<i64>,
        expires_at: Option<i64>,
        result: Option<&[u8]>,
    ) -> Result<()> {
        let params = rusqlite::params![
            self.number,
            state.as_number(),
            self.attempts,
            self.crashes,
            self.position,
            self.pending_at,
            tx.now.as_millis(),
            self.run_at,
            self.started_at,
            finished_at,
            expires_at,
            self.applied_epoch,
            self.retention_ms,
            self.is_cancel_requested,
            self.large,
            result,
            self.history,
        ];
        tx.execute(sql::PLACE, params)?;
        Ok(())
    }

    /// Puts a large result beside the row; answers what stays in it.
    fn put_aside<'r>(
        &mut self,
        tx: &Tx<'_>,
        result: Option<&'r Bytes>,
    ) -> Result<Option<&'r [u8]>> {
        match result {
            Some(data) if is_large(data) => {
                tx.execute(sql::BLOB_PUT, (self.number * 2 + 1, &data[..]))?;
                self.large |= LARGE_RESULT;
                Ok(None)
            }
            Some(data) => Ok(Some(data)),
            None => Ok(None),
        }
    }

    fn free_keys(&self, tx: &Tx<'_>, exit: Exit) -> Result<()> {
        let idempotency = self
            .idempotency_key
            .as_ref()
            .map(|key| (idempotency_digest(&self.kind, key), Holding::Idempotency));
        let unique = self.unique.map(|(digest, hold)| (digest, Holding::Unique(hold)));
        for (digest, holding) in idempotency.into_iter().chain(unique) {
            if is_freed_by(holding, exit) {
                tx.execute(sql::KEY_FREE, (digest.0, self.id.as_bytes()))?;
            }
        }
        Ok(())
    }
}

/// True when data is kept beside its row.
pub(super) fn is_large(data: &[u8]) -> bool {
    data.len() > LARGE
}

pub(super) fn task_id(id: Uuid) -> TaskId {
    TaskId::new(id.hyphenated().encode_lower(&mut Uuid::encode_buffer()))
}

/// The UUID of an id, if it can be one of ours.
pub(super) fn uuid_of(id: &TaskId) -> Option<Uuid> {
    // Only the form that `task_id` writes: one task must not have several names.
    Uuid::try_parse(id.as_str()).ok().filter(|uuid| task_id(*uuid) == *id)
}

pub(super) fn epoch_of(stored: i64) -> Epoch {
    Epoch(u128::from(stored.unsigned_abs()))
}

/// Text that was perhaps not written by us: what is not UTF-8 is replaced, never refused.
pub(super) fn text<'r>(row: &'r SqlRow<'_>, column: usize) -> rusqlite::Result<Cow<'r, str>> {
    Ok(String::from_utf8_lossy(row.get_ref(column)?.as_bytes()?))
}

/// The same for a column that may be empty.
pub(super) fn text_if_any(row: &SqlRow<'_>, column: usize) -> rusqlite::Result<Option<String>> {
    let bytes = row.get_ref(column)?.as_bytes_or_null()?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
}

/// A count that was perhaps not written by us: one that is out of range counts as the nearest that is in it.
pub(super) fn count(row: &SqlRow<'_>, column: usize) -> rusqlite::Result<u32> {
    let stored: i64 = row.get(column)?;
    Ok(u32::try_from(stored.max(0)).unwrap_or(u32::MAX))
}

/// Reads the columns of `row_by_*.sql`.
fn read(row: &SqlRow<'_>) -> rusqlite::Result<Result<Row>> {
    let state = State::from_number(row.get(2)?);
    let priority = Priority::from_number(row.get(4)?);
    let (state, priority) = match (state, priority) {
        (Ok(state), Ok(priority)) => (state, priority),
        (Err(cause), _) | (_, Err(cause)) => {
            return Ok(Err(Error::corrupt("read a task from sqlite").because(cause)));
        }
    };
    let digest = row.get_ref(21)?.as_blob_or_null()?;
    let digest = digest.and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
    let hold_ms: Option<i64> = row.get(22)?;
    let hold = hold_ms.map_or(Hold::UntilFinished, |ms| Hold::For(duration::from_millis(ms)));
    Ok(Ok(Row {
        number: row.get(0)?,
        id: Uuid::from_bytes(row.get(1)?),
        state,
        queue: QueueName::stored(&text(row, 3)?),
        priority,
        kind: text(row, 5)?.into_owned(),
        position: row.get(6)?,
        pending_at: row.get(7)?,
        attempts: count(row, 8)?,
        crashes: count(row, 9)?,
        max_crashes: count(row, 10)?,
        retention_ms: row.get(11)?,
        run_at: row.get(12)?,
        claimed_at: row.get(13)?,
        started_at: row.get(14)?,
        finished_at: row.get(15)?,
        epoch: row.get(16)?,
        applied_epoch: row.get(17)?,
        worker: row.get(18)?,
        is_cancel_requested: row.get(19)?,
        idempotency_key: text_if_any(row, 20)?,
        unique: digest.map(|digest| (KeyDigest(digest), hold)),
        large: row.get(23)?,
        history: row.get(24)?,
        expires_at: row.get(25)?,
    }))
}
