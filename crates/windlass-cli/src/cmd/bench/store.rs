//! Mode `store`: one caller, one batch size, each method for itself.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use windlass::core::{Result, Store};

use super::Effort;
use super::report::{Report, per_second};
use super::scene::Scene;
use crate::exit::Done;
use crate::table::grouped;

/// From no batching to more than pays.
pub(super) const BATCHES: [usize; 5] = [1, 10, 100, 500, 1000];

/// Tasks, and the time that the store took for them.
#[derive(Clone, Copy, Default)]
pub(super) struct Measured {
    tasks: u64,
    took: Duration,
}

impl Measured {
    fn add(&mut self, tasks: usize, took: Duration) {
        self.tasks += tasks as u64;
        self.took += took;
    }

    pub(super) fn per_second(self) -> u64 {
        per_second(self.tasks, self.took)
    }
}

pub(super) async fn run(
    store: Arc<dyn Store>,
    batch: usize,
    effort: &Effort,
    report: &mut Report,
) -> Done {
    let mut scene = Scene::set(store, effort.payload_bytes).await?;
    report.stage(&format!("batch {batch}"), 4);
    let inserted = insert(&mut scene, batch, effort).await?;
    report.step();
    let (claimed, applied) = claim_then_apply(&mut scene, batch, inserted.tasks, effort).await?;
    report.step();
    let both = claim_with_apply(&mut scene, batch, effort).await?;
    report.step();
    if effort.is_store_kept {
        scene.tidy().await?;
    }
    report.step();
    let seconds =
        [inserted, claimed, applied, both].iter().map(|measured| measured.took).sum::<Duration>();
    report.row(
        &[
            ("batch", grouped(batch as u64)),
            ("tasks", grouped(inserted.tasks)),
            ("insert/s", grouped(inserted.per_second())),
            ("claim/s", grouped(claimed.per_second())),
            ("apply/s", grouped(applied.per_second())),
            ("claim+apply/s", grouped(both.per_second())),
        ],
        json!({
            "mode": "store",
            "tasks": inserted.tasks,
            "batch": batch,
            "concurrency": 1,
            "seconds": seconds.as_secs_f64(),
            "insert_per_s": inserted.per_second(),
            "claim_per_s": claimed.per_second(),
            "apply_per_s": applied.per_second(),
            "claim_apply_per_s": both.per_second(),
        }),
    )?;
    Ok(())
}

async fn insert(scene: &mut Scene, batch: usize, effort: &Effort) -> Result<Measured> {
    let mut measured = Measured::default();
    while measured.tasks < effort.tasks && measured.took < effort.step {
        let count = batch.min(usize::try_from(effort.tasks - measured.tasks).unwrap_or(batch));
        measured.add(count, scene.insert(count).await?);
    }
    Ok(measured)
}

/// Claims half of the tasks, and only then completes them.
async fn claim_then_apply(
    scene: &mut Scene,
    batch: usize,
    inserted: u64,
    effort: &Effort,
) -> Result<(Measured, Measured)> {
    let mut claimed = Measured::default();
    let mut held = Vec::new();
    while claimed.tasks < inserted / 2 && claimed.took < effort.step {
        let left = usize::try_from(inserted / 2 - claimed.tasks).unwrap_or(batch);
        let (tasks, took) = scene.claim(batch.min(left)).await?;
        if tasks.is_empty() {
            break;
        }
        claimed.add(tasks.len(), took);
        held.extend(tasks);
    }
    let mut applied = Measured::default();
    for tasks in held.chunks(batch) {
        let (_, took) = scene.apply(tasks, None).await?;
        applied.add(tasks.len(), took);
    }
    Ok((claimed, applied))
}

/// Completes one batch and claims the next in the same trip, until nothing is left.
pub(super) async fn claim_with_apply(
    scene: &mut Scene,
    batch: usize,
    effort: &Effort,
) -> Result<Measured> {
    let mut both = Measured::default();
    let (mut tasks, took) = scene.claim(batch).await?;
    both.add(0, took);
    while !tasks.is_empty() {
        let then_claim = (both.took < effort.step).then_some(batch);
        let (next, took) = scene.apply(&tasks, then_claim).await?;
        both.add(tasks.len(), took);
        tasks = next;
    }
    Ok(both)
}
