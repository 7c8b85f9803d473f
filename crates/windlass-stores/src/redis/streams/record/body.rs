//! The body of a record: what only Rust reads and writes.

use bytes::Bytes;
use windlass_core::{Epoch, Timestamp, WorkerId};

use super::packed::{Reader, put_bytes, put_entry, put_number};
use super::{ALONE, Head, LARGE_IN, LARGE_OUT, ONCE, TIMED};
use crate::redis::streams::epoch::{Entry, RunName, entry_of};
use crate::redis::streams::id::Id;

/// The last run of a task that does not run now.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::redis::streams) struct LastRun {
    pub(in crate::redis::streams) entry: Entry,
    pub(in crate::redis::streams) claimed_at: Timestamp,
    pub(in crate::redis::streams) worker: WorkerId,
    pub(in crate::redis::streams) started_at: Option<Timestamp>,
}

impl LastRun {
    pub(in crate::redis::streams) fn epoch(&self, id: Id) -> Epoch {
        let Self { entry, claimed_at, worker, .. } = self;
        RunName { id, entry: *entry, worker, claimed_at: *claimed_at }.epoch()
    }
}

/// A payload or result.
#[derive(Debug, Clone, PartialEq, Default)]
pub(in crate::redis::streams) enum Value {
    #[default]
    None,
    Here(Bytes),
    /// Kept beside the records.
    Large,
}

/// The rest of a task.
#[derive(Debug, Clone, PartialEq, Default)]
pub(in crate::redis::streams) struct Body {
    pub(in crate::redis::streams) once: Option<[u8; 16]>,
    pub(in crate::redis::streams) alone: Option<[u8; 16]>,
    pub(in crate::redis::streams) attempts: u32,
    pub(in crate::redis::streams) crashes: u32,
    pub(in crate::redis::streams) max_retries: u32,
    pub(in crate::redis::streams) max_crashes: u32,
    pub(in crate::redis::streams) timeout_ms: u64,
    pub(in crate::redis::streams) retention_ms: u64,
    pub(in crate::redis::streams) kind: String,
    pub(in crate::redis::streams) payload: Value,
    pub(in crate::redis::streams) extras: Option<Vec<u8>>,
    pub(in crate::redis::streams) idempotency_key: Option<String>,
    /// How long the unique key is held; nothing: until the task is finished.
    pub(in crate::redis::streams) hold_ms: Option<u64>,
    pub(in crate::redis::streams) run: Option<LastRun>,
    pub(in crate::redis::streams) applied: Option<Entry>,
    pub(in crate::redis::streams) result: Value,
    pub(in crate::redis::streams) finished_at: Option<Timestamp>,
    pub(in crate::redis::streams) history: Option<Vec<u8>>,
    /// A body that cannot be read, as it was found.
    pub(in crate::redis::streams) unread: Option<Vec<u8>>,
}

// What a body holds beyond what every task has.
const EXTRAS: u8 = 1;
const KEY: u8 = 2;
const HOLD: u8 = 4;
const RUN: u8 = 8;
const APPLIED: u8 = 16;
const RESULT: u8 = 32;
const FINISHED: u8 = 64;
const HISTORY: u8 = 128;

impl Body {
    /// True when this is the epoch of the last run of the task whose end was reported.
    pub(in crate::redis::streams) fn is_applied(&self, id: Id, epoch: Epoch) -> bool {
        // The check of an epoch names the worker, which only the last run tells; of an older one the
        // entry alone must do.
        match (self.applied, &self.run) {
            (Some(entry), Some(run)) if run.entry == entry => run.epoch(id) == epoch,
            (Some(entry), _) => entry_of(epoch) == Some(entry),
            (None, _) => false,
        }
    }

    pub(in crate::redis::streams) fn write(&self, bytes: &mut Vec<u8>) {
        if let Some(unread) = &self.unread {
            bytes.extend(unread);
            return;
        }
        bytes.extend(self.once.iter().flatten());
        bytes.extend(self.alone.iter().flatten());
        for number in [self.attempts, self.crashes, self.max_retries, self.max_crashes] {
            put_number(bytes, u64::from(number));
        }
        put_number(bytes, self.timeout_ms);
        put_number(bytes, self.retention_ms);
        put_bytes(bytes, self.kind.as_bytes());
        put_bytes(bytes, if let Value::Here(payload) = &self.payload { payload } else { b"" });
        let result = if let Value::Here(result) = &self.result { Some(&result[..]) } else { None };
        let parts = [
            (EXTRAS, self.extras.is_some()),
            (KEY, self.idempotency_key.is_some()),
            (HOLD, self.hold_ms.is_some()),
            (RUN, self.run.is_some()),
            (APPLIED, self.applied.is_some()),
            (RESULT, result.is_some()),
            (FINISHED, self.finished_at.is_some()),
            (HISTORY, self.history.is_some()),
        ];
        bytes.push(parts.iter().filter(|(_, is_there)| *is_there).map(|(part, _)| part).sum());
        if let Some(extras) = &self.extras {
            put_bytes(bytes, extras);
        }
        if let Some(key) = &self.idempotency_key {
            put_bytes(bytes, key.as_bytes());
        }
        if let Some(ms) = self.hold_ms {
            put_number(bytes, ms);
        }
        if let Some(run) = &self.run {
            put_run(bytes, run);
        }
        if let Some(entry) = self.applied {
            put_entry(bytes, entry);
        }
        if let Some(result) = result {
            put_bytes(bytes, result);
        }
        if let Some(at) = self.finished_at {
            put_number(bytes, at.as_millis().unsigned_abs());
        }
        if let Some(history) = &self.history {
            put_bytes(bytes, history);
        }
    }

