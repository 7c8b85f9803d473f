//! The filters that lists and changes of many tasks share.

use std::time::Duration;

use serde::Serialize;
use windlass::core::{Clock, SystemClock, duration};
use windlass::{Error, Timestamp};

use crate::caller::escaped;

/// Which tasks; those that have everything in common that is given.
#[derive(clap::Args, Serialize, Default)]
#[command(next_help_heading = "Filters")]
pub(super) struct Filters {
    /// In this state; several with commas.
    #[arg(long, value_name = "STATE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<String>,
    /// In this queue.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) queue: Option<String>,
    /// Of this type.
    #[arg(long = "type", value_name = "TYPE")]
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<String>,
    /// With this priority.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) priority: Option<String>,
    /// With this tag.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tag: Option<String>,
    /// Submitted at this time or later; a time, or how long ago, e.g. 2h.
    #[arg(long, value_name = "TIME", value_parser = instant_before_now)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) created_after: Option<Timestamp>,
    /// Submitted before this time; a time, or how long ago, e.g. 2h.
    #[arg(long, value_name = "TIME", value_parser = instant_before_now)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) created_before: Option<Timestamp>,
}

impl Filters {
    pub(super) fn is_empty(&self) -> bool {
        self.pairs().is_empty()
    }

    /// As parameters of a URL.
    pub(super) fn query(&self) -> String {
        let pairs = self.pairs();
        let pairs = pairs.iter().map(|(name, value)| format!("&{name}={}", escaped(value)));
        pairs.collect()
    }

    fn pairs(&self) -> Vec<(&'static str, String)> {
        let time = |time: Option<Timestamp>| time.map(|time| time.to_string());
        [
            ("state", self.state.clone()),
            ("queue", self.queue.clone()),
            ("type", self.kind.clone()),
            ("priority", self.priority.clone()),
            ("tag", self.tag.clone()),
            ("created_after", time(self.created_after)),
            ("created_before", time(self.created_before)),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
    }
}

/// Reads a span of time such as `30s`.
pub(super) fn span(text: &str) -> Result<Duration, Error> {
    duration::parse(text)
}

/// Reads a time, or how long ago it was.
fn instant_before_now(text: &str) -> Result<Timestamp, Error> {
    match duration::parse(text) {
        Ok(ago) => Ok(SystemClock.now().before(ago)),
        Err(_) => text.parse(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_become_parameters_of_a_url() {
        let filters = Filters {
            state: Some("pending,retrying".into()),
            kind: Some("a b".into()),
            ..Filters::default()
        };
        assert_eq!(filters.query(), "&state=pending%2Cretrying&type=a%20b");
        assert!(!filters.is_empty() && Filters::default().is_empty());
    }

    #[test]
    fn a_time_is_given_as_such_or_as_an_age() {
        let time = instant_before_now("2026-01-01T08:00:00Z").unwrap();
        assert_eq!(time.as_millis(), 1_767_254_400_000);
        assert!(instant_before_now("1h").unwrap() < SystemClock.now());
        assert!(instant_before_now("yesterday").is_err());
    }
}
