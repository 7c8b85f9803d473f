//! Insert into SQLite.

use bytes::Bytes;
use uuid::Uuid;
use windlass_core::limits::Limits;
use windlass_core::store::Inserted;
use windlass_core::unique::{
    Exit, Hold, KeyDigest, OnConflict, Unique, UniqueScope, fingerprint, held_until,
    idempotency_digest, unique_digest,
};
use windlass_core::{Error, ErrorKind, NewTask, Result, State, duration};

use super::row::{LARGE_PAYLOAD, Row, is_large, task_id, text, uuid_of};
use super::sql;
use super::transaction::Tx;

/// What a task shares with one that may be its repetition.
struct Twin {
    number: i64,
    fingerprint: [u8; 16],
    expires_at: Option<i64>,
}

impl Tx<'_> {
    pub(super) fn insert(&mut self, task: &NewTask, limits: &Limits) -> Result<Inserted> {
        if let Err(error) = task.validate(limits) {
            return Ok(Inserted::Bad(error));
        }
        let Some(id) = uuid_of(&task.id) else {
            let text = format!("task id {} is not one that this store has reserved", task.id);
            return Ok(Inserted::Bad(Error::invalid(text)));
        };
        let unique = task
            .unique
            .as_ref()
            .map(|unique| (unique_digest(task, unique, UniqueScope::Kind), unique.hold));
        if task.idempotency_key.is_some() || unique.is_some() {
            // Its own repetition must find itself before it finds its own keys.
            if let Some(twin) = self.twin(id)? {
                return Ok(repeated(task, &twin));
            }
            if let Some(found) = self.check_keys(task, unique)? {
                return Ok(found);
            }
            self.take_keys(task, id, unique)?;
        }
        if self.store(task, id, unique)? {
            return Ok(Inserted::New { created_at: Some(self.now) });
        }
        let twin =
            self.twin(id)?.ok_or_else(|| Error::corrupt("an id that is taken names no task"))?;
        Ok(repeated(task, &twin))
    }

    /// Writes the row; false when the id is taken.
    fn store(
        &mut self,
        task: &NewTask,
        id: Uuid,
        unique: Option<(KeyDigest, Hold)>,
    ) -> Result<bool> {
        let number = self.next_number()?;
        let run_at = task.when.due(self.now);
        let state = if run_at.is_some() { State::Scheduled } else { State::Pending };
        let is_aside = is_large(&task.payload);
        let spec = &task.spec;
        let params = rusqlite::params![
            number,
            id.as_bytes(),
            state.as_number(),
            task.queue.as_str(),
            task.priority.as_number(),
            task.kind.as_str(),
            self.now.as_millis(),
            spec.max_retries,
            spec.max_crashes,
            duration::as_millis_ceil(spec.timeout),
            duration::as_millis_ceil(spec.retention),
            run_at.map(windlass_core::Timestamp::as_millis),
            task.idempotency_key,
            unique.map(|(digest, _)| digest.0),
            unique.and_then(|(_, hold)| match hold {
                Hold::UntilFinished => None,
                Hold::For(time) => Some(duration::as_millis_ceil(time)),
            }),
            if is_aside { LARGE_PAYLOAD } else { 0 },
            extras_of(task),
            (!is_aside).then_some(&task.payload[..]),
        ];
        if self.execute(sql::INSERT, params)? == 0 {
            return Ok(false);
        }
        if is_aside {
            self.execute(sql::BLOB_PUT, (number * 2, &task.payload[..]))?;
        }
        self.count(&task.queue, task.priority, state, 1);
        if state == State::Pending {
            self.tell_ready(&task.queue);
        }
        Ok(true)
    }

    /// Looks whether a key is held by another task.
    fn check_keys(
        &mut self,
        task: &NewTask,
        unique: Option<(KeyDigest, Hold)>,
    ) -> Result<Option<Inserted>> {
        if let Some(key) = &task.idempotency_key
            && let Some((holder, _)) = self.key(idempotency_digest(task.kind.as_str(), key))?
            && let Some(twin) = self.twin(holder)?
        {
            if twin.expires_at.is_none_or(|at| at > self.now.as_millis()) {
                let is_same_request = twin.fingerprint == print_of(task);
                return Ok(Some(Inserted::Existing { id: task_id(holder), is_same_request }));
            }
            // Its retention is over: it is gone for readers, so it must be for submitters.
            Row::by_number(self, twin.number)?.forget(self, Exit::Pruned)?;
        }
        if let Some((digest, _)) = unique
            && let Some((holder, until)) = self.key(digest)?
            && until.is_none_or(|until| until > self.now.as_millis())
        {
            let holder = task_id(holder);
            return Ok(Some(match &task.unique {
                Some(Unique { on_conflict: OnConflict::Return, .. }) => {
                    Inserted::Existing { id: holder, is_same_request: true }
                }
                _ => Inserted::Conflict { holder },
            }));
        }
        Ok(None)
    }

    fn take_keys(&self, task: &NewTask, id: Uuid, unique: Option<(KeyDigest, Hold)>) -> Result<()> {
        if let Some(key) = &task.idempotency_key {
            let digest = idempotency_digest(task.kind.as_str(), key);
            self.execute(sql::KEY_TAKE, (digest.0, id.as_bytes(), None::<i64>))?;
        }
        if let Some((digest, hold)) = unique {
            let until = held_until(hold, self.now).map(windlass_core::Timestamp::as_millis);
            self.execute(sql::KEY_TAKE, (digest.0, id.as_bytes(), until))?;
        }
        Ok(())
    }

    /// The holder of a key, and when the key frees itself.
    fn key(&self, digest: KeyDigest) -> Result<Option<(Uuid, Option<i64>)>> {
        self.one(sql::KEY_FIND, [digest.0], |row| Ok((Uuid::from_bytes(row.get(0)?), row.get(1)?)))
    }

    fn twin(&self, id: Uuid) -> Result<Option<Twin>> {
        type Parts = (i64, String, String, i64, Option<Vec<u8>>, Option<i64>);
        let found: Option<Parts> = self.one(sql::INSERT_TWIN, [id.as_bytes()], |row| {
            let (kind, queue) = (text(row, 1)?.into_owned(), text(row, 2)?.into_owned());
            Ok((row.get(0)?, kind, queue, row.get(3)?, row.get(4)?, row.get(5)?))
        })?;
        let Some((number, kind, queue, large, inline, expires_at)) = found else {
            return Ok(None);
        };
        let payload = self.payload(number, large, inline)?;
        let fingerprint = fingerprint(&kind, &queue, &payload);
        Ok(Some(Twin { number, fingerprint, expires_at }))
    }

    /// A task's payload, from its row or from beside it.
    pub(super) fn payload(
        &self,
        number: i64,
        large: i64,
        inline: Option<Vec<u8>>,
    ) -> Result<Bytes> {
        if large & LARGE_PAYLOAD == 0 {
            return Ok(Bytes::from(inline.unwrap_or_default()));
        }
        let data: Option<Vec<u8>> = self.one(sql::BLOB_GET, [number * 2], |row| row.get(0))?;
        data.map(Bytes::from).ok_or_else(|| {
            Error::corrupt(format!("the payload of task number {number} is missing"))
        })
    }
}

fn repeated(task: &NewTask, twin: &Twin) -> Inserted {
    if twin.fingerprint == print_of(task) {
        return Inserted::New { created_at: None };
    }
    let text = format!("id {} is in use by another task", task.id);
    Inserted::Bad(Error::new(ErrorKind::Conflict, text))
}

fn print_of(task: &NewTask) -> [u8; 16] {
    fingerprint(task.kind.as_str(), task.queue.as_str(), &task.payload)
}

fn extras_of(task: &NewTask) -> Option<String> {
    let extras = &task.spec.extras;
    (!extras.is_empty())
        .then(|| serde_json::to_string(extras).expect("extras hold nothing that JSON cannot carry"))
}
