//! When a store looks for queues to forget.

use std::time::Duration;

use windlass_core::Timestamp;

/// The pause between two looks, by the store's clock: each goes through the counts of all queues.
const PAUSE: Duration = Duration::from_secs(3_600);

/// The time of the next look.
#[derive(Debug, Default)]
pub(crate) struct QueueSweep {
    next_at: Timestamp,
}

impl QueueSweep {
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        now >= self.next_at
    }

    /// Notes that nothing is left to do for now.
    pub(crate) fn is_done(&mut self, now: Timestamp) {
        self.next_at = now.after(PAUSE);
    }
}
