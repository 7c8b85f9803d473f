//! Reads from SQLite: get, list, queues, workers.

use std::collections::BTreeMap;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row as SqlRow};
use uuid::Uuid;
use windlass_core::history::History;
use windlass_core::store::{
    GetParams, ListParams, Page, Parts, QueueRecord, StateCounts, WorkerRecord,
};
use windlass_core::{
    Error, Kind, Priority, QueueName, Result, Spec, State, TaskId, TaskRecord, Timestamp, WorkerId,
    duration,
};

use super::beat::read_order;
use super::error::During;
use super::list::Walk;
use super::row::{
    LARGE_PAYLOAD, LARGE_RESULT, count, epoch_of, task_id, text, text_if_any, uuid_of,
};
use super::sql;
use crate::reading::GONE_WORKER_SHOWN;

pub(super) fn get(
    connection: &Connection,
    params: &GetParams,
    now: Timestamp,
) -> Result<Vec<Option<TaskRecord>>> {
    params.ids.iter().map(|id| get_one(connection, id, params.parts, now)).collect()
}

/// Which of these tasks are finished or not there.
pub(super) fn ended(
    connection: &Connection,
    tasks: &[TaskId],
    now: Timestamp,
) -> Result<Vec<TaskId>> {
    let mut ended = Vec::new();
    for id in tasks {
        let record = get_one(connection, id, Parts::NONE, now)?;
        if record.is_none_or(|record| record.state.is_terminal()) {
            ended.push(id.clone());
        }
    }
    Ok(ended)
}

pub(super) fn list(connection: &Connection, params: &ListParams, now: Timestamp) -> Result<Page> {
    let (filter, cursor) = (&params.filter, params.cursor.as_deref());
    let walk = Walk { filter, cursor, limit: params.limit, now };
    let step = walk.step(connection, |row| Ok(read_record(row)?.0))?;
    // A row that cannot be read must not hide its neighbours.
    let readable = |record: Result<TaskRecord>| {
        record
            .inspect_err(|error| tracing::error!(error = error.chain(), "left out of a list"))
            .ok()
    };
    let tasks = step.found.into_iter().filter_map(readable).collect();
    Ok(Page { tasks, next_cursor: step.next_cursor })
}

pub(super) fn queues(connection: &Connection) -> Result<Vec<QueueRecord>> {
    let name = "read the queues";
    let mut queues: BTreeMap<String, QueueRecord> = BTreeMap::new();
    let blank = |name: &str| QueueRecord {
        name: QueueName::stored(name),
        is_paused: false,
        counts: StateCounts::default(),
        pending: [0; 4],
        oldest_pending_at: None,
    };
    let mut statement = connection.prepare_cached(sql::TALLY_ALL).during(name)?;
    let mut rows = statement.query([]).during(name)?;
    while let Some(row) = rows.next().during(name)? {
        let (queue, priority, counts) = read_tally(row).during(name)?;
        let record = queues.entry(queue).or_insert_with_key(|name| blank(name));
        for (state, count) in State::ALL.into_iter().zip(counts) {
            let count = u64::try_from(count).unwrap_or(0);
            record.counts.add(state, count);
            if let (State::Pending, Some(pending)) = (state, record.pending.get_mut(priority)) {
                *pending += count;
            }
        }
    }
    let mut statement = connection.prepare_cached(sql::QUEUES).during(name)?;
    let mut rows = statement.query([]).during(name)?;
    while let Some(row) = rows.next().during(name)? {
        let queue: String = row.get(0).during(name)?;
        let record = queues.entry(queue).or_insert_with_key(|name| blank(name));
        record.is_paused = row.get(1).during(name)?;
    }
    let mut records: Vec<_> = queues.into_values().collect();
    for record in &mut records {
        record.oldest_pending_at = oldest_pending_at(connection, &record.name)?;
    }
    Ok(records)
}

pub(super) fn workers(connection: &Connection, now: Timestamp) -> Result<Vec<WorkerRecord>> {
    let name = "read the workers";
    let since = now.before(GONE_WORKER_SHOWN).as_millis();
    let mut statement = connection.prepare_cached(sql::WORKERS).during(name)?;
    let rows = statement
        .query_map([since], |row| {
            let card: String = row.get(1)?;
            Ok(WorkerRecord {
                id: WorkerId::new(row.get_ref(0)?.as_str()?),
                card: serde_json::from_str(&card).unwrap_or_default(),
                order: read_order(row.get_ref(2)?.as_str()?),
                started_at: Timestamp::from_millis(row.get(3)?),
                beat_at: Timestamp::from_millis(row.get(4)?),
                lease_until: Timestamp::from_millis(row.get(5)?),
                is_gone: row.get::<_, Option<i64>>(6)?.is_some(),
                running_count: row.get(7)?,
            })
        })
        .during(name)?;
    rows.collect::<rusqlite::Result<_>>().during(name)
}

