//! Changes of all tasks that match a filter, a piece at a time.
//!
//! Such a change may concern millions of tasks, most of which are plain: pending, without keys, never claimed. Those are
//! changed by one statement for all of a piece; the others as if they were named one by one. Only one piece is changed at a
//! time in a schema (`change_lock.sql`), and what matches is looked for behind that lock: rivals take turns.

use std::collections::HashSet;

use windlass_core::history::{Happening, History};
use windlass_core::store::{Action, ChangeParams, ChangeReply, Changed, Filter};
use windlass_core::task::Extras;
use windlass_core::{Error, Result, State, Timestamp};

use super::{is_done_at_once, is_meant, note_deletes};
use crate::changing::Changes;
use crate::postgres::id::{Id, numbers, runs};
use crate::postgres::row::state_bits;
use crate::postgres::session::Session;
use crate::postgres::{Shared, sql};
use crate::reading::{SCAN_MAX, read_cursor};
use crate::wakes::News;

/// One piece of a change: at most `limit` tasks from the cursor on.
pub(super) struct Piece<'p> {
    pub(super) params: &'p ChangeParams,
    pub(super) filter: &'p Filter,
    pub(super) limit: usize,
    pub(super) cursor: Option<&'p str>,
}

/// A task that matches.
struct Match {
    id: Id,
    state: State,
}

/// Plain pending tasks that were taken out of their place, as runs of numbers.
#[derive(Default)]
struct PlainTasks {
    firsts: Vec<i64>,
    lasts: Vec<i64>,
}

impl Shared {
    /// Changes one piece of what matches.
    pub(super) async fn change_piece(
        &self,
        session: &Session,
        piece: &Piece<'_>,
    ) -> Result<(ChangeReply, News)> {
        let Piece { params, filter, .. } = *piece;
        session.all(sql::CHANGE_LOCK, &[]).await?;
        let now = self.now(session).await?;
        let (mut found, next_cursor) = piece.find(session, now).await?;
        // In the order of numbers, in which all who change tasks lock them.
        found.reverse();
        let plain = piece.take_plain(session, &found).await?;
        let now = self.now(session).await?;
        plain.change(session, params, now).await?;
        let is_plain: HashSet<_> = numbers(&plain.firsts, &plain.lasts).collect();
        let (plain, others): (Vec<_>, Vec<_>) =
            found.iter().map(|one| one.id).partition(|id| is_plain.contains(&id.seq));
        let mut changes = Changes::default();
        let mut news = News::default();
        if !others.is_empty() {
            let (outcomes, brought, _) =
                self.change_in(session, params, &filter.states, &others).await?;
            news = brought;
            for (id, changed) in others.iter().zip(outcomes) {
                changes.add(&id.task_id(), changed);
            }
        }
        let changed = Changed::Done(match params.action {
            Action::Cancel => Some(State::Cancelled),
            Action::Reschedule(_) => Some(State::Scheduled),
            Action::Rerun => Some(State::Pending),
            Action::Delete => None,
        });
        for id in plain {
            let id = id.task_id();
            changes.add(&id, changed);
            if matches!(params.action, Action::Cancel | Action::Delete) {
                news.ended.push(id);
            }
        }
        note_deletes(session, params, &changes, now).await?;
        changes.reply.next_cursor = next_cursor;
        Ok((changes.reply, news))
    }
}

