//! Reads from memory: get, list, queues, workers.

use bytes::Bytes;
use windlass_core::history::History;
use windlass_core::store::{Filter, GetParams, ListParams, Page, Parts, QueueRecord, WorkerRecord};
use windlass_core::{Error, Priority, QueueName, Result, State, TaskId, TaskRecord, Timestamp};

use super::model::{Lane, Model, is_over};
use crate::reading::{GONE_WORKER_SHOWN, SCAN_MAX, matches, read_cursor};

/// The tasks that one step of a walk has found, and where it goes on.
pub(super) struct Walk {
    pub(super) numbers: Vec<i64>,
    pub(super) next_cursor: Option<String>,
}

impl Model {
    pub(super) fn get(&self, params: &GetParams) -> Vec<Option<TaskRecord>> {
        let read = |id| self.visible(id).map(|row| parts_of(&row.record, params.parts));
        params.ids.iter().map(read).collect()
    }

    pub(super) fn list(&self, params: &ListParams) -> Result<Page> {
        let walk = self.walk(&params.filter, params.cursor.as_deref(), params.limit)?;
        let read = |number: &i64| parts_of(&self.rows[number].record, Parts::NONE);
        let tasks = walk.numbers.iter().map(read).collect();
        Ok(Page { tasks, next_cursor: walk.next_cursor })
    }

    /// One bounded step of a walk from the newest task down.
    pub(super) fn walk(&self, filter: &Filter, cursor: Option<&str>, limit: usize) -> Result<Walk> {
        let now = self.now();
        let mut last = read_cursor(cursor)?;
        if limit == 0 {
            return Err(Error::invalid("a page needs a limit of at least 1"));
        }
        let mut numbers = Vec::new();
        for (number, row) in self.rows.range(..last).rev().take(SCAN_MAX) {
            if numbers.len() >= limit {
                break;
            }
            last = *number;
            if !is_over(row, now) && matches(filter, &row.record) {
                numbers.push(*number);
            }
        }
        let has_more = self.rows.range(..last).next().is_some();
        Ok(Walk { numbers, next_cursor: has_more.then(|| last.to_string()) })
    }

    pub(super) fn queues(&self) -> Vec<QueueRecord> {
        let describe = |(name, queue): (&_, &super::model::Queue)| QueueRecord {
            name: Clone::clone(name),
            is_paused: queue.is_paused,
            counts: queue.state_counts(),
            pending: [Priority::Low, Priority::Normal, Priority::High, Priority::Critical].map(
                |priority| queue.counts.get(&(State::Pending, priority)).copied().unwrap_or(0),
            ),
            oldest_pending_at: self.oldest_pending_at(name),
        };
        self.queues.iter().map(describe).collect()
    }

    pub(super) fn workers(&self) -> Vec<WorkerRecord> {
        let describe = |(id, worker): (&_, &super::model::Worker)| WorkerRecord {
            id: Clone::clone(id),
            card: worker.card.clone(),
            order: worker.order,
            started_at: worker.started_at,
            beat_at: worker.beat_at,
            lease_until: worker.lease_until,
            is_gone: worker.gone_at.is_some(),
            running_count: self.running.get(id).map_or(0, |held| held.len() as u64),
        };
        let now = self.now();
        let is_shown = |(_, worker): &(&_, &super::model::Worker)| {
            worker.gone_at.is_none_or(|at| now.since(at) <= GONE_WORKER_SHOWN)
        };
        self.workers.iter().filter(is_shown).map(describe).collect()
    }

    /// Which of these tasks are finished or not there.
    pub(super) fn ended(&self, mut tasks: Vec<TaskId>) -> Vec<TaskId> {
        tasks.retain(|id| self.visible(id).is_none_or(|row| row.record.state.is_terminal()));
        tasks
    }

    fn oldest_pending_at(&self, queue: &QueueName) -> Option<Timestamp> {
        let lanes = Priority::DESCENDING.into_iter().flat_map(|priority| {
            [true, false].map(|is_suspect| Lane { queue: queue.clone(), priority, is_suspect })
        });
        lanes
            .filter_map(|lane| self.pending.get(&lane)?.values().next())
            .map(|number| self.rows[number].pending_at)
            .min()
    }
}

fn parts_of(record: &TaskRecord, parts: Parts) -> TaskRecord {
    let mut record = record.clone();
    if !parts.payload {
        record.payload = Bytes::new();
    }
    if !parts.result {
        record.result = None;
    }
    if !parts.history {
        record.history = History::default();
    }
    record
}
