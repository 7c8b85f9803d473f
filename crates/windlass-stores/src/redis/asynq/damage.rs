//! Queues with a damaged key: one of another type or content than asynq and windlass write.
//!
//! Such a queue is skipped, logged, and tried again by the next call; all other queues are served. Scripts check
//! before they write, so nothing of a damaged queue is lost when its key is repaired.

use std::collections::HashMap;

use parking_lot::Mutex;
use windlass_core::store::{Finding, Severity};
use windlass_core::{Error, Lease, QueueName, Result, WorkerId};

use super::row::Row;
use super::{Shared, scripts};
use crate::redis::asking::Answers;
use crate::redis::reply::{Reply, next};
pub(super) use crate::redis::troubles::{log_skipped as log, skip};

/// How a script answers for a queue with a damaged key.
pub(super) const DAMAGED: &str = "damaged";
/// Most runs that are remembered whose end could not be recorded.
const UNRECORDED_MAX: usize = 100_000;

/// Runs whose end could not be recorded, by worker: they are given back when their queue is repaired.
#[derive(Default)]
pub(super) struct UnrecordedRuns(Mutex<HashMap<WorkerId, Vec<(QueueName, Lease)>>>);

impl UnrecordedRuns {
    pub(super) fn add(&self, worker: &WorkerId, queue: &QueueName, lease: Lease) {
        let mut runs = self.0.lock();
        if runs.values().map(Vec::len).sum::<usize>() < UNRECORDED_MAX {
            runs.entry(worker.clone()).or_default().push((queue.clone(), lease));
        }
    }

    fn take(&self, worker: &WorkerId) -> HashMap<QueueName, Vec<Lease>> {
        let mut by_queue: HashMap<_, Vec<_>> = HashMap::new();
        for (queue, lease) in self.0.lock().remove(worker).unwrap_or_default() {
            by_queue.entry(queue).or_default().push(lease);
        }
        by_queue
    }

    pub(super) fn forget(&self, worker: &WorkerId) {
        self.0.lock().remove(worker);
    }
}

/// What was said of a damaged queue, where a script has answered for one.
pub(super) fn read(told: Reply) -> Result<std::result::Result<Answers, String>> {
    let mut parts = told.list()?;
    match parts.as_slice().first().is_some_and(|first| first.is_text(DAMAGED)) {
        true => Ok(Err(parts.nth(1).map_or_else(|| Ok(String::new()), Reply::text)?)),
        false => Ok(Ok(parts)),
    }
}

impl Shared {
    /// Gives tasks back whose runs have ended while their queue was damaged: their worker is done with them, and
    /// its heartbeats would hold them as long as it lives.
    pub(super) async fn give_back_unrecorded(&self, worker: &WorkerId) -> Result<()> {
        for (queue, leases) in self.unrecorded.take(worker) {
            let ids: Vec<_> = leases.iter().map(|lease| lease.task.clone()).collect();
            let given_back = async {
                let (now, mut rows) = self.look(&queue, &ids).await?;
                if rows.iter().any(Row::is_damaged) {
                    return Err(Error::corrupt("a place of its tasks is no sorted set"));
                }
                rows.retain(|row| row.lease().is_some_and(|lease| leases.contains(&lease)));
                self.give_back(now, rows, worker).await
            };
            let given_back = given_back.await;
            if given_back.is_err() {
                // Still damaged, or not reached: the next heartbeat tries again.
                leases.into_iter().for_each(|lease| self.unrecorded.add(worker, &queue, lease));
            }
            skip(&queue, given_back)?;
        }
        Ok(())
    }

    /// The damaged keys of a queue.
    pub(super) async fn find_damage(&self, queue: &QueueName) -> Result<Vec<Finding>> {
        let workers = self.fleet.known_workers().await?;
        let mut call = scripts::DAMAGE.on(&[self.stem(queue)]).arg(self.options().told_time());
        workers.keys().for_each(|worker| call.add(worker.as_str()));
        let mut parts = self.ask(call).await?.list()?;
        let mut findings = Vec::new();
        while let Some(key) = parts.next() {
            let (key, has) = (key.text()?, next(&mut parts, "damage")?.text()?);
            let wanted = next(&mut parts, "damage")?.text()?;
            findings.push(Finding {
                severity: Severity::Problem,
                subject: "damage",
                text: format!(
                    "queue {queue} is skipped: key {key} is a {has} and should be a {wanted}"
                ),
                advice: "find out who wrote this key, rename or remove it, and run `windlass doctor --repair`"
                    .into(),
            });
        }
        Ok(findings)
    }
}
