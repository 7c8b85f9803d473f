//! Reads from memory: get, list, queues, workers.

use bytes::Bytes;
use windlass_core::history::History;
use windlass_core::store::{GetParams, ListParams, Page, Parts, QueueRecord, WorkerRecord};
use windlass_core::{Priority, Result, State, TaskId, TaskRecord};

use super::model::{Lane, Model, is_over};
use crate::filter::{SCAN_MAX, matches, read_cursor};

impl Model {
    pub(super) fn get(&self, params: &GetParams) -> Vec<Option<TaskRecord>> {
        let read = |id| {
            self.visible(id)
                .map(|row| parts_of(&row.record, params.parts))
        };
        params.ids.iter().map(read).collect()
    }

    pub(super) fn list(&self, params: &ListParams) -> Result<Page> {
        let below = read_cursor(params.cursor.as_deref())?;
        let now = self.now();
        let mut page = Page::default();
        let mut last = below;
        for (number, row) in self.rows.range(..below).rev().take(SCAN_MAX) {
            if page.tasks.len() >= params.limit {
                break;
            }
            last = *number;
            if !is_over(row, now) && matches(&params.filter, &row.record) {
                page.tasks.push(parts_of(&row.record, Parts::NONE));
            }
        }
        let has_more = self.rows.range(..last).next().is_some();
        page.next_cursor = has_more.then(|| last.to_string());
        Ok(page)
    }

    pub(super) fn queues(&self) -> Vec<QueueRecord> {
        let describe = |(name, queue): (&_, &super::model::Queue)| QueueRecord {
            name: Clone::clone(name),
            is_paused: queue.is_paused,
            counts: queue.state_counts(),
            pending: [
                Priority::Low,
                Priority::Normal,
                Priority::High,
                Priority::Critical,
            ]
            .map(|priority| {
                queue
                    .counts
                    .get(&(State::Pending, priority))
                    .copied()
                    .unwrap_or(0)
            }),
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
        self.workers.iter().map(describe).collect()
    }

    /// Which of these tasks are finished or not there.
    pub(super) fn ended(&self, mut tasks: Vec<TaskId>) -> Vec<TaskId> {
        tasks.retain(|id| {
            self.visible(id)
                .is_none_or(|row| row.record.state.is_terminal())
        });
        tasks
    }

    fn oldest_pending_at(
        &self,
        queue: &windlass_core::QueueName,
    ) -> Option<windlass_core::Timestamp> {
        let lanes = Priority::DESCENDING.into_iter().flat_map(|priority| {
            [true, false].map(|is_suspect| Lane {
                queue: queue.clone(),
                priority,
                is_suspect,
            })
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
