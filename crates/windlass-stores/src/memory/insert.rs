//! Insert into memory.

use windlass_core::store::Inserted;
use windlass_core::unique::{
    Exit, OnConflict, Unique, UniqueScope, fingerprint, held_until, idempotency_digest,
    unique_digest,
};
use windlass_core::{Error, ErrorKind, NewTask};

use super::model::{Key, Model, Row, is_over};

impl Model {
    pub(super) fn insert(&mut self, task: NewTask) -> Inserted {
        if let Err(error) = task.validate(&self.limits) {
            return Inserted::Bad(error);
        }
        let now = self.now();
        let print = fingerprint(task.kind.as_str(), task.queue.as_str(), &task.payload);
        if let Some(number) = self.ids.get(&task.id) {
            if self.rows[number].fingerprint == print {
                return Inserted::New { created_at: None };
            }
            let text = format!("id {} is in use by another task", task.id);
            return Inserted::Bad(Error::new(ErrorKind::Conflict, text));
        }
        let idempotency =
            task.idempotency_key.as_ref().map(|key| idempotency_digest(task.kind.as_str(), key));
        if let Some(digest) = idempotency
            && let Some(key) = self.keys.get(&digest)
        {
            let number = self.ids[&key.holder];
            let row = &self.rows[&number];
            if !is_over(row, now) {
                let is_same_request = row.fingerprint == print;
                return Inserted::Existing { id: row.record.id.clone(), is_same_request };
            }
            // Its retention is over: it is gone for readers, so it must be for submitters.
            let row = self.remove(number);
            self.forget(&row, Exit::Pruned);
        }
        let unique = task
            .unique
            .as_ref()
            .map(|unique| (unique_digest(&task, unique, UniqueScope::Kind), unique.hold));
        if let Some((digest, _)) = unique
            && let Some(key) = self.keys.get(&digest)
            && key.until.is_none_or(|until| until > now)
        {
            let holder = key.holder.clone();
            return match task.unique {
                Some(Unique { on_conflict: OnConflict::Return, .. }) => {
                    Inserted::Existing { id: holder, is_same_request: true }
                }
                _ => Inserted::Conflict { holder },
            };
        }
        if let Some(digest) = idempotency {
            self.keys.insert(digest, Key { holder: task.id.clone(), until: None });
        }
        if let Some((digest, hold)) = unique {
            let until = held_until(hold, now);
            self.keys.insert(digest, Key { holder: task.id.clone(), until });
        }
        let row = Row {
            number: self.next_number(),
            unique,
            fingerprint: print,
            position: self.next_position(),
            pending_at: now,
            was_given_back: false,
            applied_epoch: None,
            expires_at: None,
            record: task.into_record(now),
        };
        self.put(row);
        Inserted::New { created_at: Some(now) }
    }
}
