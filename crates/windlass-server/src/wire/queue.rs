//! A queue as the API tells it.

use schemars::JsonSchema;
use serde::Serialize;
use windlass_core::store::{QueueRecord, StateCounts};
use windlass_core::{Priority, State, Timestamp};

use super::words::{CountsWord, SecondsWord};
use super::{Counts, Seconds};

/// A queue in an answer.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Queue {
    name: String,
    paused: bool,
    /// Tasks by state.
    #[schemars(with = "CountsWord")]
    depth: Counts,
    /// Pending tasks by priority.
    #[schemars(with = "CountsWord")]
    pending: Counts,
    /// How long the oldest pending task has been so, in seconds; null when none is.
    #[schemars(with = "Option<SecondsWord>")]
    oldest_age: Option<Seconds>,
}

impl Queue {
    /// A queue of a store whose clock reads `now`.
    pub(crate) fn new(record: &QueueRecord, now: Timestamp) -> Self {
        let pending = |priority: Priority| {
            (priority.to_string(), record.pending[usize::from(priority.as_number())])
        };
        Self {
            name: record.name.as_str().to_owned(),
            paused: record.is_paused,
            depth: by_state(&record.counts),
            pending: Counts(Priority::DESCENDING.into_iter().map(pending).collect()),
            oldest_age: record.oldest_pending_at.map(|since| Seconds(now.since(since))),
        }
    }
}

/// Counts by the names of the states.
pub(crate) fn by_state(counts: &StateCounts) -> Counts {
    let entry = |state: State| (state.to_string(), counts.get(state));
    Counts(State::ALL.into_iter().map(entry).collect())
}

/// Adds the counts of one queue to those of others.
pub(crate) fn add(sum: &mut StateCounts, counts: &StateCounts) {
    for state in State::ALL {
        sum.add(state, counts.get(state));
    }
}
