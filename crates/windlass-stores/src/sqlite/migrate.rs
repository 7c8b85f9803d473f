//! The schema and its versions. Any number of processes may start at once: one migrates, the others
//! wait for its lock and find the work done.

use rusqlite::{Connection, TransactionBehavior};
use windlass_core::{Error, ErrorKind, Reason, Result};

use super::connection::while_busy;
use super::error::During;
use super::sql;
use crate::schema::Migration;

/// Every migration, in order; the schema's version is how many were applied. Never edit one that
/// was released.
pub(super) const MIGRATIONS: &[Migration] = &[
    Migration { name: "0001_tasks", sql: include_str!("../../migrations/sqlite/0001_tasks.sql") },
    Migration {
        name: "0002_broadcasts",
        sql: include_str!("../../migrations/sqlite/0002_broadcasts.sql"),
    },
    Migration { name: "0003_pauses", sql: include_str!("../../migrations/sqlite/0003_pauses.sql") },
    Migration {
        name: "0004_idle_queues",
        sql: include_str!("../../migrations/sqlite/0004_idle_queues.sql"),
    },
];

/// Brings the schema up to date, or says why that cannot be.
pub(super) fn migrate(connection: &mut Connection) -> Result<()> {
    if version(connection)? == MIGRATIONS.len() {
        return Ok(());
    }
    let name = "migrate";
    let transaction = while_busy(|| {
        rusqlite::Transaction::new_unchecked(connection, TransactionBehavior::Immediate)
    })
    .during(name)?;
    // Looked at again under the lock: another process may have been faster.
    let from = version(&transaction)?;
    for migration in &MIGRATIONS[from..] {
        transaction.execute_batch(migration.sql).during(name)?;
    }
    transaction.execute(sql::SCHEMA_VERSION_SET, [MIGRATIONS.len() as i64]).during(name)?;
    transaction.commit().during(name)
}

/// Refuses a database whose schema is not just the one known here.
pub(super) fn check(connection: &Connection) -> Result<()> {
    let (stored, known) = (version(connection)?, MIGRATIONS.len());
    if stored < known {
        let text = format!("the database has schema version {stored}, not {known}");
        return Err(Error::unsupported(text));
    }
    Ok(())
}

/// The schema as text, for the dump that makes migrations reviewable.
pub(super) fn dump(connection: &Connection) -> Result<String> {
    let mut statement = connection.prepare(sql::SCHEMA).during("read the schema")?;
    let parts = statement
        .query_map([], |row| row.get::<_, String>(0))
        .and_then(Iterator::collect::<rusqlite::Result<Vec<_>>>)
        .during("read the schema")?;
    Ok(format!(
        "-- The schema of the SQLite store, version {}. Written by `cargo xtask schema`; do not edit.\n\n{};\n",
        MIGRATIONS.len(),
        parts.join(";\n\n"),
    ))
}

/// How many migrations were applied; none where windlass has no tables yet. Kept in a table of our
/// own: `user_version` belongs to the application whose file it may be.
pub(super) fn version(connection: &Connection) -> Result<usize> {
    let read = |text: &str| -> Result<i64> {
        while_busy(|| connection.query_row(text, [], |row| row.get(0)))
            .during("read the schema's version")
    };
    let exists = read(sql::SCHEMA_EXISTS)? > 0;
    let stored = if exists { read(sql::SCHEMA_VERSION)? } else { 0 };
    let known = MIGRATIONS.len();
    usize::try_from(stored).ok().filter(|version| *version <= known).ok_or_else(|| {
        Error::new(
            ErrorKind::Unsupported,
            format!(
                "the database has schema version {stored}, this windlass knows up to {known}: \
                 use a newer windlass"
            ),
        )
        .reason_is(Reason::NewerSchema)
    })
}
