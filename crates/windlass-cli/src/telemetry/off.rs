//! A binary without the feature `otel`: it says so where traces are expected of it.

use tokio::runtime::Handle;
use tracing_subscriber::layer::Identity;

use crate::cmd::Cli;
use crate::exit::Done;

/// What turns traces on elsewhere.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

pub(crate) struct Telemetry {
    missed: Option<&'static str>,
}

impl Telemetry {
    pub(crate) fn of_environment(cli: &Cli, _: &Handle) -> Done<Self> {
        let is_set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let missed = ENDPOINTS.into_iter().find(is_set).filter(|_| cli.minds_signals());
        Ok(Self { missed })
    }

    pub(crate) fn layer(&self) -> Option<Identity> {
        None
    }

    pub(crate) fn tell(&self) {
        if let Some(name) = self.missed {
            tracing::warn!(
                variable = name,
                "no traces: this windlass was built without the feature otel"
            );
        }
    }

    pub(crate) fn hand_over(self) {}
}

pub(crate) async fn submitting<T>(submit: impl Future<Output = T>) -> T {
    submit.await
}

pub(crate) fn traceparent() -> Option<String> {
    None
}
