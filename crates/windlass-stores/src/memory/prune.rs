//! Prune and tend in memory.

use std::time::Duration;

use windlass_core::Result;
use windlass_core::store::{Duty, DutyReport};
use windlass_core::unique::Exit;

use super::model::Model;

/// How long a worker that is gone is remembered.
const TOMBSTONE: Duration = Duration::from_secs(3_600);

impl Model {
    pub(super) fn prune(&mut self, duty: Duty) -> Result<DutyReport> {
        self.check_term(duty.term)?;
        let now = self.now();
        let over: Vec<_> = self
            .expiring
            .iter()
            .take_while(|(at, _)| *at <= now)
            .take(duty.limit)
            .map(|(_, number)| *number)
            .collect();
        for number in &over {
            let row = self.take(*number);
            self.forget(&row, Exit::Pruned);
        }
        let next_due = self.expiring.first().map(|(at, _)| *at);
        Ok(DutyReport {
            done: over.len() as u64,
            has_more: next_due.is_some_and(|at| at <= now),
            next_due,
            skipped_bad: 0,
        })
    }

    pub(super) fn tend(&mut self, duty: Duty) -> Result<DutyReport> {
        self.check_term(duty.term)?;
        let now = self.now();
        let before = self.keys.len() + self.workers.len();
        self.keys
            .retain(|_, key| key.until.is_none_or(|until| until > now));
        self.workers.retain(|id, worker| {
            let is_forgotten = worker.gone_at.is_some_and(|at| now.since(at) > TOMBSTONE);
            !is_forgotten || self.running.get(id).is_some_and(|held| !held.is_empty())
        });
        let done = (before - self.keys.len() - self.workers.len()) as u64;
        Ok(DutyReport {
            done,
            ..DutyReport::default()
        })
    }
}
