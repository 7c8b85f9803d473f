//! Metrics as Prometheus would read them, each checked against the table of all.

use std::collections::{BTreeMap, BTreeSet};

use windlass::core::metric::{MetricKind, TABLE};

use super::Server;

/// What a process tells: series, as they are written, with their numbers.
pub(crate) struct Scrape(BTreeMap<String, f64>);

impl Scrape {
    /// Reads the metrics of a process. Every one of them must be in the table, be of its kind, and have its
    /// labels and no others.
    #[track_caller]
    pub(crate) fn of(server: &Server) -> Self {
        let (status, text) = server.get("/metrics");
        assert_eq!(status, 200, "{text}");
        let mut kinds = BTreeMap::new();
        let mut series = BTreeMap::new();
        for line in text.lines() {
            if let Some(told) = line.strip_prefix("# TYPE ") {
                let (name, kind) = told.split_once(' ').expect("a name and a kind");
                assert!(kinds.insert(name, kind).is_none(), "twice: {line}");
            } else if !line.starts_with('#') {
                let (name, number) = line.rsplit_once(' ').expect("a series and a number");
                let number = number.parse().expect("a number");
                assert!(series.insert(name.to_owned(), number).is_none(), "twice: {line}");
            }
        }
        for (name, kind) in &kinds {
            let metric = TABLE.iter().find(|metric| metric.name == *name);
            let metric = metric.unwrap_or_else(|| panic!("{name} is not in the table"));
            assert_eq!(metric.kind.as_str(), *kind, "{name}");
            assert!(text.contains(&format!("# HELP {name} {}\n", metric.help)), "{name}");
        }
        for told in series.keys() {
            let (name, labels) = parts(told);
            let metric = TABLE.iter().find(|metric| metric.name == family(name));
            let metric = metric.unwrap_or_else(|| panic!("{told} is not in the table"));
            assert!(kinds.contains_key(metric.name), "{told} has no type");
            let is_bucket = metric.kind == MetricKind::Histogram && name.ends_with("_bucket");
            let wanted: BTreeSet<_> = metric.labels.iter().copied().collect();
            let found: BTreeSet<_> = labels.filter(|name| !(is_bucket && *name == "le")).collect();
            assert_eq!(found, wanted, "{told}");
        }
        Self(series)
    }

    /// The number of a series, as it is written.
    pub(crate) fn get(&self, series: &str) -> Option<f64> {
        self.0.get(series).copied()
    }

    /// All series of a metric that begin so, but for the parts of histograms that time decides.
    pub(crate) fn all(&self, start: &str) -> Vec<(&str, f64)> {
        let is_its = |name: &str| name == start || name.starts_with(&format!("{start}{{"));
        self.0
            .iter()
            .filter(|(name, _)| is_its(name))
            .map(|(name, n)| (name.as_str(), *n))
            .collect()
    }

    /// The names of all metrics that were told.
    pub(crate) fn names(&self) -> BTreeSet<&str> {
        self.0.keys().map(|told| family(parts(told).0)).collect()
    }
}

/// The name of a series, and those of its labels.
fn parts(series: &str) -> (&str, impl Iterator<Item = &str>) {
    let (name, labels) = series.split_once('{').unwrap_or((series, ""));
    let labels = labels.trim_end_matches('}').split("\",").filter(|label| !label.is_empty());
    (name, labels.map(|label| label.split('=').next().unwrap_or_default()))
}

/// The metric that a series is of.
fn family(name: &str) -> &str {
    let ends = ["_bucket", "_sum", "_count"];
    let is_histogram = |name: &&str| {
        TABLE.iter().any(|metric| metric.kind == MetricKind::Histogram && metric.name == *name)
    };
    ends.iter().find_map(|end| name.strip_suffix(end).filter(is_histogram)).unwrap_or(name)
}
