//! Tasks inside your own transactions, for stores that are the same database as your data.
//!
//! | your transaction | feature | a submit | a completion |
//! |---|---|---|---|
//! | `rusqlite::Transaction` | `sqlite` | `client.enqueue(task).within(&tx)?` | `cx.complete_within(&tx, &output)?` |
//! | `tokio_postgres::Transaction` | `postgres` | `client.enqueue(task).within(&tx).await?` | `cx.complete_within(&tx, &output).await?` |
//! | `sqlx::PgConnection` | `sqlx-0_9` | `client.enqueue(task).within(&mut *tx).await?` | `cx.complete_within(&mut *tx, &output).await?` |

#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;

use std::any::Any;

use serde::Serialize;
use windlass_core::{Error, Result, Store};

/// Submits inside a transaction `X` of the caller's.
#[diagnostic::on_unimplemented(
    message = "a task cannot be submitted within a `{X}`",
    note = "give `&windlass::rusqlite::Transaction`, `&windlass::tokio_postgres::Transaction` or `&mut windlass::sqlx::PgConnection`; a driver of your own must be of the same version, and the feature `sqlite`, `postgres` or `sqlx-0_9` on"
)]
pub trait Within<X> {
    /// What the submit answers: for SQLite, which does not wait, the handle itself; for PostgreSQL
    /// something to await.
    type Answer;

    /// Submits the task inside the transaction: it exists if and only if the transaction commits.
    ///
    /// The transaction must be on the same database as the client's store. Errors are as for any
    /// submit; besides, a store that is no such database is
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported). After an error the transaction is
    /// as it was before the call, unless PostgreSQL itself has failed it.
    fn within(self, transaction: X) -> Self::Answer;
}

/// Completes the task that is being run inside a transaction `X` of its handler's.
#[diagnostic::on_unimplemented(
    message = "a task cannot be completed within a `{X}`",
    note = "give `&windlass::rusqlite::Transaction`, `&windlass::tokio_postgres::Transaction` or `&mut windlass::sqlx::PgConnection`; a driver of your own must be of the same version, and the feature `sqlite`, `postgres` or `sqlx-0_9` on"
)]
pub trait CompleteWithin<X> {
    /// What the completion answers.
    type Answer;

    /// Completes the task inside the transaction: what the handler has written there and the
    /// completion are kept together or not at all. After the commit return `Ok` with the same
    /// output.
    ///
    /// [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost) means that the task is no longer this
    /// run's to complete (it timed out, or another worker has it): roll back. After a rollback the
    /// task ends as the handler says, as always.
    fn complete_within<O: Serialize>(&self, transaction: X, output: &O) -> Self::Answer;
}

/// The store, if it is one of this sort.
fn store_of<'s, S: Store>(store: &'s dyn Store, sort: &str) -> Result<&'s S> {
    let name = store.profile().name;
    let any: &dyn Any = store;
    any.downcast_ref().ok_or_else(|| {
        Error::unsupported(format!("a store of type {name} takes no transactions of {sort}"))
    })
}
