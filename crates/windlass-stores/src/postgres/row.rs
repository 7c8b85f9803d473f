//! A task that was taken out of its place: read, decide, put where it belongs.
//!
//! `Row` holds what decisions need. Whatever changes a task's state otherwise than by a plain claim
//! or success goes through [`Row::settle`], the one place that keeps counts, keys and times true.

use std::collections::{HashMap, HashSet};

use tokio_postgres::Row as SqlRow;
use windlass_core::history::{EndOfRun, Happening, History, Note, Run};
use windlass_core::state::{Held, Step};
use windlass_core::task::is_suspect;
use windlass_core::unique::{Exit, Hold, Holding, KeyDigest, is_freed_by};
use windlass_core::{Priority, QueueName, Result, State, TaskId, Timestamp, WorkerId, duration};

use super::batch::{Batch, Fate, Place};
use super::digest::idempotency_digest;
use super::id::{Id, epoch_of, multirange, runs};
use super::session::Session;
use super::sql;

/// The task may have a row in `fate`.
pub(super) const HAS_FATE: i16 = 1;
/// The task holds a key that its success frees.
pub(super) const HAS_KEY: i16 = 2;
/// A claim has to look how long its payload is: longer than this.
const MAY_BE_LONG: i16 = 4;
const LONG_BYTES: usize = 4_096;

/// From so many tasks on they are taken together.
const MANY: usize = 8;

/// A task that stands in no place.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) id: Id,
    pub(super) state: State,
    pub(super) queue: QueueName,
    queue_number: i32,
    /// The default where the stored one cannot be read, as everywhere.
    priority: Priority,
    /// Why it must not run again, if something in it cannot be read.
    pub(super) fault: Option<String>,
    pub(super) kind: String,
    pub(super) attempts: u32,
    pub(super) crashes: u32,
    max_crashes: u32,
    pub(super) retention_ms: i64,
    pub(super) run_at: Option<i64>,
    pub(super) started_at: Option<i64>,
    pub(super) finished_at: Option<i64>,
    token: Option<i64>,
    pub(super) applied: Option<i64>,
    worker: Option<(i32, WorkerId)>,
    claimed_at: Option<i64>,
    pub(super) is_cancel_requested: bool,
    idempotency_key: Option<String>,
    unique: Option<(KeyDigest, Hold)>,
    history: Option<Vec<u8>>,
    /// Where it stood in its lane, and since when.
    stood: Option<(i64, i64)>,
}

/// Where a task was found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) seq: i64,
    pub(super) state: State,
    /// False when its state was not one of those allowed, and it stands where it stood.
    pub(super) is_taken: bool,
    stood: Option<(i64, i64)>,
    run: Option<FoundRun>,
    finished_at: Option<i64>,
    retention_ms: Option<i64>,
    took_ms: Option<i32>,
}

#[derive(Debug)]
struct FoundRun {
    token: i64,
    worker: (i32, WorkerId),
    claimed_at: i64,
}

/// Takes tasks out of whatever places they stand in, if their state is one of `allowed`; those that
/// are not there, or whose retention is over at `horizon`, are left out.
pub(super) async fn take(
    session: &Session,
    seqs: &[i64],
    allowed: &[State],
    horizon: i64,
) -> Result<Vec<Found>> {
    let mut sorted = seqs.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let bits = state_bits(allowed);
    let mut found = match sorted.len() >= MANY {
        true => take_many(session, &mut sorted, bits, horizon).await?,
        false => Vec::new(),
    };
    if sorted.is_empty() {
        return Ok(found);
    }
    let rows = session.all(sql::TAKE, &[&sorted, &bits, &horizon]).await?;
    let is_there = |row: &&SqlRow| row.get::<_, Option<i16>>(1).is_some();
    for row in rows.iter().filter(is_there) {
        match read_found(row) {
            Ok(one) => found.push(one),
            // Nobody can say what may be done with it; the others go on.
            Err(error) => {
                let number: i64 = row.get(0);
                tracing::error!(
                    number,
                    error = error.chain(),
                    "the state of a task cannot be read"
                );
            }
        }
    }
    Ok(found)
}

