//! Prune and tend in SQLite.

use windlass_core::Result;
use windlass_core::store::{Duty, DutyReport, GONE_WORKER_KEPT, IDLE_QUEUE_KEPT};
use windlass_core::unique::Exit;

use super::sql;
use super::transaction::Tx;
use crate::queue_sweep::QueueSweep;
use crate::worker_sweep::{PIECE, Piece, Place, WORKERS_MAX, WorkerSweep};

/// How long broadcasts are kept at most.
const BROADCAST_KEPT_MS: i64 = 60_000;

/// Where and when a leader looks for what can be forgotten.
#[derive(Debug, Default)]
pub(super) struct Sweeps {
    workers: WorkerSweep,
    queues: QueueSweep,
}

impl Tx<'_> {
    pub(super) fn prune(&mut self, duty: Duty) -> Result<DutyReport> {
        self.check_term(duty.term)?;
        let over = self.numbers(sql::PRUNE, duty.limit)?;
        let skipped = self.each(&over, |tx, row| row.forget(tx, Exit::Pruned))?;
        self.report(over.len(), skipped, sql::PRUNE_NEXT)
    }

    pub(super) fn tend(&mut self, duty: Duty, sweeps: &mut Sweeps) -> Result<DutyReport> {
        self.check_term(duty.term)?;
        let limit = i64::try_from(duty.limit).unwrap_or(i64::MAX);
        let forgotten = self.now.as_millis() - BROADCAST_KEPT_MS;
        self.execute(sql::TEND_BROADCASTS, [forgotten])?;
        let done = self.execute(sql::TEND_KEYS, (self.now.as_millis(), limit))?;
        self.forget_workers(&mut sweeps.workers, duty.limit)?;
        let has_more_queues = self.forget_queues(&mut sweeps.queues, duty.limit)?;
        let has_more = has_more_queues || sweeps.workers.has_more();
        Ok(DutyReport {
            done: done as u64,
            has_more: has_more || (done > 0 && done == duty.limit),
            ..DutyReport::default()
        })
    }

    /// Forgets queues that are idle for long; answers whether there are more.
    fn forget_queues(&self, sweep: &mut QueueSweep, limit: usize) -> Result<bool> {
        if !sweep.is_due(self.now) {
            return Ok(false);
        }
        let idle_before = self.now.before(IDLE_QUEUE_KEPT).as_millis();
        let most = i64::try_from(limit).unwrap_or(i64::MAX);
        let marked = self.execute(sql::QUEUE_SWEEP_MARK, (self.now.as_millis(), most))?;
        let forgotten = self.execute(sql::QUEUE_SWEEP_END, (idle_before, most))?;
        let has_more = limit > 0 && (marked == limit || forgotten == limit);
        if !has_more {
            sweep.is_done(self.now);
        }
        Ok(has_more)
    }

    /// Takes a step of the sweep for workers that are gone for long and that no task names.
    fn forget_workers(&self, sweep: &mut WorkerSweep, limit: usize) -> Result<()> {
        let gone_before = self.now.before(GONE_WORKER_KEPT).as_millis();
        if sweep.is_due(self.now) {
            let params = (gone_before, WORKERS_MAX);
            sweep.begin(self.now, self.all(sql::WORKER_SWEEP_BEGIN, params, |row| row.get(0))?);
        }
        if let Some(Place { from, .. }) = sweep.place() {
            let most = i64::try_from(PIECE).unwrap_or(i64::MAX);
            let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
            let seen: Vec<(i64, Option<i64>)> =
                self.all(sql::WORKER_SWEEP_TASKS, (from, most), read)?;
            let next = seen.last().filter(|_| seen.len() == PIECE).map(|(number, _)| number + 1);
            let named = seen.into_iter().filter_map(|(_, worker)| worker).collect();
            sweep.saw(Piece { named, next }, 1);
        }
        for number in sweep.take(limit) {
            self.execute(sql::WORKER_SWEEP_END, (number, gone_before))?;
        }
        Ok(())
    }
}
