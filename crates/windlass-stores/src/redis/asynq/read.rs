//! Reads on asynq's keys: get, queues, workers.

use std::collections::HashMap;

use futures_util::future::try_join_all;
use windlass_core::store::{GetParams, QueueRecord, StateCounts, WorkerRecord};
use windlass_core::{Priority, QueueName, Result, State, TaskId, TaskRecord, WorkerId};

use super::{Shared, damage, scripts};
use crate::redis::reply::{Reply, next};

/// Pairs of workers and queues in one question for what workers hold.
const HELD_AT_ONCE: usize = 2_000;
/// Most queues in one call.
const QUEUES_AT_ONCE: usize = 50;

impl Shared {
    pub(super) async fn get(&self, params: &GetParams) -> Result<Vec<Option<TaskRecord>>> {
        let mut wanted = params.ids.clone();
        wanted.sort_unstable();
        wanted.dedup();
        let (now, mut rows) = self.look_everywhere(&wanted, params.parts.result).await?;
        self.add_go_runs(now, rows.values_mut()).await?;
        let visible = rows.into_iter().filter(|(_, row)| !row.is_over(now));
        let records: HashMap<_, _> =
            visible.map(|(id, row)| (id, row.into_record(params.parts))).collect();
        Ok(params.ids.iter().map(|id| records.get(id).cloned()).collect())
    }

    /// Which of these tasks are finished or not there.
    pub(super) async fn ended_of(&self, mut tasks: Vec<TaskId>) -> Result<Vec<TaskId>> {
        let (now, rows) = self.look_everywhere(&tasks, false).await?;
        tasks.retain(|task| {
            let row = rows.get(task);
            row.is_none_or(|row| row.state().is_terminal() || row.is_over(now))
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
    async fn queue_records(&self, names: &[QueueName]) -> Result<Vec<QueueRecord>> {
        let stems: Vec<_> = names.iter().map(|name| self.stem(name)).collect();
        let call = scripts::QUEUES.on(&stems).arg(self.options().told_time());
        let told = self.ask(call).await?.list()?;
        names.iter().zip(told).map(|(name, told)| read_queue(name.clone(), told)).collect()
    }

    pub(super) async fn workers(&self) -> Result<Vec<WorkerRecord>> {
        let known = self.fleet.known_workers().await?;
        let ids: Vec<_> = known.keys().cloned().collect();
        let counts = self.held_counts(&ids).await?;
        let foreign = self.go_servers(|id| known.contains_key(id)).await?;
        let counted = known.into_iter().map(|(id, known)| {
            let count = counts.get(&id).copied().unwrap_or(0);
            known.into_record(id, count)
        });
        Ok(counted.chain(foreign).collect())
    }

    /// How many tasks each of these workers holds in all queues.
    async fn held_counts(&self, workers: &[WorkerId]) -> Result<HashMap<WorkerId, u64>> {
        let mut counts = HashMap::new();
        if workers.is_empty() {
            return Ok(counts);
        }
        let queues = self.all_queues().await?;
        let at_once = (HELD_AT_ONCE / workers.len()).clamp(1, QUEUES_AT_ONCE);
        let chunks = self.fleet.by_slot(&queues).flat_map(|group| group.chunks(at_once));
        let asked = chunks.map(|chunk| async move {
            let stems: Vec<_> = chunk.iter().map(|queue| self.stem(queue)).collect();
            let mut call = scripts::WORKERS.on(&stems).arg(self.options().told_time());
            workers.iter().for_each(|worker| call.add(worker.as_str()));
            self.ask(call).await?.list()
        });
        for told in try_join_all(asked).await? {
            for (worker, count) in workers.iter().zip(told) {
                *counts.entry(worker.clone()).or_default() += count.number()?.unsigned_abs();
            }
        }
        Ok(counts)
    }
}

fn read_queue(name: QueueName, told: Reply) -> Result<QueueRecord> {
    let mut parts = told.list()?;
    let is_paused = next(&mut parts, "queues")?.number()? == 1;
    let oldest_pending_at = next(&mut parts, "queues")?.time_if_any()?;
    let (mut counts, mut pending) = (StateCounts::default(), [0; 4]);
    for state in [
        State::Pending,
        State::Running,
        State::Scheduled,
        State::Retrying,
        State::Completed,
        State::DeadLetter,
        State::Cancelled,
    ] {
        let count = next(&mut parts, "queues")?.number()?.unsigned_abs();
        counts.add(state, count);
        if state == State::Pending {
            pending[usize::from(Priority::Normal.as_number())] = count;
        }
    }
    let damage = next(&mut parts, "queues")?.text()?;
    if !damage.is_empty() {
        damage::log(&name, &damage);
    }
    Ok(QueueRecord { name, is_paused, counts, pending, oldest_pending_at })
}
