//! Reserve and insert on Redis Streams.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use windlass_core::store::{Inserted, Reservation};
use windlass_core::unique::{
    Hold, OnConflict, Unique, UniqueScope, fingerprint, idempotency_digest, unique_digest,
};
use windlass_core::{
    Error, ErrorKind, NewTask, QueueName, Result, TaskId, Timestamp, When, duration,
};

use super::id::Id;
use super::large::PAYLOAD;
use super::record::{ALONE, Body, LARGE_IN, Lane, ONCE, Record, TIMED, Value};
use super::row::LARGE_BYTES;
use super::{AT_ONCE, Shared, scripts};
use crate::redis::error::damaged_queue;
use crate::redis::options::millis;
use crate::redis::reply::{Reply, Sort, next};
use crate::redis::script::Call;
use crate::wakes::News;

/// A task of one call, and where its answer goes.
struct Sent<'a> {
    at: usize,
    id: Id,
    task: &'a NewTask,
}

/// What a script says of one task.
enum Told {
    New,
    InUse(Vec<u8>),
    Once { holder: Id, record: Vec<u8> },
    Alone { holder: Id },
}

impl Shared {
    pub(super) fn reserve(&self, wanted: &[Reservation]) -> Vec<TaskId> {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_ms = u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX);
        let ids = |wish: &Reservation| {
            let queue = wish.queue.clone();
            (0..wish.count).map(move |_| Id::new(now_ms, &queue).task_id())
        };
        wanted.iter().flat_map(ids).collect()
    }

    pub(super) async fn insert(&self, tasks: &[NewTask]) -> Result<Vec<Inserted>> {
        let mut answers: Vec<Option<Inserted>> = tasks.iter().map(|_| None).collect();
        let mut sent = Vec::with_capacity(tasks.len());
        let mut first = HashMap::with_capacity(tasks.len());
        let mut again = Vec::new();
        for (at, task) in tasks.iter().enumerate() {
            match self.check(task) {
                Ok(id) => match first.insert(id, at) {
                    None => sent.push(Sent { at, id, task }),
                    Some(earlier) => {
                        first.insert(id, earlier);
                        again.push((at, earlier));
                    }
                },
                Err(error) => answers[at] = Some(Inserted::Bad(error)),
            }
        }
        self.announce_writes(sent.iter().map(|sent| &sent.task.queue)).await?;
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
        let missing = || Inserted::Bad(crate::redis::error::strange("insert"));
        Ok(answers.into_iter().map(|answer| answer.unwrap_or_else(missing)).collect())
    }

    fn check(&self, task: &NewTask) -> Result<Id> {
        task.validate(&self.options().limits)?;
        let id = Id::of(&task.id).filter(|id| id.leads_to(&task.queue));
        id.ok_or_else(|| {
            Error::invalid(format!("id {} was not reserved for {}", task.id, task.queue))
        })
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
        // When the first call of several was made: together they are one submit.
        let mut micros = String::new();
        for group in self.fleet.by_slot(&queues) {
            let stems: Vec<_> = group.iter().map(|(queue, _)| self.stem(queue)).collect();
            let mut call = scripts::INSERT.on(&stems).arg(self.options().told_time()).arg(&micros);
            for (_, tasks) in group {
                call.add(tasks.len());
                call.add(journal_of(tasks, chunk[0].at));
                for sent in tasks {
                    add_task(&mut call, sent);
                }
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
            micros = next(&mut replies, "insert")?.text()?;
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
                    answers[sent.at] = Some(self.judge(sent, told, chunk, now).await?);
                }
            }
            let ready = group.iter().map(|(queue, _)| (*queue).clone()).collect();
            self.fleet.common.wakes.tell(News { ready, ..News::default() });
        }
        Ok(())
    }

    async fn judge(
        &self,
        sent: &Sent<'_>,
        told: Told,
        chunk: &[Sent<'_>],
        now: Timestamp,
    ) -> Result<Inserted> {
        let task = sent.task;
        Ok(match told {
            Told::New => Inserted::New { created_at: Some(now) },
            Told::InUse(record) => match self.is_request_of(task, sent.id, &record).await? {
                true => Inserted::New { created_at: None },
                false => Inserted::Bad(in_use(&task.id)),
            },
            Told::Once { holder, record } => {
                let is_same_request = match chunk.iter().find(|other| other.id == holder) {
                    Some(other) => is_same(task, other.task),
                    None => self.is_request_of(task, holder, &record).await?,
                };
                Inserted::Existing { id: holder.task_id(), is_same_request }
            }
            Told::Alone { holder } => match &task.unique {
                Some(Unique { on_conflict: OnConflict::Return, .. }) => {
                    Inserted::Existing { id: holder.task_id(), is_same_request: true }
                }
                _ => Inserted::Conflict { holder: holder.task_id() },
            },
        })
    }

    /// True when a stored record came of the same kind, queue and payload.
    async fn is_request_of(&self, task: &NewTask, id: Id, record: &[u8]) -> Result<bool> {
        let Ok(record) = Record::read(record) else { return Ok(false) };
        if record.body.kind != task.kind.as_str() {
            return Ok(false);
        }
        match record.body.payload {
            Value::Here(payload) => Ok(payload == task.payload),
            Value::None => Ok(task.payload.is_empty()),
            Value::Large => {
                let stored = self.large_values(&task.queue, &[(id, PAYLOAD)]).await?;
                Ok(stored[0].as_deref() == Some(&task.payload[..]))
            }
        }
    }
}

