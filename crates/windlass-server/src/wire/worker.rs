//! A worker as the API tells it.

use schemars::JsonSchema;
use serde::Serialize;
use windlass_core::store::{HandledKinds, RunOrder, WorkerRecord};
use windlass_core::{Kind, QueueName, Timestamp, WorkerId};

use super::Seconds;
use super::words::{OrderWord, SecondsWord, Time};

/// A worker in an answer.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Worker<'a> {
    #[schemars(with = "String")]
    id: &'a WorkerId,
    name: &'a str,
    host: &'a str,
    pid: u32,
    version: &'a str,
    #[schemars(with = "Vec<String>")]
    queues: &'a [QueueName],
    /// The types that it handles; null if it handles every type, or too many to list them.
    #[schemars(with = "Option<Vec<String>>")]
    types: Option<&'a [Kind]>,
    /// How many types it handles; null if it handles every type.
    type_count: Option<usize>,
    slots: u32,
    slots_used: u32,
    /// Its process does the upkeep for all, by its own account.
    leader: bool,
    /// Tasks that it holds by the store's account.
    running: u64,
    /// What it does: `run`, `pause`, `drain` or `gone`.
    #[schemars(extend("enum" = ["run", "pause", "drain", "gone"]))]
    state: &'static str,
    /// What it was told to do; its state is another until it has heard.
    #[schemars(with = "OrderWord")]
    order: RunOrder,
    #[schemars(with = "Time")]
    started_at: Timestamp,
    /// Seconds since its last sign of life.
    #[schemars(with = "SecondsWord")]
    heartbeat_age: Seconds,
}

impl<'a> Worker<'a> {
    /// A worker of a store whose clock reads `now`.
    pub(crate) fn new(record: &'a WorkerRecord, now: Timestamp) -> Self {
        let card = &record.card;
        Self {
            id: &record.id,
            name: &card.name,
            host: &card.host,
            pid: card.pid,
            version: &card.version,
            queues: &card.queues,
            types: card.kinds.as_ref().and_then(HandledKinds::names),
            type_count: card.kinds.as_ref().map(HandledKinds::count),
            slots: card.slots,
            slots_used: record.slots_used(),
            leader: card.is_leader && !record.is_gone,
            running: record.running_count,
            state: state(record),
            order: record.order,
            started_at: record.started_at,
            heartbeat_age: Seconds(now.since(record.beat_at)),
        }
    }
}

/// What a worker does by its own account.
fn state(record: &WorkerRecord) -> &'static str {
    match (record.is_gone, record.card.doing) {
        (true, _) => "gone",
        (false, RunOrder::Drain) => "drain",
        (false, RunOrder::Pause) => "pause",
        (false, RunOrder::Run) => "run",
    }
}
