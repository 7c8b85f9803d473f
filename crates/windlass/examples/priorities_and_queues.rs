//! Priorities inside a queue, weights between queues.
//!
//! `cargo run -p windlass --example priorities_and_queues`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use windlass::prelude::*;

#[derive(Serialize, Deserialize)]
struct Job(String);

impl Task for Job {
    const KIND: &'static str = "job";
    type Output = ();
}

/// In which order tasks have run.
type Order = Arc<Mutex<Vec<String>>>;

async fn job(task: Job, cx: Context<Order>) -> Outcome<()> {
    cx.state().lock().map_err(|_| "poisoned")?.push(task.0);
    Ok(())
}

#[tokio::main]
async fn main() -> windlass::Result<()> {
    priorities().await?;
    weights().await
}

/// Inside a queue the higher priority goes first, however late it came.
async fn priorities() -> windlass::Result<()> {
    let client = windlass::connect("memory:").await?;
    let order = Order::default();
    let mut last = None;
    for priority in [Priority::Low, Priority::Normal, Priority::High, Priority::Critical] {
        let handle = client.enqueue(Job(priority.to_string())).priority(priority).await?;
        last.get_or_insert(handle);
    }
    let worker = client.worker().state(Arc::clone(&order)).handle(job).start().await?;
    if let Some(low) = last {
        low.wait().await?;
    }
    worker.stop().await?;
    let order = order.lock().expect("no handler panics").clone();
    println!("one queue: {}", order.join(", "));
    assert_eq!(order, ["critical", "high", "normal", "low"]);
    Ok(())
}

/// While both queues are backed up, the one of weight 3 gets three quarters of the runs.
async fn weights() -> windlass::Result<()> {
    let client = windlass::connect("memory:").await?;
    let order = Order::default();
    let mut handles = Vec::new();
    for queue in ["mail", "reports"] {
        for _ in 0..400 {
            handles.push(client.enqueue(Job(queue.into())).queue(queue).await?);
        }
    }
    let worker = client
        .worker()
        .state(Arc::clone(&order))
        .handle(job)
        .queue("mail", 3)
        .queue("reports", 1)
        // Not `.strict()`: then reports would wait until there is no mail at all.
        .concurrency(8)
        .start()
        .await?;
    for handle in handles {
        handle.wait().await?;
    }
    worker.stop().await?;
    let order = order.lock().expect("no handler panics").clone();
    let mail = order.iter().take(400).filter(|queue| *queue == "mail").count();
    println!("two queues: {mail} of the first 400 runs were mail");
    assert!((240..=360).contains(&mail), "{mail}");
    Ok(())
}
