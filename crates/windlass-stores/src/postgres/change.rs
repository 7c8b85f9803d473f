//! Change in PostgreSQL: cancel, rerun, reschedule, delete.

mod matching;

use std::collections::{HashMap, HashSet};

use windlass_core::history::Happening;
use windlass_core::state::{self, CancelVerdict, RerunVerdict};
use windlass_core::store::{Action, ChangeParams, ChangeReply, Changed, Target};
use windlass_core::unique::Exit;
use windlass_core::{Result, State, TaskId, Timestamp};

use super::Shared;
use super::batch::Batch;
use super::beat::stamps;
use super::id::Id;
use super::pool::transaction;
use super::row::{self, Found, Row};
use super::session::Session;
use super::{document, sql};
use crate::changing::Changes;
use crate::wakes::News;

impl Shared {
    pub(super) async fn change(&self, params: &ChangeParams) -> Result<ChangeReply> {
        match &params.target {
            Target::Tasks(ids) => {
                let mut outcomes = vec![Changed::NotFound; ids.len()];
                // One that is named again waits for its next turn.
                let mut left: Vec<_> =
                    ids.iter().enumerate().filter_map(|(at, id)| Some((at, Id::of(id)?))).collect();
                while !left.is_empty() {
                    let mut met = HashSet::new();
                    let (turn, rest): (Vec<_>, Vec<_>) =
                        left.into_iter().partition(|(_, id)| met.insert(id.seq));
                    let turn_ids: Vec<_> = turn.iter().map(|(_, id)| *id).collect();
                    let told = self.change_all(params, &turn_ids).await?;
                    for ((at, _), changed) in turn.into_iter().zip(told) {
                        outcomes[at] = changed;
                    }
                    left = rest;
                }
                let mut changes = Changes::default();
                for (id, changed) in ids.iter().zip(&outcomes) {
                    changes.add(id, *changed);
                }
                changes.reply.outcomes = outcomes;
                Ok(changes.reply)
            }
            Target::Matching { filter, limit, cursor } => {
                let piece =
                    matching::Piece { params, filter, limit: *limit, cursor: cursor.as_deref() };
                let (reply, news) =
                    transaction!(self.pool, session => self.change_piece(session, &piece))?;
                self.tell(news);
                Ok(reply)
            }
        }
    }

    /// Changes tasks, none of which is named twice.
    async fn change_all(&self, params: &ChangeParams, ids: &[Id]) -> Result<Vec<Changed>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let (told, news) = transaction!(self.pool, session => async {
            let stamps = stamps(session, ids.iter().map(|id| id.seq)).await?;
            let is_known = |id: &Id| stamps.get(&id.seq) == Some(&id.stamp);
            let known: Vec<_> = ids.iter().copied().filter(is_known).collect();
            let (told, news, now) = self.change_in(session, params, &[], &known).await?;
            let mut of_known = told.into_iter();
            let of_each = |id: &Id| match is_known(id) {
                true => of_known.next().unwrap_or(Changed::NotFound),
                false => Changed::NotFound,
            };
            let told: Vec<_> = ids.iter().map(of_each).collect();
            let mut changes = Changes::default();
            for (id, changed) in ids.iter().zip(&told) {
                changes.add(&id.task_id(), *changed);
            }
            note_deletes(session, params, &changes, now).await?;
            Ok((told, news))
        })?;
        self.tell(news);
        Ok(told)
    }

    /// Changes tasks that were there a moment ago, none of which is named twice; `also_in` narrows their states
    /// further. Answers what became of each, and when.
    async fn change_in(
        &self,
        session: &Session,
        params: &ChangeParams,
        also_in: &[State],
        ids: &[Id],
    ) -> Result<(Vec<Changed>, News, Timestamp)> {
        let is_wanted = |state: State| is_meant(params, also_in, state);
        let allowed: Vec<_> = State::ALL
            .into_iter()
            .filter(|state| is_wanted(*state) && is_done_at_once(params.action, *state))
            .collect();
        let now = self.now(session).await?;
        let seqs: Vec<_> = ids.iter().map(|id| id.seq).collect();
        let found = row::take(session, &seqs, &allowed, now.as_millis()).await?;
        // After the locks: whatever was waited for happened before this.
        let now = self.now(session).await?;
        let states: HashMap<_, _> =
            found.iter().map(|found| (found.seq, (found.state, found.is_taken))).collect();
        let is_needed = |found: &Found| {
            let is_request = params.action == Action::Cancel && is_wanted(found.state);
            found.is_taken || (is_request && found.state == State::Running)
        };
        let needed = found.into_iter().filter(is_needed).collect();
        let rows = Row::load(session, needed).await?;
        let mut rows: HashMap<_, _> = rows.into_iter().map(|row| (row.id.seq, row)).collect();
        let mut batch = Batch::new(now, &self.options);
        let mut told = Vec::with_capacity(ids.len());
        for id in ids {
            let changed = match (states.get(&id.seq), rows.remove(&id.seq)) {
                (Some((_, true)), Some(row)) => {
                    change_taken(&mut batch, row, params.action, params.by.clone())
                }
                (Some((_, false)), Some(row)) => {
                    request_cancel(session, &mut batch, row, params.by.clone()).await?;
                    Changed::Requested
                }
                (Some((state, _)), None) => Changed::Conflict(*state),
                (None, _) => Changed::NotFound,
            };
            told.push(changed);
        }
        let news = batch.write(session).await?;
        Ok((told, news, now))
    }
}

