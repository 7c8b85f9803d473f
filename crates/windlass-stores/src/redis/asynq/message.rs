//! What asynq writes in protobuf, field by field: tasks, servers, workers and schedulers.
//!
//! Unknown fields do not survive a Go worker, which decodes into its own structs: windlass adds none.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message;
use windlass_core::{Error, Result};

/// A task, as the field `msg` of its hash has it.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct TaskMessage {
    /// Its kind.
    #[prost(string, tag = "1")]
    pub r#type: String,
    /// What its handler is given.
    #[prost(bytes = "bytes", tag = "2")]
    pub payload: Bytes,
    /// Its id, unique in its queue only.
    #[prost(string, tag = "3")]
    pub id: String,
    /// Its queue.
    #[prost(string, tag = "4")]
    pub queue: String,
    /// Runs after the first that it may have.
    #[prost(int32, tag = "5")]
    pub retry: i32,
    /// Failures that have counted so far.
    #[prost(int32, tag = "6")]
    pub retried: i32,
    /// What the last failure said; must be UTF-8, or Go cannot read the task.
    #[prost(string, tag = "7")]
    pub error_msg: String,
    /// Longest run, in seconds; Go complains when neither this nor the deadline is set.
    #[prost(int64, tag = "8")]
    pub timeout: i64,
    /// When a run is stopped at the latest, in Unix seconds; 0 for never.
    #[prost(int64, tag = "9")]
    pub deadline: i64,
    /// The whole key of its unique lock, if it has one.
    #[prost(string, tag = "10")]
    pub unique_key: String,
    /// When it failed last, in Unix seconds.
    #[prost(int64, tag = "11")]
    pub last_failed_at: i64,
    /// How long it is kept once completed, in seconds; 0 for not at all.
    #[prost(int64, tag = "12")]
    pub retention: i64,
    /// When it was completed, in Unix seconds.
    #[prost(int64, tag = "13")]
    pub completed_at: i64,
    /// The group in which it waits to be aggregated.
    #[prost(string, tag = "14")]
    pub group_key: String,
    /// The submitter's own notes.
    #[prost(btree_map = "string, string", tag = "15")]
    pub headers: BTreeMap<String, String>,
}

/// An instant, as protobuf's well-known type has it.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Instant {
    /// Unix seconds.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// The rest, in ns.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

impl Instant {
    /// Go's "never": leaving the field out would be read as 1970.
    pub const NEVER: Self = Self { seconds: -62_135_596_800, nanos: 0 };

    /// An instant of windlass.
    pub fn of(time: windlass_core::Timestamp) -> Self {
        let millis = time.as_millis();
        let nanos = i32::try_from(millis.rem_euclid(1_000) * 1_000_000).unwrap_or_default();
        Self { seconds: millis.div_euclid(1_000), nanos }
    }

    /// The same as windlass has it.
    pub fn as_timestamp(&self) -> windlass_core::Timestamp {
        let ms =
            self.seconds.saturating_mul(1_000).saturating_add(i64::from(self.nanos / 1_000_000));
        windlass_core::Timestamp::from_millis(ms)
    }
}

/// A process that works, under `asynq:servers:{…}`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ServerInfo {
    /// Its machine.
    #[prost(string, tag = "1")]
    pub host: String,
    /// Its process.
    #[prost(int32, tag = "2")]
    pub pid: i32,
    /// Its own name.
    #[prost(string, tag = "3")]
    pub server_id: String,
    /// How many tasks it can run at once.
    #[prost(int32, tag = "4")]
    pub concurrency: i32,
    /// The queues that it serves, with their weights.
    #[prost(btree_map = "string, int32", tag = "5")]
    pub queues: BTreeMap<String, i32>,
    /// Whether weights are an order instead of shares.
    #[prost(bool, tag = "6")]
    pub strict_priority: bool,
    /// `new`, `active`, `stopped` or `closed`.
    #[prost(string, tag = "7")]
    pub status: String,
    /// When it began.
    #[prost(message, optional, tag = "8")]
    pub start_time: Option<Instant>,
    /// How many tasks it runs.
    #[prost(int32, tag = "9")]
    pub active_worker_count: i32,
}

