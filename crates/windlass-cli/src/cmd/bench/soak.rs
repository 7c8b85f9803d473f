//! Mode `soak`: full load for minutes, told slice by slice: what is fast for three seconds and slow after
//! ten minutes shows here. Its tasks stay in the store until their retention is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use windlass::core::{Error, ErrorKind, Result, Store};

use super::Effort;
use super::drain::{completed, noop};
use super::enqueue::Callers;
use super::report::{Report, per_second};
use super::scene::{Scene, TaskMaker, check_inserted};
use crate::exit::Done;
use crate::table::grouped;

/// Slices that are told apart.
const SLICES: u32 = 10;
/// Producers wait while so many tasks wait for the worker: it is the worker that is to be kept busy.
const AHEAD_MAX: u64 = 100_000;
/// How often the store is asked how far the worker is.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How far producers and worker are.
#[derive(Default)]
struct Progress {
    submitted: AtomicU64,
    completed: AtomicU64,
}

pub(super) async fn run(
    store: Arc<dyn Store>,
    callers: Callers,
    concurrency: usize,
    length: Duration,
    effort: &Effort,
    report: &mut Report,
) -> Done {
    let scene = Scene::set(Arc::clone(&store), effort.payload_bytes).await?;
    let queue = scene.queue().clone();
    let worker = effort
        .client(Arc::clone(&store))
        .worker()
        .handle(noop)
        .queue(queue.as_str(), 1)
        .concurrency(concurrency)
        .start()
        .await?;
    let progress = Arc::new(Progress::default());
    let stop = CancellationToken::new();
    let mut producers = JoinSet::new();
    for _ in 0..callers.producers {
        let (store, maker, batch) = (scene.store(), scene.maker(), callers.batch);
        let (progress, stop) = (Arc::clone(&progress), stop.clone());
        producers
            .spawn(async move { produce(store.as_ref(), &maker, batch, &progress, &stop).await });
    }
    let mut first = None;
    for slice in 1..=SLICES {
        report.stage(&format!("slice {slice} of {SLICES}"), 1);
        let before =
            [&progress.submitted, &progress.completed].map(|count| count.load(Ordering::Relaxed));
        let start = Instant::now();
        while start.elapsed() < length / SLICES {
            tokio::time::sleep(LOOK_EVERY).await;
            let submitted = progress.submitted.load(Ordering::Relaxed);
            let completed = completed(&store, &queue, submitted).await?;
            progress.completed.store(completed, Ordering::Relaxed);
            check(&mut producers)?;
        }
        let took = start.elapsed();
        let after =
            [&progress.submitted, &progress.completed].map(|count| count.load(Ordering::Relaxed));
        let [submits, rate] = [0, 1].map(|at| per_second(after[at] - before[at], took));
        let ratio = rate as f64 / (*first.get_or_insert(rate)).max(1) as f64;
        report.row(
            &[
                ("slice", grouped(u64::from(slice))),
                ("seconds", grouped(took.as_secs())),
                ("submits/s", grouped(submits)),
                ("done/s", grouped(rate)),
                ("of the first", format!("{ratio:.2}")),
                ("done so far", grouped(after[1])),
            ],
            json!({
                "mode": "soak",
                "slice": slice,
                "tasks": after[1],
                "batch": callers.batch,
                "producers": callers.producers,
                "concurrency": concurrency,
                "seconds": took.as_secs_f64(),
                "tasks_per_s": rate,
                "submits_per_s": submits,
                "ratio": ratio,
            }),
        )?;
    }
    stop.cancel();
    while producers.join_next().await.is_some() {}
    worker.stop().await?;
    Ok(())
}

/// Submits batch after batch, never too far ahead of the worker.
async fn produce(
    store: &dyn Store,
    maker: &TaskMaker,
    batch: usize,
    progress: &Progress,
    stop: &CancellationToken,
) -> Result<()> {
    while !stop.is_cancelled() {
        let submitted = progress.submitted.load(Ordering::Relaxed);
        let ahead = submitted.saturating_sub(progress.completed.load(Ordering::Relaxed));
        if ahead >= AHEAD_MAX {
            tokio::time::sleep(LOOK_EVERY / 10).await;
            continue;
        }
        let tasks = maker.make(store, batch).await?;
        progress.submitted.fetch_add(batch as u64, Ordering::Relaxed);
        check_inserted(&store.insert(tasks).await?)?;
    }
    Ok(())
}

/// Tells of a producer that has failed.
fn check(producers: &mut JoinSet<Result<()>>) -> Result<()> {
    let failed = |cause| Error::new(ErrorKind::Unavailable, "run a producer").because(cause);
    producers.try_join_next().map_or(Ok(()), |ended| ended.map_err(failed)?)
}
