//! Keys that keep tasks unique: what a key is made of, how long it is held, which exit frees it.
//!
//! One mechanism serves idempotency and uniqueness: a key with an owner. A key is only ever freed
//! by the task that owns it, and a rerun does not take it again, so nothing that a task does after
//! its submit can run into a conflict.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::state::State;
use crate::task::NewTask;

/// Keeps a second task with the same key out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unique {
    /// The key; derived from queue, kind and payload when absent.
    pub key: Option<String>,
    /// How long the key is held.
    pub hold: Hold,
    /// What the second submit is told.
    pub on_conflict: OnConflict,
}

/// How long a unique key is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hold {
    /// Until the task is completed, cancelled, dead or deleted.
    UntilFinished,
    /// This long from the submit, finished or not; earlier on cancel before start or delete.
    For(Duration),
}

/// What a submit is told that meets a key in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnConflict {
    /// It is refused.
    #[default]
    Reject,
    /// It gets the holder as if it were its own.
    Return,
}

/// How far a unique key reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum UniqueScope {
    /// All tasks of a kind, in every queue.
    Kind,
    /// Tasks of a kind inside one queue.
    QueueAndKind,
}

/// The digest under which a store keeps a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyDigest(pub [u8; 16]);

/// Which of the two mechanisms a held key serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holding {
    /// An idempotency key.
    Idempotency,
    /// A unique key.
    Unique(Hold),
}

/// A way in which a task stops needing its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It reached a terminal state; `has_started` tells whether a run of it ever counted.
    Finished {
        /// Which one.
        state: State,
        /// False when no run has counted, as an attempt or as a crash.
        has_started: bool,
    },
    /// An operator deleted it.
    Deleted,
    /// Its retention is over.
    Pruned,
}

/// True when this exit of the owner frees its key before the key's own time is over.
pub const fn is_freed_by(holding: Holding, exit: Exit) -> bool {
    match (holding, exit) {
        (_, Exit::Deleted) => true,
        (Holding::Idempotency, Exit::Pruned) => true,
        (Holding::Idempotency, Exit::Finished { .. }) => false,
        (Holding::Unique(Hold::UntilFinished), Exit::Finished { .. } | Exit::Pruned) => true,
        (Holding::Unique(Hold::For(_)), Exit::Finished { state, has_started }) => {
            matches!(state, State::Cancelled) && !has_started
        }
        // The record is gone, but the caller asked for the whole time.
        (Holding::Unique(Hold::For(_)), Exit::Pruned) => false,
    }
}

/// When a key frees itself, for a task submitted at `now`.
pub fn held_until(hold: Hold, now: Timestamp) -> Option<Timestamp> {
    match hold {
        Hold::UntilFinished => None,
        Hold::For(time) => Some(now.after(time)),
    }
}

/// The digest of a task's idempotency key, which counts per kind.
pub fn idempotency_digest(kind: &str, key: &str) -> KeyDigest {
    digest(&[b"idempotency", kind.as_bytes(), key.as_bytes()])
}

/// The digest of a task's unique key under the scope that its store can keep.
pub fn unique_digest(task: &NewTask, unique: &Unique, scope: UniqueScope) -> KeyDigest {
    let (queue, kind) = (task.queue.as_str().as_bytes(), task.kind.as_str().as_bytes());
    match (&unique.key, scope) {
        (None, _) => digest(&[b"derived", queue, kind, &task.payload]),
        (Some(key), UniqueScope::Kind) => digest(&[b"kind", kind, key.as_bytes()]),
        (Some(key), UniqueScope::QueueAndKind) => digest(&[b"queue", queue, kind, key.as_bytes()]),
    }
}

/// Tells two requests under one idempotency key apart: kind, queue and payload.
pub fn fingerprint(kind: &str, queue: &str, payload: &[u8]) -> [u8; 16] {
    digest(&[b"request", kind.as_bytes(), queue.as_bytes(), payload]).0
}

fn digest(parts: &[&[u8]]) -> KeyDigest {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        // The length first: ("ab", "c") and ("a", "bc") must differ.
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    let mut bytes = [0; 16];
    hasher.finalize_xof().fill(&mut bytes);
    KeyDigest(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOR: Holding = Holding::Unique(Hold::For(Duration::from_secs(60)));
    const UNTIL_FINISHED: Holding = Holding::Unique(Hold::UntilFinished);

    fn finished(state: State, has_started: bool) -> Exit {
        Exit::Finished { state, has_started }
    }

    fn check(holding: Holding, exit: Exit, freed: bool) {
        assert_eq!(is_freed_by(holding, exit), freed, "{holding:?} {exit:?}");
    }

    #[test]
    fn an_idempotency_key_lives_as_long_as_its_record() {
        for state in State::TERMINAL {
            check(Holding::Idempotency, finished(state, true), false);
        }
        check(Holding::Idempotency, Exit::Pruned, true);
        check(Holding::Idempotency, Exit::Deleted, true);
    }

    #[test]
    fn until_finished_ends_with_every_terminal_state() {
        for state in State::TERMINAL {
            check(UNTIL_FINISHED, finished(state, true), true);
        }
        check(UNTIL_FINISHED, Exit::Deleted, true);
    }

    #[test]
    fn a_timed_key_outlives_its_task_unless_it_never_started() {
        check(FOR, finished(State::Completed, true), false);
        check(FOR, finished(State::DeadLetter, true), false);
        check(FOR, finished(State::Cancelled, true), false);
        check(FOR, finished(State::Cancelled, false), true);
        check(FOR, Exit::Pruned, false);
        check(FOR, Exit::Deleted, true);
    }

    #[test]
    fn parts_of_a_key_do_not_run_into_each_other() {
        assert_ne!(idempotency_digest("ab", "c"), idempotency_digest("a", "bc"));
        assert_ne!(fingerprint("a", "b", b"c"), fingerprint("a", "bc", b""));
    }
}
