//! Mode `enqueue`: many callers submit at once, which is where batching pays: single submits through
//! the client, batches straight into the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::JoinSet;
use windlass::core::{Error, ErrorKind, Result, Store};
use windlass::{Client, Configure, Options};

use super::Effort;
use super::report::{Percentiles, Report, grouped, per_second};
use super::scene::{KIND, Scene, TaskMaker, check_inserted};

/// Who inserts, and how much at a time.
pub(super) struct Callers {
    pub(super) producers: u32,
    pub(super) batch: usize,
}

/// One producer's part.
struct Producer {
    client: Client,
    store: Arc<dyn Store>,
    maker: TaskMaker,
    batch: usize,
    /// Tasks that nobody has taken on yet.
    left: Arc<AtomicU64>,
    stop_at: Instant,
}

pub(super) async fn run(
    store: Arc<dyn Store>,
    callers: Callers,
    effort: &Effort,
    report: &mut Report,
) -> Result<()> {
    let scene = Scene::set(store, effort.payload_bytes).await?;
    report.stage(&format!("{} producers", callers.producers), 2);
    let client = Client::new(scene.store());
    let left = Arc::new(AtomicU64::new(effort.tasks));
    let start = Instant::now();
    let mut producers = JoinSet::new();
    for _ in 0..callers.producers {
        let producer = Producer {
            client: client.clone(),
            store: scene.store(),
            maker: scene.maker(),
            batch: callers.batch,
            left: Arc::clone(&left),
            stop_at: start + effort.step,
        };
        producers.spawn(producer.run());
    }
    let mut calls = Vec::new();
    while let Some(ended) = producers.join_next().await {
        let failed = |cause| Error::new(ErrorKind::Unavailable, "run a producer").because(cause);
        calls.extend(ended.map_err(failed)??);
    }
    let took = start.elapsed();
    report.step();
    if effort.is_store_kept {
        scene.tidy().await?;
    }
    report.step();
    let tasks = (calls.len() * callers.batch) as u64;
    let latency = Percentiles::of(calls);
    report.row(
        &[
            ("producers", grouped(u64::from(callers.producers))),
            ("batch", grouped(callers.batch as u64)),
            ("tasks", grouped(tasks)),
            ("tasks/s", grouped(per_second(tasks, took))),
            ("p50 µs", grouped(latency.p50_us())),
            ("p95 µs", grouped(latency.p95_us())),
            ("p99 µs", grouped(latency.p99_us())),
        ],
        json!({
            "mode": "enqueue",
            "tasks": tasks,
            "batch": callers.batch,
            "producers": callers.producers,
            "concurrency": callers.producers,
            "seconds": took.as_secs_f64(),
            "tasks_per_s": per_second(tasks, took),
            "latency_ms": latency.json(),
        }),
    );
    Ok(())
}

impl Producer {
    /// Inserts until nothing is left or the time is over; answers how long each call took.
    async fn run(self) -> Result<Vec<Duration>> {
        let mut calls = Vec::new();
        while Instant::now() < self.stop_at && self.take_on() {
            let tasks = self.maker.make(self.store.as_ref(), self.batch).await?;
            let start = Instant::now();
            if let [task] = &tasks[..] {
                let options = Options::new().queue(task.queue.as_str());
                self.client.enqueue_raw(KIND, task.payload.clone(), options).await?;
                calls.push(start.elapsed());
            } else {
                let outcomes = self.store.insert(tasks).await?;
                calls.push(start.elapsed());
                check_inserted(&outcomes)?;
            }
        }
        Ok(calls)
    }

    fn take_on(&self) -> bool {
        let batch = self.batch as u64;
        self.left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(batch))
            .is_ok()
    }
}
