//! Insert into PostgreSQL.
//!
//! Tasks that are pending at once and have no keys go in by one statement. Everything else (keys,
//! schedules, an id that is there already) goes through a transaction that looks first.

mod careful;
mod columns;

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use windlass_core::store::Inserted;
use windlass_core::unique::{Hold, KeyDigest};
use windlass_core::{Error, NewTask, Reason, Result, Timestamp};

use columns::Columns;

use super::Shared;
use super::batch::{column, slices};
use super::digest::{idempotency_digest, number_of, unique_digest};
use super::error::{is_duplicate, is_lock_timeout, key_busy, name_busy};
use super::id::Id;
use super::names::Known;
use super::outbox::{self, Made};
use super::pool::transaction;
use super::retention::lacks_partition;
use super::row::{lane, size_bit};
use super::session::Session;
use super::sql;
use crate::wakes::News;

/// How often a missing partition is made: one that is empty may be dropped again before it is used.
const PARTITION_TRIES: usize = 5;

/// How long a call waits for a key that is in someone's open transaction, and for the next one after
/// that was too long: others of the call do not want that key. It is for the caller to ask again.
const PATIENCE: &str = "SET LOCAL lock_timeout TO '2s'";
const PATIENCE_SPENT: &str = "SET LOCAL lock_timeout TO '1ms'";

/// Most keys that one transaction locks. Each lock takes a place in a table that all sessions of the server
/// share: by default it has 64 for each connection that may be made.
const KEYS_TOGETHER_MAX: usize = 200;
/// A transaction locks fewer when that table is full, down to this.
const KEYS_TOGETHER_MIN: usize = 2;

/// A task on its way in.
struct Coming<'t> {
    /// Its place in the call.
    at: usize,
    task: &'t NewTask,
    id: Id,
    idempotency: Option<KeyDigest>,
    unique: Option<(KeyDigest, Hold)>,
}

/// The numbers of the queues and kinds of a call.
pub(super) struct Naming {
    pub(super) queues: Known,
    pub(super) kinds: Known,
}

impl Naming {
    pub(super) fn has_all_of(&self, task: &NewTask) -> bool {
        self.queues.id(task.queue.as_str()).is_some() && self.kinds.id(task.kind.as_str()).is_some()
    }
}

/// What became of the tasks of a call so far.
type Answers = Vec<Option<Inserted>>;

impl Shared {
    pub(super) async fn insert(&self, tasks: &[NewTask]) -> Result<Vec<Inserted>> {
        let mut answers: Answers = Vec::new();
        answers.resize_with(tasks.len(), || None);
        let mut coming = Vec::with_capacity(tasks.len());
        let mut is_plain = true;
        let mut met = HashSet::with_capacity(tasks.len());
        for (at, task) in tasks.iter().enumerate() {
            match self.receive(at, task) {
                Ok(one) => {
                    let is_now = task.when.due(Timestamp::MAX).is_none()
                        && task.when.due(Timestamp::default()).is_none();
                    let is_keyed = one.idempotency.is_some() || one.unique.is_some();
                    is_plain &= is_now && !is_keyed && met.insert(one.id.seq);
                    coming.push(one);
                }
                Err(error) => answers[at] = Some(Inserted::Bad(error)),
            }
        }
        let mut stored = self.insert_valid(&mut coming, is_plain, &mut answers).await;
        for _ in 0..PARTITION_TRIES {
            if !lacks_partition(&stored) {
                break;
            }
            let seqs = column(&coming, |one| one.id.seq);
            let unknown = self.make_generations(&seqs).await?;
            let strangers = coming.extract_if(.., |one| unknown.contains(&(one.id.seq >> 32)));
            strangers.for_each(|one| answers[one.at] = Some(Inserted::Bad(not_ours(one.task))));
            stored = self.insert_valid(&mut coming, is_plain, &mut answers).await;
        }
        stored?;
        answers
            .into_iter()
            .map(|answer| answer.ok_or_else(|| Error::corrupt("a task was not answered")))
            .collect()
    }