impl Piece<'_> {
    /// The tasks that match and that the change can do something about, the newest first; and where to go on.
    ///
    /// Looks at stretches of numbers that grow while little matches, up to a bound: then the piece is a short one.
    async fn find(
        &self,
        session: &Session,
        now: Timestamp,
    ) -> Result<(Vec<Match>, Option<String>)> {
        let mut below = read_cursor(self.cursor)?;
        if self.limit == 0 {
            return Err(Error::invalid("a piece of a change needs a limit of at least 1"));
        }
        let bits = state_bits(&self.states());
        let numbers_max = i64::try_from(SCAN_MAX).unwrap_or(i64::MAX);
        // One more than the limit: where numbers are dense, one look is enough.
        let mut width = i64::try_from(self.limit).unwrap_or(numbers_max).min(numbers_max) + 1;
        let mut found: Vec<Match> = Vec::new();
        let mut looked_at = 0;
        while looked_at < numbers_max {
            let row = session.one(sql::CHANGE_TOP, &[&below, &bits]).await?;
            let Some(last) = row.and_then(|row| row.get::<_, Option<i64>>(0)) else {
                return Ok((found, None));
            };
            let first = last.saturating_sub(width - 1).max(0);
            self.find_between(session, first, last, now, bits, &mut found).await?;
            if found.len() > self.limit {
                found.truncate(self.limit);
                below = found.last().map_or(below, |one| one.id.seq);
                return Ok((found, Some(below.to_string())));
            }
            (below, looked_at) = (first, looked_at + width);
            width = (width * 2).min(numbers_max);
        }
        Ok((found, Some(below.to_string())))
    }

    /// The states that are meant and that the action does something about.
    fn states(&self) -> Vec<State> {
        let can = |state: State| {
            is_done_at_once(self.params.action, state)
                || (self.params.action == Action::Cancel && state == State::Running)
        };
        let is_meant = |state: &State| is_meant(self.params, &self.filter.states, *state);
        State::ALL.into_iter().filter(is_meant).filter(|state| can(*state)).collect()
    }

    /// Adds what matches among these numbers, up to one more than the limit.
    async fn find_between(
        &self,
        session: &Session,
        first: i64,
        last: i64,
        now: Timestamp,
        bits: i32,
        found: &mut Vec<Match>,
    ) -> Result<()> {
        let filter = self.filter;
        let millis = |time: Option<Timestamp>| time.map(Timestamp::as_millis);
        let queue = filter.queue.as_ref().map(|name| name.as_str());
        let kind = filter.kind.as_ref().map(|name| name.as_str());
        let priority = filter.priority.map(|priority| i16::from(priority.as_number()));
        let left = match filter.tag {
            // Tags are looked at here, in all of the stretch.
            Some(_) => i64::MAX,
            None => i64::try_from((self.limit - found.len()).saturating_add(1)).unwrap_or(i64::MAX),
        };
        let rows = session
            .all(
                sql::CHANGE_FIND,
                &[
                    &first,
                    &last,
                    &now.as_millis(),
                    &queue,
                    &kind,
                    &priority,
                    &millis(filter.created_after),
                    &millis(filter.created_before),
                    &millis(filter.finished_before),
                    &left,
                    &bits,
                    &filter.tag.is_some(),
                ],
            )
            .await?;
        for row in rows {
            if let Some(tag) = &filter.tag {
                let extras = serde_json::from_slice::<Extras>(row.get(3));
                if !extras.is_ok_and(|extras| extras.tags.contains(tag)) {
                    continue;
                }
            }
            let state = State::from_number(i64::from(row.get::<_, i16>(2)))?;
            found.push(Match { id: Id { seq: row.get(0), stamp: row.get(1) }, state });
        }
        Ok(())
    }

    /// Takes those of the tasks out of their place that are plain.
    async fn take_plain(&self, session: &Session, found: &[Match]) -> Result<PlainTasks> {
        let is_pending = |one: &&Match| one.state == State::Pending;
        let seqs: Vec<_> = found.iter().filter(is_pending).map(|one| one.id.seq).collect();
        if seqs.is_empty() {
            return Ok(PlainTasks::default());
        }
        let (firsts, lasts): (Vec<_>, Vec<_>) = runs(&seqs).into_iter().unzip();
        let rows = session.all(sql::TAKE_READY, &[&firsts, &lasts, &true]).await?;
        let mut taken: Vec<(i64, i64)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        taken.sort_unstable();
        let (firsts, lasts) = taken.into_iter().unzip();
        Ok(PlainTasks { firsts, lasts })
    }
}

impl PlainTasks {
    /// Puts them where the action says. Each has the same timeline: nothing has happened to it before.
    async fn change(&self, session: &Session, params: &ChangeParams, now: Timestamp) -> Result<()> {
        let (Some(first), Some(last)) = (self.firsts.first(), self.lasts.last()) else {
            return Ok(());
        };
        let (firsts, lasts, at) = (&self.firsts, &self.lasts, now.as_millis());
        let history = |what: Happening| {
            let mut history = History::default();
            history.asked(what, now, params.by.clone());
            history.encode()
        };
        match params.action {
            Action::Cancel => {
                let history = history(Happening::Cancelled);
                session.execute(sql::PLAIN_CANCEL, &[firsts, lasts, &at, &history]).await?;
            }
            Action::Reschedule(when) => {
                let history = history(Happening::Rescheduled);
                let run_at = when.due(now).unwrap_or(now).as_millis();
                session
                    .execute(sql::PLAIN_RESCHEDULE, &[firsts, lasts, &at, &history, &run_at])
                    .await?;
            }
            Action::Delete => {
                session.execute(sql::PLAIN_DELETE, &[firsts, lasts, first, last]).await?;
            }
            // A pending task cannot be run again, so that none was looked for.
            Action::Rerun => {}
        }
        Ok(())
    }
}
