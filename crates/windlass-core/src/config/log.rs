//! Settings of the log.

use serde::{Deserialize, Serialize};

/// What the binary logs, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogConfig {
    /// From which level on events are logged.
    pub level: LogLevel,
    /// How a line is written.
    pub format: LogFormat,
}

/// From which level on events are logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// `info` for commands that run until they are stopped, `warn` for the others.
    Auto,
    /// Only what went wrong.
    Error,
    /// Also what an operator should look at.
    Warn,
    /// Also starts, stops, leadership and recoveries.
    Info,
    /// Also every run of a task and every request.
    Debug,
    /// Everything.
    Trace,
}

/// How a line of the log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// A JSON object.
    Json,
}
