//! Settings and their defaults. The defaults are the embedded `default.toml`, which documents each.

mod layers;
mod log;
mod reference;

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};

use crate::duration;
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::retry::Backoff;

pub use layers::{Layer, Layered, MisspeltVariable, layered, misspelt};
pub use log::{LogConfig, LogFormat, LogLevel};
pub use reference::{Setting, sample, settings};

/// The text of the defaults, for `windlass config show` and the docs.
pub const DEFAULT_TOML: &str = include_str!("../default.toml");

/// Every setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The URL of the place where tasks are kept.
    pub store: String,
    /// The URLs of brokers in front of it, with commas between them; empty for none.
    pub broker: String,
    /// What the binary logs.
    pub log: LogConfig,
    /// Settings of the server.
    pub server: ServerConfig,
    /// Where a worker tells its metrics.
    pub metrics: MetricsConfig,
    /// What is kept of the work that was done.
    pub statistics: StatisticsConfig,
    /// Settings of a worker.
    pub worker: WorkerConfig,
    /// Settings of the leader's duties.
    pub upkeep: UpkeepConfig,
    /// Settings of tasks that do not say otherwise.
    pub task: TaskConfig,
    /// Settings of the handler `http.webhook`.
    pub webhook: WebhookConfig,
    /// Upper bounds.
    pub limits: Limits,
}

/// Settings of the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerConfig {
    /// The address to listen on.
    pub bind: IpAddr,
    /// The port to listen on.
    pub port: u16,
    /// Names under which the server is reached besides its addresses, with commas between them; `*` is any.
    pub hosts: String,
    /// Connections at a time.
    pub connections_max: usize,
    /// Requests that wait for the end of a task at a time.
    pub waits_max: usize,
    /// New queues, and new types, that a token may bring in a minute.
    pub new_names_per_minute: u32,
    /// Queues, and types, above which no new ones are taken.
    pub names_max: usize,
    /// The file with the certificate and those between it and its root, in PEM; empty for no TLS.
    pub tls_cert: String,
    /// The file with the certificate's private key, in PEM.
    pub tls_key: String,
}

/// Where a worker tells its metrics.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricsConfig {
    /// The port to listen on; `None` is none.
    #[serde(serialize_with = "write_port", deserialize_with = "read_port")]
    pub port: Option<u16>,
    /// The address to listen on.
    pub bind: IpAddr,
}

/// What is kept of the work that was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatisticsConfig {
    /// This process counts what it does and keeps the counts in the store.
    pub enabled: bool,
}

/// Settings of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerConfig {
    /// How long a worker may be silent.
    #[serde(with = "duration::text")]
    pub lease: Duration,
    /// How often it shows that it lives.
    #[serde(with = "duration::text")]
    pub heartbeat: Duration,
    /// Tasks at once per core.
    pub concurrency_per_core: u32,
    /// How long its tasks may go on after it was asked to stop.
    #[serde(with = "duration::text")]
    pub shutdown_timeout: Duration,
    /// Shortest pause between looks for work.
    #[serde(with = "duration::text")]
    pub idle_poll_min: Duration,
    /// Longest pause between looks for work.
    #[serde(with = "duration::text")]
    pub idle_poll_max: Duration,
}

/// Settings of the leader's duties.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpkeepConfig {
    /// How long a leader leads without renewing.
    #[serde(with = "duration::text")]
    pub leader_term: Duration,
    /// How often it renews.
    #[serde(with = "duration::text")]
    pub leader_renewal: Duration,
    /// How often lost workers are looked for.
    #[serde(with = "duration::text")]
    pub sweep: Duration,
    /// Most tasks per step.
    pub batch: usize,
}

/// Settings of tasks that do not say otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskConfig {
    /// Runs after the first.
    pub max_retries: u32,
    /// Crashes survived.
    pub max_crashes: u32,
    /// Longest run.
    #[serde(with = "duration::text")]
    pub timeout: Duration,
    /// How long completed and cancelled tasks are kept; `None` leaves it to the store
    /// ([`crate::store::Profile::retention_default`]).
    #[serde(serialize_with = "write_retention", deserialize_with = "read_retention")]
    pub retention: Option<Duration>,
    /// How long dead letters are kept; `None` is for ever.
    #[serde(serialize_with = "write_age", deserialize_with = "read_age")]
    pub dead_letter_retention: Option<Duration>,
    /// The pauses before retries.
    pub retry: Backoff,
}

/// Settings of the handler `http.webhook`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookConfig {
    /// Targets that are allowed although they are not on the public network: addresses, CIDRs and names of
    /// hosts, with commas between them.
    pub allow: String,
    /// The folder with the secrets that requests are signed with, a file each; empty for none.
    pub secrets: String,
    /// How long a target may take from the connection to the end of its answer.
    #[serde(with = "duration::text")]
    pub timeout: Duration,
}

