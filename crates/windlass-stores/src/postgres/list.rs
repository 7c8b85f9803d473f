//! Walks over the tasks in PostgreSQL, newest first, for lists and for changes by filter.

use tokio_postgres::Row as SqlRow;
use windlass_core::store::Filter;
use windlass_core::task::Extras;
use windlass_core::{Error, Result, State, Timestamp};

use super::session::{Session, Values};
use super::sql;
use crate::reading::{SCAN_MAX, read_cursor};

/// The states that have a table of their own.
const RARE: [State; 4] = [State::Scheduled, State::Retrying, State::DeadLetter, State::Cancelled];

/// A walk, and where it stands.
pub(super) struct Walk<'a> {
    pub(super) filter: &'a Filter,
    pub(super) cursor: Option<&'a str>,
    pub(super) limit: usize,
    pub(super) now: Timestamp,
}

/// What one step of a walk has found, and where the next begins.
pub(super) struct Step {
    pub(super) found: Vec<SqlRow>,
    pub(super) next_cursor: Option<String>,
}

impl Walk<'_> {
    /// Finds at most `limit` tasks, as rows of `list.sql`.
    pub(super) async fn step(&self, session: &Session) -> Result<Step> {
        let below = read_cursor(self.cursor)?;
        if self.limit == 0 {
            return Err(Error::invalid("a page needs a limit of at least 1"));
        }
        let states = &self.filter.states;
        let are_rare = !states.is_empty() && states.iter().all(|state| RARE.contains(state));
        if are_rare && self.filter.tag.is_none() {
            return self.step_through_rare(session, below).await;
        }
        let Some((below, floor)) = self.stretch(session, below).await? else {
            return Ok(step(Vec::new(), None));
        };
        let bits: i32 = match states.is_empty() {
            true => i32::MAX,
            false => states.iter().fold(0, |bits, state| bits | 1 << state.as_number()),
        };
        let from = floor.map_or(i64::MIN, |floor| floor + 1);
        let limit = match self.filter.tag {
            // Tags are looked at here, in all of the stretch.
            Some(_) => i64::MAX,
            None => as_i64(self.limit.saturating_add(1)),
        };
        let mut found = self.query(session, sql::LIST, below, limit, &[&from, &bits]).await?;
        found.retain(|row| self.has_tag(row));
        let next_cursor = if found.len() > self.limit {
            found.truncate(self.limit);
            found.last().map(|row| row.get::<_, i64>(0)).or(Some(below))
        } else {
            floor.map(|floor| floor + 1)
        };
        Ok(step(found, next_cursor))
    }

    /// Along the tables of rare states: a handful of dead letters among millions of completed tasks
    /// is found at once.
    async fn step_through_rare(&self, session: &Session, below: i64) -> Result<Step> {
        let mut states = self.filter.states.clone();
        states.sort_unstable();
        states.dedup();
        let limit = as_i64(self.limit.saturating_add(1));
        let mut found = Vec::new();
        for state in states {
            let rows = match state {
                State::Scheduled | State::Retrying => {
                    let is_retry = state == State::Retrying;
                    self.query(session, sql::LIST_DEFERRED, below, limit, &[&is_retry]).await?
                }
                _ => {
                    let number = i16::from(state.as_number());
                    self.query(session, sql::LIST_FATE, below, limit, &[&number]).await?
                }
            };
            found.extend(rows);
        }
        found.sort_unstable_by_key(|row| std::cmp::Reverse(row.get::<_, i64>(0)));
        let has_more = found.len() > self.limit;
        found.truncate(self.limit);
        let last = found.last().map_or(below, |row| row.get(0));
        Ok(step(found, has_more.then_some(last)))
    }

    async fn query(
        &self,
        session: &Session,
        text: &'static str,
        below: i64,
        limit: i64,
        last: Values<'_>,
    ) -> Result<Vec<SqlRow>> {
        let filter = self.filter;
        let millis = |time: Option<Timestamp>| time.map(Timestamp::as_millis);
        let queue = filter.queue.as_ref().map(|name| name.as_str());
        let kind = filter.kind.as_ref().map(|name| name.as_str());
        let priority = filter.priority.map(|priority| i16::from(priority.as_number()));
        let (after, before) = (millis(filter.created_after), millis(filter.created_before));
        let finished_before = millis(filter.finished_before);
        let now = self.now.as_millis();
        let first: Values<'_> =
            &[&below, &now, &queue, &kind, &priority, &after, &before, &finished_before, &limit];
        let values: Vec<_> = first.iter().chain(last).copied().collect();
        session.all(text, &values).await
    }

    fn has_tag(&self, row: &SqlRow) -> bool {
        let Some(tag) = &self.filter.tag else {
            return true;
        };
        let extras = serde_json::from_slice::<Extras>(row.get(21));
        extras.is_ok_and(|extras| extras.tags.contains(tag))
    }

    /// The numbers just above and just below the stretch that this step looks at; nothing at the end.
    async fn stretch(&self, session: &Session, below: i64) -> Result<Option<(i64, Option<i64>)>> {
        let row = session.one(sql::LIST_STRETCH, &[&below, &as_i64(SCAN_MAX)]).await?;
        Ok(row.map(|row| (row.get::<_, i64>(0).saturating_add(1), row.get(1))))
    }
}

fn step(found: Vec<SqlRow>, next_cursor: Option<i64>) -> Step {
    Step { found, next_cursor: next_cursor.map(|number| number.to_string()) }
}

fn as_i64(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
