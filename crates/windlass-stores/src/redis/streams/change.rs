//! Change on Redis Streams: cancel, rerun, reschedule, delete.

use std::collections::HashMap;

use parking_lot::Mutex;
use windlass_core::state::{self, CancelVerdict, RerunVerdict};
use windlass_core::store::{Action, ChangeParams, ChangeReply, Changed, SaveDoc, Target};
use windlass_core::{Error, ErrorKind, Result, Timestamp};

use super::id::Id;
use super::moves::Move;
use super::row::Row;
use super::{Shared, scripts};
use crate::changing::Changes;

/// How often a request to stop is tried on a task that keeps changing.
const ROUNDS_MAX: usize = 50;

/// The version of a document that was just written.
const FIRST_VERSION: u64 = 1;

/// Deletes that are on record, and how.
struct Announced {
    ids: Vec<Id>,
    document: SaveDoc,
}

/// What is to be done to a task as it was looked at.
enum Verdict {
    Move(Box<dyn FnOnce(Row, Timestamp) -> Move + Send>),
    Ask,
    Answer(Changed),
}

impl Shared {
    pub(super) async fn change(&self, params: &ChangeParams) -> Result<ChangeReply> {
        let mut changes = Changes::default();
        match &params.target {
            Target::Tasks(ids) => {
                let mut outcomes = vec![Changed::NotFound; ids.len()];
                let mut waves: Vec<Vec<(usize, Id)>> = Vec::new();
                let mut counts: HashMap<Id, usize> = HashMap::new();
                for (at, id) in ids.iter().enumerate() {
                    // The same task twice: the second time it is as the first has left it.
                    let Some(id) = Id::of(id) else { continue };
                    let wave = counts.entry(id).or_default();
                    if waves.len() <= *wave {
                        waves.push(Vec::new());
                    }
                    waves[*wave].push((at, id));
                    *wave += 1;
                }
                for wave in waves {
                    let named: Vec<_> = wave.iter().map(|(_, id)| *id).collect();
                    let (now, mut found) = self.look_everywhere(&named).await?;
                    let rows = named.iter().filter_map(|id| found.remove(id)).collect();
                    let changed = self.change_rows(now, rows, params).await?;
                    for (at, id) in wave {
                        outcomes[at] = changed.get(&id).copied().unwrap_or(Changed::NotFound);
                    }
                }
                for (id, changed) in ids.iter().zip(&outcomes) {
                    changes.add(id, *changed);
                }
                changes.reply.outcomes = outcomes;
            }
            Target::Matching { filter, limit, cursor } => {
                let walk = self.walk(filter, cursor.as_deref(), *limit).await?;
                changes.reply.next_cursor = walk.next_cursor;
                let order: Vec<_> = walk.rows.iter().map(|row| row.id).collect();
                let changed = self.change_rows(walk.now, walk.rows, params).await?;
                for id in order {
                    let outcome = changed.get(&id).copied().unwrap_or(Changed::NotFound);
                    changes.add(&id.task_id(), outcome);
                }
            }
        }
        Ok(changes.reply)
    }

    async fn change_rows(
        &self,
        now: Timestamp,
        rows: Vec<Row>,
        params: &ChangeParams,
    ) -> Result<HashMap<Id, Changed>> {
        let audit = self.announce(now, &rows, params).await?;
        let outcomes: Mutex<HashMap<Id, Changed>> = Mutex::default();
        // With the time at which each was seen to run: a request is never older than the claim that it asks to stop.
        let asked: Mutex<Vec<(Timestamp, Row)>> = Mutex::default();
        let placed = self
            .decide_at(now, rows, None, |row, now, _| match judge(&row, now, params) {
                Verdict::Move(made) => Some(made(row, now)),
                Verdict::Ask => {
                    asked.lock().push((now, row));
                    None
                }
                Verdict::Answer(changed) => {
                    outcomes.lock().insert(row.id, changed);
                    None
                }
            })
            .await?;
        let mut outcomes = outcomes.into_inner();
        for placed in placed {
            if let Some(state) = placed.state {
                outcomes.insert(placed.id, Changed::Done(state));
            }
        }
        if let Some(audit) = audit {
            self.amend(audit, &outcomes, now, params).await?;
        }
        for (seen_at, row) in asked.into_inner() {
            let id = row.id;
            if let Some(changed) = self.ask_to_stop(seen_at, row, params).await? {
                outcomes.insert(id, changed);
            }
        }
        Ok(outcomes)
    }

