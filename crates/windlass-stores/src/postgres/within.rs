//! Submits and completions inside the caller's own transaction, on the caller's own connection.
//!
//! Whatever is needed and may be seen by everybody (numbers, names, a lease of its own) is made on the
//! store's connections beforehand. What is left is one call of a function in the schema, which works
//! under any search path and leaves no trace in the caller's session but its rows.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use serde_json::json;
use windlass_core::store::{Inserted, Reservation};
use windlass_core::unique::{Hold, OnConflict};
use windlass_core::{Error, ErrorKind, NewTask, Result, TaskId, Transition, When, duration};

use super::error::{classify_code, name_busy};
use super::id::{Id, token_of};
use super::insert::extras_of;
use super::{PostgresStore, Shared, sql};

/// How long a name may be in the making in someone's open transaction, and how long after each other it
/// is looked for.
const NAME_WAIT_MAX: Duration = Duration::from_secs(5);
const NAME_PAUSE: Duration = Duration::from_millis(100);

/// A connection of the caller's on which a transaction is open.
#[async_trait]
pub trait Connection: Send {
    /// Runs a statement with a text and some bytes as its values; answers the two texts of its row.
    async fn call(
        &mut self,
        statement: String,
        asked: String,
        bytes: &[u8],
    ) -> Result<[Option<String>; 2]>;
}

/// Whether the commit of a transaction wakes workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Bell {
    /// It does.
    #[default]
    Rings,
    /// They find the task when they look by themselves, within a second.
    IsQuiet,
}

impl PostgresStore {
    /// Stores a task inside a transaction on the same database: it exists if and only if that
    /// commits. Answers the id that it was given.
    ///
    /// Until the transaction ends, submits that want one of its keys wait, and nobody else.
    pub async fn insert_within(
        &self,
        connection: &mut dyn Connection,
        mut task: NewTask,
        bell: Bell,
    ) -> Result<(TaskId, Inserted)> {
        let (task, asked) = self
            .run(|shared| async move {
                let wish = Reservation { queue: task.queue.clone(), count: 1 };
                let ids = shared.reserve(&[wish]).await?;
                task.id = ids.into_iter().next().ok_or_else(|| Error::corrupt("no id"))?;
                let asked = shared.prepare_submit(&task, bell).await?;
                Ok((task, asked))
            })
            .await?;
        let statement = self.shared.within(sql::WITHIN_SUBMIT);
        let [outcome, holder] = connection.call(statement, asked, &task.payload).await?;
        let inserted = match (outcome.as_deref(), holder.map(TaskId::new)) {
            (Some("new"), _) => Inserted::New { created_at: None },
            (Some("existing"), Some(id)) => Inserted::Existing { id, is_same_request: true },
            (Some("different"), Some(id)) => Inserted::Existing { id, is_same_request: false },
            (Some("conflict"), Some(holder)) => Inserted::Conflict { holder },
            (outcome, _) => return Err(self.shared.refused("submit", outcome)),
        };
        Ok((task.id, inserted))
    }

    /// Records the success of a run inside a transaction on the same database: the task is completed
    /// if and only if that commits. A lease that is not valid any more is
    /// [`windlass_core::ErrorKind::LeaseLost`], and the caller must roll back.
    pub async fn complete_within(
        &self,
        connection: &mut dyn Connection,
        completion: &Transition,
    ) -> Result<()> {
        let task = &completion.lease.task;
        let lost = || Error::lease_lost(format!("complete task {task} within a transaction"));
        let (Some(id), Some(token)) = (Id::of(task), token_of(completion.lease.epoch)) else {
            return Err(lost());
        };
        let detached = self
            .run(|shared| async move {
                let session = shared.work.session().await?;
                let row = session.one(sql::DETACH, &[&token, &id.seq]).await?;
                Ok(row.map(|row| row.get::<_, i64>(0)).zip(Some(shared.identity().await?)))
            })
            .await?;
        // Without one it may have been completed before, in the same transaction.
        let (own, identity) = match detached {
            Some(detached) => detached,
            None => (-1, self.run(|shared| async move { shared.identity().await }).await?),
        };
        let took = completion.took.map(|took| i32::try_from(took.as_millis()).unwrap_or(i32::MAX));
        let asked = json!({
            "identity": identity,
            "told": self.shared.options.told_time(),
            "token": own,
            "epoch": token,
            "seq": id.seq,
            "took_ms": took.unwrap_or(-1),
            "retention_ms": duration::as_millis_ceil(completion.retention),
            "has_output": completion.next.result.is_some(),
        });
        let output = completion.next.result.clone().unwrap_or_default();
        let statement = self.shared.within(sql::WITHIN_COMPLETE);
        let [outcome, _] = connection.call(statement, asked.to_string(), &output).await?;
        match outcome.as_deref() {
            Some("completed") => Ok(()),
            Some("lost") => Err(lost()),
            outcome => Err(self.shared.refused("complete", outcome)),
        }
    }
}

impl Shared {
    /// A statement with the schema's name put in.
    fn within(&self, text: &str) -> String {
        text.replace("{schema}", &self.options.schema.replace('"', "\"\""))
    }

