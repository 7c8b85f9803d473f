//! The names of asynq's keys.

use md5::{Digest, Md5};

/// All queues.
pub(super) const QUEUES: &str = "asynq:queues";
/// Live servers.
pub(super) const SERVERS: &str = "asynq:servers";
/// What they run.
pub(super) const WORKERS: &str = "asynq:workers";
/// Where cancels are told.
pub(super) const CANCEL: &str = "asynq:cancel";

/// The keys of one queue.
#[derive(Debug, Clone)]
pub struct Keys {
    prefix: String,
}

impl Keys {
    /// Those of this queue.
    pub fn of(queue: &str) -> Self {
        Self { prefix: format!("asynq:{{{queue}}}:") }
    }

    /// A key of the queue: `pending`, `active`, `lease`, `retry`, …; empty for the prefix of all.
    pub fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// The hash of a task; of no task: the prefix of all.
    pub fn task(&self, id: &str) -> String {
        self.key(&format!("t:{id}"))
    }

    /// The members of a group; of no group: the prefix of all.
    pub fn group(&self, name: &str) -> String {
        self.key(&format!("g:{name}"))
    }

    /// A counter of the day of this instant.
    pub fn of_day(&self, counter: &str, seconds: i64) -> String {
        let at = jiff::Timestamp::from_second(seconds).unwrap();
        self.key(&format!("{counter}:{}", jiff::tz::Offset::UTC.to_datetime(at).date()))
    }

    /// The lock of a unique task. Go has no digest for a payload that is not there.
    pub fn lock(&self, kind: &str, payload: &[u8]) -> String {
        if payload.is_empty() {
            return self.key(&format!("unique:{kind}:"));
        }
        let digest: String =
            Md5::digest(payload).iter().map(|byte| format!("{byte:02x}")).collect();
        self.key(&format!("unique:{kind}:{digest}"))
    }
}
