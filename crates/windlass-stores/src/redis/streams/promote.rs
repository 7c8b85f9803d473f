//! Promote and prune on Redis Streams: queue by queue, each guarded by the leader's term.

use std::time::Instant;

use windlass_core::store::{Duty, DutyReport};
use windlass_core::{QueueName, Result};

use super::id::Id;
use super::sweeps::{Pass, Sweep};
use super::{AT_ONCE, Shared, scripts};
use crate::redis::fleet::stale_term;
use crate::redis::reply::{Reply, next};
use crate::redis::script::Script;
use crate::redis::troubles::skip;
use crate::wakes::News;

impl Shared {
    pub(super) async fn promote(&self, duty: Duty) -> Result<DutyReport> {
        let pass = self.begin_pass(duty, Sweep::Promote, "").await?;
        self.sweep(duty, &pass, &scripts::PROMOTE).await
    }

    pub(super) async fn prune(&self, duty: Duty) -> Result<DutyReport> {
        let pass = self.begin_pass(duty, Sweep::Prune, "").await?;
        self.sweep(duty, &pass, &scripts::PRUNE).await
    }

    /// Has a script go through the queues of a pass; it returns time, done, more, the next time, skipped, and the
    /// ids of unreadable records.
    async fn sweep(&self, duty: Duty, pass: &Pass, script: &'static Script) -> Result<DutyReport> {
        let (mut report, mut failed) = (DutyReport::default(), None);
        for queue in &pass.queues {
            let since = Instant::now();
            loop {
                let left = duty.limit - usize::try_from(report.done).unwrap_or(duty.limit);
                let swept = self.sweep_queue(duty, queue, script, left).await;
                let mut parts = match skip(queue, swept) {
                    Ok(Some(parts)) => parts,
                    Ok(None) => break,
                    Err(error) if error.is_lease_lost() => return Err(error),
                    // One queue that cannot be swept keeps no other from it.
                    Err(error) => {
                        failed = failed.or(Some(error));
                        break;
                    }
                };
                let _now = next(&mut parts, script.name)?;
                let done = next(&mut parts, script.name)?.number()?.unsigned_abs();
                let has_more = next(&mut parts, script.name)?.number()? == 1;
                let next_due = next(&mut parts, script.name)?.time_if_any()?;
                let skipped = parts.next().map_or(Ok(0), |skipped| skipped.number())?;
                report.done += done;
                report.skipped_bad += skipped.unsigned_abs();
                for id in parts {
                    let stored = id.bytes()?;
                    let id = Id::from_stored(&stored).map_or_else(
                        || stored.escape_ascii().to_string(),
                        |id| id.task_id().to_string(),
                    );
                    tracing::error!(%queue, id, "the record of a task cannot be read; it will not run");
                }
                if done > 0 && script.name == "promote" {
                    self.fleet
                        .common
                        .wakes
                        .tell(News { ready: vec![queue.clone()], ..News::default() });
                } else if done > 0 {
                    // What is removed leaves entries of the journal behind.
                    self.sweeps.revisit(queue, pass);
                }
                let is_full = usize::try_from(report.done).unwrap_or(usize::MAX) >= duty.limit;
                if has_more && !is_full && (done > 0 || skipped > 0) {
                    continue;
                }
                report.has_more |= has_more;
                let due = if has_more { Some(pass.now()) } else { next_due };
                self.sweeps.visited(pass, queue, since, due);
                break;
            }
        }
        report.next_due = self.sweeps.next_due(pass);
        failed.map_or(Ok(report), Err)
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