/// States, a bit each.
pub(super) fn state_bits(states: &[State]) -> i32 {
    states.iter().fold(0, |bits, state| bits | 1 << state.as_number())
}

/// Takes tasks that stand still out of their places with a statement for each sort of place, and out of `seqs`. One by
/// one, each would write its range or row again. Places that hold none of them are asked for the rest only.
async fn take_many(
    session: &Session,
    seqs: &mut Vec<i64>,
    bits: i32,
    horizon: i64,
) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    let is_allowed = |state: State| bits & 1 << state.as_number() != 0;
    if is_allowed(State::Pending) {
        let (firsts, lasts): (Vec<_>, Vec<_>) = runs(seqs).into_iter().unzip();
        for row in session.all(sql::TAKE_READY, &[&firsts, &lasts, &false]).await? {
            let (first, last): (i64, i64) = (row.get(0), row.get(1));
            let stood = Some((row.get(2), row.get(3)));
            let bare = |seq| Found { stood, ..Found::bare(seq, State::Pending) };
            found.extend((first..=last).map(bare));
        }
        leave_out(seqs, &found);
    }
    if !seqs.is_empty() && (is_allowed(State::Scheduled) || is_allowed(State::Retrying)) {
        for row in session.all(sql::TAKE_DEFERRED, &[&*seqs, &bits]).await? {
            let state = if row.get(1) { State::Retrying } else { State::Scheduled };
            found.push(Found::bare(row.get(0), state));
        }
        leave_out(seqs, &found);
    }
    if !seqs.is_empty() && (is_allowed(State::DeadLetter) || is_allowed(State::Cancelled)) {
        for row in session.all(sql::TAKE_FATE, &[&*seqs, &bits, &horizon]).await? {
            let state = State::from_number(i64::from(row.get::<_, i16>(1)))?;
            found.push(Found::bare(row.get(0), state));
        }
        leave_out(seqs, &found);
    }
    if !seqs.is_empty() && is_allowed(State::Completed) {
        for row in session.all(sql::TAKE_DONE, &[&*seqs, &horizon]).await? {
            found.push(Found {
                run: Some(FoundRun {
                    token: row.get(1),
                    worker: (row.get(2), WorkerId::new(row.get::<_, &str>(3))),
                    claimed_at: row.get(4),
                }),
                finished_at: row.get(5),
                retention_ms: row.get(6),
                took_ms: Some(row.get(7)).filter(|took| *took >= 0),
                ..Found::bare(row.get(0), State::Completed)
            });
        }
    }
    leave_out(seqs, &found);
    Ok(found)
}

/// Leaves out what was found.
fn leave_out(seqs: &mut Vec<i64>, found: &[Found]) {
    let taken: HashSet<_> = found.iter().map(|found| found.seq).collect();
    seqs.retain(|seq| !taken.contains(seq));
}

impl Found {
    /// A task that was taken, and nothing more.
    fn bare(seq: i64, state: State) -> Self {
        Self {
            seq,
            state,
            is_taken: true,
            stood: None,
            run: None,
            finished_at: None,
            retention_ms: None,
            took_ms: None,
        }
    }
}

fn read_found(row: &SqlRow) -> Result<Found> {
    let (position, since): (Option<i64>, Option<i64>) = (row.get(3), row.get(4));
    let (token, number): (Option<i64>, Option<i32>) = (row.get(5), row.get(6));
    let worker = WorkerId::new(row.get::<_, Option<String>>(7).unwrap_or_default());
    Ok(Found {
        seq: row.get(0),
        state: State::from_number(i64::from(row.get::<_, i16>(1)))?,
        is_taken: row.get(2),
        stood: position.zip(since),
        run: token.zip(number).zip(row.get(8)).map(|((token, number), claimed_at)| FoundRun {
            token,
            worker: (number, worker),
            claimed_at,
        }),
        finished_at: row.get(9),
        retention_ms: row.get(10),
        took_ms: row.get::<_, Option<i32>>(11).filter(|took| *took >= 0),
    })
}

