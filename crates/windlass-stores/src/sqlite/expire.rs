//! Expire in SQLite.

use windlass_core::Result;
use windlass_core::state::expire;
use windlass_core::store::{Duty, DutyReport};

use super::sql;
use super::transaction::Tx;
use crate::crash_log;

impl Tx<'_> {
    pub(super) fn expire(&mut self, duty: Duty) -> Result<DutyReport> {
        self.check_term(duty.term)?;
        self.execute(sql::EXPIRE_WORKERS, [self.now.as_millis()])?;
        // One more than the limit tells whether there is more.
        let most = i64::try_from(duty.limit).unwrap_or(i64::MAX - 1) + 1;
        let orphans: Vec<i64> = self.all(sql::EXPIRE_ORPHANS, [most], |row| row.get(0))?;
        let found = orphans.len().min(duty.limit);
        let skipped = self.each(&orphans[..found], |tx, row| {
            let step = expire(row.held());
            crash_log::note(row.task_id(), &row.kind, &row.queue, &step);
            row.end_run(tx, step.state, step)
        })?;
        let report = self.report(found, skipped, sql::EXPIRE_NEXT)?;
        Ok(DutyReport { has_more: found > skipped && orphans.len() > duty.limit, ..report })
    }
}
