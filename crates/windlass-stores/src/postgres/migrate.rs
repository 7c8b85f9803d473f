//! The schema and its versions. Any number of processes may start at once: one migrates, the others
//! wait for its lock and find the work done.

use windlass_core::{Error, ErrorKind, Reason, Result};

use super::error::During;
use super::options::PostgresOptions;
use super::session::Session;
use super::sql;
use crate::schema::Migration;

/// Every migration, in order; the schema's version is how many were applied. Never edit one that
/// was released.
pub(super) const MIGRATIONS: &[Migration] = &[
    Migration { name: "0001_tasks", sql: include_str!("../../migrations/postgres/0001_tasks.sql") },
    Migration {
        name: "0002_generations",
        sql: include_str!("../../migrations/postgres/0002_generations.sql"),
    },
    Migration {
        name: "0003_functions",
        sql: include_str!("../../migrations/postgres/0003_functions.sql"),
    },
    Migration {
        name: "0004_enqueue",
        sql: include_str!("../../migrations/postgres/0004_enqueue.sql"),
    },
    Migration { name: "0005_views", sql: include_str!("../../migrations/postgres/0005_views.sql") },
    Migration {
        name: "0006_outbox",
        sql: include_str!("../../migrations/postgres/0006_outbox.sql"),
    },
    Migration {
        name: "0007_own_notes",
        sql: include_str!("../../migrations/postgres/0007_own_notes.sql"),
    },
    Migration {
        name: "0008_paused_queues",
        sql: include_str!("../../migrations/postgres/0008_paused_queues.sql"),
    },
    Migration {
        name: "0009_gone_workers",
        sql: include_str!("../../migrations/postgres/0009_gone_workers.sql"),
    },
    Migration {
        name: "0010_idle_queues",
        sql: include_str!("../../migrations/postgres/0010_idle_queues.sql"),
    },
    Migration {
        name: "0011_more_views",
        sql: include_str!("../../migrations/postgres/0011_more_views.sql"),
    },
];

/// Brings the schema up to date, or says why that cannot be.
pub(super) async fn migrate(session: &Session, options: &PostgresOptions) -> Result<()> {
    if version(session, options).await? == MIGRATIONS.len() {
        return Ok(());
    }
    if !options.creates {
        return Err(Error::new(ErrorKind::NotFound, outdated(options)));
    }
    // Others may migrate at this moment, and large tables take long.
    session.wait_patiently(true);
    session.control("BEGIN").await?;
    let migrated = apply(session, options).await;
    let step = if migrated.is_ok() { "COMMIT" } else { "ROLLBACK" };
    let ended = session.control(step).await;
    migrated.and(ended).map_err(|error| match error.reason() {
        Reason::Forbidden => {
            Error::new(error.kind(), outdated(options)).reason_is(Reason::Forbidden).because(error)
        }
        _ => error,
    })
}

/// What is told to those who may not, or are not to, change the schema.
fn outdated(options: &PostgresOptions) -> String {
    format!(
        "no up-to-date windlass schema {:?} in that database: run `windlass migrate up` as its owner",
        options.schema
    )
}

async fn apply(session: &Session, options: &PostgresOptions) -> Result<()> {
    let name = "migrate";
    session.all(sql::SCHEMA_LOCK, &[&options.schema]).await?;
    // Looked at again under the lock: another process may have been faster.
    let from = version(session, options).await?;
    let exists = session.one(sql::SCHEMA_EXISTS, &[&options.schema]).await?;
    if !exists.is_some_and(|row| row.get::<_, bool>(0)) {
        let schema = options.schema.replace('"', "\"\"");
        let text = sql::SCHEMA_MAKE.replace("{schema}", &schema);
        session.client.batch_execute(&text).await.during(name)?;
    }
    for migration in &MIGRATIONS[from..] {
        session.client.batch_execute(migration.sql).await.during(name)?;
    }
    let version = i32::try_from(MIGRATIONS.len()).unwrap_or(i32::MAX);
    session.execute(sql::SCHEMA_VERSION_SET, &[&version]).await?;
    Ok(())
}

/// What [`migrate`] would do now, as a script for whoever may: in one transaction, under the same lock,
/// and only while the schema is as it is now. Nothing of the session that runs it gets into it.
pub(super) async fn script(session: &Session, options: &PostgresOptions) -> Result<String> {
    let (from, to) = (version(session, options).await?, MIGRATIONS.len());
    let schema = &options.schema;
    if from == to {
        return Ok(format!("-- The schema {schema:?} has version {to}: there is nothing to do.\n"));
    }
    let put = |text: &str| {
        let text = text.replace("{from}", &from.to_string()).replace("{to}", &to.to_string());
        text.replace("{schema}", &schema.replace('\'', "''"))
    };
    // Its first lines are for its readers here.
    let text = sql::SCHEMA_SCRIPT.split_once("BEGIN;").map_or("", |(_, text)| text);
    let (before, behind) = text.split_once("-- migrations\n").unwrap_or((text, ""));
    let mut script = format!(
        "-- Brings the schema {schema:?} of windlass from version {from} to {to}: run it as the schema's owner.\n\
         BEGIN;{}",
        put(before)
    );
    for migration in &MIGRATIONS[from..] {
        script.push_str(&format!("-- {}\n{}\n", migration.name, migration.sql));
    }
    script.push_str(&put(behind));
    Ok(script)
}

/// The schema as text, for the dump that makes migrations reviewable.
pub(super) async fn dump(session: &Session) -> Result<String> {
    let rows = session.all(sql::SCHEMA, &[]).await?;
    let parts: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    Ok(format!(
        "-- The schema of the PostgreSQL store, version {}. Written by `cargo xtask schema`; do not edit.\n\n{};\n",
        MIGRATIONS.len(),
        parts.join(";\n\n"),
    ))
}

/// How many migrations were applied; none where windlass has no tables yet.
pub(super) async fn version(session: &Session, options: &PostgresOptions) -> Result<usize> {
    let exists = session.one(sql::SCHEMA_EXISTS, &[&options.schema]).await?;
    if !exists.as_ref().is_some_and(|row| row.get::<_, bool>(1)) {
        return Ok(0);
    }
    if let Some(right) = exists.and_then(|row| row.get::<_, Option<String>>(2)) {
        let text = format!(
            "the role lacks {right} in schema {:?}: grant what \"Roles and rights\" in \
             docs/postgres.md says",
            options.schema
        );
        return Err(Error::new(ErrorKind::Unavailable, text).reason_is(Reason::Forbidden));
    }
    let stored = session.one(sql::SCHEMA_VERSION, &[]).await?.map_or(0, |row| row.get::<_, i32>(0));
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