/// Notes down what was deleted, if anything was.
async fn note_deletes(
    session: &Session,
    params: &ChangeParams,
    changes: &Changes,
    now: Timestamp,
) -> Result<()> {
    if changes.has_deleted() {
        let row = session.one(sql::AUDIT_NUMBER, &[]).await?;
        let number = row.map_or(0, |row| row.get(0));
        document::save(session, &changes.audit(params, now, number), now).await?;
    }
    Ok(())
}

/// True when a change is meant for tasks in this state; `also_in` narrows that further.
fn is_meant(params: &ChangeParams, also_in: &[State], state: State) -> bool {
    let fits = |states: &[State]| states.is_empty() || states.contains(&state);
    fits(&params.only_in) && fits(also_in)
}

/// True when an action on a task in this state is done at once, for which it must be taken.
fn is_done_at_once(action: Action, state: State) -> bool {
    match action {
        Action::Cancel => state::cancel(state) == CancelVerdict::AtOnce,
        Action::Rerun => state::rerun(state) != RerunVerdict::Refused,
        Action::Reschedule(_) => state::reschedule(state),
        Action::Delete => state::delete(state),
    }
}

/// Changes a task that was taken out of its place.
fn change_taken(batch: &mut Batch, mut row: Row, action: Action, by: Option<String>) -> Changed {
    let now = batch.now;
    match action {
        Action::Cancel => {
            row.remember(|history| history.asked(Happening::Cancelled, now, by));
            row.settle(batch, State::Cancelled);
            Changed::Done(Some(State::Cancelled))
        }
        Action::Rerun => {
            if state::rerun(row.state) == RerunVerdict::StartOver {
                if let (State::Completed, Some(at)) = (row.state, row.finished_at) {
                    let (at, run) = (Timestamp::from_millis(at), row.run());
                    row.remember(|history| history.keep_completion(at, run));
                }
                row.attempts = 0;
                row.crashes = 0;
            }
            row.remember(|history| history.asked(Happening::Rerun, now, by));
            row.queue_up(batch);
            Changed::Done(Some(State::Pending))
        }
        Action::Reschedule(when) => {
            row.remember(|history| history.asked(Happening::Rescheduled, now, by));
            row.run_at = Some(when.due(now).unwrap_or(now).as_millis());
            row.settle(batch, State::Scheduled);
            Changed::Done(Some(State::Scheduled))
        }
        Action::Delete => {
            row.forget(batch, Exit::Deleted);
            Changed::Done(None)
        }
    }
}

/// Keeps the wish to cancel a running task, whose lease is locked.
async fn request_cancel(
    session: &Session,
    batch: &mut Batch,
    mut row: Row,
    by: Option<String>,
) -> Result<()> {
    if row.is_cancel_requested {
        return Ok(());
    }
    let now = batch.now;
    row.remember(|history| history.asked(Happening::CancelRequested, now, by));
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
        [&row.id.seq, &now.as_millis(), &row.history()];
    session.execute(sql::CANCEL_REQUEST, &values).await?;
    batch.news.ordered.extend(row.worker().cloned());
    Ok(())
}

/// The ids of tasks, for those who look at them.
pub(super) fn ids_of(ids: &[TaskId]) -> Vec<Id> {
    ids.iter().filter_map(Id::of).collect()
}