    /// Reads a body; with the entry of the run that succeeded, also the tail behind it.
    pub(super) fn read(head: &Head, ended: Option<Entry>, bytes: &[u8]) -> Option<Self> {
        let mut from = Reader(bytes);
        let mut body = Self {
            once: if head.marks & ONCE > 0 { Some(from.array()?) } else { None },
            alone: if head.marks & (ALONE | TIMED) > 0 { Some(from.array()?) } else { None },
            attempts: from.small()?,
            crashes: from.small()?,
            max_retries: from.small()?,
            max_crashes: from.small()?,
            timeout_ms: from.number()?,
            retention_ms: from.number()?,
            kind: from.text()?,
            ..Self::default()
        };
        let payload = Bytes::copy_from_slice(from.bytes()?);
        body.payload = if head.marks & LARGE_IN > 0 { Value::Large } else { Value::Here(payload) };
        let parts = from.byte()?;
        let has = |part| parts & part > 0;
        if has(EXTRAS) {
            body.extras = Some(from.bytes()?.to_vec());
        }
        if has(KEY) {
            body.idempotency_key = Some(from.text()?);
        }
        if has(HOLD) {
            body.hold_ms = Some(from.number()?);
        }
        if has(RUN) {
            body.run = Some(take_run(&mut from)?);
        }
        if has(APPLIED) {
            body.applied = Some(from.entry()?);
        }
        if has(RESULT) {
            body.result = Value::Here(Bytes::copy_from_slice(from.bytes()?));
        }
        if has(FINISHED) {
            body.finished_at = Some(from.time()?);
        }
        if has(HISTORY) {
            body.history = Some(from.bytes()?.to_vec());
        }
        if let Some(entry) = ended {
            body.read_tail(head, entry, &mut from)?;
        }
        if head.marks & LARGE_OUT > 0 {
            body.result = Value::Large;
        }
        from.is_at_end().then_some(body)
    }

    /// Reads what the script of a success has appended.
    fn read_tail(&mut self, head: &Head, entry: Entry, from: &mut Reader<'_>) -> Option<()> {
        self.attempts = from.small()?;
        self.retention_ms = from.number()?;
        let took_ms = from.number()?.checked_sub(1);
        let started_at =
            took_ms.map(|took| head.updated_at.before(std::time::Duration::from_millis(took)));
        let (claimed_at, worker) = (from.time()?, from.worker()?);
        self.run = Some(LastRun { entry, claimed_at, worker, started_at });
        self.applied = Some(entry);
        self.finished_at = Some(head.updated_at);
        self.result = match from.byte()? {
            1 => Value::Here(Bytes::copy_from_slice(from.bytes()?)),
            _ => Value::None,
        };
        Some(())
    }
}

/// What a script appends to the record of a run that succeeded.
pub(in crate::redis::streams) struct Tail<'a> {
    pub(in crate::redis::streams) attempts: u32,
    pub(in crate::redis::streams) retention_ms: u64,
    pub(in crate::redis::streams) took_ms: Option<u64>,
    pub(in crate::redis::streams) claimed_at: Timestamp,
    pub(in crate::redis::streams) worker: &'a WorkerId,
    /// A small result.
    pub(in crate::redis::streams) result: Option<&'a [u8]>,
}

impl Tail<'_> {
    pub(in crate::redis::streams) fn write(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64 + self.result.map_or(0, <[u8]>::len));
        put_number(&mut bytes, u64::from(self.attempts));
        put_number(&mut bytes, self.retention_ms);
        put_number(&mut bytes, self.took_ms.map_or(0, |took| took.saturating_add(1)));
        put_number(&mut bytes, self.claimed_at.as_millis().unsigned_abs());
        put_bytes(&mut bytes, self.worker.as_str().as_bytes());
        bytes.push(u8::from(self.result.is_some()));
        if let Some(result) = self.result {
            put_bytes(&mut bytes, result);
        }
        bytes
    }
}

fn put_run(bytes: &mut Vec<u8>, run: &LastRun) {
    put_entry(bytes, run.entry);
    put_number(bytes, run.claimed_at.as_millis().unsigned_abs());
    put_bytes(bytes, run.worker.as_str().as_bytes());
    put_number(bytes, run.started_at.map_or(0, |at| at.as_millis().unsigned_abs() + 1));
}

fn take_run(from: &mut Reader<'_>) -> Option<LastRun> {
    Some(LastRun {
        entry: from.entry()?,
        claimed_at: from.time()?,
        worker: from.worker()?,
        started_at: match from.number()? {
            0 => None,
            after => Some(Timestamp::from_millis(i64::try_from(after - 1).ok()?)),
        },
    })
}
