//! Expire on Redis Streams: workers whose lease is over are declared lost in the fleet, then refused
//! everything in each queue by the same script that finds what they hold there.

use windlass_core::state::expire;
use windlass_core::store::{Duty, DutyReport};
use windlass_core::{QueueName, Result, WorkerId};

use super::beat::Search;
use super::moves::RunEnd;
use super::{AT_ONCE, Shared};
use crate::crash_log;
use crate::redis::rounds::Rounds;
use crate::redis::troubles::skip;

impl Shared {
    pub(super) async fn expire(&self, duty: Duty) -> Result<DutyReport> {
        let begun = self.fleet.begin_duty(duty, "expire").await?;
        let mut report = DutyReport { next_due: begun.next_due, ..DutyReport::default() };
        let queues = match begun.unclean.is_empty() {
            true => Vec::new(),
            false => self.all_queues().await?,
        };
        let mut failed = None;
        for worker in &begun.unclean {
            let mut is_empty = true;
            for queue in &queues {
                let emptied = self.empty(queue, worker, duty, &mut report).await;
                match skip(queue, emptied) {
                    Ok(Some(())) if report.has_more => return Ok(report),
                    Ok(Some(())) => {}
                    Ok(None) => is_empty = false,
                    Err(error) if error.is_lease_lost() => return Err(error),
                    // One queue that cannot be looked at keeps no other's tasks with a worker that is gone.
                    Err(error) => {
                        is_empty = false;
                        failed = failed.or(Some(error));
                    }
                }
            }
            if is_empty {
                self.fleet.forget_unclean(worker).await?;
            }
        }
        failed.map_or(Ok(report), Err)
    }

    /// Takes back what a lost worker holds in a queue, as far as the duty's limit allows.
    async fn empty(
        &self,
        queue: &QueueName,
        worker: &WorkerId,
        duty: Duty,
        report: &mut DutyReport,
    ) -> Result<()> {
        let search = Search { is_lost: true, term: Some(duty.term) };
        let mut rounds = Rounds::default();
        loop {
            let left = duty.limit - usize::try_from(report.done).unwrap_or(duty.limit);
            // One more than is left tells whether that was all.
            let most = AT_ONCE.min(left + 1);
            let (now, next_cursor, mut rows) =
                self.held_page(queue, worker, &rounds.cursor, most, search).await?;
            let is_clean = rounds.is_clean_after(next_cursor, !rows.is_empty());
            report.has_more = rows.len() > left;
            rows.truncate(left);
            report.done += self.take_back(now, rows, worker, duty).await?;
            if is_clean || report.has_more {
                return Ok(());
            }
        }
    }

    async fn take_back(
        &self,
        now: windlass_core::Timestamp,
        rows: Vec<super::row::Row>,
        worker: &WorkerId,
        duty: Duty,
    ) -> Result<u64> {
        let placed = self
            .decide_at(now, rows, Some(duty.term), |row, now, error_bytes_max| {
                row.running.as_ref().filter(|running| running.worker == *worker)?;
                let step = expire(row.held());
                crash_log::note(row.task_id(), row.kind(), &row.queue, &step);
                let end = RunEnd { state: step.state, step, applied: None };
                Some(row.end_run(now, end, error_bytes_max))
            })
            .await?;
        Ok(placed.iter().filter(|placed| placed.state.is_some()).count() as u64)
    }
}
