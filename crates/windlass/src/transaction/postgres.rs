//! Tasks inside transactions of PostgreSQL, made with `tokio-postgres` or `sqlx`.

use std::future::IntoFuture;
use std::pin::Pin;

use serde::Serialize;
use windlass_core::{Result, Store};
use windlass_engine::{Context, Enqueue, Handle, Task};
use windlass_stores::postgres::tokio_postgres::Transaction;
use windlass_stores::postgres::{Bell, Connection, PostgresStore};

use super::{CompleteWithin, Within, store_of};

const SORT: &str = "PostgreSQL";

/// Something to await that uses the caller's transaction meanwhile.
type Answer<'x, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'x>>;

/// A submit inside a transaction; `.await` does it.
#[must_use = "a task is submitted by awaiting this"]
pub struct Submit<'x, T> {
    enqueue: Enqueue<T>,
    connection: Box<dyn Connection + 'x>,
    bell: Bell,
}

impl<T> Submit<'_, T> {
    /// Does not wake workers when the transaction commits: they find the task by themselves, within a
    /// second, or two where a broker has to be told of it. Commits that wake somebody wait for each
    /// other, all over the server.
    pub fn quiet(self) -> Self {
        Self { bell: Bell::IsQuiet, ..self }
    }
}

impl<'x, T: Task> IntoFuture for Submit<'x, T> {
    type Output = Result<Handle<T>>;
    type IntoFuture = Answer<'x, Handle<T>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { enqueue, mut connection, bell } = self;
        let parts = enqueue.into_parts();
        Box::pin(async move {
            let (client, task) = parts?;
            let store = ledger_of(&**client.store())?;
            let answer = store.insert_within(&mut *connection, task, bell).await?;
            client.accept(answer)
        })
    }
}

impl<'x, T: Task> Within<&'x Transaction<'_>> for Enqueue<T> {
    type Answer = Submit<'x, T>;

    fn within(self, transaction: &'x Transaction<'_>) -> Submit<'x, T> {
        Submit { enqueue: self, connection: Box::new(transaction), bell: Bell::default() }
    }
}

impl<'x, S> CompleteWithin<&'x Transaction<'_>> for Context<S> {
    type Answer = Answer<'x, ()>;

    fn complete_within<O: Serialize>(
        &self,
        transaction: &'x Transaction<'_>,
        output: &O,
    ) -> Answer<'x, ()> {
        complete(self, transaction, output)
    }
}

#[cfg(feature = "sqlx-0_9")]
mod of_sqlx {
    use windlass_stores::postgres::sqlx::PgConnection;

    use super::{
        Answer, Bell, CompleteWithin, Context, Enqueue, Serialize, Submit, Task, Within, complete,
    };

    impl<'x, T: Task> Within<&'x mut PgConnection> for Enqueue<T> {
        type Answer = Submit<'x, T>;

        fn within(self, connection: &'x mut PgConnection) -> Submit<'x, T> {
            Submit { enqueue: self, connection: Box::new(connection), bell: Bell::default() }
        }
    }

    impl<'x, S> CompleteWithin<&'x mut PgConnection> for Context<S> {
        type Answer = Answer<'x, ()>;

        fn complete_within<O: Serialize>(
            &self,
            connection: &'x mut PgConnection,
            output: &O,
        ) -> Answer<'x, ()> {
            complete(self, connection, output)
        }
    }
}

fn complete<'x, S, O: Serialize>(
    cx: &Context<S>,
    mut connection: impl Connection + 'x,
    output: &O,
) -> Answer<'x, ()> {
    let (completion, client) = (cx.completion(output), cx.client().clone());
    Box::pin(async move {
        let store = ledger_of(&**client.store())?;
        store.complete_within(&mut connection, &completion?).await
    })
}

/// The database behind a store, with brokers in front of it or without.
fn ledger_of(store: &dyn Store) -> Result<&PostgresStore> {
    #[cfg(feature = "redis")]
    if let Ok(hybrid) = store_of::<windlass_stores::hybrid::HybridStore>(store, SORT) {
        return Ok(hybrid.ledger());
    }
    store_of(store, SORT)
}
