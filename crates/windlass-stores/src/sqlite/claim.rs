//! Claim from SQLite.

use bytes::Bytes;
use rusqlite::Row as SqlRow;
use uuid::Uuid;
use windlass_core::history::{EndOfRun, Happening, Note};
use windlass_core::store::{CLAIM_BYTES_MAX, ClaimParams, Quota};
use windlass_core::task::Extras;
use windlass_core::{
    Claimed, Error, ErrorKind, Kind, Priority, QueueName, Reason, Result, Spec, State, Timestamp,
    WorkerId, duration,
};

use super::row::{LARGE_PAYLOAD, Row, count, epoch_of, task_id, text, text_if_any};
use super::sql;
use super::transaction::Tx;

/// Whoever claims, and under which epoch.
struct Claimant {
    worker: i64,
    /// Drawn when the first task is found: a claim that finds nothing must write nothing, or an idle
    /// worker would make the disk flush.
    epoch: Option<i64>,
    /// How many bytes of payloads until the claim stops.
    bytes_left: usize,
}

/// A claimed row: as far as it could be read, and what is still missing.
struct Taken {
    position: i64,
    number: i64,
    large: i64,
    task: Claimed,
    /// The JSON that could not be read.
    fault: Option<String>,
}

impl Tx<'_> {
    pub(super) fn claim(&mut self, params: &ClaimParams) -> Result<Vec<Claimed>> {
        let Some(worker) = self.fit_worker(&params.worker)? else {
            return Ok(Vec::new());
        };
        // One epoch for the whole claim: it only has to grow from claim to claim of one task.
        let mut claimant = Claimant { worker, epoch: None, bytes_left: CLAIM_BYTES_MAX };
        let mut tasks = Vec::new();
        let mut suspects_left = params.suspects_at_most;
        for quota in &params.quotas {
            let mut left = quota.at_most.min(params.limit - tasks.len());
            if left == 0 || self.is_paused(&quota.queue)? {
                continue;
            }
            for priority in quota.priorities.descending() {
                // Suspects first: few are allowed, so they hold up nobody, and a steady stream of
                // others cannot starve them.
                let suspects =
                    self.take_lane(&mut claimant, quota, priority, true, left.min(suspects_left))?;
                suspects_left -= suspects.len();
                left -= suspects.len();
                tasks.extend(suspects);
                let plain = self.take_lane(&mut claimant, quota, priority, false, left)?;
                left -= plain.len();
                tasks.extend(plain);
            }
        }
        Ok(tasks)
    }

    /// Leases the first tasks of one lane, in order.
    fn take_lane(
        &mut self,
        claimant: &mut Claimant,
        quota: &Quota,
        priority: Priority,
        is_suspect: bool,
        most: usize,
    ) -> Result<Vec<Claimed>> {
        let mut tasks = Vec::new();
        // More than once only after a row that could not be read.
        while tasks.len() < most && self.has_pending(quota, priority, is_suspect)? {
            let wanted = self.fitting(claimant, quota, priority, is_suspect, most - tasks.len())?;
            if wanted == 0 {
                break;
            }
            let (found, are_all_fit) =
                self.take_rows(claimant, quota, priority, is_suspect, wanted)?;
            tasks.extend(found);
            if are_all_fit {
                break;
            }
        }
        Ok(tasks)
    }

    /// How many of the first `most` tasks of a lane a claim may bring, by their bytes. Small payloads are not looked
    /// at: so many of them as a claim may bring are far fewer bytes.
    fn fitting(
        &self,
        claimant: &Claimant,
        quota: &Quota,
        priority: Priority,
        is_suspect: bool,
        most: usize,
    ) -> Result<usize> {
        if self.one(sql::BLOB_ANY, (), |_| Ok(()))?.is_none() {
            return Ok(most);
        }
        let limit = i64::try_from(most).unwrap_or(i64::MAX);
        let params = (quota.queue.as_str(), priority.as_number(), is_suspect, limit);
        let mut sizes = self.all(sql::CLAIM_SIZES, params, |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
        })?;
        sizes.sort_unstable();
        let mut bytes_left = claimant.bytes_left;
        let is_fit = |(_, size): &&(i64, i64)| {
            let is_fit = bytes_left > 0;
            bytes_left = bytes_left.saturating_sub(usize::try_from(*size).unwrap_or(0));
            is_fit
        };
        Ok(sizes.iter().take_while(is_fit).count())
    }

    fn take_rows(
        &mut self,
        claimant: &mut Claimant,
        quota: &Quota,
        priority: Priority,
        is_suspect: bool,
        most: usize,
    ) -> Result<(Vec<Claimed>, bool)> {
        let now = self.now;
        let epoch = match claimant.epoch {
            Some(epoch) => epoch,
            None => *claimant.epoch.insert(self.next_number()?),
        };
        let params = (
            epoch,
            claimant.worker,
            now.as_millis(),
            quota.queue.as_str(),
            priority.as_number(),
            is_suspect,
            i64::try_from(most).unwrap_or(i64::MAX),
        );
        let read = |row: &SqlRow<'_>| read(row, quota, priority, epoch, now);
        let mut rows = self.all(sql::CLAIM, params, read)?;
        rows.sort_unstable_by_key(|row| row.position);
        let count = i64::try_from(rows.len()).unwrap_or(i64::MAX);
        self.count(&quota.queue, priority, State::Pending, -count);
        self.count(&quota.queue, priority, State::Running, count);
        let mut tasks = Vec::with_capacity(rows.len());
        let mut are_all_fit = true;
        for mut taken in rows {
            if taken.large & LARGE_PAYLOAD != 0 {
                match self.payload(taken.number, taken.large, None) {
                    Ok(payload) => taken.task.payload = payload,
                    Err(error) if error.kind() == ErrorKind::Corrupt => {
                        taken.fault = Some(error.to_string());
                    }
                    Err(error) => return Err(error),
                }
            }
            match taken.fault {
                None => {
                    let bytes = taken.task.payload.len();
                    claimant.bytes_left = claimant.bytes_left.saturating_sub(bytes);
                    tasks.push(taken.task);
                }
                Some(fault) => {
                    are_all_fit = false;
                    self.set_aside(taken.number, fault)?;
                }
            }
        }
        Ok((tasks, are_all_fit))
    }

    fn has_pending(&self, quota: &Quota, priority: Priority, is_suspect: bool) -> Result<bool> {
        let params = (quota.queue.as_str(), priority.as_number(), is_suspect);
        Ok(self.one(sql::CLAIM_PROBE, params, |_| Ok(()))?.is_some())
    }

    /// A record that cannot be read goes to the dead letters, where a person will find it: it must
    /// not stop the tasks behind it.
    fn set_aside(&mut self, number: i64, fault: String) -> Result<()> {
        tracing::error!(number, fault, "a task cannot be read and goes to the dead letters");
        let mut row = Row::by_number(self, number)?;
        row.attempts = row.attempts.saturating_sub(1);
        let (at, run) = (self.now, row.run(self)?);
        let note = Some(Note { what: Happening::Discarded, error: Some(fault) });
        let state = State::DeadLetter;
        row.remember(|history| history.end_run(EndOfRun { at, run, note, state }));
        row.settle(self, state, None)
    }

    /// The worker's number, if it may claim; nothing when it must beat first.
    fn fit_worker(&self, worker: &WorkerId) -> Result<Option<i64>> {
        let found = self.one(sql::WORKER_FIND, [worker.as_str()], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(2)?, row.get::<_, Option<i64>>(3)?))
        })?;
        match found {
            Some((number, lease_until, None)) => {
                Ok((lease_until > self.now.as_millis()).then_some(number))
            }
            _ => Err(Error::lease_lost(format!("claim for worker {worker}"))
                .reason_is(Reason::WorkerLost)),
        }
    }

    pub(super) fn is_paused(&self, queue: &QueueName) -> Result<bool> {
        let paused = self.one(sql::QUEUE_PAUSED, [queue.as_str()], |row| row.get(0))?;
        Ok(paused.unwrap_or(false))
    }
}

