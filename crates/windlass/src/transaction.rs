//! Tasks inside your own transactions, for stores that are the same database as your data.
//!
//! ```
//! use windlass::prelude::*;
//! use windlass::rusqlite::{Connection, TransactionBehavior};
//! # use serde::{Deserialize, Serialize};
//! # #[derive(Serialize, Deserialize)]
//! # struct Ship { order: i64 }
//! # impl Task for Ship { const KIND: &'static str = "order.ship"; type Output = (); }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("shop.db");
//! let client = windlass::connect(&format!("sqlite:{}", path.display())).await?;
//! let mut shop = Connection::open(&path)?;
//! # shop.execute_batch("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)")?;
//!
//! let tx = shop.transaction_with_behavior(TransactionBehavior::Immediate)?;
//! tx.execute("INSERT INTO orders (item) VALUES ('a kite')", [])?;
//! client.enqueue(Ship { order: tx.last_insert_rowid() }).within(&tx)?;
//! tx.commit()?; // the order and its task, or neither
//! # Ok(())
//! # }
//! ```

use std::any::Any;

use rusqlite::Transaction;
use serde::Serialize;
use windlass_core::{Error, Result, Store};
use windlass_engine::{Context, Enqueue, Handle, Task};
use windlass_stores::sqlite::{SqliteStore, rusqlite};

/// Submits inside a transaction `X` of the caller's.
#[diagnostic::on_unimplemented(
    message = "a task cannot be submitted within a `{X}`",
    note = "for SQLite give `&windlass::rusqlite::Transaction`; a `rusqlite` of your own must be of the same version"
)]
pub trait Within<X> {
    /// What the submit answers: for SQLite, which does not wait, the handle itself.
    type Answer;

    /// Submits the task inside the transaction: it exists if and only if the transaction commits.
    ///
    /// The transaction must be on the same database as the client's store. Errors are as for any
    /// submit; besides, a store that is no such database is
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported). After an error the transaction is
    /// as it was before the call.
    fn within(self, transaction: X) -> Self::Answer;
}

impl<T: Task> Within<&Transaction<'_>> for Enqueue<T> {
    type Answer = Result<Handle<T>>;

    fn within(self, transaction: &Transaction<'_>) -> Result<Handle<T>> {
        self.submit_by(|store, task| sqlite(store)?.insert_within(transaction, task))
    }
}

/// Completes the task that is being run inside a transaction `X` of its handler's.
#[diagnostic::on_unimplemented(
    message = "a task cannot be completed within a `{X}`",
    note = "for SQLite give `&windlass::rusqlite::Transaction`; a `rusqlite` of your own must be of the same version"
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

impl<S> CompleteWithin<&Transaction<'_>> for Context<S> {
    type Answer = Result<()>;

    fn complete_within<O: Serialize>(
        &self,
        transaction: &Transaction<'_>,
        output: &O,
    ) -> Result<()> {
        let completion = self.completion(output)?;
        sqlite(&**self.client().store())?.complete_within(transaction, &completion)
    }
}

/// The store, if it is an SQLite file.
fn sqlite(store: &dyn Store) -> Result<&SqliteStore> {
    let name = store.profile().name;
    let any: &dyn Any = store;
    any.downcast_ref().ok_or_else(|| {
        Error::unsupported(format!("a store of type {name} takes no transactions of SQLite"))
    })
}
