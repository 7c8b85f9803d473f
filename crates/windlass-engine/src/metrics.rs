//! What this process has done, counted, and how its store stands, for Prometheus.
//!
//! Everything that happens to tasks here passes through the store, so it is counted there
//! ([`Watched`]): a batch at a time, as soon as it is answered. What only the store knows (depths, ages,
//! workers) is read when someone asks, at most once a second (`figures.rs`), from counters that the store
//! keeps. Which metrics there are is a table, [`windlass_core::metric::TABLE`].

mod bounded;
mod figures;
mod leading;
mod told;
mod watched;

use std::sync::Arc;
use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts, Registry,
};
use windlass_core::metric::{self, Metric};
use windlass_core::store::{Applied, Inserted, Refusal};
use windlass_core::{Claimed, Kind, Priority, QueueName, State, Store, Transition};

use bounded::Bounded;
pub use figures::Figures;
use figures::Reading;
use leading::Leading;
pub(crate) use watched::Watched;

use crate::statistics::Statistics;

/// The counts of one client and of all that works through it. Cheap to clone.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    store_name: &'static str,
    registry: Registry,
    kinds: Bounded,
    queues: Bounded,
    submitted: IntCounterVec,
    completed: IntCounterVec,
    duration: HistogramVec,
    wait: HistogramVec,
    store_op: HistogramVec,
    leases_lost: IntCounter,
    stale_writes_refused: IntCounter,
    repairs: IntCounter,
    leading: Leading,
    reading: Reading,
    /// Counts the same, for longer.
    statistics: Statistics,
}

/// A run that has ended, and how long it took.
pub(crate) struct EndedRun {
    pub(crate) queue: QueueName,
    pub(crate) kind: Kind,
    pub(crate) took: Option<Duration>,
}

impl EndedRun {
    fn of(run: &Transition) -> Self {
        Self { queue: run.queue.clone(), kind: run.kind.clone(), took: run.took }
    }
}

impl Metrics {
    pub(crate) fn new(store: &Arc<dyn Store>, statistics: Statistics) -> Self {
        let registry = Registry::new();
        Self(Arc::new(Inner {
            store_name: store.profile().name,
            kinds: Bounded::default(),
            queues: Bounded::default(),
            submitted: kept(&registry, counters(&metric::TASKS_SUBMITTED)),
            completed: kept(&registry, counters(&metric::TASKS_COMPLETED)),
            duration: kept(&registry, histograms(&metric::TASK_DURATION)),
            wait: kept(&registry, histograms(&metric::TASK_WAIT)),
            store_op: kept(&registry, histograms(&metric::STORE_OP)),
            leases_lost: kept(&registry, counter(&metric::LEASES_LOST)),
            stale_writes_refused: kept(&registry, counter(&metric::STALE_WRITES_REFUSED)),
            repairs: kept(&registry, counter(&metric::REPAIRS)),
            leading: Leading::default(),
            reading: Reading::of(Arc::clone(store)),
            statistics,
            registry,
        }))
    }

    /// How much the store has found half missing and put right while one of the client's workers or
    /// upkeeps was leading.
    pub fn repairs_total(&self) -> u64 {
        self.0.repairs.get()
    }

    /// What the store has, as of a second ago at most; nothing while it does not answer.
    pub async fn figures(&self) -> Option<Arc<Figures>> {
        self.0.reading.figures().await
    }

    /// Counts the tasks of a batch that are new.
    fn submitted(&self, tasks: &[(QueueName, Kind, Priority)], told: &[Inserted]) {
        self.0.statistics.submitted(tasks, told);
        let new = tasks.iter().zip(told).filter(|(_, told)| told.is_new());
        for ((_, kind, priority), count) in stretches(new.map(|(task, _)| task)) {
            let labels = [self.0.kinds.label(kind.as_str()), priority.as_str()];
            self.0.submitted.with_label_values(&labels).inc_by(count);
        }
    }

