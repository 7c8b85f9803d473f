//! Beats, orders and leaving, in SQLite.

use std::collections::HashSet;

use uuid::Uuid;
use windlass_core::limits::clip;
use windlass_core::state::release;
use windlass_core::store::{Beat, HeldLeases, Order, Orders, ProgressReport, RunOrder, WakeMark};
use windlass_core::task::Progress;
use windlass_core::{Epoch, Error, ErrorKind, Lease, Reason, Result, TaskId, WorkerId, duration};

use super::row::{epoch_of, task_id, uuid_of};
use super::sql;
use super::transaction::Tx;

/// A task that a worker holds.
struct HeldTask {
    number: i64,
    task: TaskId,
    epoch: Epoch,
    claimed_at: i64,
    is_cancel_requested: bool,
}

impl Tx<'_> {
    pub(super) fn beat(&mut self, beat: &Beat, mark: WakeMark) -> Result<Orders> {
        if self.is_gone(&beat.worker)? {
            return Err(Error::lease_lost(format!("beat of worker {}", beat.worker))
                .reason_is(Reason::WorkerLost));
        }
        let card = serde_json::to_string(&beat.card).expect("a card is plain JSON");
        let (now, until) = (self.now.as_millis(), self.now.after(beat.lease).as_millis());
        let (number, order): (i64, String) = self
            .one(sql::BEAT, (beat.worker.as_str(), card, now, until), |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?
            .ok_or_else(|| Error::corrupt("a beat was not stored"))?;
        for report in &beat.progress {
            self.note_progress(report)?;
        }
        let mut held = self.held_by(number)?;
        let (mut lost, mut given_back) = (Vec::new(), Vec::new());
        if let Some(known) = &beat.held {
            given_back = self.give_back_unknown(&mut held, known)?;
            let valid: HashSet<_> = held.iter().map(|task| (&task.task, task.epoch)).collect();
            lost = known.leases.clone();
            lost.retain(|lease| !valid.contains(&(&lease.task, lease.epoch)));
        }
        let cancels = held
            .into_iter()
            .filter(|task| task.is_cancel_requested)
            .map(|task| Lease { task: task.task, epoch: task.epoch })
            .collect();
        let mut paused_queues = Vec::new();
        for queue in &beat.card.queues {
            if self.is_paused(queue)? {
                paused_queues.push(queue.clone());
            }
        }
        let (order, now) = (read_order(&order), self.now);
        Ok(Orders { order, paused_queues, cancels, lost, given_back, now, mark })
    }

    pub(super) fn leave(&mut self, worker: &WorkerId) -> Result<u64> {
        let number = self.one(sql::WORKER_FIND, [worker.as_str()], |row| row.get::<_, i64>(0))?;
        let Some(number) = number else { return Ok(0) };
        self.execute(sql::LEAVE, (worker.as_str(), self.now.as_millis()))?;
        let held = self.held_by(number)?;
        let numbers: Vec<_> = held.iter().map(|task| task.number).collect();
        let skipped = self.give_back(&numbers)?;
        Ok((held.len() - skipped) as u64)
    }

    pub(super) fn order(&mut self, order: &Order) -> Result<()> {
        match order {
            Order::Queue { order: RunOrder::Drain, .. } => {
                Err(Error::invalid("a queue can run or pause, not drain"))
            }
            Order::Queue { queue, order } => {
                let is_paused = *order == RunOrder::Pause;
                let number = self.next_number()?;
                self.execute(sql::ORDER_QUEUE, (queue.as_str(), is_paused, number))?;
                match is_paused {
                    true => self.news.paused.push(queue.clone()),
                    false => self.tell_ready(queue),
                }
                Ok(())
            }
            Order::Worker { worker, order } => {
                let changed =
                    self.execute(sql::ORDER_WORKER, (worker.as_str(), write_order(*order)))?;
                if changed == 0 {
                    let text = format!("no worker {worker}");
                    return Err(Error::new(ErrorKind::NotFound, text));
                }
                self.news.ordered.push(worker.clone());
                Ok(())
            }
        }
    }

    fn is_gone(&self, worker: &WorkerId) -> Result<bool> {
        let gone_at =
            self.one(sql::WORKER_FIND, [worker.as_str()], |row| row.get::<_, Option<i64>>(3))?;
        Ok(gone_at.flatten().is_some())
    }

    fn held_by(&self, worker: i64) -> Result<Vec<HeldTask>> {
        self.all(sql::ROWS_OF_WORKER, (worker, i64::MAX), |row| {
            Ok(HeldTask {
                number: row.get(0)?,
                task: task_id(Uuid::from_bytes(row.get(1)?)),
                epoch: epoch_of(row.get(2)?),
                claimed_at: row.get(3)?,
                is_cancel_requested: row.get(4)?,
            })
        })
    }

    /// Gives tasks back; answers how many could not be read and stay where they are.
    fn give_back(&mut self, numbers: &[i64]) -> Result<usize> {
        self.each(numbers, |tx, row| {
            let step = release(row.held());
            row.end_run(tx, step.state, step)
        })
    }

    /// Gives back what the worker does not know of, and takes it out of `held`.
    fn give_back_unknown(
        &mut self,
        held: &mut Vec<HeldTask>,
        known: &HeldLeases,
    ) -> Result<Vec<TaskId>> {
        let named: HashSet<_> =
            known.leases.iter().map(|lease| (lease.task.as_str(), lease.epoch)).collect();
        let older_than_ms = duration::as_millis_ceil(known.older_than);
        let now = self.now.as_millis();
        let unknown: Vec<_> = held
            .extract_if(.., |task| {
                let is_named = named.contains(&(task.task.as_str(), task.epoch));
                !is_named && now - task.claimed_at > older_than_ms
            })
            .collect();
        let numbers: Vec<_> = unknown.iter().map(|task| task.number).collect();
        self.give_back(&numbers)?;
        Ok(unknown.into_iter().map(|task| task.task).collect())
    }

    fn note_progress(&self, report: &ProgressReport) -> Result<()> {
        let Some(id) = uuid_of(&report.lease.task) else {
            return Ok(());
        };
        let Ok(epoch) = i64::try_from(report.lease.epoch.0) else {
            return Ok(());
        };
        let progress = Progress {
            fraction: Progress::part(report.fraction),
            note: clip(&report.note, self.error_bytes_max).into(),
            at: self.now,
        };
        let json = serde_json::to_string(&progress).expect("progress is plain JSON");
        self.execute(sql::PROGRESS, (id.as_bytes(), epoch, json))?;
        Ok(())
    }
}

const fn write_order(order: RunOrder) -> &'static str {
    match order {
        RunOrder::Run => "run",
        RunOrder::Pause => "pause",
        RunOrder::Drain => "drain",
    }
}

/// An order that cannot be read counts as "run": a worker must not stop for a reason nobody gave.
pub(super) fn read_order(stored: &str) -> RunOrder {
    match stored {
        "pause" => RunOrder::Pause,
        "drain" => RunOrder::Drain,
        _ => RunOrder::Run,
    }
}
