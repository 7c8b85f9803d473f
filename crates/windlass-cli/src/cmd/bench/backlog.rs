//! Mode `backlog`: what claim and apply cost while few and while many tasks wait, or run.
//!
//! Both stores are measured in turn, slice by slice, so that whatever else the machine does falls on
//! both alike. Each slice puts back what it took: the backlogs keep their length.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use windlass::core::{Error, ErrorKind, Result, Store};

use super::Effort;
use super::report::{Report, per_second};
use super::scene::Scene;
use crate::exit::Done;
use crate::table::grouped;

const SHORT: u64 = 1_000;
/// Tasks that run beside the short backlog, when some run beside the long one.
const FEW: usize = 10;
const PAIRS: usize = 15;
/// The first slices find cold caches.
const WARM_UP: usize = 2;
const ROUNDS_PER_SLICE: usize = 6;
/// Tasks per call while the backlogs are made.
const PRELOAD_PIECE: usize = 1_000;

/// How many tasks wait, how many run all the time, and how many are claimed at a time.
pub(super) struct Lengths {
    pub(super) long: u64,
    pub(super) running: usize,
    pub(super) batch: usize,
}

/// What one slice took.
#[derive(Clone, Copy)]
struct Slice {
    claim: Duration,
    apply: Duration,
}

impl Slice {
    fn both(self) -> Duration {
        self.claim + self.apply
    }
}

pub(super) async fn run(
    stores: [Arc<dyn Store>; 2],
    lengths: Lengths,
    effort: &Effort,
    report: &mut Report,
) -> Done {
    let [short, long] = stores;
    let mut short = Scene::set(short, effort.payload_bytes).await?;
    let mut long = Scene::set(long, effort.payload_bytes).await?;
    let short_length = SHORT.max(lengths.batch as u64);
    let few = FEW.min(lengths.running);
    preload(&mut short, short_length + few as u64, report).await?;
    hold(&mut short, few).await?;
    preload(&mut long, lengths.long + lengths.running as u64, report).await?;
    hold(&mut long, lengths.running).await?;
    report.stage("slices", (PAIRS + WARM_UP) as u64);
    let mut pairs = Vec::new();
    for number in 0..PAIRS + WARM_UP {
        // Who goes first changes: the second finds the disk busier or quieter.
        let pair = if number % 2 == 0 {
            let first = slice(&mut short, lengths.batch).await?;
            (first, slice(&mut long, lengths.batch).await?)
        } else {
            let first = slice(&mut long, lengths.batch).await?;
            (slice(&mut short, lengths.batch).await?, first)
        };
        if number >= WARM_UP {
            pairs.push(pair);
        }
        report.step();
    }
    let claim_ratio = median(pairs.iter().map(|(short, long)| ratio(long.claim, short.claim)));
    let both_ratio = median(pairs.iter().map(|(short, long)| ratio(long.both(), short.both())));
    let tasks = (pairs.len() * ROUNDS_PER_SLICE * lengths.batch) as u64;
    let short_took = pairs.iter().map(|(short, _)| short.both()).sum();
    let long_took = pairs.iter().map(|(_, long)| long.both()).sum();
    let (short_rate, long_rate) = (per_second(tasks, short_took), per_second(tasks, long_took));
    report.row(
        &[
            ("waiting", grouped(short_length)),
            ("running", grouped(few as u64)),
            ("claim+apply/s", grouped(short_rate)),
            ("waiting", grouped(lengths.long)),
            ("running", grouped(lengths.running as u64)),
            ("claim+apply/s", grouped(long_rate)),
            ("claim ratio", format!("{claim_ratio:.3}")),
            ("claim+apply ratio", format!("{both_ratio:.3}")),
        ],
        json!({
            "mode": "backlog",
            "tasks": lengths.long,
            "batch": lengths.batch,
            "concurrency": 1,
            "pairs": pairs.len(),
            "seconds": (short_took + long_took).as_secs_f64(),
            "short_backlog": short_length,
            "long_backlog": lengths.long,
            "short_running": few,
            "long_running": lengths.running,
            "short_claim_apply_per_s": short_rate,
            "long_claim_apply_per_s": long_rate,
            "tasks_per_s": long_rate,
            "claim_ratio": round(claim_ratio),
            "claim_apply_ratio": round(both_ratio),
        }),
    )?;
    if effort.is_store_kept {
        short.tidy().await?;
        long.tidy().await?;
    }
    Ok(())
}

async fn preload(scene: &mut Scene, length: u64, report: &mut Report) -> Result<()> {
    report.stage(&format!("preload {length}"), length);
    let mut left = length;
    while left > 0 {
        let count = left.min(PRELOAD_PIECE as u64);
        scene.insert(count as usize).await?;
        left -= count;
        report.steps(count);
    }
    Ok(())
}

/// Claims tasks that stay claimed: what ran before the measurement and outlasts it.
async fn hold(scene: &mut Scene, count: usize) -> Result<()> {
    let mut left = count;
    while left > 0 {
        let (tasks, _) = scene.claim(left.min(PRELOAD_PIECE)).await?;
        if tasks.is_empty() {
            return Err(Error::new(ErrorKind::Conflict, "tasks that were there are not given out"));
        }
        left -= tasks.len();
    }
    Ok(())
}

async fn slice(scene: &mut Scene, batch: usize) -> Result<Slice> {
    let mut slice = Slice { claim: Duration::ZERO, apply: Duration::ZERO };
    for _ in 0..ROUNDS_PER_SLICE {
        let (tasks, took) = scene.claim(batch).await?;
        slice.claim += took;
        let (_, took) = scene.apply(&tasks, None).await?;
        slice.apply += took;
        scene.insert(tasks.len()).await?;
    }
    Ok(slice)
}

fn ratio(long: Duration, short: Duration) -> f64 {
    long.as_secs_f64() / short.as_secs_f64().max(f64::EPSILON)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn round(ratio: f64) -> f64 {
    (ratio * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert!(median(std::iter::empty()).is_nan());
    }
}
