//! A trigger that submits a task for every new row: the application that inserts knows nothing of
//! windlass, and may be written in any language.
//!
//! `DATABASE_URL=postgres://… cargo run -p windlass --example postgres_trigger --features postgres`. It makes
//! the schemas `windlass` and `windlass_example_orders`, with a table and a trigger; what is there it leaves alone.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use serde::{Deserialize, Serialize};
use windlass::prelude::*;
use windlass::tokio_postgres::{self, NoTls};

/// What the trigger submits.
#[derive(Serialize, Deserialize)]
struct Ship {
    id: i32,
    item: String,
}

impl Task for Ship {
    const KIND: &'static str = "order.ship";
    type Output = String;
}

async fn ship(task: Ship, _cx: Context<()>) -> Outcome<String> {
    Ok(format!("order {}: {} is on its way", task.id, task.item))
}

const SETUP: &str = include_str!("orders/schema.sql");
const ORDER: &str = include_str!("orders/order.sql");
const MISTAKE: &str = include_str!("orders/mistake.sql");
const SHIPPED: &str = include_str!("orders/shipped.sql");

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL").map_err(
        |_| "say which database to use: DATABASE_URL=postgres://USER:PASSWORD@HOST/DATABASE",
    )?;
    if url.contains("schema=") {
        return Err(
            "the trigger of this example calls windlass.enqueue: leave ?schema= away".into()
        );
    }
    let client = windlass::connect(&url).await?; // first: it makes the schema
    let (shop, connection) = tokio_postgres::connect(&url, NoTls).await?;
    tokio::spawn(connection);
    shop.batch_execute(SETUP).await?;
    let worker = client.worker().handle(ship).queue("shipping", 1).start().await?;

    let order: i32 = shop.query_one(ORDER, &[]).await?.get(0);
    shop.batch_execute(MISTAKE).await?;
    let result: String = loop {
        if let Some(row) = shop.query_opt(SHIPPED, &[&order]).await? {
            break row.get(0);
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    println!("{result}");
    worker.stop().await?;
    Ok(())
}
