//! Expire in memory.

use windlass_core::Result;
use windlass_core::state::expire;
use windlass_core::store::{Duty, DutyReport};

use super::model::{Model, held};
use crate::crash_log;

impl Model {
    pub(super) fn expire(&mut self, duty: Duty) -> Result<DutyReport> {
        self.check_term(duty.term)?;
        let now = self.now();
        for worker in self.workers.values_mut() {
            if worker.gone_at.is_none() && worker.lease_until <= now {
                worker.gone_at = Some(now);
            }
        }
        let orphans: Vec<_> = self
            .workers
            .iter()
            .filter(|(_, worker)| worker.gone_at.is_some())
            .flat_map(|(id, _)| self.numbers_of(id))
            .collect();
        for number in orphans.iter().take(duty.limit) {
            let row = &self.rows[number];
            let step = expire(held(row));
            crash_log::note(&row.record.id, &row.record.kind, &row.record.queue, &step);
            self.end_run(*number, step.state, step);
        }
        let alive = self.workers.values().filter(|worker| worker.gone_at.is_none());
        Ok(DutyReport {
            done: orphans.len().min(duty.limit) as u64,
            has_more: orphans.len() > duty.limit,
            next_due: alive.map(|worker| worker.lease_until).min(),
            ..DutyReport::default()
        })
    }
}