    async fn insert_valid(
        &self,
        coming: &mut Vec<Coming<'_>>,
        is_plain: bool,
        answers: &mut Answers,
    ) -> Result<()> {
        if coming.is_empty() {
            return Ok(());
        }
        let session = self.submits.session().await?;
        let names = self.naming(&session, coming.iter().map(|one| one.task)).await?;
        for one in coming.extract_if(.., |one| !names.has_all_of(one.task)) {
            answers[one.at] = Some(Inserted::Bad(name_busy(one.task)));
        }
        if coming.is_empty() {
            return Ok(());
        }
        if is_plain {
            match self.insert_plain(&session, &names, coming).await {
                Ok((made, now)) => {
                    if let Some(outbox) = &self.options.outbox {
                        outbox.hand_out(made).await;
                    }
                    let new = Inserted::New { created_at: now };
                    coming.iter().for_each(|one| answers[one.at] = Some(new.clone()));
                    let mut news = News::default();
                    for one in coming {
                        if !news.ready.contains(&one.task.queue) {
                            news.ready.push(one.task.queue.clone());
                        }
                    }
                    self.tell(news);
                    return Ok(());
                }
                Err(error) if is_duplicate(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let blocked = self.insert_in_parts(&names, coming, answers).await?;
        // Another's open transaction on a key holds up those who want that key, and nobody else.
        let mut patience = PATIENCE;
        for one in coming.iter().filter(|one| blocked.contains(&one.at)) {
            let waited = async {
                transaction!(
                    self.patient,
                    session => self.insert_waiting(session, &names, one, patience, answers)
                )
            };
            match waited.await {
                Ok(news) => self.tell(news),
                Err(error) if is_lock_timeout(&error) => {
                    answers[one.at] = Some(Inserted::Bad(key_busy()));
                    patience = PATIENCE_SPENT;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The numbers of the names of tasks, as far as nobody's open transaction is making them.
    pub(super) async fn naming<'t>(
        &self,
        session: &Session,
        tasks: impl Iterator<Item = &'t NewTask> + Clone,
    ) -> Result<Naming> {
        let queues = tasks.clone().map(|task| task.queue.as_str());
        let kinds = tasks.map(|task| task.kind.as_str());
        Ok(Naming {
            queues: self.queues.learn(session, &self.pool, queues).await?,
            kinds: self.kinds.learn(session, &self.pool, kinds).await?,
        })
    }

    fn receive<'t>(&self, at: usize, task: &'t NewTask) -> Result<Coming<'t>> {
        task.validate(&self.options.limits)?;
        let Some(id) = Id::of(&task.id) else {
            return Err(not_ours(task));
        };
        let idempotency =
            task.idempotency_key.as_ref().map(|key| idempotency_digest(task.kind.as_str(), key));
        let unique = task.unique.as_ref().map(|unique| (unique_digest(task, unique), unique.hold));
        Ok(Coming { at, task, id, idempotency, unique })
    }

    async fn insert_plain(
        &self,
        session: &Session,
        names: &Naming,
        coming: &[Coming<'_>],
    ) -> Result<(Vec<Made>, Option<Timestamp>)> {
        let told = self.options.told_time();
        let together_max = self.options.ready_together_max();
        let columns = Columns::of(names, coming)?;
        let mut ranges: Vec<(i32, i16, i64, i64, i16)> = Vec::new();
        let mut last_of: HashMap<(i32, i16, i16), usize> = HashMap::new();
        for (one, queue) in coming.iter().zip(&columns.queues) {
            let place = (*queue, lane(one.task.priority, 0), size_bit(&one.task.payload));
            let seq = one.id.seq;
            match last_of.get(&place).map(|at| &mut ranges[*at]) {
                Some((_, _, lo, hi, _)) if *hi + 1 == seq && seq - *lo < together_max => *hi = seq,
                _ => {
                    last_of.insert(place, ranges.len());
                    ranges.push((place.0, place.1, seq, seq, place.2));
                }
            }
        }
        let queues = column(&ranges, |range| range.0);
        let lanes = column(&ranges, |range| range.1);
        let (los, his) = (column(&ranges, |range| range.2), column(&ranges, |range| range.3));
        let bits = column(&ranges, |range| range.4);
        let (extras, payloads) = (slices(&columns.extras), slices(&columns.payloads));
        let text = match self.options.outbox {
            Some(_) => &sql::INSERT_NOTING,
            None => sql::INSERT,
        };
        let rows = session
            .all(
                text,
                &[
                    &told,
                    &columns.seqs,
                    &columns.stamps,
                    &columns.queues,
                    &columns.kinds,
                    &columns.priorities,
                    &columns.max_retries,
                    &columns.max_crashes,
                    &columns.timeouts_ms,
                    &columns.retentions_ms,
                    &extras,
                    &payloads,
                    &queues,
                    &lanes,
                    &los,
                    &his,
                    &bits,
                ],
            )
            .await?;
        let now = rows.first().map(|row| Timestamp::from_millis(row.get(6)));
        Ok((outbox::made_by(&rows), now))
    }

    /// Inserts all whose keys nobody else is busy with, in transactions of a few keys each, in the order given;
    /// answers the places of the rest. Those before an error are stored, and are recognised when they come again.
    async fn insert_in_parts(
        &self,
        names: &Naming,
        coming: &[Coming<'_>],
        answers: &mut Answers,
    ) -> Result<HashSet<usize>> {
        let mut blocked = HashSet::new();
        let mut keys_max = KEYS_TOGETHER_MAX;
        let mut rest = coming;
        while !rest.is_empty() {
            let (part, after) = rest.split_at(with_keys_up_to(keys_max, rest));
            match self.insert_together(names, part, answers).await {
                Ok(busy) => {
                    blocked.extend(busy);
                    rest = after;
                }
                Err(error)
                    if error.reason() == Reason::LockTableFull && keys_max > KEYS_TOGETHER_MIN =>
                {
                    keys_max = (keys_max / 10).max(KEYS_TOGETHER_MIN);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(blocked)
    }

    /// Inserts all whose keys nobody else is busy with; answers the places of the rest.
    async fn insert_together(
        &self,
        names: &Naming,
        coming: &[Coming<'_>],
        answers: &mut Answers,
    ) -> Result<HashSet<usize>> {
        let (news, blocked) = transaction!(self.pool, session => async {
            let mut hashes: Vec<_> = coming.iter().flat_map(|one| self.hashes(one)).collect();
            hashes.sort_unstable();
            hashes.dedup();
            let rows = match hashes.is_empty() {
                true => Vec::new(),
                false => session.all(sql::KEY_TRY, &[&hashes]).await?,
            };
            let obtained: HashSet<i64> = rows.iter().map(|row| row.get(0)).collect();
            let is_free =
                |one: &&Coming<'_>| self.hashes(one).iter().all(|hash| obtained.contains(hash));
            let free: Vec<_> = coming.iter().filter(is_free).collect();
            let blocked: HashSet<_> =
                coming.iter().filter(|one| !is_free(one)).map(|one| one.at).collect();
            let (news, told) = self.insert_carefully(session, names, &free).await?;
            for (at, answer) in told {
                answers[at] = Some(answer);
            }
            Ok((news, blocked))
        })?;
        self.tell(news);
        Ok(blocked)
    }

    /// Inserts one task after waiting for its keys.
    async fn insert_waiting(
        &self,
        session: &Session,
        names: &Naming,
        one: &Coming<'_>,
        patience: &'static str,
        answers: &mut Answers,
    ) -> Result<News> {
        let mut hashes = self.hashes(one);
        hashes.sort_unstable();
        session.control(patience).await?;
        for hash in hashes {
            session.all(sql::KEY_WAIT, &[&hash]).await?;
        }
        let (news, told) = self.insert_carefully(session, names, &[one]).await?;
        for (at, answer) in told {
            answers[at] = Some(answer);
        }
        Ok(news)
    }

    /// Locks of a task's keys; keys of other schemas have others.
    fn hashes(&self, one: &Coming<'_>) -> Vec<i64> {
        let digests = one.idempotency.into_iter().chain(one.unique.map(|(digest, _)| digest));
        digests.map(|digest| number_of(digest) ^ self.salt).collect()
    }
}

/// How many of these tasks, from the first on, have so many keys together at most; at least one.
fn with_keys_up_to(keys_max: usize, coming: &[Coming<'_>]) -> usize {
    let mut keys = 0;
    let fits = |one: &Coming<'_>| {
        keys += usize::from(one.idempotency.is_some()) + usize::from(one.unique.is_some());
        keys <= keys_max
    };
    coming.iter().map(fits).take_while(|fits| *fits).count().max(1)
}

fn not_ours(task: &NewTask) -> Error {
    Error::invalid(format!("task id {} is not one that this store has reserved", task.id))
}

pub(super) fn extras_of(task: &NewTask) -> Bytes {
    let extras = &task.spec.extras;
    if extras.is_empty() {
        return Bytes::new();
    }
    serde_json::to_vec(extras).expect("extras hold nothing that JSON cannot carry").into()
}
