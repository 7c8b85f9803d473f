//! What is logged, and how: on standard error, as lines for people or as JSON (`json.rs`).

mod json;

use std::fmt;

use clap::ValueEnum;
use tracing::Subscriber;
use tracing::field::{Field, Visit};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::field::{RecordFields, VisitOutput};
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{DefaultVisitor, Writer};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use windlass::core::config::{LogFormat, LogLevel};

use crate::cmd::Cli;
use crate::settings::Settings;
use crate::telemetry::Telemetry;

/// How a line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// A JSON object.
    Json,
}

impl Format {
    /// As the setting has it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}

/// Logs to standard error as flags, environment and files have it: -v > RUST_LOG > `log.level`.
pub(crate) fn to_stderr(cli: &Cli, telemetry: &Telemetry) {
    let globals = cli.globals();
    let config = Settings::log(globals);
    let format = match (globals.log_format, config.format) {
        (Some(Format::Json), _) | (None, LogFormat::Json) => LogFormat::Json,
        (Some(Format::Text), _) | (None, LogFormat::Text) => LogFormat::Text,
    };
    let level = match (globals.verbose, config.level) {
        (0, LogLevel::Auto) => automatic(cli),
        (0, level) => level,
        (1, _) => LogLevel::Debug,
        (_, _) => LogLevel::Trace,
    };
    let (filter, wrong) = match std::env::var(EnvFilter::DEFAULT_ENV) {
        Ok(text) if globals.verbose == 0 && !text.is_empty() => match EnvFilter::try_new(&text) {
            Ok(filter) => (filter, None),
            Err(error) => (EnvFilter::new(directives(level)), Some(error)),
        },
        Ok(_) | Err(_) => (EnvFilter::new(directives(level)), None),
    };
    let registry = tracing_subscriber::registry();
    // A second subscriber cannot come up here; a test harness may have set its own.
    let _ = match telemetry.layer() {
        // What is not logged is a trace's all the same.
        Some(traces) => registry.with(traces).with(lines(format).with_filter(filter)).try_init(),
        None => registry.with(filter).with(lines(format)).try_init(),
    };
    if let Some(error) = wrong {
        tracing::warn!(%error, "RUST_LOG cannot be read and is ignored");
    }
}

/// Long-running commands log what they do; the others log when something is wrong.
fn automatic(cli: &Cli) -> LogLevel {
    match cli.minds_signals() {
        true => LogLevel::Info,
        // What a measurement does on purpose is no cause for warnings.
        false if cli.is_measurement() => LogLevel::Error,
        false => LogLevel::Warn,
    }
}

/// The level as a filter. Libraries are quiet until everything is wanted.
fn directives(level: LogLevel) -> &'static str {
    match level {
        LogLevel::Error => "error",
        LogLevel::Auto | LogLevel::Warn => "warn",
        LogLevel::Info => "warn,windlass=info",
        LogLevel::Debug => "warn,windlass=debug",
        LogLevel::Trace => "debug,windlass=trace",
    }
}

/// A line on standard error for each event.
fn lines<S: Subscriber + for<'a> LookupSpan<'a>>(
    format: LogFormat,
) -> Box<dyn Layer<S> + Send + Sync> {
    let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(is_terminal && std::env::var_os("NO_COLOR").is_none())
        .with_target(false)
        // It would complain on standard error, too, and panic.
        .log_internal_errors(false);
    match format {
        LogFormat::Text => layer.fmt_fields(Fields).boxed(),
        LogFormat::Json => layer
            .with_ansi(false)
            .fmt_fields(json::JsonFields)
            .event_format(json::JsonEvents)
            .boxed(),
    }
}

/// Fields as usual, without those that are for OpenTelemetry only.
struct Fields;

impl<'writer> FormatFields<'writer> for Fields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut shown = Shown(DefaultVisitor::new(writer, true));
        fields.record(&mut shown);
        shown.0.finish()
    }
}

struct Shown<'a>(DefaultVisitor<'a>);

impl Visit for Shown<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if !field.name().starts_with("otel.") {
            self.0.record_debug(field, value);
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if !field.name().starts_with("otel.") {
            self.0.record_str(field, value);
        }
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.0.record_error(field, value);
    }
}
