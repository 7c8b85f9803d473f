//! Expire on asynq's keys: workers of windlass whose lease is over are declared lost in the fleet, then refused
//! everything in each queue by the same script that finds what they hold there. Whatever else has a lease that
//! is over for long is taken as Go would, but without spending a retry.

use windlass_core::state::expire;
use windlass_core::store::{Duty, DutyReport};
use windlass_core::{QueueName, Result, Timestamp, WorkerId};

use super::beat::Search;
use super::moves::RunEnd;
use super::row::{Place, Row};
use super::{AT_ONCE, Shared, damage, scripts};
use crate::crash_log;
use crate::redis::fleet::stale_term;
use crate::redis::reply::next;
use crate::redis::rounds::Rounds;

impl Shared {
    pub(super) async fn expire(&self, duty: Duty) -> Result<DutyReport> {
        let (begun, queues) = self.fleet.begin(duty, "expire").await?;
        let mut report = DutyReport { next_due: begun.next_due, ..DutyReport::default() };
        for worker in &begun.unclean {
            let mut is_clean = true;
            for queue in &queues {
                let emptied = self.empty(queue, worker, duty, &mut report).await;
                is_clean &= damage::skip(queue, emptied)?.is_some();
                if report.has_more {
                    return Ok(report);
                }
            }
            // It may hold tasks in a damaged queue: the next sweep looks again.
            if is_clean {
                self.fleet.forget_unclean(worker).await?;
            }
            self.hide(worker).await;
        }
        for queue in &self.due(queues, "recover").await?.queues {
            let recovered = self.recover(queue, duty, &mut report).await;
            damage::skip(queue, recovered)?;
        }
        Ok(report)
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
            let (now, next_cursor, mut rows) =
                self.held_page(queue, worker, &rounds.cursor, AT_ONCE, search).await?;
            let is_clean = rounds.is_clean_after(next_cursor, !rows.is_empty());
            report.has_more = rows.len() > left;
            rows.truncate(left);
            let is_its = |row: &Row| {
                row.is_own_run() && row.claim.as_ref().is_some_and(|claim| claim.worker == *worker)
            };
            report.done += self.take_back(now, rows, duty, is_its).await?;
            if is_clean || report.has_more {
                return Ok(());
            }
        }
    }

    /// Takes tasks whose lease is over for so long that nobody can hold them, whoever wrote it.
    async fn recover(&self, queue: &QueueName, duty: Duty, report: &mut DutyReport) -> Result<()> {
        loop {
            let left = duty.limit - usize::try_from(report.done).unwrap_or(duty.limit);
            if left == 0 {
                report.has_more = true;
                return Ok(());
            }
            let most = left.min(AT_ONCE);
            let call = scripts::RECOVER
                .on(&[self.stem(queue)])
                .arg(self.options().told_time())
                .arg(duty.term.to_string())
                .arg(most);
            let reply = self.ask(call).await?;
            if reply.is_zero() {
                return Err(stale_term(Some(duty.term)));
            }
            let mut parts = reply.list()?;
            let now = next(&mut parts, "recover")?.time()?;
            let mut rows = Vec::new();
            for found in parts {
                rows.extend(Row::read(queue, found.list()?, now)?);
            }
            let count = rows.len();
            let leases: std::collections::HashMap<_, _> =
                rows.iter().map(|row| (row.name(), row.score.clone())).collect();
            let is_over =
                |row: &Row| row.place == Place::Active && leases.get(&row.id) == Some(&row.score);
            let done = self.take_back(now, rows, duty, is_over).await?;
            report.done += done;
            if count < most || done == 0 {
                return Ok(());
            }
        }
    }

    async fn take_back(
        &self,
        now: Timestamp,
        rows: Vec<Row>,
        duty: Duty,
        is_lost: impl Fn(&Row) -> bool,
    ) -> Result<u64> {
        let placed = self
            .decide_at(now, rows, Some(duty.term), |row, now, error_bytes_max| {
                if !is_lost(&row) {
                    return None;
                }
                let step = expire(row.held());
                crash_log::note(&row.id, &row.message.r#type, &row.queue, &step);
                let end = RunEnd { state: step.state, step, applied: None };
                Some(row.end_run(now, end, error_bytes_max))
            })
            .await?;
        Ok(placed.iter().filter(|placed| placed.state.is_some()).count() as u64)
    }
}