    /// Everything that is to be known of a task before the caller's transaction takes it. Its names
    /// get their numbers here, in sight of everybody: in a transaction that is still open they would
    /// hold up all who use the same new name, and a rollback would leave wrong ones remembered.
    async fn prepare_submit(&self, task: &NewTask, bell: Bell) -> Result<String> {
        task.validate(&self.options.limits)?;
        let id = Id::of(&task.id).ok_or_else(|| Error::corrupt("an id of no number"))?;
        let session = self.submits.session().await?;
        let (queue, kind) = (task.queue.as_str(), task.kind.as_str());
        let started = Instant::now();
        let names = loop {
            let names = self.naming(&session, std::iter::once(task)).await?;
            if names.has_all_of(task) {
                break names;
            }
            // Not for long: it may be the caller's own transaction that is making the name.
            if started.elapsed() >= NAME_WAIT_MAX {
                return Err(name_busy(task));
            }
            tokio::time::sleep(NAME_PAUSE).await;
        };
        let unknown = || Error::corrupt("a name was made and is not there");
        let unique = task.unique.as_ref();
        let unique_for_ms = unique.and_then(|unique| match unique.hold {
            Hold::For(time) => Some(duration::as_millis_ceil(time)),
            Hold::UntilFinished => None,
        });
        let (run_at, delay_ms) = match task.when {
            When::Now => (None, None),
            When::After(delay) => (None, Some(duration::as_millis_ceil(delay))),
            When::At(at) => (Some(at.as_millis()), None),
        };
        let extras = String::from_utf8_lossy(&extras_of(task)).into_owned();
        let asked = json!({
            "identity": self.identity().await?,
            "told": self.options.told_time(),
            "seq": id.seq,
            "stamp": id.stamp,
            "queue": names.queues.id(queue).ok_or_else(unknown)?,
            "kind": names.kinds.id(kind).ok_or_else(unknown)?,
            "queue_name": queue,
            "kind_name": kind,
            "priority": task.priority.as_number(),
            "max_retries": task.spec.max_retries,
            "max_crashes": task.spec.max_crashes,
            "timeout_ms": duration::as_millis_ceil(task.spec.timeout),
            "retention_ms": duration::as_millis_ceil(task.spec.retention),
            "extras": extras,
            "run_at": run_at,
            "delay_ms": delay_ms,
            "idempotency_key": task.idempotency_key,
            "unique_key": unique.and_then(|unique| unique.key.as_ref()),
            "is_unique": unique.is_some(),
            "unique_for_ms": unique_for_ms,
            "returns_holder": unique.is_some_and(|unique| unique.on_conflict == OnConflict::Return),
            "is_quiet": bell == Bell::IsQuiet || !self.options.listens,
        });
        Ok(asked.to_string())
    }

    /// Tells this schema from any other.
    pub(super) async fn identity(&self) -> Result<String> {
        if let Some(known) = self.identity.lock().clone() {
            return Ok(known);
        }
        let session = self.submits.session().await?;
        let row = session.one(sql::IDENTITY, &[]).await?;
        let told: String =
            row.map(|row| row.get(0)).ok_or_else(|| Error::corrupt("no identity"))?;
        *self.identity.lock() = Some(told.clone());
        Ok(told)
    }

    fn refused(&self, operation: &str, outcome: Option<&str>) -> Error {
        let schema = &self.options.schema;
        match outcome {
            Some("elsewhere") => stranger(operation, schema),
            Some("invisible") => Error::unsupported(format!(
                "{operation} a task in a transaction that saw the database before the task had a \
                 lease of its own: use READ COMMITTED, or begin the transaction again"
            )),
            outcome => Error::corrupt(format!("{operation} within a transaction: {outcome:?}")),
        }
    }
}

fn stranger(operation: &str, schema: &str) -> Error {
    let text = format!(
        "{operation} within a transaction that is not on the database of the store (schema {schema:?})"
    );
    Error::invalid(text)
}

/// Sorts an error of the caller's connection.
fn failed(code: Option<&str>, cause: impl std::error::Error + Send + Sync + 'static) -> Error {
    // No such function, schema or table.
    if matches!(code, Some("42883" | "3F000" | "42P01")) {
        let text = "the transaction is not on the database of the store, or its schema is older";
        return Error::invalid(text).because(cause);
    }
    let (kind, reason) = code.map_or((ErrorKind::Unavailable, Default::default()), classify_code);
    Error::new(kind, "work within a transaction").reason_is(reason).because(cause)
}

mod of_tokio_postgres {
    use tokio_postgres::Transaction;
    use tokio_postgres::types::Type;

    use super::{Connection, Error, Result, async_trait, failed};

    #[async_trait]
    impl Connection for &Transaction<'_> {
        async fn call(
            &mut self,
            statement: String,
            asked: String,
            bytes: &[u8],
        ) -> Result<[Option<String>; 2]> {
            // Not prepared: between a pooler and the server no statement has a name.
            let rows = self
                .query_typed(&statement, &[(&asked, Type::TEXT), (&bytes, Type::BYTEA)])
                .await
                .map_err(|cause| {
                    failed(cause.code().map(|code| code.code()).map(String::from).as_deref(), cause)
                })?;
            let row = rows.first().ok_or_else(|| Error::corrupt("a call had no answer"))?;
            Ok([row.get(0), row.get(1)])
        }
    }
}

#[cfg(feature = "sqlx-0_9")]
mod of_sqlx {
    use sqlx::{AssertSqlSafe, PgConnection, Row};

    use super::{Connection, Result, async_trait, failed};

    #[async_trait]
    impl Connection for &mut PgConnection {
        async fn call(
            &mut self,
            statement: String,
            asked: String,
            bytes: &[u8],
        ) -> Result<[Option<String>; 2]> {
            let query = sqlx::query(AssertSqlSafe(statement)).bind(asked).bind(bytes);
            let row = query.persistent(false).fetch_one(&mut **self).await;
            let read = |row: sqlx::postgres::PgRow| Ok([row.try_get(0)?, row.try_get(1)?]);
            row.and_then(read).map_err(|cause: sqlx::Error| {
                let code = cause.as_database_error().and_then(|error| error.code());
                failed(code.map(String::from).as_deref(), cause)
            })
        }
    }
}
