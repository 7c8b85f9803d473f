//! A task's record: how it is written and read.
//!
//! The head is fixed and known to scripts (`lua/streams/prelude.lua`); the body is written and read only
//! here. A success is written by a script, which appends a tail to the body as it is.

use bytes::Bytes;
use windlass_core::task::is_suspect;
use windlass_core::{Epoch, Error, Priority, Result, State, Timestamp, WorkerId};

use super::epoch::{Entry, RunName, entry_of};
use super::id::Id;

/// Bytes of a head.
const HEAD_BYTES: usize = 38;

/// Marks of a record: it has an idempotency key, a unique key until it is finished or for a time, a
/// large payload, a large result.
pub(super) const ONCE: u8 = 1;
pub(super) const ALONE: u8 = 2;
pub(super) const TIMED: u8 = 4;
pub(super) const LARGE_IN: u8 = 8;
pub(super) const LARGE_OUT: u8 = 16;

/// What scripts know of a task.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Head {
    pub(super) state: u8,
    pub(super) lane: Lane,
    pub(super) is_cancel_requested: bool,
    pub(super) marks: u8,
    /// Grows with every rewriting, so that no change is lost between a look and a placing.
    pub(super) revision: u16,
    pub(super) created_at: Timestamp,
    pub(super) updated_at: Timestamp,
    /// Pending since; of a finished task, kept until.
    pub(super) since_or_until: Timestamp,
    pub(super) run_at: Option<Timestamp>,
    /// When it was submitted, in µs of the server, and its place among those of one call.
    pub(super) submitted: (u64, u8),
}

/// Where a task waits: by priority, suspects apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lane(pub(super) u8);

impl Lane {
    pub(super) fn of(priority: Priority, crashes: u32) -> Self {
        Self(priority.as_number() * 2 + u8::from(is_suspect(crashes)))
    }

    pub(super) fn priority(self) -> Priority {
        Priority::from_number(i64::from(self.0 / 2)).unwrap_or_default()
    }
}

/// The last run of a task that does not run now.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LastRun {
    pub(super) entry: Entry,
    pub(super) claimed_at: Timestamp,
    pub(super) worker: WorkerId,
    pub(super) started_at: Option<Timestamp>,
}

impl LastRun {
    pub(super) fn epoch(&self, id: Id) -> Epoch {
        let Self { entry, claimed_at, worker, .. } = self;
        RunName { id, entry: *entry, worker, claimed_at: *claimed_at }.epoch()
    }
}

/// A payload or result.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) enum Value {
    #[default]
    None,
    Here(Bytes),
    /// Kept beside the records.
    Large,
}

/// The rest of a task.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Body {
    pub(super) once: Option<[u8; 16]>,
    pub(super) alone: Option<[u8; 16]>,
    pub(super) attempts: u32,
    pub(super) crashes: u32,
    pub(super) max_retries: u32,
    pub(super) max_crashes: u32,
    pub(super) timeout_ms: u64,
    pub(super) retention_ms: u64,
    pub(super) kind: String,
    pub(super) payload: Value,
    pub(super) extras: Option<Vec<u8>>,
    pub(super) idempotency_key: Option<String>,
    /// How long the unique key is held; nothing: until the task is finished.
    pub(super) hold_ms: Option<u64>,
    pub(super) run: Option<LastRun>,
    pub(super) applied: Option<Entry>,
    pub(super) result: Value,
    pub(super) finished_at: Option<Timestamp>,
    pub(super) history: Option<Vec<u8>>,
    /// A body that cannot be read, as it was found.
    pub(super) unread: Option<Vec<u8>>,
}

/// A whole record.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Record {
    /// Its entry in its lane, while it waits there or runs.
    pub(super) entry: Option<Entry>,
    pub(super) head: Head,
    pub(super) body: Body,
    /// How it begins, head included: what must not have changed when it is placed.
    pub(super) begins: Vec<u8>,
}

impl Record {
    /// Reads a record. A body that cannot be read is kept as it is; a record without a head is an error.
    pub(super) fn read(bytes: &[u8]) -> Result<Self> {
        let broken = || Error::corrupt("read a task's record");
        let space = bytes.iter().position(|byte| *byte == b' ').ok_or_else(broken)?;
        let (prefix, rest) = (&bytes[..space], &bytes[space + 1..]);
        if rest.len() < HEAD_BYTES {
            return Err(broken());
        }
        let head = Head::read(rest).ok_or_else(broken)?;
        let body = Body::read(&head, &rest[HEAD_BYTES..]).unwrap_or_else(|| Body {
            unread: Some(rest[HEAD_BYTES..].to_vec()),
            ..Body::default()
        });
        Ok(Self {
            entry: Entry::of(prefix),
            head,
            body,
            begins: bytes[..=space + HEAD_BYTES].to_vec(),
        })
    }

    /// The record without its entry, as it is written anew.
    pub(super) fn write(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(256);
        self.head.write(&mut bytes);
        self.body.write(&mut bytes);
        bytes
    }
}

