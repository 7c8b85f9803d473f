//! Promote and prune on asynq's keys: queue by queue, each guarded by the leader's term.

use windlass_core::store::{Duty, DutyReport};
use windlass_core::{QueueName, Result};

use super::due::DueQueues;
use super::{AT_ONCE, Shared, damage, scripts};
use crate::redis::fleet::stale_term;
use crate::redis::reply::{Reply, next};
use crate::redis::script::Script;
use crate::wakes::News;

impl Shared {
    pub(super) async fn promote(&self, duty: Duty) -> Result<DutyReport> {
        let (begun, queues) = self.fleet.begin(duty, "").await?;
        let due = self.due_to_promote(queues, begun.now).await?;
        self.sweep(duty, due, &scripts::PROMOTE).await
    }

    pub(super) async fn prune(&self, duty: Duty) -> Result<DutyReport> {
        let (_, queues) = self.fleet.begin(duty, "").await?;
        self.sweep(duty, self.due(queues, "prune").await?, &scripts::PRUNE).await
    }

    /// Has a script go through queues; it answers time, done, more, the next time, and skipped.
    async fn sweep(
        &self,
        duty: Duty,
        due: DueQueues,
        script: &'static Script,
    ) -> Result<DutyReport> {
        let mut report = DutyReport { next_due: due.next_due, ..DutyReport::default() };
        for queue in &due.queues {
            loop {
                let left = duty.limit - usize::try_from(report.done).unwrap_or(duty.limit);
                let swept = self.sweep_queue(duty, queue, script, left).await;
                let Some(mut parts) = damage::skip(queue, swept)? else { break };
                let _now = next(&mut parts, script.name)?;
                let done = next(&mut parts, script.name)?.number()?.unsigned_abs();
                let has_more = next(&mut parts, script.name)?.number()? == 1;
                let next_due = next(&mut parts, script.name)?.time_if_any()?;
                let skipped = parts.next().map_or(Ok(0), |skipped| skipped.number())?;
                report.done += done;
                report.skipped_bad += skipped.unsigned_abs();
                if done > 0 && script.name == "promote" {
                    let ready = vec![queue.clone()];
                    self.fleet.common.wakes.tell(News { ready, ..News::default() });
                }
                let is_full = usize::try_from(report.done).unwrap_or(usize::MAX) >= duty.limit;
                if has_more && !is_full && (done > 0 || skipped > 0) {
                    continue;
                }
                report.has_more |= has_more;
                report.next_due = match (report.next_due, next_due) {
                    (Some(one), Some(other)) => Some(one.min(other)),
                    (one, other) => one.or(other),
                };
                break;
            }
        }
        Ok(report)
    }

    /// Has a script do a part of a duty in one queue; answers with the parts of its reply.
    pub(super) async fn sweep_queue(
        &self,
        duty: Duty,
        queue: &QueueName,
        script: &'static Script,
        left: usize,
    ) -> Result<std::vec::IntoIter<Reply>> {
        let call = script
            .on(&[self.stem(queue)])
            .arg(self.options().told_time())
            .arg(duty.term.to_string())
            .arg(left.min(AT_ONCE));
        let reply = self.ask(call).await?;
        if reply.is_zero() {
            return Err(stale_term(Some(duty.term)));
        }
        reply.list()
    }
}
