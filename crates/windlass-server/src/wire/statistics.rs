//! What was done within a stretch of time, as the API tells it.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use windlass_core::statistics::{Cell, Point, Select, Sketch, Step, series, window};
use windlass_core::{Kind, QueueName, Timestamp};
use windlass_engine::Read;

use super::Seconds;
use super::words::{SecondsWord, Time};

/// Queues, and types, that are told of in a window: those with the most tasks.
const NAMES_MAX: usize = 100;

const HOUR: u32 = 60;
const DAY: u32 = 24 * HOUR;
const WEEK: u32 = 7 * DAY;

/// What was done in the last hour, day and week.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Windows {
    #[serde(rename = "1h")]
    hour: Window,
    #[serde(rename = "24h")]
    day: Window,
    #[serde(rename = "7d")]
    week: Window,
}

/// What was done in a stretch of time up to now.
#[derive(Serialize, JsonSchema)]
struct Window {
    /// How long it is.
    minutes: u32,
    total: Tally,
    /// By queue, those with the most tasks first; at most 100.
    queues: Vec<OfQueue>,
    /// By type, likewise.
    types: Vec<OfType>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "QueueTally")]
struct OfQueue {
    queue: String,
    #[serde(flatten)]
    tally: Tally,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TypeTally")]
struct OfType {
    r#type: String,
    #[serde(flatten)]
    tally: Tally,
}

/// Counts and durations of tasks and runs.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Tally {
    /// Tasks that were submitted.
    submitted: u64,
    /// Runs that ended well.
    completed: u64,
    /// Runs that did not.
    failed: u64,
    /// Of those: were to be tried again.
    retried: u64,
    /// Of those: made dead letters.
    dead_letter: u64,
    /// Runs that were called off.
    cancelled: u64,
    /// Runs that ended well, for each minute that was observed.
    completed_per_minute: f64,
    /// How long tasks were pending before a worker took them; null when none was taken.
    wait: Option<Spread>,
    /// How long handlers ran; null when none did.
    run_time: Option<Spread>,
}

/// How durations are spread, in seconds. Percentiles are at most 1.6 % off.
#[derive(Serialize, JsonSchema)]
struct Spread {
    #[schemars(with = "SecondsWord")]
    mean: Seconds,
    #[schemars(with = "SecondsWord")]
    p50: Seconds,
    #[schemars(with = "SecondsWord")]
    p95: Seconds,
    #[schemars(with = "SecondsWord")]
    p99: Seconds,
}

/// What was done, step by step up to now.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Series {
    /// How far it reaches back.
    minutes: u32,
    /// The length of a step: 60 s up to 120 minutes, 600 s up to a day, else 3600 s.
    step_seconds: u64,
    /// All points together.
    total: Tally,
    /// One for every step, oldest first; the last one is under way.
    points: Vec<OfPoint>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PointTally")]
struct OfPoint {
    /// When the step begins.
    #[schemars(with = "Time")]
    at: Timestamp,
    #[serde(flatten)]
    tally: Tally,
}

impl Windows {
    pub(crate) fn new(read: &Read) -> Self {
        let of = |minutes| Window::new(read, minutes);
        Self { hour: of(HOUR), day: of(DAY), week: of(WEEK) }
    }
}

impl Window {
    fn new(read: &Read, minutes: u32) -> Self {
        let (spans, since) = (&read.spans, read.now.before(length(minutes)));
        let observed = observed(read, minutes);
        let mut total = Cell::default();
        let queues = window(spans, since, |queue, _| Some(queue.clone()));
        queues.values().for_each(|cell| total.merge(cell));
        let types = window(spans, since, |_, kind| Some(kind.clone()));
        let queue = |(queue, cell): (QueueName, Cell)| OfQueue {
            queue: queue.to_string(),
            tally: Tally::new(&cell, observed),
        };
        let kind = |(kind, cell): (Kind, Cell)| OfType {
            r#type: kind.to_string(),
            tally: Tally::new(&cell, observed),
        };
        Self {
            minutes,
            total: Tally::new(&total, observed),
            queues: busiest(queues).map(queue).collect(),
            types: busiest(types).map(kind).collect(),
        }
    }
}

impl Series {
    pub(crate) fn new(read: &Read, minutes: u32, select: &Select) -> Self {
        let points = series(&read.spans, read.now, minutes, select);
        let step = Step::for_series(minutes).length();
        let mut total = Cell::default();
        points.iter().for_each(|point| total.merge(&point.cell));
        let told = |Point { start, cell }| OfPoint { at: start, tally: Tally::new(&cell, step) };
        Self {
            minutes,
            step_seconds: step.as_secs(),
            total: Tally::new(&total, observed(read, minutes)),
            points: points.into_iter().map(told).collect(),
        }
    }
}

impl Tally {
    /// The counts of a stretch of time that was observed for so long.
    fn new(cell: &Cell, observed: Duration) -> Self {
        let minutes = observed.as_secs_f64() / 60.0;
        Self {
            submitted: cell.submitted,
            completed: cell.completed,
            failed: cell.failed,
            retried: cell.retried,
            dead_letter: cell.dead,
            cancelled: cell.cancelled,
            completed_per_minute: rounded(cell.completed as f64 / minutes.max(1.0)),
            wait: Spread::new(&cell.wait),
            run_time: Spread::new(&cell.run),
        }
    }
}

impl Spread {
    fn new(sketch: &Sketch) -> Option<Self> {
        let at = |share| sketch.quantile(share).map(Seconds);
        Some(Self { mean: Seconds(sketch.mean()?), p50: at(0.5)?, p95: at(0.95)?, p99: at(0.99)? })
    }
}

/// A rate without digits that mean nothing.
pub(crate) fn rounded(rate: f64) -> f64 {
    (rate * 1_000.0).round() / 1_000.0
}

fn length(minutes: u32) -> Duration {
    Duration::from_secs(60 * u64::from(minutes))
}

/// How much of the last minutes was observed: a rate of a server that has just started is not that of an hour.
fn observed(read: &Read, minutes: u32) -> Duration {
    length(minutes).min(read.now.since(read.observed_since))
}

/// Those with the most tasks and runs first.
fn busiest<K: Ord>(sums: std::collections::BTreeMap<K, Cell>) -> impl Iterator<Item = (K, Cell)> {
    let mut all: Vec<_> = sums.into_iter().collect();
    let work =
        |cell: &Cell| cell.submitted.saturating_add(cell.finished()).saturating_add(cell.failed);
    // Stable, so that names in their order stand where numbers are alike.
    all.sort_by_key(|(_, cell)| std::cmp::Reverse(work(cell)));
    all.into_iter().take(NAMES_MAX)
}
