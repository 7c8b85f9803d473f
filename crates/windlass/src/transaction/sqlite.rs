//! Tasks inside transactions of SQLite.
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

use rusqlite::Transaction;
use serde::Serialize;
use windlass_core::Result;
use windlass_engine::{Context, Enqueue, Handle, Task};
use windlass_stores::sqlite::{SqliteStore, rusqlite};

use super::{CompleteWithin, Within, store_of};

const SORT: &str = "SQLite";

impl<T: Task> Within<&Transaction<'_>> for Enqueue<T> {
    type Answer = Result<Handle<T>>;

    fn within(self, transaction: &Transaction<'_>) -> Result<Handle<T>> {
        let (client, task) = self.into_parts()?;
        let store: &SqliteStore = store_of(&**client.store(), SORT)?;
        let answer = store.insert_within(transaction, task)?;
        client.accept(answer)
    }
}

impl<S> CompleteWithin<&Transaction<'_>> for Context<S> {
    type Answer = Result<()>;

    fn complete_within<O: Serialize>(
        &self,
        transaction: &Transaction<'_>,
        output: &O,
    ) -> Result<()> {
        let completion = self.completion(output)?;
        let store: &SqliteStore = store_of(&**self.client().store(), SORT)?;
        store.complete_within(transaction, &completion)
    }
}
