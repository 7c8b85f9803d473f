//! Prune and tend in memory.

use windlass_core::store::{Duty, DutyReport, GONE_WORKER_KEPT, IDLE_QUEUE_KEPT};
use windlass_core::unique::Exit;
use windlass_core::{QueueName, Result, WorkerId};

use super::model::{Key, Model, Queue, Worker};

impl Model {
    pub(super) fn prune(&mut self, duty: Duty) -> Result<DutyReport> {
        self.check_term(duty.term)?;
        let now = self.now();
        let over: Vec<_> = self
            .expiring
            .iter()
            .take_while(|(at, _)| *at <= now)
            .take(duty.limit)
            .map(|(_, number)| *number)
            .collect();
        for number in &over {
            let row = self.remove(*number);
            self.forget(&row, Exit::Pruned);
        }
        let next_due = self.expiring.first().map(|(at, _)| *at);
        Ok(DutyReport {
            done: over.len() as u64,
            has_more: next_due.is_some_and(|at| at <= now),
            next_due,
            ..DutyReport::default()
        })
    }

    pub(super) fn tend(&mut self, duty: Duty) -> Result<DutyReport> {
        self.check_term(duty.term)?;
        let now = self.now();
        let is_over = |key: &Key| key.until.is_some_and(|until| until <= now);
        let over: Vec<_> =
            self.keys.iter().filter(|(_, key)| is_over(key)).map(|(digest, _)| *digest).collect();
        for digest in over.iter().take(duty.limit) {
            self.keys.remove(digest);
        }
        let has_more_workers = self.forget_workers(duty.limit);
        let has_more_queues = self.forget_queues(duty.limit);
        Ok(DutyReport {
            done: over.len().min(duty.limit) as u64,
            has_more: has_more_workers || has_more_queues || over.len() > duty.limit,
            ..DutyReport::default()
        })
    }

    /// Forgets workers that are gone for long; answers whether there are more.
    fn forget_workers(&mut self, limit: usize) -> bool {
        let now = self.now();
        let is_old = |(id, worker): &(&WorkerId, &Worker)| {
            let is_old = worker.gone_at.is_some_and(|at| now.since(at) > GONE_WORKER_KEPT);
            is_old && self.running.get(*id).is_none_or(|held| held.is_empty())
        };
        let old: Vec<_> = self.workers.iter().filter(is_old).map(|(id, _)| id.clone()).collect();
        for id in old.iter().take(limit) {
            self.workers.remove(id);
            self.running.remove(id);
        }
        old.len() > limit
    }

    /// Forgets queues that are idle for long; answers whether there are more.
    fn forget_queues(&mut self, limit: usize) -> bool {
        let now = self.now();
        let is_idle = |(_, queue): &(&QueueName, &Queue)| {
            let is_old = now.since(queue.changed_at) > IDLE_QUEUE_KEPT;
            is_old && !queue.is_ordered && queue.state_counts().total() == 0
        };
        let idle: Vec<_> =
            self.queues.iter().filter(is_idle).map(|(name, _)| name.clone()).collect();
        for name in idle.iter().take(limit) {
            self.queues.remove(name);
            self.pending.retain(|lane, _| lane.queue != *name);
        }
        idle.len() > limit
    }
}