/// Reads a row of `tally_all.sql` or `tally_counted.sql`.
pub(super) fn read_tally(row: &SqlRow<'_>) -> rusqlite::Result<(String, usize, [i64; 7])> {
    let mut counts = [0; 7];
    for (index, count) in counts.iter_mut().enumerate() {
        *count = row.get(index + 2)?;
    }
    Ok((row.get(0)?, row.get(1)?, counts))
}

fn get_one(
    connection: &Connection,
    id: &TaskId,
    parts: Parts,
    now: Timestamp,
) -> Result<Option<TaskRecord>> {
    let name = "read a task";
    let Some(uuid) = uuid_of(id) else {
        return Ok(None);
    };
    let params = (uuid.as_bytes(), now.as_millis(), parts.payload, parts.result, parts.history);
    let mut statement = connection.prepare_cached(sql::GET).during(name)?;
    let found = statement
        .query_row(params, |row| {
            let (record, number, large) = read_record(row)?;
            let payload: Option<Vec<u8>> = row.get(25)?;
            let result: Option<Vec<u8>> = row.get(26)?;
            let history: Option<Vec<u8>> = row.get(27)?;
            Ok((record, number, large, payload, result, history))
        })
        .optional()
        .during(name)?;
    let Some((record, number, large, payload, result, history)) = found else {
        return Ok(None);
    };
    let mut record = record?;
    record.payload = Bytes::from(payload.unwrap_or_default());
    record.result = result.map(Bytes::from);
    record.history = History::decode(history.as_deref()).unwrap_or_default();
    if parts.payload && large & LARGE_PAYLOAD != 0 {
        record.payload = blob(connection, number * 2)?;
    }
    if parts.result && large & LARGE_RESULT != 0 {
        record.result = Some(blob(connection, number * 2 + 1)?);
    }
    Ok(Some(record))
}

fn blob(connection: &Connection, key: i64) -> Result<Bytes> {
    let mut statement = connection.prepare_cached(sql::BLOB_GET).during("read a large value")?;
    let data: Vec<u8> =
        statement.query_row([key], |row| row.get(0)).during("read a large value")?;
    Ok(Bytes::from(data))
}

fn oldest_pending_at(connection: &Connection, queue: &QueueName) -> Result<Option<Timestamp>> {
    let name = "find the oldest pending task";
    let mut statement = connection.prepare_cached(sql::QUEUE_OLDEST).during(name)?;
    let mut oldest: Option<i64> = None;
    for priority in Priority::DESCENDING {
        for is_suspect in [false, true] {
            let params = (queue.as_str(), priority.as_number(), is_suspect);
            let first = statement.query_row(params, |row| row.get(0)).optional().during(name)?;
            oldest = [oldest, first].into_iter().flatten().min();
        }
    }
    Ok(oldest.map(Timestamp::from_millis))
}

/// Reads the columns of `get.sql` and `list.sql` but for the large ones; with the task's number and
/// which of its values lie beside the row.
fn read_record(row: &SqlRow<'_>) -> rusqlite::Result<(Result<TaskRecord>, i64, i64)> {
    let time = |column| row.get::<_, Option<i64>>(column).map(|ms| ms.map(Timestamp::from_millis));
    let id = Uuid::from_bytes(row.get(1)?);
    let (number, large) = (row.get(0)?, row.get(21)?);
    let (state, priority) =
        match (State::from_number(row.get(2)?), Priority::from_number(row.get(4)?)) {
            (Ok(state), Ok(priority)) => (state, priority),
            (Err(cause), _) | (_, Err(cause)) => {
                let error = Error::corrupt(format!("read task {id}")).because(cause);
                return Ok((Err(error), number, large));
            }
        };
    let extras = text_if_any(row, 22)?;
    let progress = text_if_any(row, 23)?;
    let worker = text_if_any(row, 24)?;
    let record = TaskRecord {
        id: task_id(id),
        kind: Kind::stored(&text(row, 5)?),
        queue: QueueName::stored(&text(row, 3)?),
        priority,
        state,
        payload: Bytes::new(),
        spec: Spec {
            max_retries: count(row, 8)?,
            max_crashes: count(row, 9)?,
            timeout: duration::from_millis(row.get(10)?),
            retention: duration::from_millis(row.get(11)?),
            // What cannot be read is shown as absent; claiming is stricter.
            extras: extras.and_then(|json| serde_json::from_str(&json).ok()).unwrap_or_default(),
        },
        idempotency_key: text_if_any(row, 20)?,
        attempts: count(row, 6)?,
        crashes: count(row, 7)?,
        epoch: row.get::<_, Option<i64>>(18)?.map(epoch_of),
        worker: worker.map(WorkerId::new),
        is_cancel_requested: row.get(19)?,
        result: None,
        progress: progress.and_then(|json| serde_json::from_str(&json).ok()),
        created_at: Timestamp::from_millis(row.get(12)?),
        updated_at: Timestamp::from_millis(row.get(13)?),
        run_at: time(14)?,
        claimed_at: time(15)?,
        started_at: time(16)?,
        finished_at: time(17)?,
        history: History::default(),
    };
    Ok((Ok(record), number, large))
}
