//! Mode `drain`: a backlog, one worker with handlers that do nothing; the clock stops when the store
//! says that all are completed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::json;
use windlass::core::{QueueName, Result, State, Store};
use windlass::{Client, Context, Outcome, Task};

use super::Effort;
use super::report::{Report, per_second};
use super::scene::{KIND, Scene};
use super::store::claim_with_apply;
use crate::exit::Done;
use crate::table::grouped;

/// Tasks per call while the backlog is made, and of the store's own rate that the worker is held to.
const BATCH: usize = 500;
/// How often the store is asked whether all are completed.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(2);

/// The measured task; its payload is a JSON string.
#[derive(Serialize, Deserialize)]
pub(super) struct Noop(String);

impl Task for Noop {
    const KIND: &'static str = KIND;
    type Output = ();
}

pub(super) async fn noop(_task: Noop, _cx: Context<()>) -> Outcome<()> {
    Ok(())
}

pub(super) async fn run(
    stores: [Arc<dyn Store>; 2],
    concurrency: usize,
    effort: &Effort,
    report: &mut Report,
) -> Done {
    let [store, yardstick] = stores;
    report.stage("making the backlog", 4);
    let scene = preloaded(Arc::clone(&store), effort).await?;
    report.step();
    // The store's own rate in the same run, without an engine: what a worker can be held to.
    let mut bare = preloaded(yardstick, effort).await?;
    let own = claim_with_apply(&mut bare, BATCH, effort).await?.per_second();
    report.step();
    let took = drained(&scene, effort.client(store), concurrency, effort).await?;
    report.step();
    if effort.is_store_kept {
        scene.tidy().await?;
        bare.tidy().await?;
    }
    report.step();
    let rate = per_second(effort.tasks, took);
    let ratio = rate as f64 / own.max(1) as f64;
    report.row(
        &[
            ("slots", grouped(concurrency as u64)),
            ("tasks", grouped(effort.tasks)),
            ("drain/s", grouped(rate)),
            ("store's claim+apply/s", grouped(own)),
            ("ratio", format!("{ratio:.2}")),
        ],
        json!({
            "mode": "drain",
            "tasks": effort.tasks,
            "batch": BATCH,
            "concurrency": concurrency,
            "seconds": took.as_secs_f64(),
            "tasks_per_s": rate,
            "claim_apply_per_s": own,
            "ratio": ratio,
        }),
    )?;
    Ok(())
}

/// Has a worker empty a backlog; how long that took.
pub(super) async fn drained(
    scene: &Scene,
    client: Client,
    concurrency: usize,
    effort: &Effort,
) -> Result<Duration> {
    let (store, queue) = (scene.store(), scene.queue().clone());
    let ran = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&ran);
    let worker = client.worker().handle(move |_task: Noop, _cx: Context<()>| {
        counted.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Outcome::Ok(()))
    });
    let worker = worker.queue(queue.as_str(), 1).concurrency(concurrency);
    let start = Instant::now();
    let worker = worker.start().await?;
    // Only then is the store asked: its answer costs it more than many tasks.
    while ran.load(Ordering::Relaxed) < effort.tasks {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    while completed(&store, &queue, effort.tasks).await? < effort.tasks {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let took = start.elapsed();
    worker.stop().await?;
    Ok(took)
}

pub(super) async fn preloaded(store: Arc<dyn Store>, effort: &Effort) -> Result<Scene> {
    let mut scene = Scene::set(store, effort.payload_bytes).await?;
    let mut left = usize::try_from(effort.tasks).unwrap_or(usize::MAX);
    while left > 0 {
        let count = left.min(BATCH);
        scene.insert(count).await?;
        left -= count;
    }
    Ok(scene)
}

/// How many of the submitted tasks of a queue are completed. A store that keeps nothing of them is asked how
/// many are still to be done.
pub(super) async fn completed(
    store: &Arc<dyn Store>,
    queue: &QueueName,
    submitted: u64,
) -> Result<u64> {
    let queues = store.queues().await?;
    let counts = queues.iter().find(|record| record.name == *queue).map(|record| record.counts);
    let counts = counts.unwrap_or_default();
    if !store.profile().capabilities.forgets_at_once {
        return Ok(counts.get(State::Completed));
    }
    let is_open = |state: &State| !state.is_terminal();
    let open: u64 = State::ALL.iter().filter(|state| is_open(state)).map(|s| counts.get(*s)).sum();
    Ok(submitted.saturating_sub(open))
}
