//! Insert into PostgreSQL.
//!
//! Tasks that are pending at once and have no keys go in by one statement. Everything else (keys,
//! schedules, an id that is there already) goes through a transaction that looks first.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use windlass_core::store::Inserted;
use windlass_core::unique::{Exit, Hold, KeyDigest, OnConflict, Unique, fingerprint, held_until};
use windlass_core::{Error, ErrorKind, NewTask, Result, State, Timestamp, duration};

use super::Shared;
use super::batch::{Batch, Place, column, slices};
use super::digest::{idempotency_digest, number_of, unique_digest};
use super::error::{is_duplicate, is_lock_timeout, key_busy, name_busy};
use super::id::Id;
use super::names::Known;
use super::pool::transaction;
use super::retention::lacks_partition;
use super::row::{self, Row, key_bit, lane, signed};
use super::session::Session;
use super::sql;
use crate::wakes::News;

/// How often a missing partition is made: one that is empty may be dropped again before it is used.
const PARTITION_TRIES: usize = 5;

/// How long a call waits for a key that is in someone's open transaction, and for the next one after
/// that was too long: others of the call do not want that key. It is for the caller to ask again.
const PATIENCE: &str = "SET LOCAL lock_timeout TO '2s'";
const PATIENCE_SPENT: &str = "SET LOCAL lock_timeout TO '1ms'";

/// A task on its way in.
struct Coming<'t> {
    /// Its place in the call.
    at: usize,
    task: &'t NewTask,
    id: Id,
    idempotency: Option<KeyDigest>,
    unique: Option<(KeyDigest, Hold)>,
}

/// What a task shares with one that may be its repetition.
struct Twin {
    stamp: i64,
    fingerprint: [u8; 16],
    is_over: bool,
}

/// The numbers of the queues and kinds of a call.
pub(super) struct Naming {
    pub(super) queues: Arc<Known>,
    pub(super) kinds: Arc<Known>,
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
                Ok(()) => {
                    coming.iter().for_each(|one| answers[one.at] = Some(Inserted::New));
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
        let blocked = self.insert_together(&names, coming, answers).await?;
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
    ) -> Result<()> {
        let told = self.options.told_time();
        let columns = Columns::of(names, coming)?;
        let mut ranges: Vec<(i32, i16, i64, i64)> = Vec::new();
        let mut last_of: HashMap<(i32, i16), usize> = HashMap::new();
        for (one, queue) in coming.iter().zip(&columns.queues) {
            let place = (*queue, lane(one.task.priority, 0));
            let seq = one.id.seq;
            match last_of.get(&place).map(|at| &mut ranges[*at]) {
                Some((_, _, _, hi)) if *hi + 1 == seq => *hi = seq,
                _ => {
                    last_of.insert(place, ranges.len());
                    ranges.push((place.0, place.1, seq, seq));
                }
            }
        }
        let queues = column(&ranges, |range| range.0);
        let lanes = column(&ranges, |range| range.1);
        let (los, his) = (column(&ranges, |range| range.2), column(&ranges, |range| range.3));
        let (extras, payloads) = (slices(&columns.extras), slices(&columns.payloads));
        session
            .execute(
                sql::INSERT,
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
                ],
            )
            .await?;
        Ok(())
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