impl Head {
    fn read(bytes: &[u8]) -> Option<Self> {
        let number = |from: usize, count: usize| {
            bytes[from..from + count].iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte))
        };
        let time = |from| Some(Timestamp::from_millis(i64::try_from(number(from, 6)).ok()?));
        if !b"sprcxd".contains(&bytes[0]) || !(b'0'..=b'7').contains(&bytes[1]) {
            return None;
        }
        Some(Self {
            state: bytes[0],
            lane: Lane(bytes[1] - b'0'),
            is_cancel_requested: bytes[2] == b'1',
            marks: bytes[3],
            revision: u16::try_from(number(4, 2)).ok()?,
            created_at: time(6)?,
            updated_at: time(12)?,
            since_or_until: time(18)?,
            run_at: time(24).filter(|at| at.as_millis() > 0),
            submitted: (number(30, 7), bytes[37]),
        })
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        let time = |at: Timestamp| at.as_millis().unsigned_abs().to_be_bytes();
        bytes.extend([self.state, b'0' + self.lane.0, b'0' + u8::from(self.is_cancel_requested)]);
        bytes.push(self.marks);
        bytes.extend(self.revision.to_be_bytes());
        bytes.extend(&time(self.created_at)[2..]);
        bytes.extend(&time(self.updated_at)[2..]);
        bytes.extend(&time(self.since_or_until)[2..]);
        bytes.extend(&time(self.run_at.unwrap_or_default())[2..]);
        bytes.extend(&self.submitted.0.to_be_bytes()[1..]);
        bytes.push(self.submitted.1);
    }

    /// The state of a task that stands in no lane.
    pub(super) fn resting_state(&self) -> Option<State> {
        match self.state {
            b's' => Some(State::Scheduled),
            b'r' => Some(State::Retrying),
            b'c' => Some(State::Completed),
            b'x' => Some(State::Cancelled),
            b'd' => Some(State::DeadLetter),
            _ => None,
        }
    }

    /// True when its retention is over.
    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        matches!(self.state, b'c' | b'x') && self.since_or_until <= now
    }
}

/// The letter of a state in a head.
pub(super) fn letter(state: State) -> u8 {
    match state {
        State::Scheduled => b's',
        State::Pending | State::Running => b'p',
        State::Retrying => b'r',
        State::Completed => b'c',
        State::DeadLetter => b'd',
        State::Cancelled => b'x',
    }
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
    pub(super) fn is_applied(&self, id: Id, epoch: Epoch) -> bool {
        // The check of an epoch names the worker, which only the last run tells; of an older one the
        // entry alone must do.
        match (self.applied, &self.run) {
            (Some(entry), Some(run)) if run.entry == entry => run.epoch(id) == epoch,
            (Some(entry), _) => entry_of(epoch) == Some(entry),
            (None, _) => false,
        }
    }

    pub(super) fn write(&self, bytes: &mut Vec<u8>) {
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

    fn read(head: &Head, bytes: &[u8]) -> Option<Self> {
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
            body.run = Some(from.run()?);
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
        if !from.0.is_empty() {
            body.read_tail(head, &mut from)?;
        }
        if head.marks & LARGE_OUT > 0 {
            body.result = Value::Large;
        }
        from.0.is_empty().then_some(body)
    }

    /// Reads what the script of a success has appended.
    fn read_tail(&mut self, head: &Head, from: &mut Reader<'_>) -> Option<()> {
        self.attempts = from.small()?;
        self.retention_ms = from.number()?;
        let took_ms = from.number()?;
        let mut run = from.run()?;
        run.started_at = took_ms
            .checked_sub(1)
            .map(|took| head.updated_at.before(std::time::Duration::from_millis(took)));
        self.applied = Some(run.entry);
        self.run = Some(run);
        self.finished_at = Some(head.updated_at);
        let has_result = from.byte()?;
        if has_result == 1 {
            self.result = Value::Here(Bytes::copy_from_slice(from.bytes()?));
        }
        Some(())
    }
}

/// What a script appends to the body of a task that succeeded.
pub(super) struct Tail<'a> {
    pub(super) attempts: u32,
    pub(super) retention_ms: u64,
    pub(super) took_ms: Option<u64>,
    pub(super) run: LastRun,
    /// A small result.
    pub(super) result: Option<&'a [u8]>,
}

impl Tail<'_> {
    pub(super) fn write(&self, bytes: &mut Vec<u8>) {
        put_number(bytes, u64::from(self.attempts));
        put_number(bytes, self.retention_ms);
        put_number(bytes, self.took_ms.map_or(0, |took| took.saturating_add(1)));
        put_run(bytes, &self.run);
        bytes.push(u8::from(self.result.is_some()));
        if let Some(result) = self.result {
            put_bytes(bytes, result);
        }
    }
}

fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn put_bytes(bytes: &mut Vec<u8>, value: &[u8]) {
    put_number(bytes, value.len() as u64);
    bytes.extend(value);
}

fn put_entry(bytes: &mut Vec<u8>, entry: Entry) {
    put_number(bytes, entry.ms);
    put_number(bytes, entry.number);
}

fn put_run(bytes: &mut Vec<u8>, run: &LastRun) {
    put_entry(bytes, run.entry);
    put_number(bytes, run.claimed_at.as_millis().unsigned_abs());
    put_bytes(bytes, run.worker.as_str().as_bytes());
    put_number(bytes, run.started_at.map_or(0, |at| at.as_millis().unsigned_abs() + 1));
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn small(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    fn time(&mut self) -> Option<Timestamp> {
        Some(Timestamp::from_millis(i64::try_from(self.number()?).ok()?))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let count = usize::try_from(self.number()?).ok()?;
        let (value, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(value)
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }

    fn array(&mut self) -> Option<[u8; 16]> {
        let (value, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*value)
    }

    fn entry(&mut self) -> Option<Entry> {
        Some(Entry { ms: self.number()?, number: self.number()? })
    }

    fn run(&mut self) -> Option<LastRun> {
        Some(LastRun {
            entry: self.entry()?,
            claimed_at: self.time()?,
            worker: WorkerId::new(std::str::from_utf8(self.bytes()?).ok()?),
            started_at: match self.number()? {
                0 => None,
                after => Some(Timestamp::from_millis(i64::try_from(after - 1).ok()?)),
            },
        })
    }
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
