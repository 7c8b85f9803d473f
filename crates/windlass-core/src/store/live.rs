//! Parameters and answers of `wait`, and what `subscribe` brings.

use std::pin::Pin;
use std::time::Duration;

use futures_core::Stream;

use crate::name::QueueName;
use crate::task::TaskId;
use crate::worker::WorkerId;

/// A point in the sequence of a store's wake-ups; only that store can read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct WakeMark(pub u64);

/// What to wait for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WaitParams {
    /// Work in any of these queues.
    pub queues: Vec<QueueName>,
    /// Orders to this worker: to run, pause or drain, or to cancel one of its runs.
    pub orders: Option<WorkerId>,
    /// The mark of the claim that found nothing, or of the last beat; without one a wait for work
    /// or orders ends at once.
    pub since: Option<WakeMark>,
    /// The end of any of these tasks.
    pub tasks: Vec<TaskId>,
    /// How long at most.
    pub at_most: Duration,
}

/// Why a wait ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wake {
    /// Work may be there.
    Work,
    /// These tasks are finished or gone.
    Finished(Vec<TaskId>),
    /// The worker may have orders: a beat will tell.
    Orders,
    /// Nothing happened in time.
    TimedOut,
}

/// Longest message that [`super::Store::publish`] takes: what PostgreSQL can carry in one notification.
pub const BROADCAST_BYTES_MAX: usize = 7_000;

/// What a subscriber hears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Broadcast {
    /// A message, as it was published.
    Said(String),
    /// Messages may have been missed here: the way to the store was cut, or the subscriber was too slow.
    Gap,
}

/// Messages as they come.
pub type BroadcastStream = Pin<Box<dyn Stream<Item = Broadcast> + Send>>;
