//! A task's record: how it is written and read.
//!
//! The head is fixed and known to scripts (`lua/streams/prelude.lua`); the body is written and read only
//! here. A success is written by a script, which puts its times in front of the record as it is, and a
//! tail behind it.

use windlass_core::task::is_suspect;
use windlass_core::{Error, Priority, Result, State, Timestamp};

use super::epoch::Entry;

mod body;
mod packed;

pub(super) use body::{Body, LastRun, Tail, Value};

/// Bytes of a head.
const HEAD_BYTES: usize = 38;

/// Bytes that stand in front of the record of a run that succeeded.
const SUCCESS_BYTES: usize = 13;

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

/// What a script puts in front of the record of a run that succeeded.
struct Success {
    has_large_result: bool,
    updated_at: Timestamp,
    kept_until: Timestamp,
}

impl Success {
    /// Nothing when the record does not begin like a success.
    fn read(bytes: &[u8]) -> Option<Self> {
        let (sort, rest) = bytes.split_first()?;
        let has_large_result = match sort {
            b'+' => false,
            b'*' => true,
            _ => return None,
        };
        let time = |bytes: &[u8; 6]| {
            let number = bytes.iter().fold(0, |sum, byte| sum << 8 | i64::from(*byte));
            Timestamp::from_millis(number)
        };
        let (updated, rest) = rest.split_first_chunk()?;
        let (until, _) = rest.split_first_chunk()?;
        Some(Self { has_large_result, updated_at: time(updated), kept_until: time(until) })
    }

    fn put_into(self, head: &mut Head) {
        head.state = b'c';
        head.is_cancel_requested = false;
        head.marks |= if self.has_large_result { LARGE_OUT } else { 0 };
        head.updated_at = self.updated_at;
        head.since_or_until = self.kept_until;
    }
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
        let success = Success::read(bytes);
        let of_run = &bytes[success.as_ref().map_or(0, |_| SUCCESS_BYTES)..];
        let space = of_run.iter().position(|byte| *byte == b' ').ok_or_else(broken)?;
        let (prefix, rest) = (&of_run[..space], &of_run[space + 1..]);
        if rest.len() < HEAD_BYTES {
            return Err(broken());
        }
        let mut head = Head::read(rest).ok_or_else(broken)?;
        let mut entry = Entry::of(prefix);
        let mut ended = None;
        if let Some(success) = success {
            success.put_into(&mut head);
            ended = entry.take();
        }
        let body = Body::read(&head, ended, &rest[HEAD_BYTES..]).unwrap_or_else(|| Body {
            unread: Some(rest[HEAD_BYTES..].to_vec()),
            ..Body::default()
        });
        let begins = bytes[..bytes.len() - rest.len() + HEAD_BYTES].to_vec();
        Ok(Self { entry, head, body, begins })
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

#[cfg(test)]
mod tests;
