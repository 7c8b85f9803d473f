//! Reads from PostgreSQL: get, list, queues, workers.

use std::collections::HashMap;

use bytes::Bytes;
use tokio_postgres::Row as SqlRow;
use windlass_core::history::History;
use windlass_core::store::{GetParams, ListParams, Page, QueueRecord, StateCounts, WorkerRecord};
use windlass_core::{
    Error, Kind, QueueName, Result, Spec, State, TaskId, TaskRecord, Timestamp, WorkerId, duration,
};

use super::Shared;
use super::beat::read_order;
use super::change::ids_of;
use super::id::{Id, epoch_of};
use super::list::Walk;
use super::row::{read_priority, unsigned};
use super::session::Session;
use super::sql;
use crate::reading::GONE_WORKER_SHOWN;

impl Shared {
    pub(super) async fn get(
        &self,
        session: &Session,
        params: &GetParams,
    ) -> Result<Vec<Option<TaskRecord>>> {
        let seqs: Vec<_> = ids_of(&params.ids).into_iter().map(|id| id.seq).collect();
        let parts = params.parts;
        let told = self.options.told_time();
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
            [&seqs, &told, &parts.payload, &parts.result, &parts.history];
        let rows = session.all(sql::GET, &values).await?;
        let mut found: HashMap<TaskId, TaskRecord> = HashMap::new();
        for row in &rows {
            let Some(mut record) = readable(row) else { continue };
            let payload: Option<&[u8]> = row.get(24);
            record.payload = Bytes::copy_from_slice(payload.unwrap_or_default());
            record.result = row.get::<_, Option<&[u8]>>(25).map(Bytes::copy_from_slice);
            record.history = History::decode(row.get(26)).unwrap_or_default();
            found.insert(record.id.clone(), record);
        }
        Ok(params.ids.iter().map(|id| found.get(id).cloned()).collect())
    }

    pub(super) async fn list(&self, session: &Session, params: &ListParams) -> Result<Page> {
        let now = self.now(session).await?;
        let (filter, cursor) = (&params.filter, params.cursor.as_deref());
        let walk = Walk { filter, cursor, limit: params.limit, now };
        let step = walk.step(session).await?;
        let tasks = step.found.iter().filter_map(readable).collect();
        Ok(Page { tasks, next_cursor: step.next_cursor })
    }
}

/// Reads a record. One that cannot be read must not hide its neighbours.
fn readable(row: &SqlRow) -> Option<TaskRecord> {
    read_record(row)
        .inspect_err(|error| tracing::error!(error = error.chain(), "a record is left out"))
        .ok()
}

/// Which of these tasks are finished or not there.
pub(super) async fn ended(session: &Session, tasks: &[TaskId]) -> Result<Vec<TaskId>> {
    let seqs: Vec<_> = ids_of(tasks).into_iter().map(|id| id.seq).collect();
    let rows = session.all(sql::ENDED, &[&seqs]).await?;
    let going: Vec<_> =
        rows.iter().map(|row| Id { seq: row.get(0), stamp: row.get(1) }.task_id()).collect();
    Ok(tasks.iter().filter(|task| !going.contains(task)).cloned().collect())
}

pub(super) async fn queues(session: &Session) -> Result<Vec<QueueRecord>> {
    let mut queues: HashMap<i32, QueueRecord> = HashMap::new();
    for row in session.all(sql::QUEUES, &[]).await? {
        let name: String = row.get(0);
        let record = QueueRecord {
            name: QueueName::stored(&name),
            is_paused: row.get(1),
            counts: StateCounts::default(),
            pending: [0; 4],
            oldest_pending_at: row.get::<_, Option<i64>>(2).map(Timestamp::from_millis),
        };
        queues.insert(row.get(3), record);
    }
    for row in session.all(sql::QUEUE_COUNTS, &[]).await? {
        let Some(record) = queues.get_mut(&row.get(0)) else {
            continue;
        };
        let (priority, counts) = read_state_counts(&row);
        for (state, count) in State::ALL.into_iter().zip(counts) {
            let count = u64::try_from(count).unwrap_or(0);
            record.counts.add(state, count);
            if let (State::Pending, Some(pending)) = (state, record.pending.get_mut(priority)) {
                *pending += count;
            }
        }
    }
    let mut queues: Vec<_> = queues.into_values().collect();
    queues.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(queues)
}

