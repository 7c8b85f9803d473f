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
use windlass::rusqlite::{Connection, TransactionBehavior};

const SCHEMA: &str = include_str!("shop/schema.sql");
const ORDER: &str = include_str!("shop/order.sql");
const INVOICE: &str = include_str!("shop/invoice.sql");
const COUNT: &str = include_str!("shop/count.sql");

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
    tx.execute(INVOICE, [task.order])?;
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
    shop.execute_batch(SCHEMA)?;
    let worker = client.worker().state(path).handle_blocking(invoice).start().await?;

    // Both or neither: here neither, since the transaction is dropped.
    let tx = shop.transaction_with_behavior(TransactionBehavior::Immediate)?;
    tx.execute(ORDER, ["a mistake"])?;
    let order = tx.last_insert_rowid();
    let handle = client.enqueue(Invoice { order }).within(&tx)?;
    drop(tx);
    let error = handle.wait().await.expect_err("there is no such task");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    println!("rolled back: {error}");

    // Here both.
    let tx = shop.transaction_with_behavior(TransactionBehavior::Immediate)?;
    tx.execute(ORDER, ["a kite"])?;
    let order = tx.last_insert_rowid();
    let handle = client.enqueue(Invoice { order }).within(&tx)?;
    tx.commit()?;
    let number = handle.wait().await?;
    let (orders, invoices): (i64, i64) =
        shop.query_row(COUNT, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
    println!("committed: {orders} order, {invoices} invoice, number {number}");
    worker.stop().await?;
    Ok(())
}