    /// Puts deletes on record before they are done: tasks and records may lie on different servers, and
    /// whoever is cut off in between must not leave a delete that nobody knows of.
    async fn announce(
        &self,
        now: Timestamp,
        rows: &[Row],
        params: &ChangeParams,
    ) -> Result<Option<Announced>> {
        if params.action != Action::Delete {
            return Ok(None);
        }
        let is_deletable = |row: &&Row| matches!(judge(row, now, params), Verdict::Move(_));
        let ids: Vec<_> = rows.iter().filter(is_deletable).map(|row| row.id).collect();
        if ids.is_empty() {
            return Ok(None);
        }
        let document = deletes(&ids).audit(params, now, fastrand::i64(0..));
        self.fleet.save(&document).await?;
        Ok(Some(Announced { ids, document }))
    }

    /// Corrects the record of deletes when someone was faster: a task is no longer to be deleted.
    async fn amend(
        &self,
        announced: Announced,
        outcomes: &HashMap<Id, Changed>,
        now: Timestamp,
        params: &ChangeParams,
    ) -> Result<()> {
        let Announced { ids, document } = announced;
        let is_deleted = |id: &Id| outcomes.get(id) == Some(&Changed::Done(None));
        let done: Vec<_> = ids.iter().copied().filter(is_deleted).collect();
        if done.len() == ids.len() {
            return Ok(());
        }
        let body = deletes(&done).audit(params, now, 0).body.filter(|_| !done.is_empty());
        let amended = SaveDoc { expected: Some(FIRST_VERSION), body, ..document };
        self.fleet.save(&amended).await.map(drop)
    }

    /// Asks for the cancellation of a task that runs; if it does not any more, what is then to be done.
    async fn ask_to_stop(
        &self,
        mut now: Timestamp,
        mut row: Row,
        params: &ChangeParams,
    ) -> Result<Option<Changed>> {
        for _ in 0..ROUNDS_MAX {
            let (id, queue) = (row.id, row.queue.clone());
            match judge(&row, now, params) {
                Verdict::Answer(changed) => return Ok(Some(changed)),
                Verdict::Move(_) => {
                    let rows = Box::pin(self.change_rows(now, vec![row], params)).await?;
                    return Ok(rows.get(&id).copied());
                }
                Verdict::Ask if row.record.head.is_cancel_requested => {
                    return Ok(Some(Changed::Requested));
                }
                Verdict::Ask => {}
            }
            let worker = row.running.as_ref().map(|running| running.worker.clone());
            let (before, after) = row.ask_to_stop(now, params.by.clone());
            self.announce_changes([&queue]).await?;
            let call = scripts::CHANGE
                .on(&[self.stem(&queue)])
                .arg(self.options().told_time())
                .arg(&id.0[..])
                .arg(before)
                .arg(after);
            let done = self.ask_queue(&queue, call).await?.list()?.next();
            if done.map_or(Ok(0), |done| done.number())? == 1 {
                if let Some(worker) = worker {
                    self.fleet.tell_of_orders(worker).await?;
                }
                return Ok(Some(Changed::Requested));
            }
            let (seen_at, mut rows) = self.look(&queue, &[id]).await?;
            let Some(again) = rows.pop() else { return Ok(None) };
            (now, row) = (seen_at, again);
        }
        Err(Error::new(ErrorKind::Unavailable, "cancel a task in redis: it keeps changing"))
    }
}

fn deletes(ids: &[Id]) -> Changes {
    let mut changes = Changes::default();
    for id in ids {
        changes.add(&id.task_id(), Changed::Done(None));
    }
    changes
}

fn judge(row: &Row, now: Timestamp, params: &ChangeParams) -> Verdict {
    let state = row.state();
    if row.record.head.is_over(now) {
        return Verdict::Answer(Changed::NotFound);
    }
    if !params.only_in.is_empty() && !params.only_in.contains(&state) {
        return Verdict::Answer(Changed::Conflict(state));
    }
    let by = params.by.clone();
    let refused = Verdict::Answer(Changed::Conflict(state));
    match params.action {
        Action::Cancel => match state::cancel(state) {
            CancelVerdict::AtOnce => Verdict::Move(Box::new(move |row, now| row.cancel(now, by))),
            CancelVerdict::Request => Verdict::Ask,
            CancelVerdict::Finished => refused,
        },
        Action::Rerun => match state::rerun(state) {
            RerunVerdict::StartOver | RerunVerdict::RunNow => {
                Verdict::Move(Box::new(move |row, now| row.rerun(now, by)))
            }
            RerunVerdict::Refused => refused,
        },
        Action::Reschedule(when) if state::reschedule(state) => {
            let at = when.due(now).unwrap_or(now);
            Verdict::Move(Box::new(move |row, now| row.reschedule(now, at, by)))
        }
        Action::Delete if state::delete(state) => Verdict::Move(Box::new(|row, _| row.delete())),
        Action::Reschedule(_) | Action::Delete => refused,
    }
}
