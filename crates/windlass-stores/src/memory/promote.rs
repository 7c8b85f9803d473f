//! Promote in memory.

use windlass_core::store::{Duty, DutyReport};
use windlass_core::{Result, State};

use super::model::Model;

impl Model {
    pub(super) fn promote(&mut self, duty: Duty) -> Result<DutyReport> {
        self.check_term(duty.term)?;
        let now = self.now();
        let due: Vec<_> = self
            .due
            .iter()
            .take_while(|(at, _)| *at <= now)
            .take(duty.limit)
            .map(|(_, number)| *number)
            .collect();
        for number in &due {
            self.make_pending(*number);
        }
        let next_due = self.due.first().map(|(at, _)| *at);
        Ok(DutyReport {
            done: due.len() as u64,
            has_more: next_due.is_some_and(|at| at <= now),
            next_due,
            ..DutyReport::default()
        })
    }

    /// Puts a waiting task at the end of its lane.
    pub(super) fn make_pending(&mut self, number: i64) {
        let mut row = self.take(number);
        row.position = self.next_position();
        row.pending_at = self.now();
        row.was_given_back = false;
        self.settle(row, State::Pending);
    }
}
