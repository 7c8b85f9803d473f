//! Change on asynq's keys: cancel, rerun, reschedule, delete.

use std::collections::HashMap;

use parking_lot::Mutex;
use windlass_core::state::{self, CancelVerdict, RerunVerdict};
use windlass_core::store::{Action, ChangeParams, ChangeReply, Changed, SaveDoc, Target};
use windlass_core::{Error, ErrorKind, QueueName, Result, TaskId, Timestamp};

use super::moves::Move;
use super::row::{Place, Row};
use super::{Shared, keys, scripts};
use crate::changing::Changes;

/// How often a request to stop is tried on a task that keeps changing.
const ROUNDS_MAX: usize = 50;

/// The version of a document that was just written.
const FIRST_VERSION: u64 = 1;

/// The queue of a task and its name: ids are unique in their queue only.
type Address = (QueueName, TaskId);

/// Deletes that are on record, and how.
struct Announced {
    tasks: Vec<Address>,
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
                let mut waves: Vec<Vec<(usize, TaskId)>> = Vec::new();
                let mut counts: HashMap<&TaskId, usize> = HashMap::new();
                for (at, id) in ids.iter().enumerate() {
                    // The same task twice: the second time it is as the first has left it.
                    let wave = counts.entry(id).or_default();
                    if waves.len() <= *wave {
                        waves.push(Vec::new());
                    }
                    waves[*wave].push((at, id.clone()));
                    *wave += 1;
                }
                for wave in waves {
                    let named: Vec<_> = wave.iter().map(|(_, id)| id.clone()).collect();
                    let (now, found) = self.look_everywhere(&named, false).await?;
                    let rows: Vec<_> =
                        named.iter().filter_map(|id| found.get(id).cloned()).collect();
                    let changed = self.change_rows(now, rows, params, 0).await?;
                    for (at, id) in wave {
                        let changed = found.get(&id).and_then(|row| changed.get(&row.address()));
                        outcomes[at] = changed.copied().unwrap_or(Changed::NotFound);
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
                let order: Vec<_> = walk.rows.iter().map(Row::address).collect();
                // Read after the tasks: a change is never older than what it changes.
                let now = self.fleet.now().await?;
                let changed = self.change_rows(now, walk.rows, params, walk.number).await?;
                for address in order {
                    let outcome = changed.get(&address).copied().unwrap_or(Changed::NotFound);
                    changes.add(&address.1, outcome);
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
        walk: u64,
    ) -> Result<HashMap<Address, Changed>> {
        let audit = self.announce(now, &rows, params).await?;
        let outcomes: Mutex<HashMap<Address, Changed>> = Mutex::default();
        // With the time at which each was seen to run: a request is never older than the claim that it asks to stop.
        let asked: Mutex<Vec<(Timestamp, Row)>> = Mutex::default();
        let placed = self
            .decide_at(now, rows, None, |row, now, _| match judge(&row, now, params, walk) {
                Verdict::Move(made) => Some(made(row, now)),
                Verdict::Ask => {
                    asked.lock().push((now, row));
                    None
                }
                Verdict::Answer(changed) => {
                    outcomes.lock().insert(row.address(), changed);
                    None
                }
            })
            .await?;
        let mut outcomes = outcomes.into_inner();
        for placed in placed {
            if let Some(state) = placed.state {
                outcomes.insert((placed.queue, placed.id), Changed::Done(state));
            }
        }
        if let Some(audit) = audit {
            self.amend(audit, &outcomes, now, params).await?;
        }
        for (seen_at, row) in asked.into_inner() {
            let address = row.address();
            if let Some(changed) = self.ask_to_stop(seen_at, row, params, walk).await? {
                outcomes.insert(address, changed);
            }
        }
        Ok(outcomes)
    }

    /// Puts deletes on record before they are done: whoever is cut off in between must not leave a delete
    /// that nobody knows of.
    async fn announce(
        &self,
        now: Timestamp,
        rows: &[Row],
        params: &ChangeParams,
    ) -> Result<Option<Announced>> {
        if params.action != Action::Delete {
            return Ok(None);
        }
        let is_deletable = |row: &&Row| matches!(judge(row, now, params, 0), Verdict::Move(_));
        let tasks: Vec<_> = rows.iter().filter(is_deletable).map(Row::address).collect();
        if tasks.is_empty() {
            return Ok(None);
        }
        let document = deletes(&tasks).audit(params, now, fastrand::i64(0..));
        self.fleet.save(&document).await?;
        Ok(Some(Announced { tasks, document }))
    }

    /// Corrects the record of deletes when someone was faster: a task is no longer to be deleted.
    async fn amend(
        &self,
        announced: Announced,
        outcomes: &HashMap<Address, Changed>,
        now: Timestamp,
        params: &ChangeParams,
    ) -> Result<()> {
        let Announced { tasks, document } = announced;
        let is_deleted = |task: &&Address| outcomes.get(*task) == Some(&Changed::Done(None));
        let done: Vec<_> = tasks.iter().filter(is_deleted).cloned().collect();
        if done.len() == tasks.len() {
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
        walk: u64,
    ) -> Result<Option<Changed>> {
        for _ in 0..ROUNDS_MAX {
            let address = row.address();
            match judge(&row, now, params, walk) {
                Verdict::Answer(changed) => return Ok(Some(changed)),
                Verdict::Move(_) => {
                    let rows = Box::pin(self.change_rows(now, vec![row], params, walk)).await?;
                    return Ok(rows.get(&address).copied());
                }
                Verdict::Ask if row.is_cancel_requested => return Ok(Some(Changed::Requested)),
                Verdict::Ask => {}
            }
            let number = row.claim.as_ref().map(|claim| claim.number.to_string());
            let call = scripts::CHANGE
                .on(&[self.stem(&row.queue)])
                .arg(self.options().told_time())
                .arg(&row.key)
                .arg(&row.score)
                .arg(&row.own_stored[..])
                .arg(number.unwrap_or_default())
                .arg(row.ask_to_stop(now, params.by.clone()));
            let done = self.ask(call).await?.list()?.next();
            if done.map_or(Ok(0), |done| done.number())? == 1 {
                self.tell_of_cancel(&row).await?;
                return Ok(Some(Changed::Requested));
            }
            let (seen_at, mut rows) = self.look(&row.queue, &[TaskId::new(&row.key)]).await?;
            let Some(mut again) = rows.pop() else { return Ok(None) };
            again.id = address.1;
            (now, row) = (seen_at, again);
        }
        Err(Error::new(ErrorKind::Unavailable, "cancel a task in redis: it keeps changing"))
    }

    /// Tells whoever runs a task that it is to stop: a worker of windlass, or one of Go's.
    async fn tell_of_cancel(&self, row: &Row) -> Result<()> {
        if let (true, Some(claim)) = (row.is_own_run(), &row.claim) {
            return self.fleet.tell_of_orders(claim.worker.clone()).await;
        }
        let mut command = redis::cmd("PUBLISH");
        command.arg(keys::cancel(self.options().key_prefix())).arg(&row.key);
        self.fleet.link.command("tell of a cancel", &command).await.map(drop)
    }
}

fn deletes(tasks: &[Address]) -> Changes {
    let mut changes = Changes::default();
    for (_, id) in tasks {
        changes.add(id, Changed::Done(None));
    }
    changes
}

fn judge(row: &Row, now: Timestamp, params: &ChangeParams, walk: u64) -> Verdict {
    let state = row.state();
    if row.is_over(now) {
        return Verdict::Answer(Changed::NotFound);
    }
    // Groups are Go's: who means one of their tasks names it.
    let is_swept = matches!(params.target, Target::Matching { .. });
    if row.is_held_by_go() || (is_swept && row.place == Place::Aggregating) {
        return Verdict::Answer(Changed::HeldElsewhere(state));
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
        // One that waits to be aggregated has no time of its own.
        Action::Reschedule(_) if row.place == Place::Aggregating => refused,
        Action::Reschedule(when) if state::reschedule(state) => {
            let at = when.due(now).unwrap_or(now);
            Verdict::Move(Box::new(move |row, now| row.reschedule(now, at, by, walk)))
        }
        Action::Delete if state::delete(state) => Verdict::Move(Box::new(|row, _| row.delete())),
        Action::Reschedule(_) | Action::Delete => refused,
    }
}
