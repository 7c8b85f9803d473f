//! Reads on Redis Streams: get, queues, workers.

use std::collections::HashMap;

use futures_util::future::try_join_all;
use windlass_core::store::{GetParams, QueueRecord, StateCounts, WorkerRecord};
use windlass_core::{QueueName, Result, State, TaskId, TaskRecord, WorkerId};

use super::id::Id;
use super::large::{PAYLOAD, RESULT};
use super::row::Row;
use super::{Shared, scripts};
use crate::redis::error::strange;
use crate::redis::reply::{Reply, Sort, next};
use crate::redis::troubles::log_skipped;

/// Most queues in one call: each is looked at lane by lane.
const QUEUES_AT_ONCE: usize = 50;

impl Shared {
    pub(super) async fn get(&self, params: &GetParams) -> Result<Vec<Option<TaskRecord>>> {
        let ids: Vec<_> = params.ids.iter().map(Id::of).collect();
        let mut known: Vec<_> = ids.iter().copied().flatten().collect();
        known.sort_unstable();
        known.dedup();
        let (now, rows) = self.look_everywhere(&known).await?;
        let rows: Vec<_> = rows.into_values().filter(|row| !row.record.head.is_over(now)).collect();
        let mut large = self.large_values_of(&rows, params.parts).await?;
        let fill = |row: Row| {
            let id = row.id;
            let mut record = row.into_record(params.parts);
            if let Some(payload) = large.remove(&(id, PAYLOAD)) {
                record.payload = payload;
            }
            if let Some(result) = large.remove(&(id, RESULT)) {
                record.result = Some(result);
            }
            (id, record)
        };
        let records: HashMap<_, _> = rows.into_iter().map(fill).collect();
        Ok(ids.iter().map(|id| id.and_then(|id| records.get(&id).cloned())).collect())
    }

    /// Which of these tasks are finished or not there.
    pub(super) async fn ended_of(&self, mut tasks: Vec<TaskId>) -> Result<Vec<TaskId>> {
        let ids: Vec<_> = tasks.iter().filter_map(Id::of).collect();
        let (now, rows) = self.look_everywhere(&ids).await?;
        tasks.retain(|task| {
            let row = Id::of(task).and_then(|id| rows.get(&id));
            row.is_none_or(|row| row.state().is_terminal() || row.record.head.is_over(now))
        });
        Ok(tasks)
    }

    pub(super) async fn queues(&self) -> Result<Vec<QueueRecord>> {
        let names = self.all_queues().await?;
        let chunks = self.fleet.by_slot(&names).flat_map(|group| group.chunks(QUEUES_AT_ONCE));
        let asked = try_join_all(chunks.map(|names| self.queue_records(names))).await?;
        Ok(asked.into_iter().flatten().collect())
    }

    /// What is known of queues that one call may name.
    pub(super) async fn queue_records(&self, names: &[QueueName]) -> Result<Vec<QueueRecord>> {
        let stems: Vec<_> = names.iter().map(|name| self.stem(name)).collect();
        let call = scripts::QUEUES.on(&stems).arg(self.options().told_time());
        let told = self.ask(call).await?.list()?;
        let mut records = Vec::with_capacity(names.len());
        for (name, told) in names.iter().zip(told) {
            match told.sort()? {
                Sort::List(parts) => records.push(read_queue(name.clone(), parts)?),
                Sort::Bytes(trouble) => log_skipped(name, &String::from_utf8_lossy(&trouble)),
                Sort::Number(_) => return Err(strange("queues")),
            }
        }
        Ok(records)
    }

    pub(super) async fn workers(&self) -> Result<Vec<WorkerRecord>> {
        let known = self.fleet.known_workers().await?;
        let counts = self.held_counts().await?;
        let counted = known.into_iter().map(|(id, known)| {
            let count = counts.get(&id).copied().unwrap_or(0);
            known.into_record(id, count)
        });
        Ok(counted.collect())
    }

    /// How many tasks each worker holds in all queues.
    async fn held_counts(&self) -> Result<HashMap<WorkerId, u64>> {
        let queues = self.all_queues().await?;
        let chunks = self.fleet.by_slot(&queues).flat_map(|group| group.chunks(QUEUES_AT_ONCE));
        let asked = chunks.map(|queues| {
            let stems: Vec<_> = queues.iter().map(|queue| self.stem(queue)).collect();
            self.ask(scripts::WORKERS.on(&stems).arg(self.options().told_time()))
        });
        let mut counts = HashMap::new();
        for told in try_join_all(asked).await? {
            let mut parts = told.list()?;
            while let (Some(worker), Some(count)) = (parts.next(), parts.next()) {
                let count = count.number()?.unsigned_abs();
                *counts.entry(WorkerId::new(worker.text()?)).or_default() += count;
            }
        }
        Ok(counts)
    }
}

fn read_queue(name: QueueName, mut parts: std::vec::IntoIter<Reply>) -> Result<QueueRecord> {
    let is_paused = next(&mut parts, "queues")?.number()? == 1;
    let running = next(&mut parts, "queues")?.number()?.unsigned_abs();
    let oldest_pending_at = next(&mut parts, "queues")?.time_if_any()?;
    let (mut counts, mut pending) = (StateCounts::default(), [0; 4]);
    counts.add(State::Running, running);
    while let (Some(field), Some(count)) = (parts.next(), parts.next()) {
        let field = field.bytes()?;
        let state = match field.as_slice() {
            [b'p', lane @ b'0'..=b'7'] => {
                let count = count.number()?.max(0).unsigned_abs();
                pending[usize::from((lane - b'0') / 2)] += count;
                counts.add(State::Pending, count);
                continue;
            }
            b"s" => State::Scheduled,
            b"r" => State::Retrying,
            b"c" => State::Completed,
            b"x" => State::Cancelled,
            b"d" => State::DeadLetter,
            _ => continue,
        };
        counts.add(state, count.number()?.max(0).unsigned_abs());
    }
    Ok(QueueRecord { name, is_paused, counts, pending, oldest_pending_at })
}
