//! Promote in SQLite.

use windlass_core::Result;
use windlass_core::store::{Duty, DutyReport};

use super::row::Row;
use super::sql;
use super::transaction::Tx;

impl Tx<'_> {
    pub(super) fn promote(&mut self, duty: Duty) -> Result<DutyReport> {
        self.check_term(duty.term)?;
        let due = self.numbers(sql::PROMOTE, duty.limit)?;
        for number in &due {
            Row::by_number(self, *number)?.queue_up(self)?;
        }
        self.report(due.len(), sql::PROMOTE_NEXT)
    }

    /// The numbers of the tasks that a sweep has found, up to now and to its limit.
    pub(super) fn numbers(&self, text: &'static str, limit: usize) -> Result<Vec<i64>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.all(text, (self.now.as_millis(), limit), |row| row.get(0))
    }

    /// What a sweep over instants comes to; `next` finds the earliest that is left.
    pub(super) fn report(&self, done: usize, next: &'static str) -> Result<DutyReport> {
        let next_due = self
            .one(next, [], |row| row.get::<_, Option<i64>>(0))?
            .flatten()
            .map(windlass_core::Timestamp::from_millis);
        Ok(DutyReport {
            done: done as u64,
            has_more: next_due.is_some_and(|at| at <= self.now),
            next_due,
            skipped_bad: 0,
        })
    }
}
