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
use super::report::{Percentiles, Report, per_second};
use super::scene::{KIND, Scene, TaskMaker, check_inserted};
use crate::exit::Done;
use crate::table::grouped;

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
    stop_at: Option<Instant>,
}

pub(super) async fn run(
    store: Arc<dyn Store>,
    callers: Callers,
    effort: &Effort,
    report: &mut Report,
) -> Done {
    let scene = Scene::set(store, effort.payload_bytes).await?;
    report.stage(&format!("{} producers", callers.producers), 2);
    let start = Instant::now();
    let calls = produce(&scene, &callers, effort, Some(start + effort.step)).await?;
    let took = start.elapsed();
    report.step();
    if effort.is_store_kept {
        scene.tidy().await?;
    }
    report.step();
    let tasks = calls.iter().map(|(count, _)| count).sum();
    let latency = Percentiles::of(calls.into_iter().map(|(_, took)| took).collect());
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
    )?;
    Ok(())
}

/// Has all producers insert, and answers how many tasks each call inserted and how long it took.
pub(super) async fn produce(
    scene: &Scene,
    callers: &Callers,
    effort: &Effort,
    stop_at: Option<Instant>,
) -> Result<Vec<(u64, Duration)>> {
    let client = effort.client(scene.store());
    let left = Arc::new(AtomicU64::new(effort.tasks));
    let mut producers = JoinSet::new();
    for _ in 0..callers.producers {
        let producer = Producer {
            client: client.clone(),
            store: scene.store(),
            maker: scene.maker(),
            batch: callers.batch,
            left: Arc::clone(&left),
            stop_at,
        };
        producers.spawn(producer.run());
    }
    let mut calls = Vec::new();
    while let Some(ended) = producers.join_next().await {
        let failed = |cause| Error::new(ErrorKind::Unavailable, "run a producer").because(cause);
        calls.extend(ended.map_err(failed)??);
    }
    Ok(calls)
}

impl Producer {
    /// Inserts until nothing is left or the time is over; answers how many each call inserted, and
    /// how long it took.
    async fn run(self) -> Result<Vec<(u64, Duration)>> {
        let mut calls = Vec::new();
        while self.stop_at.is_none_or(|at| Instant::now() < at) {
            let count = self.take_on();
            if count == 0 {
                break;
            }
            let tasks = self.maker.make(self.store.as_ref(), count as usize).await?;
            let start = Instant::now();
            if let [task] = &tasks[..] {
                let options = Options::new().queue(task.queue.as_str());
                self.client.enqueue_raw(KIND, task.payload.clone(), options).await?;
                calls.push((count, start.elapsed()));
            } else {
                let outcomes = self.store.insert(tasks).await?;
                calls.push((count, start.elapsed()));
                check_inserted(&outcomes)?;
            }
        }
        Ok(calls)
    }

    /// Takes the next tasks on: a batch, or what is left.
    fn take_on(&self) -> u64 {
        let batch = self.batch as u64;
        let rest = |left: u64| Some(left.saturating_sub(batch));
        let before = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest);
        before.unwrap_or_default().min(batch)
    }
}
