//! The span of a request that comes with a trace context. One that comes without has none: probes, polls and pages
//! would fill every collector, and a submit has a span of its own.

use opentelemetry::trace::Status;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use super::context;

/// From this status on it is the server that failed.
const SERVER_FAILED: u16 = 500;

/// Methods that may stand in the name of a span; clients can make up any number of others.
const METHODS: [&str; 7] = ["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"];
const OTHER_METHOD: &str = "_OTHER";

/// A request that a server answers.
#[derive(Debug)]
pub struct Request(Span);

impl Request {
    /// A request of this method and route, with this trace context.
    pub fn begin(method: &str, route: Option<&str>, traceparent: Option<&str>) -> Self {
        let method = if METHODS.contains(&method) { method } else { OTHER_METHOD };
        let Some(parent) = traceparent.and_then(context::read) else { return Self(Span::none()) };
        let named = |name| tracing::info_span!("request", otel.name = %name, otel.kind = "server");
        let span = match route {
            Some(route) => named(format_args!("{method} {route}")),
            None => named(format_args!("{method}")),
        };
        // Without a layer that could take it nothing is lost.
        let _ = span.set_parent(parent);
        span.set_attribute("http.request.method", method.to_owned());
        if let Some(route) = route {
            span.set_attribute("http.route", route.to_owned());
        }
        Self(span)
    }

    /// The span to answer it in; the caller's where it has none of its own.
    pub fn span(&self) -> Span {
        self.0.clone().or_current()
    }

    /// It was answered with this status.
    pub fn end(self, status: u16) {
        let Self(span) = self;
        span.set_attribute("http.response.status_code", i64::from(status));
        if status >= SERVER_FAILED {
            span.set_attribute("error.type", status.to_string());
            span.set_status(Status::error(""));
        }
    }
}
