//! Beats, orders and leaving, in memory.

use std::collections::BTreeSet;

use windlass_core::limits::clip;
use windlass_core::state::release;
use windlass_core::store::{Beat, HeldLeases, Order, Orders, ProgressReport, RunOrder, WakeMark};
use windlass_core::task::Progress;
use windlass_core::{Error, ErrorKind, Lease, Reason, Result, State, TaskId, WorkerId};

use super::model::{Model, Worker, held};

impl Model {
    pub(super) fn beat(&mut self, beat: Beat, mark: WakeMark) -> Result<Orders> {
        let now = self.now();
        let worker = self.workers.entry(beat.worker.clone()).or_insert_with(|| Worker {
            card: beat.card.clone(),
            order: RunOrder::Run,
            started_at: now,
            beat_at: now,
            lease_until: now,
            gone_at: None,
        });
        if worker.gone_at.is_some() {
            return Err(Error::lease_lost(format!("beat of worker {}", beat.worker))
                .reason_is(Reason::WorkerLost));
        }
        let queues = &self.queues;
        let paused_queues =
            beat.card.queues_where(|queue| queues.get(queue).is_some_and(|queue| queue.is_paused));
        worker.card = beat.card;
        worker.beat_at = now;
        worker.lease_until = now.after(beat.lease);
        let order = worker.order;
        for report in beat.progress {
            self.note_progress(report);
        }
        let (mut lost, mut given_back) = (Vec::new(), Vec::new());
        if let Some(known) = beat.held {
            given_back = self.give_back_unknown(&beat.worker, &known);
            lost = known
                .leases
                .into_iter()
                .filter(|lease| !self.is_held(&beat.worker, lease))
                .collect();
        }
        let cancels = self
            .numbers_of(&beat.worker)
            .into_iter()
            .map(|number| &self.rows[&number].record)
            .filter(|record| record.is_cancel_requested)
            .filter_map(|record| Some(Lease { task: record.id.clone(), epoch: record.epoch? }))
            .collect();
        Ok(Orders { order, paused_queues, cancels, lost, given_back, now, mark })
    }

    pub(super) fn leave(&mut self, worker: &WorkerId) -> u64 {
        let now = self.now();
        if let Some(known) = self.workers.get_mut(worker) {
            known.gone_at.get_or_insert(now);
        }
        let numbers = self.numbers_of(worker);
        for number in &numbers {
            let step = release(held(&self.rows[number]));
            self.end_run(*number, step.state, step);
        }
        numbers.len() as u64
    }

    pub(super) fn order(&mut self, order: Order) -> Result<()> {
        match order {
            Order::Queue { order: RunOrder::Drain, .. } => {
                Err(Error::invalid("a queue can run or pause, not drain"))
            }
            Order::Queue { queue, order } => {
                let is_paused = order == RunOrder::Pause;
                let known = self.queues.entry(queue.clone()).or_default();
                (known.is_paused, known.is_ordered) = (is_paused, true);
                match is_paused {
                    true => self.news.paused.push(queue),
                    false => self.news.ready.push(queue),
                }
                Ok(())
            }
            Order::Worker { worker, order } => {
                match self.workers.get_mut(&worker).filter(|known| known.gone_at.is_none()) {
                    Some(known) => {
                        known.order = order;
                        self.news.ordered.push(worker);
                        Ok(())
                    }
                    None => Err(Error::new(ErrorKind::NotFound, format!("no worker {worker}"))),
                }
            }
        }
    }

    /// The numbers of the tasks that a worker holds.
    pub(super) fn numbers_of(&self, worker: &WorkerId) -> Vec<i64> {
        self.running.get(worker).map_or_else(Vec::new, |held| held.iter().copied().collect())
    }

    fn give_back_unknown(&mut self, worker: &WorkerId, known: &HeldLeases) -> Vec<TaskId> {
        let now = self.now();
        let named: BTreeSet<_> =
            known.leases.iter().map(|lease| (lease.task.as_str(), lease.epoch)).collect();
        let unknown: Vec<_> = self
            .numbers_of(worker)
            .into_iter()
            .filter(|number| {
                let record = &self.rows[number].record;
                let is_named =
                    record.epoch.is_some_and(|epoch| named.contains(&(record.id.as_str(), epoch)));
                let age = record.claimed_at.map_or_else(Default::default, |at| now.since(at));
                !is_named && age > known.older_than
            })
            .collect();
        let mut given_back = Vec::new();
        for number in unknown {
            let row = &self.rows[&number];
            given_back.push(row.record.id.clone());
            let step = release(held(row));
            self.end_run(number, step.state, step);
        }
        given_back
    }

    fn note_progress(&mut self, report: ProgressReport) {
        let now = self.now();
        let bytes_max = self.limits.error_bytes_max;
        let Some(number) = self.ids.get(&report.lease.task) else {
            return;
        };
        let Some(row) = self.rows.get_mut(number) else {
            return;
        };
        if row.record.state == State::Running && row.record.epoch == Some(report.lease.epoch) {
            row.record.progress = Some(Progress {
                fraction: Progress::part(report.fraction),
                note: clip(&report.note, bytes_max).into(),
                at: now,
            });
        }
    }

    fn is_held(&self, worker: &WorkerId, lease: &Lease) -> bool {
        let Some(row) = self.ids.get(&lease.task).and_then(|number| self.rows.get(number)) else {
            return false;
        };
        row.record.state == State::Running
            && row.record.epoch == Some(lease.epoch)
            && row.record.worker.as_ref() == Some(worker)
    }
}
