//! Mode `flow`: producers submit while a worker runs what they submit; the clock stops when the store
//! says that all are completed.

use std::sync::Arc;
use std::time::Instant;

use serde_json::json;
use windlass::core::Store;

use super::Effort;
use super::drain::{LOOK_EVERY, completed, noop};
use super::enqueue::{Callers, produce};
use super::report::{Percentiles, Report, per_second};
use super::scene::Scene;
use crate::exit::Done;
use crate::table::grouped;

pub(super) async fn run(
    store: Arc<dyn Store>,
    callers: Callers,
    concurrency: usize,
    effort: &Effort,
    report: &mut Report,
) -> Done {
    let scene = Scene::set(Arc::clone(&store), effort.payload_bytes).await?;
    let queue = scene.queue().clone();
    report.stage(&format!("{} producers, {concurrency} slots", callers.producers), 2);
    let worker = effort
        .client(Arc::clone(&store))
        .worker()
        .handle(noop)
        .queue(queue.as_str(), 1)
        .concurrency(concurrency)
        .start()
        .await?;
    let start = Instant::now();
    let calls = produce(&scene, &callers, effort, None).await?;
    let submitted = start.elapsed();
    report.step();
    while completed(&store, &queue, effort.tasks).await? < effort.tasks {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let took = start.elapsed();
    report.step();
    worker.stop().await?;
    if effort.is_store_kept {
        scene.tidy().await?;
    }
    let rate = per_second(effort.tasks, took);
    let submit_rate = per_second(effort.tasks, submitted);
    let latency = Percentiles::of(calls.into_iter().map(|(_, took)| took).collect());
    report.row(
        &[
            ("producers", grouped(u64::from(callers.producers))),
            ("batch", grouped(callers.batch as u64)),
            ("slots", grouped(concurrency as u64)),
            ("tasks", grouped(effort.tasks)),
            ("submits/s", grouped(submit_rate)),
            ("done/s", grouped(rate)),
            ("submit p99 µs", grouped(latency.p99_us())),
        ],
        json!({
            "mode": "flow",
            "tasks": effort.tasks,
            "batch": callers.batch,
            "producers": callers.producers,
            "concurrency": concurrency,
            "seconds": took.as_secs_f64(),
            "tasks_per_s": rate,
            "submits_per_s": submit_rate,
            "submit_ms": latency.json(),
        }),
    )
}
