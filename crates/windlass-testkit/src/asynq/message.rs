//! asynq's messages. The store has structs of its own for the same bytes: a wrong field number in one
//! place shows when the two meet.

use std::collections::BTreeMap;

use prost::Message;

/// A task as asynq keeps it in field `msg` of its hash.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct TaskMessage {
    /// The kind.
    #[prost(string, tag = "1")]
    pub kind: String,
    /// Opaque.
    #[prost(bytes = "vec", tag = "2")]
    pub payload: Vec<u8>,
    /// Unique inside its queue.
    #[prost(string, tag = "3")]
    pub id: String,
    /// Where it stands.
    #[prost(string, tag = "4")]
    pub queue: String,
    /// Most retries.
    #[prost(int32, tag = "5")]
    pub retry: i32,
    /// Retries so far.
    #[prost(int32, tag = "6")]
    pub retried: i32,
    /// What the last failure said.
    #[prost(string, tag = "7")]
    pub error_msg: String,
    /// Longest run in seconds; 0 for none.
    #[prost(int64, tag = "8")]
    pub timeout: i64,
    /// End of all runs, Unix seconds; 0 for none.
    #[prost(int64, tag = "9")]
    pub deadline: i64,
    /// The key of its lock, or nothing.
    #[prost(string, tag = "10")]
    pub unique_key: String,
    /// The last failure, Unix seconds; 0 for none.
    #[prost(int64, tag = "11")]
    pub last_failed_at: i64,
    /// How long it is kept once it is completed, in seconds.
    #[prost(int64, tag = "12")]
    pub retention: i64,
    /// When it was completed, Unix seconds; 0 for not.
    #[prost(int64, tag = "13")]
    pub completed_at: i64,
    /// Its group, or nothing.
    #[prost(string, tag = "14")]
    pub group_key: String,
    /// What its submitter noted.
    #[prost(btree_map = "string, string", tag = "15")]
    pub headers: BTreeMap<String, String>,
}

/// An instant.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Instant {
    /// Unix seconds.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// And nanoseconds.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

impl Instant {
    /// The instant so many nanoseconds after the Unix epoch.
    pub fn of_nanos(nanos: i64) -> Self {
        let part = i32::try_from(nanos.rem_euclid(1_000_000_000)).unwrap();
        Self { seconds: nanos.div_euclid(1_000_000_000), nanos: part }
    }
}

/// A server as it tells of itself.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ServerInfo {
    /// Its machine.
    #[prost(string, tag = "1")]
    pub host: String,
    /// Its process.
    #[prost(int32, tag = "2")]
    pub pid: i32,
    /// Its id.
    #[prost(string, tag = "3")]
    pub server_id: String,
    /// How many tasks it runs at once.
    #[prost(int32, tag = "4")]
    pub concurrency: i32,
    /// The queues with their weights.
    #[prost(btree_map = "string, int32", tag = "5")]
    pub queues: BTreeMap<String, i32>,
    /// Queues are served in order.
    #[prost(bool, tag = "6")]
    pub strict_priority: bool,
    /// `new`, `active`, `stopped` or `closed`.
    #[prost(string, tag = "7")]
    pub status: String,
    /// Its start.
    #[prost(message, optional, tag = "8")]
    pub start_time: Option<Instant>,
    /// How many tasks it runs now.
    #[prost(int32, tag = "9")]
    pub active_worker_count: i32,
}

/// A run as its server tells of it.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct WorkerInfo {
    /// The machine.
    #[prost(string, tag = "1")]
    pub host: String,
    /// The process.
    #[prost(int32, tag = "2")]
    pub pid: i32,
    /// The server.
    #[prost(string, tag = "3")]
    pub server_id: String,
    /// The task.
    #[prost(string, tag = "4")]
    pub task_id: String,
    /// Its kind.
    #[prost(string, tag = "5")]
    pub task_type: String,
    /// Its payload.
    #[prost(bytes = "vec", tag = "6")]
    pub task_payload: Vec<u8>,
    /// Its queue.
    #[prost(string, tag = "7")]
    pub queue: String,
    /// The start of the run.
    #[prost(message, optional, tag = "8")]
    pub start_time: Option<Instant>,
    /// When it must be over.
    #[prost(message, optional, tag = "9")]
    pub deadline: Option<Instant>,
}

/// Reads a message as Go does: text that is not UTF-8 is refused.
pub fn decode<M: Message + Default>(bytes: &[u8]) -> M {
    M::decode(bytes).unwrap_or_else(|error| panic!("Go could not read {bytes:?}: {error}"))
}