impl Config {
    /// Reads settings from a TOML text, over the defaults.
    pub fn parse(text: &str) -> Result<Self> {
        Ok(layered(vec![Layer::parse("the settings", text)?])?.config)
    }

    fn validate(&self) -> Result<()> {
        let (worker, upkeep) = (&self.worker, &self.upkeep);
        if worker.heartbeat.is_zero() || worker.heartbeat * 2 > worker.lease {
            return Err(Error::invalid(
                "worker.heartbeat must be above 0 and at most half the lease",
            ));
        }
        if upkeep.leader_renewal.is_zero() || upkeep.leader_renewal * 2 > upkeep.leader_term {
            return Err(Error::invalid(
                "upkeep.leader_renewal must be above 0 and at most half the term",
            ));
        }
        let server = &self.server;
        let counts = [
            ("connections_max", server.connections_max),
            ("waits_max", server.waits_max),
            ("new_names_per_minute", server.new_names_per_minute as usize),
            ("names_max", server.names_max),
        ];
        if let Some((name, _)) = counts.into_iter().find(|(_, count)| *count == 0) {
            return Err(Error::invalid(format!("server.{name} must be above 0")));
        }
        if self.server.tls_cert.is_empty() != self.server.tls_key.is_empty() {
            return Err(Error::invalid("server.tls_cert and server.tls_key go together"));
        }
        if upkeep.batch == 0 || upkeep.sweep.is_zero() {
            return Err(Error::invalid("upkeep.batch and upkeep.sweep must be above 0"));
        }
        if worker.idle_poll_min.is_zero() || worker.idle_poll_min > worker.idle_poll_max {
            return Err(Error::invalid(
                "worker.idle_poll_min must be above 0 and at most idle_poll_max",
            ));
        }
        self.task.retry.validate()
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::parse("").expect("the embedded defaults are read by a test")
    }
}

/// Puts `over` on top of `base`, table by table.
fn overlay(base: &mut toml::Table, over: toml::Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(toml::Value::Table(below)), toml::Value::Table(above)) => {
                if key == "retry"
                    && let Some(shape) = above.get("shape").and_then(toml::Value::as_str)
                {
                    reshape(below, shape);
                }
                overlay(below, above);
            }
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

/// Leaves the fields that backoff of another shape has, and adds the defaults of those that are missing.
fn reshape(retry: &mut toml::Table, shape: &str) {
    let fields: &[(&str, toml::Value)] = match shape {
        "exponential" => &[
            ("initial", "1s".into()),
            ("factor", 2.0.into()),
            ("max", "5m".into()),
            ("jitter", 0.1.into()),
        ],
        "linear" => &[("step", STEP_DEFAULT.into()), ("max", "5m".into()), ("jitter", 0.1.into())],
        "fixed" => &[("initial", "1s".into()), ("jitter", 0.1.into())],
        _ => return,
    };
    retry.retain(|name, _| name == "shape" || fields.iter().any(|(field, _)| *field == name));
    for (name, default) in fields {
        retry.entry(*name).or_insert_with(|| default.clone());
    }
}

/// The name of a setting that is not among the defaults, since another shape of backoff has it, and its default.
const STEP: &str = "task.retry.step";
const STEP_DEFAULT: &str = "1s";

/// What stands for no time of one's own.
const FOREVER: &str = "forever";
const AS_THE_STORE: &str = "store";
/// What stands for no port.
const OFF: &str = "off";

/// A port as people write it; the environment has nothing but text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Port {
    Number(u16),
    Text(String),
}

/// A time as people write it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Time {
    Seconds(f64),
    Text(String),
}

fn write_port<S: serde::Serializer>(port: &Option<u16>, serializer: S) -> Result<S::Ok, S::Error> {
    match port {
        None => serializer.serialize_str(OFF),
        Some(port) => serializer.serialize_u16(*port),
    }
}

fn read_port<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u16>, D::Error> {
    let wrong = || serde::de::Error::custom("use \"off\" or a port from 0 to 65535");
    match Port::deserialize(deserializer).map_err(|_| wrong())? {
        Port::Number(port) => Ok(Some(port)),
        Port::Text(text) if text == OFF => Ok(None),
        Port::Text(text) => text.trim().parse().map(Some).map_err(|_| wrong()),
    }
}

fn write_age<S: serde::Serializer>(
    age: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    write_time_or(age, FOREVER, serializer)
}

fn read_age<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    read_time_or(FOREVER, deserializer)
}

fn write_retention<S: serde::Serializer>(
    time: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    write_time_or(time, AS_THE_STORE, serializer)
}

fn read_retention<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    read_time_or(AS_THE_STORE, deserializer)
}