    /// Notes how long the tasks of a claim had waited.
    pub(crate) fn claimed(&self, tasks: &[Claimed]) {
        self.0.statistics.claimed(tasks);
        let mut its: Option<(&Claimed, Histogram)> = None;
        for task in tasks {
            let (_, wait) =
                its.take_if(|(last, _)| last.queue == task.queue).unwrap_or_else(|| {
                    let label = self.0.queues.label(task.queue.as_str());
                    (task, self.0.wait.with_label_values(&[label]))
                });
            wait.observe(task.claimed_at.since(task.pending_at).as_secs_f64());
            its = Some((task, wait));
        }
    }

    /// Counts runs whose end was stored without anyone here hearing of it: as they were reported.
    pub(crate) fn ended_unheard(&self, reported: &[&Transition]) {
        let runs: Vec<_> = reported.iter().map(|run| EndedRun::of(run)).collect();
        let outcomes = reported.iter().map(|run| Applied::Applied(run.next.state));
        self.ended(&runs, &outcomes.collect::<Vec<_>>());
    }

    /// Counts runs by what their end has made of their tasks.
    fn ended(&self, runs: &[EndedRun], outcomes: &[Applied]) {
        self.0.statistics.ended(runs, outcomes);
        let mut ends = Vec::with_capacity(runs.len());
        let mut its: Option<(&Kind, Histogram)> = None;
        let mut refused = 0;
        for (EndedRun { kind, took, .. }, outcome) in runs.iter().zip(outcomes) {
            match outcome {
                // These runs do not count: their tasks wait again, as before.
                Applied::Applied(State::Pending | State::Scheduled) => {}
                Applied::Applied(state) => {
                    ends.push((kind, *state));
                    let Some(took) = took else { continue };
                    let (_, duration) =
                        its.take_if(|(last, _)| *last == kind).unwrap_or_else(|| {
                            let label = self.0.kinds.label(kind.as_str());
                            (kind, self.0.duration.with_label_values(&[label]))
                        });
                    duration.observe(took.as_secs_f64());
                    its = Some((kind, duration));
                }
                Applied::Refused(Refusal::LeaseLost) => refused += 1,
                // Whether these were counted, only who reports them knows.
                Applied::Already | Applied::Refused(Refusal::Gone) | Applied::Unrecorded => {}
            }
        }
        self.0.stale_writes_refused.inc_by(refused);
        for ((kind, state), count) in stretches(ends.iter()) {
            let labels = [self.0.kinds.label(kind.as_str()), state.as_str()];
            self.0.completed.with_label_values(&labels).inc_by(count);
        }
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Metrics({})", self.0.store_name)
    }
}

/// Those that follow each other and are alike, with how many they are: a batch is mostly of one sort, so
/// that a label is looked up once for all.
fn stretches<'a, T: PartialEq + 'a>(items: impl Iterator<Item = &'a T>) -> Vec<(&'a T, u64)> {
    let mut stretches: Vec<(&T, u64)> = Vec::new();
    for item in items {
        match stretches.last_mut() {
            Some((last, count)) if *last == item => *count += 1,
            _ => stretches.push((item, 1)),
        }
    }
    stretches
}

const VALID: &str = "the table has valid names, each once; a test makes them all";

fn kept<C: Collector + Clone + 'static>(registry: &Registry, metric: C) -> C {
    registry.register(Box::new(metric.clone())).expect(VALID);
    metric
}

fn options(metric: &Metric) -> Opts {
    Opts::new(metric.name, metric.help)
}

fn counter(metric: &Metric) -> IntCounter {
    IntCounter::with_opts(options(metric)).expect(VALID)
}

fn counters(metric: &Metric) -> IntCounterVec {
    IntCounterVec::new(options(metric), metric.labels).expect(VALID)
}

fn histograms(metric: &Metric) -> HistogramVec {
    let options = HistogramOpts::from(options(metric)).buckets(metric::BUCKETS.to_vec());
    HistogramVec::new(options, metric.labels).expect(VALID)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_that_are_alike_are_counted_together() {
        let items = ["a", "a", "b", "a"];
        assert_eq!(stretches(items.iter()), [(&"a", 2), (&"b", 1), (&"a", 1)]);
        assert_eq!(stretches([0_u8; 0].iter()), []);
    }
}
