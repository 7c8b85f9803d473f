//! A queue as the API tells it.

use schemars::JsonSchema;
use serde::Serialize;
use windlass_core::store::{QueueRecord, StateCounts};
use windlass_core::{Priority, State, Timestamp};

use super::statistics::rounded;
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
    /// Tasks submitted per second, over the last five minutes; null when that cannot be told.
    in_rate: Option<f64>,
    /// Tasks that ended for good per second, likewise.
    out_rate: Option<f64>,
}

/// What the statistics say of a queue: tasks that came and went, per second.
pub(crate) type Rates = Option<(f64, f64)>;

impl Queue {
    /// A queue of a store whose clock reads `now`.
    pub(crate) fn new(record: &QueueRecord, now: Timestamp, rates: Rates) -> Self {
        let pending = |priority: Priority| {
            (priority.to_string(), record.pending[usize::from(priority.as_number())])
        };
        Self {
            name: record.name.as_str().to_owned(),
            paused: record.is_paused,
            depth: by_state(&record.counts),
            pending: Counts(Priority::DESCENDING.into_iter().map(pending).collect()),
            oldest_age: record.oldest_pending_at.map(|since| Seconds(now.since(since))),
            in_rate: rates.map(|(submitted, _)| rounded(submitted)),
            out_rate: rates.map(|(_, finished)| rounded(finished)),
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