    /// Looks at ids and keys first and inserts after, in the order given.
    async fn insert_carefully(
        &self,
        session: &Session,
        names: &Naming,
        coming: &[&Coming<'_>],
    ) -> Result<(News, Vec<(usize, Inserted)>)> {
        let now = self.now(session).await?;
        let mut keys = find_keys(session, coming).await?;
        let mut seqs: Vec<_> = coming.iter().map(|one| one.id.seq).collect();
        for one in coming {
            let holder = one.idempotency.and_then(|digest| keys.get(&digest));
            seqs.extend(holder.map(|(holder, _)| holder.seq));
        }
        let (mut twins, gone) = find_twins(session, &seqs, now).await?;
        if !gone.is_empty() {
            session.all(sql::PRUNE_LOCK, &[]).await?;
            session.execute(sql::INSERT_OVER_GONE, &[&gone]).await?;
        }
        let mut batch = Batch::new(now, self.options.limits.error_bytes_max);
        let mut answers = Vec::with_capacity(coming.len());
        let mut taken: Vec<(KeyDigest, Id, Option<Timestamp>)> = Vec::new();
        let (mut stored, mut over) = (Vec::new(), Vec::new());
        for one in coming {
            if let Some(twin) = twins.get(&one.id.seq) {
                answers.push((one.at, repeated(one, twin)));
                continue;
            }
            if let Some(found) = check_keys(one, &mut keys, &mut twins, now, &mut over) {
                answers.push((one.at, found));
                continue;
            }
            let until = one.unique.and_then(|(_, hold)| held_until(hold, now));
            let idempotency = one.idempotency.map(|digest| (digest, one.id, None));
            let unique = one.unique.map(|(digest, _)| (digest, one.id, until));
            for key in idempotency.into_iter().chain(unique) {
                keys.insert(key.0, (key.1, key.2));
                taken.retain(|other| other.0 != key.0);
                taken.push(key);
            }
            let twin =
                Twin { stamp: one.id.stamp, fingerprint: print_of(one.task), is_over: false };
            twins.insert(one.id.seq, twin);
            stored.push(*one);
            answers.push((one.at, Inserted::New));
        }
        if !over.is_empty() {
            let found = row::take(session, &over, &State::ALL, i64::MIN).await?;
            for row in Row::load(session, found).await? {
                row.forget(&mut batch, Exit::Pruned);
            }
        }
        place(session, names, &mut batch, &stored).await?;
        let news = batch.write(session).await?;
        take_keys(session, &taken).await?;
        Ok((news, answers))
    }
}

/// Writes the rows of new tasks, and puts the tasks where they wait.
async fn place(
    session: &Session,
    names: &Naming,
    batch: &mut Batch,
    stored: &[&Coming<'_>],
) -> Result<()> {
    if stored.is_empty() {
        return Ok(());
    }
    let columns = Columns::of(names, stored.iter().copied())?;
    let mut run_at = Vec::with_capacity(stored.len());
    for (one, queue) in stored.iter().zip(&columns.queues) {
        let task = one.task;
        let due = task.when.due(batch.now).map(Timestamp::as_millis);
        run_at.push(due.unwrap_or(0));
        let bits = key_bit(one.unique.map(|(_, hold)| hold));
        let place = Place { seq: one.id.seq, queue: *queue, lane: lane(task.priority, 0), bits };
        let state = match due {
            Some(due) => {
                batch.make_wait(place, due, false);
                State::Scheduled
            }
            None => {
                batch.make_ready(place, None, 0);
                batch.tell_ready(&task.queue);
                State::Pending
            }
        };
        batch.count(*queue, task.priority, state, 1);
    }
    let (extras, payloads) = (slices(&columns.extras), slices(&columns.payloads));
    session
        .execute(
            sql::INSERT_ROWS,
            &[
                &batch.now.as_millis(),
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
                &run_at,
            ],
        )
        .await?;
    let keyed: Vec<_> =
        stored.iter().filter(|one| one.idempotency.is_some() || one.unique.is_some()).collect();
    if keyed.is_empty() {
        return Ok(());
    }
    let seqs = column(&keyed, |one| one.id.seq);
    let names: Vec<_> = keyed.iter().map(|one| one.task.idempotency_key.as_deref()).collect();
    let digests: Vec<Option<&[u8]>> =
        keyed.iter().map(|one| one.unique.as_ref().map(|(digest, _)| &digest.0[..])).collect();
    let holds = column(&keyed, |one| match one.unique {
        Some((_, Hold::For(time))) => Some(duration::as_millis_ceil(time)),
        Some((_, Hold::UntilFinished)) | None => None,
    });
    session.execute(sql::INSERT_KEYED, &[&seqs, &names, &digests, &holds]).await?;
    Ok(())
}

/// The columns of rows on their way into `task`.
struct Columns {
    seqs: Vec<i64>,
    stamps: Vec<i64>,
    queues: Vec<i32>,
    kinds: Vec<i32>,
    priorities: Vec<i16>,
    max_retries: Vec<i32>,
    max_crashes: Vec<i32>,
    timeouts_ms: Vec<i64>,
    retentions_ms: Vec<i64>,
    extras: Vec<Bytes>,
    payloads: Vec<Bytes>,
}

impl Columns {
    fn of<'c, 't: 'c>(
        names: &Naming,
        coming: impl IntoIterator<Item = &'c Coming<'t>>,
    ) -> Result<Self> {
        let mut columns = Self {
            seqs: Vec::new(),
            stamps: Vec::new(),
            queues: Vec::new(),
            kinds: Vec::new(),
            priorities: Vec::new(),
            max_retries: Vec::new(),
            max_crashes: Vec::new(),
            timeouts_ms: Vec::new(),
            retentions_ms: Vec::new(),
            extras: Vec::new(),
            payloads: Vec::new(),
        };
        for one in coming {
            let task = one.task;
            let unknown = || Error::corrupt("a name was made and is not there");
            columns.seqs.push(one.id.seq);
            columns.stamps.push(one.id.stamp);
            columns.queues.push(names.queues.id(task.queue.as_str()).ok_or_else(unknown)?);
            columns.kinds.push(names.kinds.id(task.kind.as_str()).ok_or_else(unknown)?);
            columns.priorities.push(i16::from(task.priority.as_number()));
            columns.max_retries.push(signed(task.spec.max_retries));
            columns.max_crashes.push(signed(task.spec.max_crashes));
            columns.timeouts_ms.push(duration::as_millis_ceil(task.spec.timeout));
            columns.retentions_ms.push(duration::as_millis_ceil(task.spec.retention));
            columns.extras.push(extras_of(task));
            columns.payloads.push(task.payload.clone());
        }
        Ok(columns)
    }
}

/// Who holds the keys of these tasks, and until when.
async fn find_keys(
    session: &Session,
    coming: &[&Coming<'_>],
) -> Result<HashMap<KeyDigest, (Id, Option<Timestamp>)>> {
    let digests: Vec<&[u8]> = coming
        .iter()
        .flat_map(|one| one.idempotency.iter().chain(one.unique.as_ref().map(|(key, _)| key)))
        .map(|digest| &digest.0[..])
        .collect();
    if digests.is_empty() {
        return Ok(HashMap::new());
    }
    let rows = session.all(sql::KEY_FIND, &[&digests]).await?;
    let read = |row: &tokio_postgres::Row| {
        let digest = <[u8; 16]>::try_from(row.get::<_, &[u8]>(0)).ok()?;
        let holder = Id { seq: row.get(1), stamp: row.get(2) };
        let until = row.get::<_, Option<i64>>(3).map(Timestamp::from_millis);
        Some((KeyDigest(digest), (holder, until)))
    };
    Ok(rows.iter().filter_map(read).collect())
}

/// What is there under these numbers, and which of them have rows of tasks that are gone.
async fn find_twins(
    session: &Session,
    seqs: &Vec<i64>,
    now: Timestamp,
) -> Result<(HashMap<i64, Twin>, Vec<i64>)> {
    let rows = session.all(sql::INSERT_TWINS, &[seqs, &now.as_millis()]).await?;
    let read = |row: &tokio_postgres::Row| {
        let kind = row.get::<_, Option<&str>>(2).unwrap_or_default();
        let queue = row.get::<_, Option<&str>>(3).unwrap_or_default();
        let fingerprint = fingerprint(kind, queue, row.get(4));
        (row.get(0), Twin { stamp: row.get(1), fingerprint, is_over: row.get(5) })
    };
    let (gone, there): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.get(6));
    Ok((there.into_iter().map(read).collect(), gone.iter().map(|row| row.get(0)).collect()))
}

/// Looks whether a key is held by another task; holders whose retention is over go to `over`.
fn check_keys(
    one: &Coming<'_>,
    keys: &mut HashMap<KeyDigest, (Id, Option<Timestamp>)>,
    twins: &mut HashMap<i64, Twin>,
    now: Timestamp,
    over: &mut Vec<i64>,
) -> Option<Inserted> {
    if let Some(digest) = one.idempotency
        && let Some((holder, _)) = keys.get(&digest).copied()
        && let Some(twin) = twins.get(&holder.seq)
    {
        if !twin.is_over {
            let is_same_request = twin.fingerprint == print_of(one.task);
            return Some(Inserted::Existing { id: holder.task_id(), is_same_request });
        }
        // Its retention is over: it is gone for readers, so it must be for submitters.
        over.push(holder.seq);
        keys.remove(&digest);
        twins.remove(&holder.seq);
    }
    if let Some((digest, _)) = one.unique
        && let Some((holder, until)) = keys.get(&digest)
        && until.is_none_or(|until| until > now)
    {
        let holder = holder.task_id();
        return Some(match &one.task.unique {
            Some(Unique { on_conflict: OnConflict::Return, .. }) => {
                Inserted::Existing { id: holder, is_same_request: true }
            }
            _ => Inserted::Conflict { holder },
        });
    }
    None
}

async fn take_keys(session: &Session, taken: &[(KeyDigest, Id, Option<Timestamp>)]) -> Result<()> {
    if taken.is_empty() {
        return Ok(());
    }
    let digests: Vec<&[u8]> = taken.iter().map(|(digest, _, _)| &digest.0[..]).collect();
    let (seqs, stamps) = (column(taken, |key| key.1.seq), column(taken, |key| key.1.stamp));
    let until = column(taken, |key| key.2.map(Timestamp::as_millis));
    session.execute(sql::KEY_TAKE, &[&digests, &seqs, &stamps, &until]).await?;
    Ok(())
}

fn repeated(one: &Coming<'_>, twin: &Twin) -> Inserted {
    if twin.stamp == one.id.stamp && twin.fingerprint == print_of(one.task) {
        return Inserted::New;
    }
    let text = format!("id {} is in use by another task", one.task.id);
    Inserted::Bad(Error::new(ErrorKind::Conflict, text))
}

fn not_ours(task: &NewTask) -> Error {
    Error::invalid(format!("task id {} is not one that this store has reserved", task.id))
}

fn print_of(task: &NewTask) -> [u8; 16] {
    fingerprint(task.kind.as_str(), task.queue.as_str(), &task.payload)
}

pub(super) fn extras_of(task: &NewTask) -> Bytes {
    let extras = &task.spec.extras;
    if extras.is_empty() {
        return Bytes::new();
    }
    serde_json::to_vec(extras).expect("extras hold nothing that JSON cannot carry").into()
}
