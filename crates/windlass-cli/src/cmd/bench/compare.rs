//! Mode `drain` with `--compare-statistics`: the same backlog again and again, with statistics and without, in
//! turn, so that whatever else changes on the machine meets both.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use windlass::core::{Result, Store};

use super::drain::{drained, preloaded};
use super::report::{Report, per_second};
use super::{Effort, with_statistics};
use crate::exit::Done;
use crate::table::grouped;

pub(super) async fn run(
    store: Arc<dyn Store>,
    concurrency: usize,
    pairs: u32,
    effort: &Effort,
    report: &mut Report,
) -> Done {
    report.stage("draining", u64::from(pairs) * 2 + 1);
    // The first one finds everything cold, and is not counted.
    slice(&store, true, concurrency, effort).await?;
    report.step();
    let mut taken: Vec<(Duration, Duration)> = Vec::new();
    for pair in 0..pairs {
        // Who goes first changes, too: the store is a little fuller for the second.
        let is_on_first = pair % 2 == 0;
        let first = slice(&store, is_on_first, concurrency, effort).await?;
        report.step();
        let second = slice(&store, !is_on_first, concurrency, effort).await?;
        report.step();
        taken.push(if is_on_first { (first, second) } else { (second, first) });
    }
    let rates = |side: fn(&(Duration, Duration)) -> Duration| {
        median(taken.iter().map(|pair| per_second(effort.tasks, side(pair)) as f64))
    };
    let (on, off) = (rates(|pair| pair.0), rates(|pair| pair.1));
    let ratios = taken.iter().map(|(on, off)| off.as_secs_f64() / on.as_secs_f64().max(1e-9));
    let ratios: Vec<f64> = ratios.collect();
    let ratio = median(ratios.iter().copied());
    report.row(
        &[
            ("slots", grouped(concurrency as u64)),
            ("tasks", grouped(effort.tasks)),
            ("pairs", grouped(u64::from(pairs))),
            ("drain/s with", grouped(on as u64)),
            ("drain/s without", grouped(off as u64)),
            ("ratio", format!("{ratio:.3}")),
        ],
        json!({
            "mode": "drain",
            "compared": "statistics",
            "tasks": effort.tasks,
            "pairs": pairs,
            "concurrency": concurrency,
            "tasks_per_s": on as u64,
            "tasks_per_s_without": off as u64,
            "ratio": ratio,
            "ratios": ratios,
        }),
    )
}

/// Makes a backlog and empties it.
async fn slice(
    store: &Arc<dyn Store>,
    has_statistics: bool,
    concurrency: usize,
    effort: &Effort,
) -> Result<Duration> {
    let scene = preloaded(Arc::clone(store), effort).await?;
    let config = with_statistics(has_statistics);
    let client = windlass::Client::with_config(Arc::clone(store), config);
    let took = drained(&scene, client, concurrency, effort).await?;
    if effort.is_store_kept {
        scene.tidy().await?;
    }
    Ok(took)
}

/// The one in the middle; of an even number the mean of both.
fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut all: Vec<f64> = numbers.collect();
    all.sort_by(f64::total_cmp);
    match all.len() {
        0 => 0.0,
        count if count % 2 == 1 => all[count / 2],
        count => f64::midpoint(all[count / 2 - 1], all[count / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), 2.5);
        assert_eq!(median([].into_iter()), 0.0);
    }
}
