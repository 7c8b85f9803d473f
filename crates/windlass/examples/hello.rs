//! The smallest program: one kind of task, one handler, one worker, on an embedded file.
//!
//! `cargo run -p windlass --example hello`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use serde::{Deserialize, Serialize};
use windlass::prelude::*;

#[derive(Serialize, Deserialize)]
struct Greet {
    name: String,
}

impl Task for Greet {
    const KIND: &'static str = "greet";
    type Output = String;
}

async fn greet(task: Greet, cx: Context<()>) -> Outcome<String> {
    Ok(format!("hello, {}! (run {} of task {})", task.name, cx.attempt(), cx.task_id()))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A real program would say `windlass::connect("sqlite:tasks.db")`.
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("tasks.db");
    let client = windlass::connect(&format!("sqlite:{}", file.display())).await?;

    let worker = client.worker().handle(greet).concurrency(4).start().await?;
    let handle = client.enqueue(Greet { name: "world".into() }).await?;
    println!("{}", handle.wait().await?);
    worker.stop().await?;
    Ok(())
}
