//! Promote in SQLite.

use windlass_core::store::{Duty, DutyReport};
use windlass_core::{ErrorKind, Result};

use super::row::Row;
use super::sql;
use super::transaction::Tx;
use crate::damage_log::log_unreadable;

impl Tx<'_> {
    pub(super) fn promote(&mut self, duty: Duty) -> Result<DutyReport> {
        self.check_term(duty.term)?;
        let due = self.numbers(sql::PROMOTE, duty.limit)?;
        let skipped = self.each(&due, |tx, row| row.queue_up(tx))?;
        self.report(due.len(), skipped, sql::PROMOTE_NEXT)
    }

    /// Deals with each of these tasks; one that cannot be read is left where it is, and counted.
    pub(super) fn each(
        &mut self,
        numbers: &[i64],
        mut deal: impl FnMut(&mut Self, Row) -> Result<()>,
    ) -> Result<usize> {
        let mut skipped = 0;
        for number in numbers {
            match Row::by_number(self, *number) {
                Ok(row) => deal(self, row)?,
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    log_unreadable(*number, &error.chain());
                    skipped += 1;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(skipped)
    }

    /// The numbers of the tasks that a sweep has found, up to now and to its limit.
    pub(super) fn numbers(&self, text: &'static str, limit: usize) -> Result<Vec<i64>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.all(text, (self.now.as_millis(), limit), |row| row.get(0))
    }

    /// What a sweep over instants comes to; `next` finds the earliest that is left.
    pub(super) fn report(
        &self,
        found: usize,
        skipped: usize,
        next: &'static str,
    ) -> Result<DutyReport> {
        let next_due = self
            .one(next, [], |row| row.get::<_, Option<i64>>(0))?
            .flatten()
            .map(windlass_core::Timestamp::from_millis);
        Ok(DutyReport {
            done: (found - skipped) as u64,
            // What is left alone stays due: it must not make a sweep go on for ever.
            has_more: found > skipped && next_due.is_some_and(|at| at <= self.now),
            next_due,
            skipped_bad: skipped as u64,
            ..DutyReport::default()
        })
    }
}
