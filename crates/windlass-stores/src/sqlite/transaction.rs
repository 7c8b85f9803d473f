//! A write transaction: its instant, the numbers it draws, the counts it changes, and what it has to
//! tell after its commit.

use std::collections::BTreeMap;

use rusqlite::{CachedStatement, Connection, OptionalExtension, Params, Row as SqlRow};
use windlass_core::store::Term;
use windlass_core::{Error, Priority, QueueName, Reason, Result, State, Timestamp};

use super::error::{During, classify};
use super::sql;
use crate::wakes::News;

pub(super) struct Tx<'c> {
    pub(super) connection: &'c Connection,
    pub(super) now: Timestamp,
    pub(super) error_bytes_max: usize,
    /// The last number drawn, once one was.
    sequence: Option<i64>,
    /// Differences per lane and state; small, and written once at the end.
    tallies: BTreeMap<(QueueName, Priority), [i64; State::ALL.len()]>,
    /// What there is to tell after the commit.
    pub(super) news: News,
}

impl<'c> Tx<'c> {
    pub(super) fn new(connection: &'c Connection, now: Timestamp, error_bytes_max: usize) -> Self {
        Self {
            connection,
            now,
            error_bytes_max,
            sequence: None,
            tallies: BTreeMap::new(),
            news: News::default(),
        }
    }

    /// A statement, prepared once per connection.
    pub(super) fn statement(&self, text: &'static str) -> Result<CachedStatement<'c>> {
        self.connection.prepare_cached(text).during("prepare a statement")
    }

    /// Runs a statement that returns nothing; answers how many rows it changed.
    pub(super) fn execute(&self, text: &'static str, params: impl Params) -> Result<usize> {
        self.statement(text)?.execute(params).map_err(|cause| failed(text, cause))
    }

    /// Runs a statement that returns at most one row.
    pub(super) fn one<T>(
        &self,
        text: &'static str,
        params: impl Params,
        read: impl FnOnce(&SqlRow<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>> {
        let row = self.statement(text)?.query_row(params, read).optional();
        row.map_err(|cause| failed(text, cause))
    }

    /// Runs a statement and reads all of its rows.
    pub(super) fn all<T>(
        &self,
        text: &'static str,
        params: impl Params,
        read: impl FnMut(&SqlRow<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>> {
        let mut statement = self.statement(text)?;
        let rows = statement.query_map(params, read).and_then(Iterator::collect);
        rows.map_err(|cause| failed(text, cause))
    }

    /// The next number for a task, a position or an epoch.
    pub(super) fn next_number(&mut self) -> Result<i64> {
        let last = match self.sequence {
            Some(last) => last,
            None => self.one(sql::SEQUENCE_GET, [], |row| row.get(0))?.unwrap_or(0),
        };
        self.sequence = Some(last + 1);
        Ok(last + 1)
    }

    /// Counts tasks into a state (or out of it, when negative).
    pub(super) fn count(&mut self, queue: &QueueName, priority: Priority, state: State, by: i64) {
        let counts = self.tallies.entry((queue.clone(), priority)).or_default();
        counts[state as usize] += by;
    }

    /// Tells, after the commit, that a queue has work.
    pub(super) fn tell_ready(&mut self, queue: &QueueName) {
        if !self.news.ready.contains(queue) {
            self.news.ready.push(queue.clone());
        }
    }

    /// Refuses a leader whose term is not the highest any more, and remembers a higher one.
    pub(super) fn check_term(&self, term: Term) -> Result<()> {
        let leader = self.one(sql::LEAD, [], |row| {
            Ok((row.get::<_, Option<String>>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
        })?;
        let (holder, until, highest) = leader.unwrap_or((None, 0, 0));
        let asked = i64::try_from(term.0).unwrap_or(i64::MAX);
        if asked < highest {
            return Err(
                Error::lease_lost(format!("upkeep in term {term}")).reason_is(Reason::StaleTerm)
            );
        }
        if asked > highest {
            self.execute(sql::LEAD_SET, (holder, until, asked))?;
        }
        Ok(())
    }

    /// Writes what was only counted so far.
    pub(super) fn flush(&mut self) -> Result<()> {
        if let Some(last) = self.sequence {
            self.execute(sql::SEQUENCE_SET, [last])?;
        }
        for ((queue, priority), c) in std::mem::take(&mut self.tallies) {
            if c.iter().any(|difference| *difference != 0) {
                let params = (
                    queue.as_str(),
                    priority.as_number(),
                    c[0],
                    c[1],
                    c[2],
                    c[3],
                    c[4],
                    c[5],
                    c[6],
                );
                self.execute(sql::TALLY_ADD, params)?;
            }
        }
        Ok(())
    }
}

/// Names a statement that failed by the first words of its comment.
fn failed(text: &'static str, cause: rusqlite::Error) -> Error {
    let line = text.lines().next().unwrap_or_default().trim_start_matches("-- ");
    classify(line.split([':', '.']).next().unwrap_or(line), cause)
}
