//! Reserve and insert on asynq's keys.

use std::collections::HashMap;

use bytes::Bytes;
use md5::{Digest, Md5};
use prost::Message;
use uuid::Uuid;
use windlass_core::store::{Inserted, Reservation};
use windlass_core::task::Extras;
use windlass_core::unique::{Hold, OnConflict, Unique, fingerprint, idempotency_digest};
use windlass_core::{
    Error, ErrorKind, NewTask, Priority, QueueName, Result, TaskId, Timestamp, When,
};

use super::message::TaskMessage;
use super::record::{MAX_CRASHES, Own};
use super::{AT_ONCE, Shared, keys, scripts};
use crate::redis::error::{damaged_queue, strange};
use crate::redis::options::millis;
use crate::redis::reply::{Reply, Sort, next};
use crate::redis::script::Call;
use crate::wakes::News;

/// A task of one call, and where its answer goes.
struct Sent<'a> {
    at: usize,
    task: &'a NewTask,
}

/// What a script says of one task.
enum Told {
    New,
    InUse(Bytes),
    Once { holder: TaskId, message: Bytes },
    Alone { holder: TaskId },
}

impl Shared {
    /// Ids in the order of time, as good as Go's own for asynq.
    pub(super) fn reserve(&self, wanted: &[Reservation]) -> Vec<TaskId> {
        let new =
            || TaskId::new(Uuid::now_v7().hyphenated().encode_lower(&mut Uuid::encode_buffer()));
        wanted.iter().flat_map(|wish| (0..wish.count).map(|_| new())).collect()
    }

    pub(super) async fn insert(&self, tasks: &[NewTask]) -> Result<Vec<Inserted>> {
        let mut answers: Vec<Option<Inserted>> = tasks.iter().map(|_| None).collect();
        let mut sent = Vec::with_capacity(tasks.len());
        let mut first = HashMap::with_capacity(tasks.len());
        let mut again = Vec::new();
        for (at, task) in tasks.iter().enumerate() {
            match self.check(task) {
                Ok(()) => match first.get(&(&task.queue, &task.id)) {
                    None => {
                        first.insert((&task.queue, &task.id), at);
                        sent.push(Sent { at, task });
                    }
                    Some(earlier) => again.push((at, *earlier)),
                },
                Err(error) => answers[at] = Some(Inserted::Bad(error)),
            }
        }
        self.register_queues(sent.iter().map(|sent| &sent.task.queue)).await?;
        for chunk in sent.chunks(AT_ONCE) {
            self.insert_chunk(chunk, &mut answers).await?;
        }
        for (at, earlier) in again {
            // The same id twice in one call: as if the second had come later.
            let answer = match &answers[earlier] {
                Some(Inserted::New { .. }) if !is_same(&tasks[at], &tasks[earlier]) => {
                    Inserted::Bad(in_use(&tasks[at].id))
                }
                Some(Inserted::New { .. }) | None => Inserted::New { created_at: None },
                Some(answer) => answer.clone(),
            };
            answers[at] = Some(answer);
        }
        let missing = || Inserted::Bad(strange("insert"));
        Ok(answers.into_iter().map(|answer| answer.unwrap_or_else(missing)).collect())
    }

    fn check(&self, task: &NewTask) -> Result<()> {
        task.validate(&self.options().limits)?;
        if task.priority != Priority::Normal {
            let text = "priorities inside a queue of asynq: use a queue for each, with weights";
            return Err(Error::unsupported(text));
        }
        Ok(())
    }

