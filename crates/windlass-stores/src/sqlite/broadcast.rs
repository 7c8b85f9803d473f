//! Broadcasts in SQLite: a short table that every process which listens reads along.

use std::sync::{Arc, Weak};

use rusqlite::Connection;
use tokio::time::timeout;
use windlass_core::Result;

use super::error::During;
use super::transaction::Tx;
use super::{Shared, sql, watch};
use crate::broadcasts::Ear;

/// Messages that are kept for those who read along.
const KEPT_MAX: i64 = 2_000;
/// Messages in one read.
const READ_AT_ONCE: i64 = 200;

impl Tx<'_> {
    /// Writes messages down; the oldest go.
    pub(super) fn publish(&mut self, messages: &[String]) -> Result<()> {
        for message in messages {
            self.execute(sql::PUBLISH, (message, self.now.as_millis()))?;
        }
        self.execute(sql::PUBLISH_FORGET, [KEPT_MAX]).map(drop)
    }
}

/// Reads along until the store is gone.
pub(super) async fn tail(store: Weak<Shared>, ear: Ear) -> Result<()> {
    let Some(shared) = store.upgrade() else { return Ok(()) };
    let published = Arc::clone(&shared.published);
    let mut last = shared.readers.read(|connection, _| last_number(connection)).await?;
    drop(shared);
    ear.begin();
    loop {
        let told = published.notified();
        let Some(shared) = store.upgrade() else { return Ok(()) };
        let messages = shared.readers.read(move |connection, _| after(connection, last)).await?;
        drop(shared);
        let has_more = i64::try_from(messages.len()) == Ok(READ_AT_ONCE);
        for (number, message) in messages {
            // Numbers have no holes but those of messages that were forgotten before they were read.
            if number != last + 1 {
                ear.miss();
            }
            last = number;
            ear.say(message);
        }
        if !has_more {
            // Other processes cannot tell: they are looked for.
            drop(timeout(watch::EVERY, told).await);
        }
    }
}

fn last_number(connection: &Connection) -> Result<i64> {
    let name = "read the last broadcast";
    let mut statement = connection.prepare_cached(sql::BROADCAST_LAST).during(name)?;
    statement.query_row([], |row| row.get(0)).during(name)
}

fn after(connection: &Connection, last: i64) -> Result<Vec<(i64, String)>> {
    let name = "read broadcasts";
    let mut statement = connection.prepare_cached(sql::BROADCASTS).during(name)?;
    let rows = statement
        .query_map((last, READ_AT_ONCE), |row| Ok((row.get(0)?, row.get(1)?)))
        .during(name)?;
    rows.collect::<rusqlite::Result<_>>().during(name)
}