/// A task that runs, under `asynq:workers:{…}`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct WorkerInfo {
    /// The machine of its server.
    #[prost(string, tag = "1")]
    pub host: String,
    /// The process of its server.
    #[prost(int32, tag = "2")]
    pub pid: i32,
    /// Its server.
    #[prost(string, tag = "3")]
    pub server_id: String,
    /// The task.
    #[prost(string, tag = "4")]
    pub task_id: String,
    /// Its kind.
    #[prost(string, tag = "5")]
    pub task_type: String,
    /// Its payload.
    #[prost(bytes = "bytes", tag = "6")]
    pub task_payload: Bytes,
    /// Its queue.
    #[prost(string, tag = "7")]
    pub queue: String,
    /// Since when it runs.
    #[prost(message, optional, tag = "8")]
    pub start_time: Option<Instant>,
    /// When it is stopped.
    #[prost(message, optional, tag = "9")]
    pub deadline: Option<Instant>,
}

/// A periodic task, in the list under `asynq:schedulers:{…}`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SchedulerEntry {
    /// Its id.
    #[prost(string, tag = "1")]
    pub id: String,
    /// When it is enqueued, as cron has it.
    #[prost(string, tag = "2")]
    pub spec: String,
    /// The kind that is enqueued.
    #[prost(string, tag = "3")]
    pub task_type: String,
    /// The payload that is enqueued.
    #[prost(bytes = "bytes", tag = "4")]
    pub task_payload: Bytes,
    /// With which options, in Go's syntax.
    #[prost(string, repeated, tag = "5")]
    pub enqueue_options: Vec<String>,
    /// When it is due next.
    #[prost(message, optional, tag = "6")]
    pub next_enqueue_time: Option<Instant>,
    /// When it was enqueued last, or [`Instant::NEVER`].
    #[prost(message, optional, tag = "7")]
    pub prev_enqueue_time: Option<Instant>,
}

/// One time that a periodic task was enqueued, in `asynq:scheduler_history:<entry>`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SchedulerEnqueueEvent {
    /// The task that came of it.
    #[prost(string, tag = "1")]
    pub task_id: String,
    /// When.
    #[prost(message, optional, tag = "2")]
    pub enqueue_time: Option<Instant>,
}

impl TaskMessage {
    /// Reads the field `msg` of a task.
    pub fn read(stored: Bytes) -> Result<Self> {
        Self::decode(stored).map_err(|cause| Error::corrupt("read a task of asynq").because(cause))
    }

    /// The field `msg` of a task.
    pub fn write(&self) -> Vec<u8> {
        self.encode_to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_written_as_go_writes_it() {
        let message = TaskMessage {
            r#type: "email:welcome".into(),
            payload: Bytes::from_static("{\"user_id\":42,\"name\":\"Zoë\"}".as_bytes()),
            id: "pending-2".into(),
            queue: "critical".into(),
            retry: 5,
            timeout: 90,
            ..TaskMessage::default()
        };
        // As asynq 0.26 wrote it.
        let written = b"\n\remail:welcome\x12\x1c{\"user_id\":42,\"name\":\"Zo\xc3\xab\"}\x1a\tpending-2\"\x08critical(\x05@Z";
        assert_eq!(message.write(), written);
        assert_eq!(TaskMessage::read(Bytes::from_static(written)).unwrap(), message);
    }

    #[test]
    fn what_is_appended_to_a_message_counts() {
        // A success is written by adding its time to the message as it was: field 13, a varint.
        let mut bytes = TaskMessage { id: "a".into(), retention: 9, ..Default::default() }.write();
        bytes.extend([0x68, 0x85, 0x02]);
        let read = TaskMessage::read(bytes.into()).unwrap();
        assert_eq!((read.completed_at, read.retention), (261, 9));
    }

    #[test]
    fn what_is_no_message_is_told_so() {
        assert!(TaskMessage::read(Bytes::from_static(b"\xff\xff\xff")).is_err());
    }
}