    async fn insert_chunk(
        &self,
        chunk: &[Sent<'_>],
        answers: &mut [Option<Inserted>],
    ) -> Result<()> {
        let mut queues: Vec<(&QueueName, Vec<&Sent<'_>>)> = Vec::new();
        for sent in chunk {
            match queues.iter_mut().find(|(queue, _)| *queue == &sent.task.queue) {
                Some((_, tasks)) => tasks.push(sent),
                None => queues.push((&sent.task.queue, vec![sent])),
            }
        }
        for group in self.fleet.by_slot(&queues) {
            let stems: Vec<_> = group.iter().map(|(queue, _)| self.stem(queue)).collect();
            let mut call = scripts::INSERT.on(&stems).arg(self.options().told_time());
            for ((_, tasks), stem) in group.iter().zip(&stems) {
                call.add(tasks.len());
                tasks.iter().for_each(|sent| add_task(&mut call, stem, sent.task));
            }
            let reply = match self.ask(call).await {
                Ok(reply) => reply,
                Err(error) if error.is_unavailable() => return Err(error),
                Err(error) => {
                    // Other calls of this insert count: only these tasks fail.
                    for sent in group.iter().flat_map(|(_, tasks)| tasks) {
                        answers[sent.at] = Some(Inserted::Bad(error.clone()));
                    }
                    continue;
                }
            };
            let mut replies = reply.list()?;
            let now = Timestamp::from_millis(next(&mut replies, "insert")?.number()?);
            for (queue, tasks) in group {
                let mut told = match next(&mut replies, "insert")?.sort()? {
                    Sort::List(told) => Some(told),
                    // All are stored.
                    Sort::Number(_) => None,
                    Sort::Bytes(trouble) => {
                        let error = damaged_queue(queue, &trouble);
                        tasks.iter().for_each(|sent| {
                            answers[sent.at] = Some(Inserted::Bad(error.clone()));
                        });
                        continue;
                    }
                };
                for sent in tasks {
                    let told = match &mut told {
                        Some(told) => Told::read(next(told, "insert")?)?,
                        None => Told::New,
                    };
                    answers[sent.at] = Some(judge(sent.task, told, chunk, now));
                }
            }
            let ready = group.iter().map(|(queue, _)| (*queue).clone()).collect();
            self.fleet.common.wakes.tell(News { ready, ..News::default() });
        }
        Ok(())
    }
}

impl Told {
    fn read(reply: Reply) -> Result<Self> {
        let mut parts = match reply.sort()? {
            Sort::Number(1) => return Ok(Self::New),
            Sort::List(parts) => parts,
            Sort::Number(_) | Sort::Bytes(_) => return Err(strange("insert")),
        };
        let sort = next(&mut parts, "insert")?.number()?;
        let value = next(&mut parts, "insert")?.bytes()?;
        let holder = TaskId::new(String::from_utf8_lossy(&value));
        match sort {
            2 => Ok(Self::InUse(value.into())),
            3 => {
                let message = next(&mut parts, "insert")?.bytes()?.into();
                Ok(Self::Once { holder, message })
            }
            4 => Ok(Self::Alone { holder }),
            _ => Err(strange("insert")),
        }
    }
}

fn judge(task: &NewTask, told: Told, chunk: &[Sent<'_>], now: Timestamp) -> Inserted {
    match told {
        Told::New => Inserted::New { created_at: Some(now) },
        Told::InUse(message) if is_request_of(task, message.clone()) => {
            Inserted::New { created_at: None }
        }
        Told::InUse(_) => Inserted::Bad(in_use(&task.id)),
        Told::Once { holder, message } => {
            let is_same_request = match chunk.iter().find(|other| other.task.id == holder) {
                Some(other) => is_same(task, other.task),
                None => is_request_of(task, message),
            };
            Inserted::Existing { id: holder, is_same_request }
        }
        Told::Alone { holder } => match &task.unique {
            Some(Unique { on_conflict: OnConflict::Return, .. }) => {
                Inserted::Existing { id: holder, is_same_request: true }
            }
            _ => Inserted::Conflict { holder },
        },
    }
}

/// True when a stored message came of the same kind and payload.
fn is_request_of(task: &NewTask, message: Bytes) -> bool {
    let stored = TaskMessage::read(message);
    stored.is_ok_and(|stored| stored.r#type == task.kind.as_str() && stored.payload == task.payload)
}

/// Adds a task to a call.
fn add_task(call: &mut Call, stem: &str, task: &NewTask) {
    let once =
        task.idempotency_key.as_ref().map(|key| idempotency_digest(task.kind.as_str(), key).0);
    let lock = task.unique.as_ref().map(|unique| lock_of(stem, task, unique));
    let hold_ms = task.unique.as_ref().map(|unique| match unique.hold {
        Hold::UntilFinished => -1,
        Hold::For(time) => i64::try_from(millis(time)).unwrap_or(i64::MAX),
    });
    let message = message_of(task, lock.clone());
    call.add(task.id.as_str());
    call.add(message.write());
    match task.when {
        When::Now => call.add("n"),
        When::After(delay) => call.add(format!("a{}", millis(delay))),
        When::At(at) => call.add(format!("t{}", at.as_millis().max(0))),
    }
    call.add(own_of(task, hold_ms).encode_to_vec());
    call.add(once.as_ref().map(|digest| &digest[..]).unwrap_or_default());
    call.add(lock.unwrap_or_default());
    call.add(hold_ms.unwrap_or(0));
}

/// The message as Go would write it.
fn message_of(task: &NewTask, lock: Option<String>) -> TaskMessage {
    let spec = &task.spec;
    let seconds = |ms: u64| i64::try_from(ms.div_ceil(1_000)).unwrap_or(i64::MAX);
    // For Go, 0 is none.
    let deadline =
        spec.extras.deadline.map_or(0, |at| seconds(at.as_millis().max(1).unsigned_abs()));
    TaskMessage {
        r#type: task.kind.as_str().into(),
        payload: task.payload.clone(),
        id: task.id.as_str().into(),
        queue: task.queue.as_str().into(),
        retry: i32::try_from(spec.max_retries).unwrap_or(i32::MAX),
        timeout: seconds(millis(spec.timeout)),
        deadline,
        unique_key: lock.unwrap_or_default(),
        retention: seconds(millis(spec.retention)),
        headers: spec.extras.metadata.clone(),
        ..TaskMessage::default()
    }
}

/// What the message cannot tell; nothing for a plain task.
fn own_of(task: &NewTask, hold_ms: Option<i64>) -> Own {
    let spec = &task.spec;
    let exact = |ms: u64| if ms.is_multiple_of(1_000) { 0 } else { ms };
    let is_told = |at: &Timestamp| at.as_millis() > 0 && at.as_millis() % 1_000 == 0;
    let deadline = spec.extras.deadline.filter(|at| !is_told(at));
    let extras = Extras { metadata: Default::default(), deadline, ..spec.extras.clone() };
    Own {
        max_crashes: (spec.max_crashes != MAX_CRASHES).then_some(spec.max_crashes),
        timeout_ms: exact(millis(spec.timeout)),
        retention_ms: exact(millis(spec.retention)),
        extras: match extras.is_empty() {
            true => Bytes::new(),
            false => serde_json::to_vec(&extras).expect("extras are plain JSON").into(),
        },
        idempotency_key: task.idempotency_key.clone(),
        hold_ms,
        ..Own::default()
    }
}

/// The lock that keeps a task unique: Go's own where kind and payload make the key.
fn lock_of(stem: &str, task: &NewTask, unique: &Unique) -> String {
    let digest = match &unique.key {
        None if task.payload.is_empty() => String::new(),
        None => hex(&Md5::digest(&task.payload)),
        Some(key) => hex(&Md5::digest(format!("windlass:{key}"))),
    };
    keys::unique(stem, task.kind.as_str(), &digest)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn is_same(one: &NewTask, other: &NewTask) -> bool {
    let print =
        |task: &NewTask| fingerprint(task.kind.as_str(), task.queue.as_str(), &task.payload);
    print(one) == print(other)
}

fn in_use(id: &TaskId) -> Error {
    Error::new(ErrorKind::Conflict, format!("id {id} is in use by another task"))
}