/// Reads the columns that `claim.sql` returns.
fn read(
    row: &SqlRow<'_>,
    quota: &Quota,
    priority: Priority,
    epoch: i64,
    now: Timestamp,
) -> rusqlite::Result<Taken> {
    let extras = text_if_any(row, 13)?;
    let (extras, fault) = match extras.as_deref().map(serde_json::from_str::<Extras>) {
        None => (Extras::default(), None),
        Some(Ok(extras)) => (extras, None),
        Some(Err(error)) => {
            (Extras::default(), Some(format!("its stored options cannot be read: {error}")))
        }
    };
    let payload: Option<Vec<u8>> = row.get(14)?;
    let task = Claimed {
        id: task_id(Uuid::from_bytes(row.get(2)?)),
        epoch: epoch_of(epoch),
        kind: Kind::stored(&text(row, 3)?),
        queue: quota.queue.clone(),
        priority,
        payload: Bytes::from(payload.unwrap_or_default()),
        attempts: count(row, 4)?,
        crashes: count(row, 5)?,
        spec: Spec {
            max_retries: count(row, 6)?,
            max_crashes: count(row, 7)?,
            timeout: duration::from_millis(row.get(8)?),
            retention: duration::from_millis(row.get(9)?),
            extras,
        },
        is_cancel_requested: row.get(10)?,
        created_at: Timestamp::from_millis(row.get(11)?),
        pending_at: Timestamp::from_millis(row.get(15)?),
        claimed_at: now,
    };
    Ok(Taken { position: row.get(0)?, number: row.get(1)?, large: row.get(12)?, task, fault })
}
