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
    /// The queues that this worker serves: a pause of one of them wakes it as an order does.
    pub served_queues: Vec<QueueName>,
    /// The mark of the claim that found nothing, or of the last beat; without one a wait for work
    /// or orders ends at once.
    pub since: Option<WakeMark>,
    /// The end of any of these tasks.
    pub tasks: Vec<TaskId>,
    /// How long at most.
    pub at_most: Duration,
    /// How often the store looks for work by itself where no wake-up can reach it.
    pub idle_poll: IdlePoll,
}

/// Pauses between looks for work. They grow from the shortest to the longest while nothing is found,
/// and processes are never in step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdlePoll {
    /// Shortest pause.
    pub min: Duration,
    /// Longest pause.
    pub max: Duration,
}

impl Default for IdlePoll {
    /// As the default settings have it.
    fn default() -> Self {
        Self { min: Duration::from_millis(10), max: Duration::from_secs(1) }
    }
}

impl IdlePoll {
    /// The pause after so many looks in a row that found nothing; `unit` is a random number from 0 to 1.
    /// Also the longest pause varies, by a quarter: processes that went idle together must not look
    /// together ever after.
    pub fn pause(&self, looks: u32, unit: f64) -> Duration {
        let growth = f64::from(looks.min(64)).exp2();
        let longest = self.min.mul_f64(growth.min(1e9)).min(self.max.max(self.min));
        longest.mul_f64(0.75 + unit.clamp(0.0, 1.0) / 4.0)
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn defaults_are_those_of_the_settings() {
        let worker = Config::default().worker;
        let expected = IdlePoll { min: worker.idle_poll_min, max: worker.idle_poll_max };
        assert_eq!(IdlePoll::default(), expected);
    }

    #[test]
    fn pauses_grow_to_the_longest_and_vary_there_too() {
        let poll = IdlePoll { min: Duration::from_millis(100), max: Duration::from_secs(2) };
        assert_eq!(poll.pause(0, 1.0), Duration::from_millis(100));
        assert_eq!(poll.pause(3, 1.0), Duration::from_millis(800));
        assert_eq!(poll.pause(30, 1.0), Duration::from_secs(2));
        assert_eq!(poll.pause(u32::MAX, 0.0), Duration::from_millis(1_500));
    }
}
