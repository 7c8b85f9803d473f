//! Prune and tend in memory.

use windlass_core::Result;
use windlass_core::store::{Duty, DutyReport};
use windlass_core::unique::Exit;

use super::model::{Key, Model};

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
            ..DutyReport::default()
        })
    }

    pub(super) fn tend(&mut self, duty: Duty) -> Result<DutyReport> {
        self.check_term(duty.term)?;
        let now = self.now();
        let is_over = |key: &Key| key.until.is_some_and(|until| until <= now);
        let over: Vec<_> =
            self.keys.iter().filter(|(_, key)| is_over(key)).map(|(digest, _)| *digest).collect();
        for digest in over.iter().take(duty.limit) {
            self.keys.remove(digest);
        }
        Ok(DutyReport {
            done: over.len().min(duty.limit) as u64,
            has_more: over.len() > duty.limit,
            ..DutyReport::default()
        })
    }
}
