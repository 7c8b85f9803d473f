//! The queues that the last heartbeat reported as paused, and which claimed tasks that concerns.
//!
//! ```text
//! worker                               store                           operator
//! claim ──────────────────────────────► takes tasks of q
//!                                       q is paused ◄───────────────── pause q
//! heartbeat ──────────────────────────► "q is paused"
//! report 7 ◄──────────────────────────┘
//!   releases tasks of q in the prefetch buffer, and those of the claim when they arrive
//!                                       q runs again ◄──────────────── resume q
//! claim, sent after report 7 ─────────► takes tasks of q
//!   these start, although report 7 is still the last one
//! ```

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use windlass_core::QueueName;

/// What heartbeats have reported; empty at first.
#[derive(Default)]
pub(crate) struct PausedQueues {
    last: Mutex<Report>,
    /// The number of the last report if it names a queue, else 0. Read for every task, without the lock.
    naming: AtomicU64,
}

#[derive(Default)]
struct Report {
    number: ReportNumber,
    queues: HashSet<QueueName>,
}

/// Counts reports. A claim carries the number of the last report before it was sent.
///
/// Not an instant: a claim and a report of the same instant could not be ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct ReportNumber(u64);

impl PausedQueues {
    /// Takes the queues that a heartbeat reports as paused, in place of those before.
    pub(crate) fn report(&self, queues: Vec<QueueName>) {
        let mut last = self.last.lock();
        last.number.0 += 1;
        last.queues = queues.into_iter().collect();
        let naming = if last.queues.is_empty() { 0 } else { last.number.0 };
        self.naming.store(naming, Ordering::SeqCst);
    }

    /// The number of the last report.
    pub(crate) fn last_report(&self) -> ReportNumber {
        self.last.lock().number
    }

    /// True when the last report names a queue.
    pub(crate) fn is_any(&self) -> bool {
        self.naming.load(Ordering::SeqCst) > 0
    }

    /// True when tasks of this queue must not start that a claim has brought which was sent after `claimed_after`. The
    /// store gives out nothing of a paused queue: a claim that was sent after the last report and brings tasks of the
    /// queue shows that the queue runs again.
    pub(crate) fn holds_back(&self, queue: &QueueName, claimed_after: ReportNumber) -> bool {
        claimed_after.0 < self.naming.load(Ordering::SeqCst) && {
            let last = self.last.lock();
            claimed_after < last.number && last.queues.contains(queue)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(name: &str) -> QueueName {
        QueueName::stored(name)
    }

    #[test]
    fn tasks_of_claims_sent_before_a_report_are_held_back() {
        let paused = PausedQueues::default();
        let before = paused.last_report();
        assert!(!paused.holds_back(&queue("a"), before), "nothing was reported");
        paused.report(vec![queue("a")]);
        let after = paused.last_report();
        assert!(paused.is_any() && paused.holds_back(&queue("a"), before));
        assert!(!paused.holds_back(&queue("b"), before), "another queue");
        assert!(!paused.holds_back(&queue("a"), after), "it must have been resumed");
        paused.report(vec![queue("a")]);
        assert!(paused.holds_back(&queue("a"), after), "and was paused again");
        paused.report(Vec::new());
        assert!(!paused.is_any() && !paused.holds_back(&queue("a"), before));
    }
}
