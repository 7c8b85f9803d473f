//! Traces for a collector of OpenTelemetry, by OTLP over HTTP, where the environment names one. `settings.rs` reads
//! that, `carrier.rs` sends.

mod carrier;
mod settings;

use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{SpanExporter, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::runtime::Handle;
use tracing::level_filters::LevelFilter;
use tracing::{Instrument, info_span};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::{Layer, Registry};
use windlass::otel::{RunIds, follow};

use self::carrier::Carrier;
use self::settings::Wanted;
use crate::cmd::Cli;
use crate::exit::{Code, Done, Failure};

pub(crate) use windlass::otel::traceparent;

/// How long the end of a command waits for a collector to take what is left.
const FLUSH_MAX: Duration = Duration::from_secs(3);
/// Whose spans are handed on. Not those of libraries: the one that sends them has some, too, which would never end.
const TRACED: [&str; 3] = ["windlass", "windlass_engine", "windlass_server"];
/// The trace context that a command is started in.
const AROUND: &str = "TRACEPARENT";

/// Where traces go, if anywhere.
pub(crate) struct Telemetry(Option<On>);

struct On {
    provider: SdkTracerProvider,
    collector: String,
}

impl Telemetry {
    /// As the environment wants it.
    pub(crate) fn of_environment(cli: &Cli, runtime: &Handle) -> Done<Self> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let wanted = if cli.is_traced() { settings::read(variable)? } else { None };
        wanted.map(|wanted| On::new(wanted, runtime)).transpose().map(Self)
    }

    /// What takes the spans.
    pub(crate) fn layer(&self) -> Option<Box<dyn Layer<Registry> + Send + Sync>> {
        let On { provider, .. } = self.0.as_ref()?;
        let traced = TRACED.map(|target| (target, LevelFilter::INFO));
        let layer = tracing_opentelemetry::layer()
            .with_tracer(provider.tracer("windlass"))
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            .with_filter(Targets::new().with_targets(traced));
        Some(layer.boxed())
    }

    /// Says where traces go.
    pub(crate) fn tell(&self) {
        if let Some(On { collector, .. }) = &self.0 {
            tracing::info!(collector, "traces are handed on");
        }
    }

    /// Hands over what is left, and waits for that no longer than makes sense.
    pub(crate) fn hand_over(self) {
        if let Some(On { provider, .. }) = self.0 {
            // The carrier has said what is wrong.
            let _ = provider.shutdown_with_timeout(FLUSH_MAX);
        }
    }
}

impl On {
    fn new(wanted: Wanted, runtime: &Handle) -> Done<Self> {
        let Wanted { collector, timeout, certificate, has_service_name } = wanted;
        let carrier = Carrier::new(timeout, certificate.as_deref(), runtime.clone())?;
        let exporter = SpanExporter::builder().with_http().with_http_client(carrier);
        let exporter = exporter
            .build()
            .map_err(|cause| Failure::new(Code::Usage, format!("set up OpenTelemetry: {cause}")))?;
        let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
        let mut resource = Resource::builder().with_attribute(version);
        if !has_service_name {
            resource = resource.with_service_name("windlass");
        }
        let provider = SdkTracerProvider::builder()
            .with_id_generator(RunIds::default())
            .with_resource(resource.build())
            .with_batch_exporter(exporter)
            .build();
        Ok(Self { provider, collector })
    }
}

/// Submits within a span, in the trace that the command was started in if there is one.
pub(crate) async fn submitting<T>(submit: impl Future<Output = T>) -> T {
    let span = info_span!("enqueue", otel.kind = "client");
    if let Ok(around) = std::env::var(AROUND) {
        follow(&span, &around);
    }
    submit.instrument(span).await
}