fn write_time_or<S: serde::Serializer>(
    time: &Option<Duration>,
    word: &str,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match time {
        None => serializer.serialize_str(word),
        Some(time) => duration::text::serialize(time, serializer),
    }
}

fn read_time_or<'de, D: Deserializer<'de>>(
    word: &str,
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    let read = match Time::deserialize(deserializer)? {
        Time::Text(text) if text == word => return Ok(None),
        Time::Text(text) => duration::parse(&text),
        Time::Seconds(seconds) => duration::from_seconds(seconds),
    };
    read.map(Some).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_file_is_the_defaults() {
        let config = Config::default();
        assert_eq!(config.worker.lease, Duration::from_secs(15));
        assert_eq!(config.worker.heartbeat * 3, config.worker.lease);
        assert_eq!(config.upkeep.sweep * 3, config.worker.lease);
        assert_eq!(config.task.retry, Backoff::default());
        assert_eq!(config.task.dead_letter_retention, None);
        assert_eq!(config.task.retention, None, "as the store has it");
        let hour = Config::parse("task.retention = \"1h\"").unwrap().task.retention;
        assert_eq!(hour, Some(Duration::from_secs(3_600)));
    }

    #[test]
    fn a_port_is_a_number_or_off() {
        assert_eq!(Config::default().metrics.port, None);
        for text in ["metrics.port = 9100", "metrics.port = \"9100\""] {
            assert_eq!(Config::parse(text).unwrap().metrics.port, Some(9_100));
        }
        for text in ["metrics.port = 70000", "metrics.port = \"on\"", "metrics.port = true"] {
            assert!(Config::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn every_default_is_documented_above_its_line() {
        let lines: Vec<_> = DEFAULT_TOML.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            if line.contains('=') && !line.starts_with('#') {
                assert!(lines[index - 1].starts_with("# "), "no comment above: {line}");
            }
        }
    }

    #[test]
    fn the_file_names_every_setting_there_is() {
        let file: toml::Table = toml::from_str(DEFAULT_TOML).unwrap();
        let known = toml::Table::try_from(Config::default()).unwrap();
        assert_eq!(names("", &file), names("", &known));
    }

    #[test]
    fn a_setting_replaces_its_default_and_leaves_the_others() {
        let config = Config::parse("[worker]\nlease = \"30s\"").unwrap();
        assert_eq!(config.worker.lease, Duration::from_secs(30));
        assert_eq!(config.worker.heartbeat, Duration::from_secs(5));
    }

    #[test]
    fn another_shape_of_backoff_has_its_own_fields() {
        let retry =
            |text: &str| Config::parse(&format!("[task.retry]\n{text}")).map(|it| it.task.retry);
        let fixed = Backoff::Fixed { initial: Duration::from_secs(9), jitter: 0.0 };
        assert_eq!(retry("shape = \"fixed\"\ninitial = \"9s\"\njitter = 0.0").unwrap(), fixed);
        let (step, max) = (Duration::from_secs(1), Duration::from_secs(300));
        let linear = Backoff::Linear { step, max, jitter: 0.1 };
        assert_eq!(retry("shape = \"linear\"").unwrap(), linear);
        assert_eq!(retry("shape = \"exponential\"").unwrap(), Backoff::default());
        assert!(retry("shape = \"fixed\"\nfactor = 2.0").is_err());
        assert!(retry("step = \"1s\"").is_err());
    }

    #[test]
    fn a_time_to_keep_tasks_may_be_a_number_of_seconds() {
        let config =
            Config::parse("task.retention = 90\ntask.dead_letter_retention = \"30d\"").unwrap();
        assert_eq!(config.task.retention, Some(Duration::from_secs(90)));
        assert_eq!(config.task.dead_letter_retention, Some(Duration::from_secs(30 * 86_400)));
    }

    #[test]
    fn unknown_and_senseless_settings_are_refused() {
        for text in [
            "[worker]\nleese = \"30s\"",
            "[worker]\nlease = \"soon\"",
            "[worker]\nheartbeat = \"14s\"",
            "[worker]\nheartbeat = \"0s\"",
            "[upkeep]\nbatch = 0",
            "[server]\nconnections_max = 0",
            "[server]\nwaits_max = 0",
            "[server]\nnew_names_per_minute = 0",
            "[server]\nnames_max = 0",
            "[server]\ntls_cert = \"cert.pem\"",
            "[task.retry]\njitter = 7.0",
            "not toml",
        ] {
            assert!(Config::parse(text).is_err(), "{text}");
        }
    }

    fn names(prefix: &str, table: &toml::Table) -> Vec<String> {
        let mut names = Vec::new();
        for (key, value) in table {
            match value {
                toml::Value::Table(inner) => {
                    names.extend(self::names(&format!("{prefix}{key}."), inner));
                }
                _ => names.push(format!("{prefix}{key}")),
            }
        }
        names.sort();
        names
    }
}
