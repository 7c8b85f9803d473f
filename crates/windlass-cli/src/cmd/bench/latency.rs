//! Mode `latency`: one task every 10 ms into an idle worker; from the submit to the handler's start.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::mpsc;
use windlass::core::{Error, ErrorKind, Store};
use windlass::{Configure, Context, Outcome, Task};

use super::Effort;
use super::report::{Percentiles, Report, per_second};
use super::scene::{KIND, Scene};
use crate::exit::Done;
use crate::table::grouped;

const EVERY: Duration = Duration::from_millis(10);
/// Enough for a 99th percentile, and over in a few seconds.
const TASKS_MAX: u64 = 500;

#[derive(Serialize, Deserialize)]
struct Ping(String);

impl Task for Ping {
    const KIND: &'static str = KIND;
    type Output = ();
}

async fn pong(_task: Ping, cx: Context<mpsc::UnboundedSender<Instant>>) -> Outcome<()> {
    let started = Instant::now();
    cx.state().send(started)?;
    Ok(())
}

pub(super) async fn run(store: Arc<dyn Store>, effort: &Effort, report: &mut Report) -> Done {
    let tasks = effort.tasks.min(TASKS_MAX);
    report.stage("one task every 10 ms", tasks);
    let scene = Scene::set(Arc::clone(&store), effort.payload_bytes).await?;
    let client = effort.client(store);
    let (started, mut starts) = mpsc::unbounded_channel();
    let queue = scene.queue().as_str().to_owned();
    let builder = client.worker().state(started).handle(pong);
    let worker = builder.queue(&queue, 1).concurrency(8).start().await?;
    let (mut whole, mut submit, mut claim) = (Vec::new(), Vec::new(), Vec::new());
    let mut tick = tokio::time::interval(EVERY);
    let begin = Instant::now();
    for _ in 0..tasks {
        tick.tick().await;
        let asked = Instant::now();
        client
            .enqueue(Ping("x".repeat(effort.payload_bytes.saturating_sub(2))))
            .queue(&queue)
            .await?;
        let acknowledged = Instant::now();
        let ended = || Error::new(ErrorKind::Unavailable, "the worker ended early");
        let start = starts.recv().await.ok_or_else(ended)?;
        whole.push(start - asked);
        submit.push(acknowledged - asked);
        // A handler may start before its submitter has heard of the commit.
        claim.push(start.saturating_duration_since(acknowledged));
        report.step();
    }
    let took = begin.elapsed();
    worker.stop().await?;
    if effort.is_store_kept {
        scene.tidy().await?;
    }
    let [whole, submit, claim] = [whole, submit, claim].map(Percentiles::of);
    report.row(
        &[
            ("tasks", grouped(tasks)),
            ("p50 µs", grouped(whole.p50_us())),
            ("p95 µs", grouped(whole.p95_us())),
            ("p99 µs", grouped(whole.p99_us())),
            ("submit p50 µs", grouped(submit.p50_us())),
            ("claim p50 µs", grouped(claim.p50_us())),
        ],
        json!({
            "mode": "latency",
            "tasks": tasks,
            "batch": 1,
            "concurrency": 8,
            "seconds": took.as_secs_f64(),
            "tasks_per_s": per_second(tasks, took),
            "latency_ms": whole.json(),
            "submit_ms": submit.json(),
            "claim_ms": claim.json(),
        }),
    )?;
    Ok(())
}
