//! Trace contexts: the one around whoever asks, and those that tasks and requests carry as text (W3C).

use std::collections::HashMap;

use opentelemetry::Context;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{SpanContext, TraceContextExt};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

const HEADER: &str = "traceparent";

/// The context around the caller: that of its span of `tracing`, or else the one that OpenTelemetry itself knows.
pub(super) fn current() -> SpanContext {
    let of_span = span_context(&Span::current());
    if of_span.is_valid() { of_span } else { Context::current().span().span_context().clone() }
}

/// The context of a span; from now on the span has begun, and its parent cannot change.
pub(super) fn span_context(span: &Span) -> SpanContext {
    span.context().span().span_context().clone()
}

/// Reads a context; one that cannot be read is none, as W3C says.
pub(super) fn read(traceparent: &str) -> Option<Context> {
    let carrier = HashMap::from([(HEADER.to_owned(), traceparent.to_owned())]);
    let found = TraceContextPropagator::new().extract_with_context(&Context::new(), &carrier);
    found.span().span_context().is_valid().then_some(found)
}

/// Writes a context; nothing where there is none.
pub(super) fn written(context: &SpanContext) -> Option<String> {
    let (trace, span) = (context.trace_id(), context.span_id());
    let is_sampled = u8::from(context.is_sampled());
    context.is_valid().then(|| format!("00-{trace}-{span}-{is_sampled:02x}"))
}

/// The W3C trace context of the caller's span, to hand on; nothing where there is no span that OpenTelemetry knows.
pub fn traceparent() -> Option<String> {
    written(&current())
}

/// True where the caller's span is one that goes to a collector.
pub fn is_sampled() -> bool {
    current().is_sampled()
}

/// Puts a span that has just been made into the trace of this context, if it can be read.
pub fn follow(span: &Span, traceparent: &str) {
    if let Some(parent) = read(traceparent) {
        // Without a layer that could take it nothing is lost.
        let _ = span.set_parent(parent);
    }
}

/// Begins a span that has just been made: in the trace of this context if there is one that can be read, or else in a
/// new one. False where OpenTelemetry does not know the span.
pub(super) fn begin(span: &Span, traceparent: Option<&str>) -> bool {
    span.set_parent(traceparent.and_then(read).unwrap_or_default()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, written_again: Option<&str>) {
        let found = read(text).and_then(|context| written(context.span().span_context()));
        assert_eq!(found.as_deref(), written_again, "{text}");
    }

    #[test]
    fn a_context_is_read_as_w3c_says_and_a_bad_one_is_none() {
        let sampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let other = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
        check(sampled, Some(sampled));
        check(other, Some(other));
        check("", None);
        check("t", None);
        check("ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", None);
        check("00-00000000000000000000000000000000-00f067aa0ba902b7-01", None);
        check("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", None);
        check("00-4bf92f3577b34da6a3ce929d0e0e473é-00f067aa0ba902b7-01", None);
    }
}
