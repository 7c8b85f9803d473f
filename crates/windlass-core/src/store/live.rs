//! Parameters and answers of `wait` and `series`.

use std::time::Duration;

use crate::clock::Timestamp;
use crate::name::{Kind, QueueName};
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

/// Which statistics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesParams {
    /// Only this queue.
    pub queue: Option<QueueName>,
    /// Only this kind.
    pub kind: Option<Kind>,
    /// How many minutes back.
    pub minutes: u32,
}

/// One minute of statistics.
#[derive(Debug, Clone, PartialEq)]
pub struct SeriesPoint {
    /// The start of the minute.
    pub at: Timestamp,
    /// Runs that succeeded.
    pub completed: u64,
    /// Runs that failed.
    pub failed: u64,
}
