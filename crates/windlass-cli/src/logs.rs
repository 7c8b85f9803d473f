//! What is logged, and how: on stderr, for people.

use std::fmt;

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

use crate::cmd::Cli;
use crate::telemetry::Telemetry;

/// Long-running commands tell what they do; the others speak up when something is wrong.
pub(crate) fn to_stderr(cli: &Cli, telemetry: &Telemetry) {
    let level = match (cli.verbose(), cli.minds_signals()) {
        // What a measurement does on purpose is no cause for warnings.
        (0, false) if cli.is_measurement() => "error",
        (0, false) => "warn",
        (0, true) | (1, false) => "warn,windlass=info,windlass_engine=info,windlass_server=info",
        (1, true) | (2, _) => "info,windlass=debug,windlass_engine=debug,windlass_server=debug",
        _ => "debug,windlass=trace,windlass_engine=trace,windlass_server=trace",
    };
    let filter = EnvFilter::try_from_env("WINDLASS_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let registry = tracing_subscriber::registry();
    // A second subscriber cannot come up here; a test harness may have set its own.
    let _ = match telemetry.layer() {
        // What is not logged is a trace's all the same.
        Some(traces) => registry.with(traces).with(lines().with_filter(filter)).try_init(),
        None => registry.with(filter).with(lines()).try_init(),
    };
}

/// A line on stderr for each event.
fn lines<S: Subscriber + for<'a> LookupSpan<'a>>() -> impl Layer<S> {
    let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(is_terminal && std::env::var_os("NO_COLOR").is_none())
        .with_target(false)
        .fmt_fields(Fields)
        // It would complain on stderr, too, and panic.
        .log_internal_errors(false)
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
