//! Every metric that windlass tells, as data: the engine makes its metrics of this table, the docs, the
//! alert rules and the dashboard are checked against it.

/// What sort of numbers a metric has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// It only grows, from 0 at the start of a process.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Seconds, counted by how many there were.
    Histogram,
}

impl MetricKind {
    /// As Prometheus names it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// What sort of numbers it has.
    pub kind: MetricKind,
    /// What its numbers are told apart by.
    pub labels: &'static [&'static str],
    /// What it means, in a line.
    pub help: &'static str,
}

/// Kinds of tasks, and queues, that are told apart, each; those met later share [`OTHER`].
pub const LABEL_VALUES_MAX: usize = 200;

/// The label of all that are not told apart.
pub const OTHER: &str = "__other__";

/// Upper ends of the buckets of histograms, in seconds.
pub const BUCKETS: [f64; 16] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0,
    1800.0,
];

/// Makes a constant of each metric, and the table of them all.
macro_rules! table {
    ($($constant:ident: $kind:ident $name:literal [$($label:literal)*] $help:literal;)*) => {
        $(#[doc = $help]
        pub const $constant: Metric = Metric {
            name: $name,
            kind: MetricKind::$kind,
            labels: &[$($label),*],
            help: $help,
        };)*

        /// All of them.
        pub const TABLE: &[&Metric] = &[$(&$constant),*];
    };
}

table! {
    TASKS_SUBMITTED: Counter "taskqueue_tasks_submitted_total" ["type" "priority"]
        "Tasks that this process has put into the store.";
    TASKS_COMPLETED: Counter "taskqueue_tasks_completed_total" ["type" "status"]
        "Runs whose end this process has reported, by what became of the task: completed, retrying, dead_letter, cancelled.";
    TASK_DURATION: Histogram "taskqueue_task_duration_seconds" ["type"]
        "How long runs that have ended took.";
    QUEUE_DEPTH_BY_PRIORITY: Gauge "taskqueue_queue_depth" ["priority"]
        "Pending tasks of all queues.";
    ACTIVE_WORKERS: Gauge "taskqueue_active_workers" []
        "Workers that live and take tasks.";
    DLQ_SIZE: Gauge "taskqueue_dlq_size" []
        "Dead letters.";
    QUEUE_DEPTH: Gauge "windlass_queue_depth" ["queue" "state"]
        "Tasks of a queue by state.";
    QUEUE_OLDEST_AGE: Gauge "windlass_queue_oldest_age_seconds" ["queue"]
        "How long the task that is pending longest has been so; 0 when none is.";
    TASK_WAIT: Histogram "windlass_task_wait_seconds" ["queue"]
        "How long tasks that this process has claimed had been pending.";
    LEASES_LOST: Counter "windlass_leases_lost_total" []
        "Running tasks that this process, as the leader, has taken back from workers that fell silent.";
    STALE_WRITES_REFUSED: Counter "windlass_stale_writes_refused_total" []
        "Reports of this process that the store refused, since the task was not under that lease any more.";
    REPAIRS: Counter "windlass_repairs_total" []
        "What the store has found half missing or counted wrong and put right while this process led.";
    STORE_OP: Histogram "windlass_store_op_seconds" ["store" "op"]
        "How long calls of the store took, whole batches each; waits for work are left out.";
    WORKER_SLOTS: Gauge "windlass_worker_slots" ["state"]
        "Slots of all live workers: used, free, and paused (free, but of a worker that takes nothing).";
    WORKERS: Gauge "windlass_workers" []
        "Workers that live, those too that are paused or drain.";
    LEADER: Gauge "windlass_leader" []
        "1 in the process that leads, 0 in the others.";
    BROKER_UP: Gauge "windlass_broker_up" ["broker"]
        "1 while a broker in front of the store answers this process.";
    BROKER_REFUSED: Counter "windlass_broker_refused_total" ["reason"]
        "References from brokers that the database did not honour: gone, busy, paused.";
    BUILD_INFO: Gauge "windlass_build_info" ["version"]
        "1, for the version that runs.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_labels_are_as_prometheus_wants_them() {
        for metric in TABLE {
            let is_name = |text: &str| text.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
            assert!(is_name(metric.name) && metric.labels.iter().all(|label| is_name(label)));
            let is_total = metric.name.ends_with("_total");
            assert_eq!(is_total, metric.kind == MetricKind::Counter, "{}", metric.name);
            assert_eq!(
                metric.name.ends_with("_seconds"),
                metric.kind == MetricKind::Histogram || metric.name == QUEUE_OLDEST_AGE.name,
                "{}",
                metric.name
            );
            assert!(metric.help.ends_with('.'));
        }
    }
}
