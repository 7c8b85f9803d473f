//! The metrics as Prometheus reads them.

use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{GaugeVec, TextEncoder};
use windlass_core::metric::{self, Metric};
use windlass_core::store::{BrokerState, QueueRecord};
use windlass_core::{Priority, State};

use super::{Figures, Metrics, VALID, counters, options};

impl Metrics {
    /// The media type of [`Metrics::text`].
    pub const MEDIA: &str = "text/plain; version=0.0.4; charset=utf-8";

    /// All metrics in the text format of Prometheus. Those of the store are missing while it does not
    /// answer; all others are always told.
    pub async fn text(&self) -> String {
        let mut families = self.0.registry.gather();
        families.extend(self.own());
        if let Some(figures) = self.figures().await {
            families.extend(self.of_workers(&figures));
            families.extend(self.of_queues(&figures));
            families.extend(of_brokers(&figures.brokers));
        }
        TextEncoder::new().encode_to_string(&families).unwrap_or_else(|error| {
            tracing::error!(%error, "metrics cannot be written");
            String::new()
        })
    }

    /// What this process is.
    fn own(&self) -> Vec<MetricFamily> {
        let (leader, build) = (gauges(&metric::LEADER), gauges(&metric::BUILD_INFO));
        set(&leader, &[], f64::from(u8::from(self.0.leading.is_so())));
        set(&build, &[env!("CARGO_PKG_VERSION")], 1.0);
        collected(&[leader, build])
    }

    fn of_workers(&self, figures: &Figures) -> Vec<MetricFamily> {
        let [active, all, slots] =
            [&metric::ACTIVE_WORKERS, &metric::WORKERS, &metric::WORKER_SLOTS].map(gauges);
        let active_count = figures.workers.iter().filter(|worker| Figures::is_active(worker));
        set(&active, &[], number(active_count.count()));
        set(&all, &[], number(figures.workers.len()));
        for state in ["used", "free", "paused"] {
            set(&slots, &[state], 0.0);
        }
        for worker in &figures.workers {
            let used = worker.slots_used().min(worker.card.slots);
            let rest = if Figures::is_active(worker) { "free" } else { "paused" };
            add(&slots, &["used"], f64::from(used));
            add(&slots, &[rest], f64::from(worker.card.slots - used));
        }
        collected(&[active, all, slots])
    }

    fn of_queues(&self, figures: &Figures) -> Vec<MetricFamily> {
        let [depth, age] = [&metric::QUEUE_DEPTH, &metric::QUEUE_OLDEST_AGE].map(gauges);
        let [by_priority, dead] = [&metric::QUEUE_DEPTH_BY_PRIORITY, &metric::DLQ_SIZE].map(gauges);
        set(&dead, &[], 0.0);
        for priority in Priority::DESCENDING {
            set(&by_priority, &[priority.as_str()], 0.0);
        }
        for queue in &figures.queues {
            let QueueRecord { name, counts, pending, oldest_pending_at, .. } = queue;
            let name = self.0.queues.label(name.as_str());
            for state in State::ALL {
                add(&depth, &[name, state.as_str()], counts.get(state) as f64);
            }
            for priority in Priority::DESCENDING {
                let count = pending[usize::from(priority.as_number())];
                add(&by_priority, &[priority.as_str()], count as f64);
            }
            add(&dead, &[], counts.get(State::DeadLetter) as f64);
            let oldest = oldest_pending_at.map(|since| figures.now.since(since).as_secs_f64());
            // Those that are not told apart share one: the worst of them counts.
            let oldest = oldest.unwrap_or(0.0).max(age.with_label_values(&[name]).get());
            set(&age, &[name], oldest);
        }
        collected(&[by_priority, dead, depth, age])
    }
}

/// Nothing where there are no brokers.
fn of_brokers(brokers: &[BrokerState]) -> Vec<MetricFamily> {
    let (up, refused) = (gauges(&metric::BROKER_UP), counters(&metric::BROKER_REFUSED));
    for BrokerState { name, is_up, refused: its } in brokers {
        set(&up, &[name], f64::from(u8::from(*is_up)));
        for (reason, count) in
            [("gone", its.gone_count), ("busy", its.busy_count), ("paused", its.paused_count)]
        {
            refused.with_label_values(&[reason]).inc_by(count);
        }
    }
    [collected(&[up]), written(refused.collect())].concat()
}

fn gauges(metric: &Metric) -> GaugeVec {
    GaugeVec::new(options(metric), metric.labels).expect(VALID)
}

fn set(gauges: &GaugeVec, labels: &[&str], value: f64) {
    gauges.with_label_values(labels).set(value);
}

fn add(gauges: &GaugeVec, labels: &[&str], value: f64) {
    gauges.with_label_values(labels).add(value);
}

fn number(count: usize) -> f64 {
    count as f64
}

fn collected(gauges: &[GaugeVec]) -> Vec<MetricFamily> {
    written(gauges.iter().flat_map(Collector::collect).collect())
}

/// Those that have a number: the format has no place for others.
fn written(mut families: Vec<MetricFamily>) -> Vec<MetricFamily> {
    families.retain(|family| !family.get_metric().is_empty());
    families
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use windlass_core::metric::{LABEL_VALUES_MAX, OTHER, TABLE};
    use windlass_testkit::fleet;

    use crate::client::Client;
    use crate::task::{Configure, Options};

    #[tokio::test]
    async fn what_is_beyond_the_bound_is_added_up() {
        let client = Client::new(fleet::memory());
        for number in 0..LABEL_VALUES_MAX + 3 {
            let (kind, queue) = (format!("kind-{number}"), format!("queue-{number:03}"));
            let options = Options::new().queue(&queue);
            client.enqueue_raw(&kind, Bytes::new(), options).await.unwrap();
        }
        let text = client.metrics().text().await;
        let submitted = format!("{{priority=\"normal\",type=\"{OTHER}\"}} 3\n");
        assert!(text.contains(&submitted), "{text}");
        let depth = format!("windlass_queue_depth{{queue=\"{OTHER}\",state=\"pending\"}} 3\n");
        assert!(text.contains(&depth), "{text}");
        assert!(text.contains("taskqueue_queue_depth{priority=\"normal\"} 203\n"), "{text}");
        let of_queues = text.lines().filter(|line| line.starts_with("windlass_queue_depth{"));
        assert_eq!(of_queues.count(), (LABEL_VALUES_MAX + 1) * 7);
    }

    /// What has a number from the start on, so that alerts find it.
    #[tokio::test]
    async fn metrics_without_labels_are_told_from_the_start() {
        let text = Client::new(fleet::memory()).metrics().text().await;
        for metric in TABLE.iter().filter(|metric| metric.labels.is_empty()) {
            assert!(text.contains(&format!("\n{} 0\n", metric.name)), "{}: {text}", metric.name);
        }
    }
}
