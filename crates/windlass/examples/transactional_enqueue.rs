//! A task that exists if and only if your own data does: both in one SQLite transaction. And a
//! handler whose writes and completion are one as well, so that its effect happens exactly once.
//!
//! `cargo run -p windlass --example transactional_enqueue`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use windlass::ErrorKind;
use windlass::prelude::*;
use windlass::rusqlite::{Connection, Result as SqlResult, TransactionBehavior};

#[derive(Serialize, Deserialize)]
struct Invoice {
    order: i64,
}

impl Task for Invoice {
    const KIND: &'static str = "order.invoice";
    type Output = i64;
}

/// Writes an invoice and completes its task in one transaction. Blocking, as SQLite is.
fn invoice(task: Invoice, cx: Context<PathBuf>) -> Outcome<i64> {
    let mut shop = Connection::open(cx.state())?;
    let tx = shop.transaction_with_behavior(TransactionBehavior::Immediate)?;
    tx.execute("INSERT INTO invoices (for_order) VALUES (?1)", [task.order])?;
    let number = tx.last_insert_rowid();
    // An error here (the run was given up, another may be under way) rolls the invoice back.
    cx.complete_within(&tx, &number)?;
    tx.commit()?;
    Ok(number)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("shop.db");
    // Windlass first: it makes the file, and your tables live beside its own.
    let client = windlass::connect(&format!("sqlite:{}", path.display())).await?;
    let mut shop = Connection::open(&path)?;
    shop.execute_batch(
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT NOT NULL);
         CREATE TABLE invoices (id INTEGER PRIMARY KEY, for_order INTEGER NOT NULL);",
    )?;
    let worker = client.worker().state(path).handle_blocking(invoice).start().await?;

    // Both or neither: here neither, since the transaction is dropped.
    let tx = shop.transaction_with_behavior(TransactionBehavior::Immediate)?;
    tx.execute("INSERT INTO orders (item) VALUES ('a mistake')", [])?;
    let order = tx.last_insert_rowid();
    let handle = client.enqueue(Invoice { order }).within(&tx)?;
    drop(tx);
    let error = handle.wait().await.expect_err("there is no such task");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    println!("rolled back: {error}");

    // Here both.
    let tx = shop.transaction_with_behavior(TransactionBehavior::Immediate)?;
    tx.execute("INSERT INTO orders (item) VALUES ('a kite')", [])?;
    let order = tx.last_insert_rowid();
    let handle = client.enqueue(Invoice { order }).within(&tx)?;
    tx.commit()?;
    let number = handle.wait().await?;
    let count = |table| shop.query_row(table, [], |row| row.get::<_, i64>(0));
    let orders: SqlResult<i64> = count("SELECT count(*) FROM orders");
    let invoices = count("SELECT count(*) FROM invoices");
    println!("committed: {} order, {} invoice, number {number}", orders?, invoices?);
    worker.stop().await?;
    Ok(())
}
