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

use tokio::sync::watch;
use windlass_core::QueueName;

/// What heartbeats have reported; empty at first.
pub(crate) struct PausedQueues(watch::Sender<Report>);

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

impl Default for PausedQueues {
    fn default() -> Self {
        Self(watch::Sender::new(Report::default()))
    }
}

impl PausedQueues {
    /// Takes the queues that a heartbeat reports as paused, in place of those before.
    pub(crate) fn report(&self, queues: Vec<QueueName>) {
        self.0.send_if_modified(|report| {
            report.number.0 += 1;
            report.queues = queues.into_iter().collect();
            !report.queues.is_empty()
        });
    }

    /// The number of the last report.
    pub(crate) fn last_report(&self) -> ReportNumber {
        self.0.borrow().number
    }

    /// True when the last report names a queue.
    pub(crate) fn is_any(&self) -> bool {
        !self.0.borrow().queues.is_empty()
    }

    /// True when tasks of this queue must not start that a claim has brought which was sent after `claimed_after`. The
    /// store gives out nothing of a paused queue: a claim that was sent after the last report and brings tasks of the
    /// queue shows that the queue runs again.
    pub(crate) fn holds_back(&self, queue: &QueueName, claimed_after: ReportNumber) -> bool {
        let report = self.0.borrow();
        claimed_after < report.number && report.queues.contains(queue)
    }

    /// Learns of reports that name a queue.
    pub(crate) fn subscribe(&self) -> PausedReports {
        PausedReports(self.0.subscribe())
    }
}

/// Reports as they come.
pub(crate) struct PausedReports(watch::Receiver<Report>);

impl PausedReports {
    /// Ends when a report names a queue.
    pub(crate) async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

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

    #[tokio::test]
    async fn only_reports_that_name_a_queue_are_announced() {
        let paused = PausedQueues::default();
        let mut reports = paused.subscribe();
        paused.report(Vec::new());
        assert!(reports.next().now_or_never().is_none());
        paused.report(vec![queue("a")]);
        assert!(reports.next().now_or_never().is_some());
    }
}