pub(super) async fn workers(session: &Session, now: Timestamp) -> Result<Vec<WorkerRecord>> {
    let since = now.before(GONE_WORKER_SHOWN).as_millis();
    let rows = session.all(sql::WORKERS, &[&since]).await?;
    let read = |row: &SqlRow| WorkerRecord {
        id: WorkerId::new(row.get::<_, &str>(0)),
        card: serde_json::from_str(row.get(1)).unwrap_or_default(),
        order: read_order(row.get(2)),
        started_at: Timestamp::from_millis(row.get(3)),
        beat_at: Timestamp::from_millis(row.get(4)),
        lease_until: Timestamp::from_millis(row.get(5)),
        is_gone: row.get(6),
        running_count: row.get::<_, i64>(7).unsigned_abs(),
    };
    Ok(rows.iter().map(read).collect())
}

/// Reads a row of `counts.sql` or `counted.sql`.
pub(super) fn read_counts(row: &SqlRow) -> (String, usize, [i64; 7]) {
    let (priority, counts) = read_state_counts(row);
    (row.get(0), priority, counts)
}

fn read_state_counts(row: &SqlRow) -> (usize, [i64; 7]) {
    let mut counts = [0; 7];
    for (index, count) in counts.iter_mut().enumerate() {
        *count = row.get(index + 2);
    }
    (usize::try_from(row.get::<_, i16>(1)).unwrap_or(0), counts)
}

/// Reads the columns of `get.sql` and `list*.sql` but for the large ones.
fn read_record(row: &SqlRow) -> Result<TaskRecord> {
    let time = |column| row.get::<_, Option<i64>>(column).map(Timestamp::from_millis);
    let id = Id { seq: row.get(0), stamp: row.get(1) };
    let unreadable =
        |cause: Error| Error::corrupt(format!("read task {}", id.task_id())).because(cause);
    let state = row.get::<_, Option<i16>>(2).map_or(-1, i64::from);
    let extras: &[u8] = row.get(21);
    let progress: Option<&str> = row.get(22);
    let worker: Option<&str> = row.get(23);
    Ok(TaskRecord {
        id: id.task_id(),
        kind: Kind::stored(row.get::<_, Option<&str>>(5).unwrap_or_default()),
        queue: QueueName::stored(row.get::<_, Option<&str>>(3).unwrap_or_default()),
        priority: read_priority(row.get(4)).0,
        state: State::from_number(state).map_err(unreadable)?,
        payload: Bytes::new(),
        spec: Spec {
            max_retries: unsigned(row.get(8)),
            max_crashes: unsigned(row.get(9)),
            timeout: duration::from_millis(row.get(10)),
            retention: duration::from_millis(row.get(11)),
            // What cannot be read is shown as absent; claiming is stricter.
            extras: serde_json::from_slice(extras).unwrap_or_default(),
        },
        idempotency_key: row.get(20),
        attempts: unsigned(row.get(6)),
        crashes: unsigned(row.get(7)),
        epoch: row.get::<_, Option<i64>>(18).map(epoch_of),
        worker: worker.map(WorkerId::new),
        is_cancel_requested: row.get(19),
        result: None,
        progress: progress.and_then(|json| serde_json::from_str(json).ok()),
        created_at: Timestamp::from_millis(row.get(12)),
        updated_at: Timestamp::from_millis(row.get(13)),
        run_at: time(14),
        claimed_at: time(15),
        started_at: time(16),
        finished_at: time(17),
        history: History::default(),
    })
}