/// Takes running tasks out of the leases that hold them; `wanted` is (token, number).
pub(super) async fn take_held(session: &Session, wanted: &[(i64, i64)]) -> Result<Vec<Found>> {
    let (tokens, sets) = by_token(wanted);
    let rows = session.all(sql::TAKE_HELD, &[&tokens, &sets]).await?;
    let read = |row: &SqlRow| Found {
        stood: Some((row.get(5), row.get(6))),
        run: Some(FoundRun {
            token: row.get(0),
            worker: (row.get(1), WorkerId::new(row.get::<_, &str>(2))),
            claimed_at: row.get(3),
        }),
        ..Found::bare(row.get(4), State::Running)
    };
    Ok(rows.iter().map(read).collect())
}

/// Numbers by token, in the order of tokens: all who lock leases do so in this order.
pub(super) fn by_token(wanted: &[(i64, i64)]) -> (Vec<i64>, Vec<String>) {
    let mut sorted = wanted.to_vec();
    sorted.sort_unstable();
    let groups = sorted.chunk_by(|one, other| one.0 == other.0);
    groups
        .map(|group| {
            let seqs: Vec<_> = group.iter().map(|(_, seq)| *seq).collect();
            (group[0].0, multirange(&seqs))
        })
        .unzip()
}

impl Row {
    /// Reads tasks that were found, taken or not; what cannot be read is left out.
    pub(super) async fn load(session: &Session, found: Vec<Found>) -> Result<Vec<Self>> {
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let seqs: Vec<_> = found.iter().map(|found| found.seq).collect();
        let rows = session.all(sql::ROW, &[&seqs]).await?;
        let by_seq: HashMap<i64, &SqlRow> = rows.iter().map(|row| (row.get(0), row)).collect();
        let mut read = Vec::with_capacity(by_seq.len());
        let mut missing = Vec::new();
        for found in found {
            match by_seq.get(&found.seq) {
                Some(row) => read.push(Self::read(row, found)),
                None => missing.push(found.seq),
            }
        }
        if let (Some(first), Some(last)) = (missing.iter().min(), missing.iter().max()) {
            let count = missing.len();
            tracing::error!(count, first, last, "places name tasks that are not there");
        }
        Ok(read)
    }

    fn read(row: &SqlRow, found: Found) -> Self {
        let digest = row
            .get::<_, Option<&[u8]>>(22)
            .and_then(|bytes| <[u8; 16]>::try_from(bytes).ok())
            .map(KeyDigest);
        let hold = row
            .get::<_, Option<i64>>(23)
            .map_or(Hold::UntilFinished, |ms| Hold::For(duration::from_millis(ms)));
        let before: Option<i32> = row.get(8);
        let is_counted = matches!(found.state, State::Running | State::Completed);
        let fate_worker = row
            .get::<_, Option<i32>>(12)
            .map(|number| (number, WorkerId::new(row.get::<_, Option<&str>>(13).unwrap_or(""))));
        let finished_at = found.finished_at;
        let (token, worker, claimed_at) = match found.run {
            Some(run) => (Some(run.token), Some(run.worker), Some(run.claimed_at)),
            None => (row.get(10), fate_worker, row.get(14)),
        };
        let started_at = match found.state {
            State::Running => None,
            State::Completed => {
                finished_at.zip(found.took_ms).map(|(at, took)| at - i64::from(took))
            }
            _ => row.get(15),
        };
        let retention: Option<i64> = row.get(18);
        let (priority, fault) = read_priority(row.get(4));
        Self {
            id: Id { seq: row.get(0), stamp: row.get(1) },
            state: found.state,
            queue_number: row.get(2),
            queue: QueueName::stored(row.get::<_, Option<&str>>(3).unwrap_or_default()),
            priority,
            fault,
            kind: row.get::<_, Option<String>>(5).unwrap_or_default(),
            attempts: unsigned(before) + u32::from(is_counted),
            crashes: unsigned(row.get(9)),
            max_crashes: unsigned(row.get(6)),
            retention_ms: found.retention_ms.or(retention).unwrap_or_else(|| row.get(7)),
            run_at: row.get(17),
            started_at,
            finished_at,
            token,
            applied: if found.state == State::Completed { token } else { row.get(11) },
            worker,
            claimed_at,
            is_cancel_requested: found.state == State::Running
                && row.get::<_, Option<bool>>(19).unwrap_or(false),
            history: row.get(20),
            idempotency_key: row.get(21),
            unique: digest.map(|digest| (digest, hold)),
            stood: found.stood,
        }
    }