impl Told {
    fn read(reply: Reply) -> Result<Self> {
        let strange = || crate::redis::error::strange("insert");
        let mut parts = match reply.sort()? {
            Sort::Number(1) => return Ok(Self::New),
            Sort::List(parts) => parts,
            Sort::Number(_) | Sort::Bytes(_) => return Err(strange()),
        };
        let sort = next(&mut parts, "insert")?.number()?;
        let value = next(&mut parts, "insert")?.bytes()?;
        let holder = || Id::from_stored(&value).ok_or_else(strange);
        match sort {
            2 => Ok(Self::InUse(value)),
            3 => Ok(Self::Once { holder: holder()?, record: next(&mut parts, "insert")?.bytes()? }),
            4 => Ok(Self::Alone { holder: holder()? }),
            _ => Err(strange()),
        }
    }
}

/// The line of a queue's journal for tasks of one call; `first` is the place of the call's first task.
fn journal_of(tasks: &[&Sent<'_>], first: usize) -> Vec<u8> {
    let mut line = Vec::with_capacity(tasks.len() * 17);
    for sent in tasks {
        line.push(u8::try_from((sent.at - first) % 256).unwrap_or(u8::MAX));
        line.extend(sent.id.0);
    }
    line
}

/// Adds a task to a call.
fn add_task(call: &mut Call, sent: &Sent<'_>) {
    let task = sent.task;
    let once =
        task.idempotency_key.as_ref().map(|key| idempotency_digest(task.kind.as_str(), key).0);
    let alone = task
        .unique
        .as_ref()
        .map(|unique| (unique_digest(task, unique, UniqueScope::QueueAndKind).0, unique.hold));
    let is_large = task.payload.len() > LARGE_BYTES;
    let mut marks = if is_large { LARGE_IN } else { 0 };
    marks |= if once.is_some() { ONCE } else { 0 };
    marks |= match alone {
        Some((_, Hold::UntilFinished)) => ALONE,
        Some((_, Hold::For(_))) => TIMED,
        None => 0,
    };
    let hold_ms = alone.and_then(|(_, hold)| match hold {
        Hold::UntilFinished => None,
        Hold::For(time) => Some(millis(time)),
    });
    let (when, ms) = match task.when {
        When::Now => (b'n', 0),
        When::After(delay) => (b'a', millis(delay)),
        When::At(at) => (b't', at.as_millis().max(0).unsigned_abs()),
    };
    let extras =
        u8::from(is_large) | u8::from(once.is_some()) << 1 | u8::from(alone.is_some()) << 2;
    let mut head = vec![b'0' + Lane::of(task.priority, 0).0, marks];
    if when != b'n' || extras > 0 {
        head.push(when);
        head.extend(ms.to_be_bytes());
        head.push(extras);
    }
    call.add(head);
    let mut bytes = Vec::with_capacity(64 + if is_large { 0 } else { task.payload.len() });
    let spec = &task.spec;
    let body = Body {
        once,
        alone: alone.map(|(digest, _)| digest),
        max_retries: spec.max_retries,
        max_crashes: spec.max_crashes,
        timeout_ms: duration::as_millis_ceil(spec.timeout).unsigned_abs(),
        retention_ms: duration::as_millis_ceil(spec.retention).unsigned_abs(),
        kind: task.kind.as_str().into(),
        payload: if is_large { Value::Large } else { Value::Here(task.payload.clone()) },
        extras: (!spec.extras.is_empty())
            .then(|| serde_json::to_vec(&spec.extras).expect("extras are plain JSON")),
        idempotency_key: task.idempotency_key.clone(),
        hold_ms,
        ..Body::default()
    };
    body.write(&mut bytes);
    call.add(bytes);
    if is_large {
        call.add(&task.payload[..]);
    }
    if let Some(digest) = once {
        call.add(&digest[..]);
    }
    if let Some((digest, _)) = alone {
        call.add(&digest[..]);
        match hold_ms {
            Some(ms) => call.add(ms),
            None => call.add("-1"),
        };
    }
}

fn is_same(one: &NewTask, other: &NewTask) -> bool {
    let print =
        |task: &NewTask| fingerprint(task.kind.as_str(), task.queue.as_str(), &task.payload);
    print(one) == print(other)
}

fn in_use(id: &TaskId) -> Error {
    Error::new(ErrorKind::Conflict, format!("id {id} is in use by another task"))
}
