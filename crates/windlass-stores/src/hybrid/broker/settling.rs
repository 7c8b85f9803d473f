//! Telling a broker what became of references that workers took.

use std::time::Duration;

use windlass_core::WorkerId;

use super::super::reference;
use super::super::settled::Settled;
use super::{Amount, Broker, MOMENT};
use crate::postgres::outbox::Reference;

/// How long what became of references may wait for a take that tells it along.
const SETTLE_AFTER: Duration = Duration::from_millis(20);

impl Broker {
    /// Notes what became of references. What others wait for is told at once, the rest along with the
    /// next take or after a moment.
    pub(in crate::hybrid) async fn settle(
        &self,
        worker: &WorkerId,
        settled: Vec<(Settled, Reference)>,
    ) {
        if settled.is_empty() {
            return;
        }
        settled.iter().for_each(|(how, _)| self.standing.count(*how));
        let is_urgent = settled.iter().any(|(how, _)| how.is_urgent());
        let written = settled.iter().map(|(how, one)| (*how, reference::write(one)));
        let is_first = self.untold.note(worker, written);
        let Some(this) = self.this.upgrade().filter(|_| is_urgent || is_first) else { return };
        let worker = worker.clone();
        if is_urgent {
            let telling = tokio::spawn(async move { this.flush(&worker, Duration::ZERO).await });
            // If this broker is slow it is told all the same; what a claim has of another must not wait.
            drop(tokio::time::timeout(MOMENT, telling).await);
        } else {
            tokio::spawn(async move {
                tokio::time::sleep(SETTLE_AFTER).await;
                this.flush(&worker, SETTLE_AFTER).await;
            });
        }
    }

    /// Tells what became of references, if that has been untold for so long: a take has told what was
    /// there before, and what came after it waits for the next.
    async fn flush(&self, worker: &WorkerId, age: Duration) {
        if self.untold.is_older(worker, age) && !self.is_away() {
            // A failure is noted where it is met, and the rest kept.
            drop(self.take(worker, Amount::default(), &[]).await);
        }
    }
}
