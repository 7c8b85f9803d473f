//! Inserts that look first: tasks with keys, with a time, or whose id is there already.

use std::collections::HashMap;

use windlass_core::store::Inserted;
use windlass_core::unique::{Exit, KeyDigest, OnConflict, Unique, fingerprint, held_until};
use windlass_core::{Error, ErrorKind, NewTask, Result, State, Timestamp};

use super::columns::place;
use super::{Coming, Naming};
use crate::postgres::batch::{Batch, column};
use crate::postgres::id::Id;
use crate::postgres::row::{self, Row};
use crate::postgres::session::Session;
use crate::postgres::{Shared, sql};
use crate::wakes::News;

/// What a task shares with one that may be its repetition.
struct Twin {
    stamp: i64,
    fingerprint: [u8; 16],
    is_over: bool,
    /// Pruned, while its row waits for its generation to be dropped: nobody sees it, but its id was used.
    is_gone: bool,
}

impl Shared {
    /// Looks at ids and keys first and inserts after, in the order given.
    pub(super) async fn insert_carefully(
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
        let mut twins = find_twins(session, &seqs, now).await?;
        let is_stranger = |one: &&&Coming<'_>| {
            twins.get(&one.id.seq).is_some_and(|twin| twin.is_gone && !is_same(one, twin))
        };
        let gone: Vec<_> = coming.iter().filter(is_stranger).map(|one| one.id.seq).collect();
        twins.retain(|seq, _| !gone.contains(seq));
        if !gone.is_empty() {
            session.all(sql::PRUNE_LOCK, &[]).await?;
            session.execute(sql::INSERT_OVER_GONE, &[&gone]).await?;
        }
        let mut batch = Batch::new(now, &self.options);
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
            let (stamp, fingerprint) = (one.id.stamp, print_of(one.task));
            let twin = Twin { stamp, fingerprint, is_over: false, is_gone: false };
            twins.insert(one.id.seq, twin);
            stored.push(*one);
            answers.push((one.at, Inserted::New { created_at: Some(now) }));
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

/// What is there under these numbers.
async fn find_twins(
    session: &Session,
    seqs: &Vec<i64>,
    now: Timestamp,
) -> Result<HashMap<i64, Twin>> {
    let rows = session.all(sql::INSERT_TWINS, &[seqs, &now.as_millis()]).await?;
    let read = |row: &tokio_postgres::Row| {
        let kind = row.get::<_, Option<&str>>(2).unwrap_or_default();
        let queue = row.get::<_, Option<&str>>(3).unwrap_or_default();
        let fingerprint = fingerprint(kind, queue, row.get(4));
        let (is_over, is_gone) = (row.get(5), row.get(6));
        (row.get(0), Twin { stamp: row.get(1), fingerprint, is_over, is_gone })
    };
    Ok(rows.iter().map(read).collect())
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
        && let Some(twin) = twins.get(&holder.seq).filter(|twin| !twin.is_gone)
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

/// True when a task is one that came before, under the same id and with the same content.
fn is_same(one: &Coming<'_>, twin: &Twin) -> bool {
    twin.stamp == one.id.stamp && twin.fingerprint == print_of(one.task)
}

fn repeated(one: &Coming<'_>, twin: &Twin) -> Inserted {
    if is_same(one, twin) {
        return Inserted::New { created_at: None };
    }
    let text = format!("id {} is in use by another task", one.task.id);
    Inserted::Bad(Error::new(ErrorKind::Conflict, text))
}

fn print_of(task: &NewTask) -> [u8; 16] {
    fingerprint(task.kind.as_str(), task.queue.as_str(), &task.payload)
}
