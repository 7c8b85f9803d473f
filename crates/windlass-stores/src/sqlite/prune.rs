//! Prune and tend in SQLite.

use windlass_core::Result;
use windlass_core::store::{Duty, DutyReport};
use windlass_core::unique::Exit;

use super::sql;
use super::transaction::Tx;

/// How long broadcasts are kept at most.
const BROADCAST_KEPT_MS: i64 = 60_000;

impl Tx<'_> {
    pub(super) fn prune(&mut self, duty: Duty) -> Result<DutyReport> {
        self.check_term(duty.term)?;
        let over = self.numbers(sql::PRUNE, duty.limit)?;
        let skipped = self.each(&over, |tx, row| row.forget(tx, Exit::Pruned))?;
        self.report(over.len(), skipped, sql::PRUNE_NEXT)
    }

    pub(super) fn tend(&mut self, duty: Duty) -> Result<DutyReport> {
        self.check_term(duty.term)?;
        let limit = i64::try_from(duty.limit).unwrap_or(i64::MAX);
        let forgotten = self.now.as_millis() - BROADCAST_KEPT_MS;
        self.execute(sql::TEND_BROADCASTS, [forgotten])?;
        let done = self.execute(sql::TEND_KEYS, (self.now.as_millis(), limit))?;
        Ok(DutyReport {
            done: done as u64,
            has_more: done > 0 && done == duty.limit,
            ..DutyReport::default()
        })
    }
}