    pub(super) fn task_id(&self) -> TaskId {
        self.id.task_id()
    }

    /// The token of the present or last claim.
    pub(super) fn token(&self) -> Option<i64> {
        self.token
    }

    /// The worker of the present or last claim.
    pub(super) fn worker(&self) -> Option<&WorkerId> {
        self.worker.as_ref().map(|(_, id)| id)
    }

    pub(super) fn history(&self) -> Option<&[u8]> {
        self.history.as_deref()
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
    pub(super) fn run(&self) -> Option<Run> {
        Some(Run {
            attempt: self.attempts,
            epoch: epoch_of(self.token?),
            worker: self.worker.as_ref()?.1.clone(),
            claimed_at: Timestamp::from_millis(self.claimed_at?),
        })
    }

    /// Adds to the timeline. One that cannot be read is begun anew: it must not keep the task from
    /// going on.
    pub(super) fn remember(&mut self, tell: impl FnOnce(&mut History)) {
        let mut history = History::decode(self.history.as_deref()).unwrap_or_else(|error| {
            tracing::warn!(number = self.id.seq, error = error.chain(), "timeline begun anew");
            History::default()
        });
        tell(&mut history);
        self.history = history.encode();
    }

    /// Ends the run of a task: puts it where the step says and frees what it held.
    pub(super) fn end_run(mut self, batch: &mut Batch, state: State, step: Step) {
        let mut note = step.note;
        if let Some(error) = note.as_mut().and_then(|note| note.error.as_mut()) {
            error.truncate(error.floor_char_boundary(batch.error_bytes_max));
        }
        // An end without a note may still be a cancel, which the timeline reports.
        if note.is_some() || state == State::Cancelled {
            let (at, run) = (batch.now, self.run());
            self.remember(|history| history.end_run(EndOfRun { at, run, note, state }));
        }
        self.attempts = step.attempts;
        self.crashes = step.crashes;
        self.is_cancel_requested = false;
        if matches!(state, State::Scheduled | State::Retrying) {
            self.run_at = Some(step.when.due(batch.now).unwrap_or(batch.now).as_millis());
        }
        self.settle(batch, state);
    }

    /// Ends the run of a task that must not run again, since something in it cannot be read: it goes to the dead
    /// letters, where a person will find it.
    pub(super) fn discard(mut self, batch: &mut Batch, fault: String) {
        tracing::error!(task = %self.task_id(), fault, "a task cannot be read and goes to the dead letters");
        self.attempts = self.attempts.saturating_sub(1);
        let (at, run, state) = (batch.now, self.run(), State::DeadLetter);
        let note = Some(Note { what: Happening::Discarded, error: Some(fault) });
        self.remember(|history| history.end_run(EndOfRun { at, run, note, state }));
        self.settle(batch, state);
    }

    /// Makes a task pending at the end of its lane.
    pub(super) fn queue_up(mut self, batch: &mut Batch) {
        self.stood = None;
        self.settle(batch, State::Pending);
    }

    /// Gives a task its new state, with all that goes with it.
    pub(super) fn settle(self, batch: &mut Batch, state: State) {
        let now = batch.now.as_millis();
        let retention = duration::from_millis(self.retention_ms);
        batch.fates.push(Fate {
            seq: self.id.seq,
            state: state
                .is_terminal()
                .then(|| i16::from(state.as_number()))
                .filter(|_| state != State::Completed),
            attempts: signed(self.attempts),
            crashes: signed(self.crashes),
            token: self.token,
            applied: self.applied,
            worker: self.worker.as_ref().map(|(number, _)| *number),
            claimed_at: self.claimed_at,
            started_at: self.started_at,
            finished_at: state.is_terminal().then_some(now),
            expires_at: (state == State::Cancelled).then(|| batch.now.after(retention).as_millis()),
            updated_at: now,
            run_at: self.run_at,
            retention_ms: self.retention_ms,
            history: self.history.clone(),
        });
        let place = Place {
            seq: self.id.seq,
            queue: self.queue_number,
            lane: lane(self.priority, self.crashes),
            bits: HAS_FATE | self.key_bit(),
        };
        match state {
            State::Pending => {
                batch.no_progress.push(self.id.seq);
                batch.make_ready(place, self.stood, self.crashes);
                batch.tell_ready(&self.queue);
            }
            State::Scheduled | State::Retrying => {
                let run_at = self.run_at.unwrap_or(now);
                batch.make_wait(place, run_at, state == State::Retrying);
            }
            State::Running | State::Completed | State::DeadLetter | State::Cancelled => {}
        }
        if self.state == State::Completed {
            batch.no_result.push(self.id.seq);
        }
        batch.count(self.queue_number, self.priority, self.state, -1);
        batch.count(self.queue_number, self.priority, state, 1);
        if state.is_terminal() {
            let has_started = self.attempts > 0 || self.crashes > 0;
            self.free_keys(batch, Exit::Finished { state, has_started });
            batch.news.ended.push(self.task_id());
        }
    }

    /// Removes a task with its keys.
    pub(super) fn forget(self, batch: &mut Batch, exit: Exit) {
        batch.forgotten.push(self.id.seq);
        self.free_keys(batch, exit);
        batch.count(self.queue_number, self.priority, self.state, -1);
        batch.news.ended.push(self.task_id());
    }

    fn key_bit(&self) -> i16 {
        key_bit(self.unique.map(|(_, hold)| hold))
    }

    fn free_keys(&self, batch: &mut Batch, exit: Exit) {
        let idempotency = self
            .idempotency_key
            .as_ref()
            .map(|key| (idempotency_digest(&self.kind, key), Holding::Idempotency));
        let unique = self.unique.map(|(digest, hold)| (digest, Holding::Unique(hold)));
        for (digest, holding) in idempotency.into_iter().chain(unique) {
            if is_freed_by(holding, exit) {
                batch.freed.push((digest, self.id.seq));
            }
        }
    }
}

/// A stored priority: the default where it cannot be read, and then also what is wrong with it.
pub(super) fn read_priority(stored: i16) -> (Priority, Option<String>) {
    match Priority::from_number(i64::from(stored)) {
        Ok(priority) => (priority, None),
        Err(_) => {
            (Priority::default(), Some(format!("its priority {stored} is not one of 0 to 3")))
        }
    }
}

/// The lane of a task: suspects stand apart.
pub(super) fn lane(priority: Priority, crashes: u32) -> i16 {
    i16::from(priority.as_number()) * 2 + i16::from(is_suspect(crashes))
}

/// Whether a claim has to look how long a payload is.
pub(super) fn size_bit(payload: &[u8]) -> i16 {
    if payload.len() > LONG_BYTES { MAY_BE_LONG } else { 0 }
}

/// Whether a success has to look for a key.
pub(super) fn key_bit(hold: Option<Hold>) -> i16 {
    match hold {
        Some(Hold::UntilFinished) => HAS_KEY,
        Some(Hold::For(_)) | None => 0,
    }
}

/// A count as it is stored.
pub(super) fn signed(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// A stored count.
pub(super) fn unsigned(stored: Option<i32>) -> u32 {
    u32::try_from(stored.unwrap_or(0)).unwrap_or(0)
}
