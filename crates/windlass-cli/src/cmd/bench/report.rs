//! How results reach the reader: a table for people, a JSON object per line for programs, a bar for
//! those who wait.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use crate::exit::Done;
use crate::output::{Format, Output, tell};

/// A disk that flushes faster than this does not flush.
const FLUSH_US_MIN: u128 = 5;
const COLUMN_WIDTH_MIN: usize = 9;

/// What every figure depends on.
pub(super) struct Surroundings {
    pub(super) store: &'static str,
    pub(super) durability: &'static str,
    pub(super) place: String,
    pub(super) payload_bytes: usize,
    pub(super) fdatasync: Duration,
}

/// Prints results as they come.
pub(super) struct Report {
    output: Output,
    surroundings: Surroundings,
    bar: ProgressBar,
    has_header: bool,
}

impl Report {
    /// Says what is measured, and where.
    pub(super) fn begin(output: Output, surroundings: Surroundings) -> Self {
        let flush_us = surroundings.fdatasync.as_micros();
        if output.format == Format::Table {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            tell!(
                "windlass {} · {} ({}), {} · payload {} bytes · fdatasync {flush_us} µs · {cores} cores",
                env!("CARGO_PKG_VERSION"),
                surroundings.store,
                surroundings.durability,
                surroundings.place,
                surroundings.payload_bytes,
            );
        } else {
            tell!("{}, {}", surroundings.store, surroundings.place);
        }
        if flush_us < FLUSH_US_MIN {
            tell!("warning: flushing costs nothing here (memory?); durable figures mean nothing");
        }
        if cfg!(debug_assertions) {
            tell!("warning: this is a debug build; measure with --release");
        }
        Self { output, surroundings, bar: ProgressBar::hidden(), has_header: false }
    }

    /// Starts a bar, which is drawn on a terminal only.
    pub(super) fn stage(&mut self, name: &str, steps: u64) {
        self.bar.finish_and_clear();
        self.bar = ProgressBar::new(steps).with_message(name.to_owned());
        if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {elapsed}") {
            self.bar.set_style(style);
        }
        self.bar.tick();
    }

    pub(super) fn step(&self) {
        self.steps(1);
    }

    pub(super) fn steps(&self, count: u64) {
        self.bar.inc(count);
    }

    /// Prints one result: named cells for people, an object for programs.
    pub(super) fn row(&mut self, cells: &[(&str, String)], mut object: Value) -> Done {
        self.bar.finish_and_clear();
        match self.output.format {
            Format::Table => {
                if !self.has_header {
                    self.output.line(&line(cells, |(name, _)| String::from(*name)))?;
                    self.has_header = true;
                }
                self.output.line(&line(cells, |(_, text)| text.clone()))
            }
            Format::Json | Format::Jsonl => {
                object["store"] = json!(self.surroundings.store);
                object["durability"] = json!(self.surroundings.durability);
                object["payload_bytes"] = json!(self.surroundings.payload_bytes);
                object["fdatasync_us"] = json!(self.surroundings.fdatasync.as_micros() as u64);
                self.output.line(&object.to_string())
            }
        }
    }

    pub(super) fn end(self) {
        self.bar.finish_and_clear();
    }
}

/// The middle and the slow end of many durations.
pub(super) struct Percentiles(Vec<Duration>);

impl Percentiles {
    pub(super) fn of(mut durations: Vec<Duration>) -> Self {
        durations.sort_unstable();
        Self(durations)
    }

    pub(super) fn p50_us(&self) -> u64 {
        self.at(50).as_micros() as u64
    }

    pub(super) fn p95_us(&self) -> u64 {
        self.at(95).as_micros() as u64
    }

    pub(super) fn p99_us(&self) -> u64 {
        self.at(99).as_micros() as u64
    }

    pub(super) fn json(&self) -> Value {
        let millis = |percent| self.at(percent).as_nanos() as f64 / 1e6;
        json!({"p50": millis(50), "p95": millis(95), "p99": millis(99)})
    }

    fn at(&self, percent: usize) -> Duration {
        let place = self.0.len() * percent / 100;
        let last = self.0.len().saturating_sub(1);
        self.0.get(place.min(last)).copied().unwrap_or_default()
    }
}

/// Tasks per second, to the whole task.
pub(super) fn per_second(tasks: u64, took: Duration) -> u64 {
    if took.is_zero() {
        return 0;
    }
    (tasks as f64 / took.as_secs_f64()).round() as u64
}

fn line(cells: &[(&str, String)], text: impl Fn(&(&str, String)) -> String) -> String {
    let cell = |cell: &(&str, String)| {
        let width = cell.0.chars().count().max(COLUMN_WIDTH_MIN);
        format!("{:>width$}", text(cell))
    };
    cells.iter().map(cell).collect::<Vec<_>>().join("  ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_nothing_are_zero_and_of_one_are_that_one() {
        assert_eq!(Percentiles::of(Vec::new()).p99_us(), 0);
        let one = Percentiles::of(vec![Duration::from_micros(7)]);
        assert_eq!((one.p50_us(), one.p99_us()), (7, 7));
    }

    #[test]
    fn no_time_gives_no_rate() {
        assert_eq!(per_second(5, Duration::ZERO), 0);
        assert_eq!(per_second(5, Duration::from_millis(500)), 10);
    }
}
