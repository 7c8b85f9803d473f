//! Walks over the tasks in SQLite, newest first, for lists and for changes by filter.

use rusqlite::{Connection, OptionalExtension, Row as SqlRow, ToSql};
use windlass_core::store::Filter;
use windlass_core::{Error, Result, State, Timestamp};

use super::error::During;
use super::sql;
use crate::reading::{SCAN_MAX, read_cursor};

/// The states that have an index of their own.
const RARE: [State; 4] = [State::Scheduled, State::Retrying, State::DeadLetter, State::Cancelled];

/// A walk, and where it stands.
pub(super) struct Walk<'a> {
    pub(super) filter: &'a Filter,
    pub(super) cursor: Option<&'a str>,
    pub(super) limit: usize,
    pub(super) now: Timestamp,
}

/// What one step of a walk has found, and where the next begins.
pub(super) struct Step<T> {
    pub(super) found: Vec<T>,
    pub(super) next_cursor: Option<String>,
}

impl Walk<'_> {
    /// Finds at most `limit` tasks; `read` gets the columns of `list.sql`.
    pub(super) fn step<T>(
        &self,
        connection: &Connection,
        read: impl Fn(&SqlRow<'_>) -> rusqlite::Result<T>,
    ) -> Result<Step<T>> {
        let below = read_cursor(self.cursor)?;
        if self.limit == 0 {
            return Err(Error::invalid("a page needs a limit of at least 1"));
        }
        let states = &self.filter.states;
        if !states.is_empty() && states.iter().all(|state| RARE.contains(state)) {
            return self.step_through_rare(connection, below, read);
        }
        let floor = self.floor(connection, below)?;
        let bits: i64 = if states.is_empty() {
            i64::MAX
        } else {
            states.iter().fold(0, |bits, state| bits | 1 << state.as_number())
        };
        let from = floor.map_or(i64::MIN, |floor| floor + 1);
        let mut found = self.query(connection, sql::LIST, below, &[&from, &bits], &read)?;
        let next_cursor = if found.len() > self.limit {
            found.truncate(self.limit);
            found.last().map(|(number, _)| *number).or(Some(below))
        } else {
            floor.map(|floor| floor + 1)
        };
        Ok(step(found, next_cursor))
    }

    /// Along the index of rare states: a handful of dead letters among millions of completed tasks
    /// is found at once.
    fn step_through_rare<T>(
        &self,
        connection: &Connection,
        below: i64,
        read: impl Fn(&SqlRow<'_>) -> rusqlite::Result<T>,
    ) -> Result<Step<T>> {
        let mut states = self.filter.states.clone();
        states.sort_unstable();
        states.dedup();
        let mut found = Vec::new();
        for state in states {
            let number = state.as_number();
            found.extend(self.query(connection, sql::LIST_STATE, below, &[&number], &read)?);
        }
        found.sort_unstable_by_key(|(number, _)| std::cmp::Reverse(*number));
        let has_more = found.len() > self.limit;
        found.truncate(self.limit);
        let next_cursor = has_more.then(|| found.last().map_or(below, |(number, _)| *number));
        Ok(step(found, next_cursor))
    }

    /// One more than the limit, to know whether there is more.
    fn query<T>(
        &self,
        connection: &Connection,
        text: &'static str,
        below: i64,
        last: &[&dyn ToSql],
        read: impl Fn(&SqlRow<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<(i64, T)>> {
        let filter = self.filter;
        let millis = |time: Option<Timestamp>| time.map(Timestamp::as_millis);
        let (now, limit) = (self.now.as_millis(), as_i64(self.limit.saturating_add(1)));
        let queue = filter.queue.as_ref().map(|name| name.as_str());
        let kind = filter.kind.as_ref().map(|name| name.as_str());
        let priority = filter.priority.map(|priority| priority.as_number());
        let tag = filter.tag.as_ref().map(|tag| tag.as_str());
        let (after, before) = (millis(filter.created_after), millis(filter.created_before));
        let finished_before = millis(filter.finished_before);
        let first: [&dyn ToSql; 10] = [
            &below,
            &now,
            &queue,
            &kind,
            &priority,
            &after,
            &before,
            &finished_before,
            &tag,
            &limit,
        ];
        let params: Vec<_> = first.iter().chain(last).copied().collect();
        let mut statement = connection.prepare_cached(text).during("list tasks")?;
        let rows = statement
            .query_map(&params[..], |row| Ok((row.get(0)?, read(row)?)))
            .during("list tasks")?;
        rows.collect::<rusqlite::Result<_>>().during("list tasks")
    }

    /// The number just below the window that this step looks at. Without a filter every task counts,
    /// and the limit alone is bound enough.
    fn floor(&self, connection: &Connection, below: i64) -> Result<Option<i64>> {
        if *self.filter == Filter::default() {
            return Ok(None);
        }
        let mut statement =
            connection.prepare_cached(sql::LIST_FLOOR).during("bound a list of tasks")?;
        statement
            .query_row((below, as_i64(SCAN_MAX)), |row| row.get(0))
            .optional()
            .during("bound a list of tasks")
    }
}

fn step<T>(found: Vec<(i64, T)>, next_cursor: Option<i64>) -> Step<T> {
    Step {
        found: found.into_iter().map(|(_, item)| item).collect(),
        next_cursor: next_cursor.map(|number| number.to_string()),
    }
}

fn as_i64(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
