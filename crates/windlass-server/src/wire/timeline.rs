//! The timeline of a task as the API tells it.

use schemars::JsonSchema;
use serde::Serialize;
use windlass_core::history::{Entry, Happening};
use windlass_core::{Epoch, Timestamp, WorkerId};

use super::words::{EpochWord, Time};

/// One thing that happened to a task.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Event {
    /// What, such as `submitted`, `claimed`, `failed`, `completed`.
    #[schemars(with = "String")]
    event: Happening,
    #[schemars(with = "Time")]
    at: Timestamp,
    attempt: Option<u32>,
    #[schemars(with = "Option<EpochWord>")]
    epoch: Option<Epoch>,
    #[schemars(with = "Option<String>")]
    worker_id: Option<WorkerId>,
    error: Option<String>,
    /// Who asked for it.
    by: Option<String>,
    /// How often it happened in a row, and when last.
    times: u64,
    #[schemars(with = "Time")]
    last_at: Timestamp,
}

impl From<Entry> for Event {
    fn from(entry: Entry) -> Self {
        let Entry { what, at, run, error, by, again } = entry;
        let (attempt, epoch, worker_id) = match run {
            Some(run) => (Some(run.attempt), Some(run.epoch), Some(run.worker)),
            None => (None, None, None),
        };
        Self {
            event: what,
            at,
            attempt,
            epoch,
            worker_id,
            error,
            by,
            times: 1 + again.map_or(0, |again| u64::from(again.count)),
            last_at: again.map_or(at, |again| again.last_at),
        }
    }
}
