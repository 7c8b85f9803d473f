//! The span of a run: `process <kind>`, a child of the submit's, with a link to the run before.
//!
//! The conventions for messaging would have a consumer's span in a trace of its own with a link to the producer's, and
//! allow a parent where a message is processed alone, as tasks are: one trace then shows the whole story.

use std::sync::Arc;

use opentelemetry::KeyValue;
use opentelemetry::trace::{SpanContext, Status, TraceFlags, TraceState};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use windlass_core::history::Happening;
use windlass_core::store::{GetParams, Parts};
use windlass_core::{Claimed, Ending, Epoch, Store, TaskRecord, WorkerId};

use super::{context, ids};

/// The span of a run.
pub(crate) struct Run {
    span: Span,
    /// OpenTelemetry knows it. If not, everything that only a collector would see is left out.
    is_traced: bool,
}

impl Run {
    /// Begins it, in the trace of the task.
    pub(crate) fn begin(task: &Claimed, worker: &WorkerId, store: &Arc<dyn Store>) -> Self {
        let span = tracing::info_span!(
            "task",
            task_id = %task.id, "type" = %task.kind, queue = %task.queue, attempt = task.attempts,
            otel.name = %format_args!("process {}", task.kind), otel.kind = "consumer",
        );
        let traceparent = task.spec.extras.traceparent.as_deref();
        let is_traced = !span.is_disabled() && context::begin(&span, traceparent);
        if !is_traced {
            return Self { span, is_traced };
        }
        span.set_attribute("messaging.system", "windlass");
        span.set_attribute("messaging.operation.type", "process");
        span.set_attribute("messaging.operation.name", "process");
        span.set_attribute("messaging.destination.name", task.queue.to_string());
        span.set_attribute("messaging.message.id", task.id.to_string());
        span.set_attribute("messaging.client.id", worker.to_string());
        span.set_attribute("windlass.kind", task.kind.to_string());
        span.set_attribute("windlass.priority", task.priority.as_str());
        span.set_attribute("windlass.attempt", i64::from(task.attempts));
        span.set_attribute("windlass.crashes", i64::from(task.crashes));
        // As text, as everywhere: it may be larger than any number of OpenTelemetry's.
        span.set_attribute("windlass.epoch", task.epoch.to_string());
        span.set_attribute("windlass.worker", worker.to_string());
        let own = ids::for_run(task, || context::span_context(&span));
        // With ids of another maker nobody knows those of the run before.
        let is_ours = own.span_id() == ids::of_run(&task.id, task.epoch);
        if task.attempts > 1 && own.is_sampled() && is_ours {
            tokio::spawn(link_to_previous(span.clone(), own, task.clone(), Arc::clone(store)));
        }
        Self { span, is_traced }
    }

    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    /// Tells how it ended.
    pub(crate) fn end(self, ending: &Ending) {
        let Self { span, is_traced } = self;
        if !is_traced {
            return;
        }
        let (outcome, error) = ending.outcome();
        span.set_attribute("windlass.outcome", outcome);
        if let Some(error) = error {
            fail(&span, outcome, error.to_owned());
        }
    }
}

/// Marks a span as failed, with what was said of it.
pub(super) fn fail(span: &Span, sort: &'static str, error: String) {
    let said = [("exception.type", sort.to_owned()), ("exception.message", error.clone())];
    let said = said.map(|(name, text)| KeyValue::new(name, text));
    span.add_event("exception", said.to_vec());
    span.set_attribute("error.type", sort);
    span.set_status(Status::error(error));
}

/// Links the span of a retry to that of the run before. Beside the run, which does not wait for it.
async fn link_to_previous(span: Span, own: SpanContext, task: Claimed, store: Arc<dyn Store>) {
    let parts = Parts { history: true, ..Parts::NONE };
    let found = store.get(GetParams { ids: vec![task.id.clone()], parts }).await;
    // A link is no reason to complain of a store that is away: the run itself will.
    let Some(record) = found.ok().and_then(|mut found| found.pop().flatten()) else { return };
    if let Some(epoch) = previous(&record, task.epoch) {
        let id = ids::of_run(&task.id, epoch);
        let none = TraceState::default();
        let context = SpanContext::new(own.trace_id(), id, TraceFlags::SAMPLED, true, none);
        let why = KeyValue::new("windlass.link", "previous_run");
        span.add_link_with_attributes(context, vec![why]);
    }
}

/// The last run before this one whose end was reported: a lost worker has taken its span with it.
fn previous(record: &TaskRecord, present: Epoch) -> Option<Epoch> {
    let entries = record.history.entries().iter().rev();
    entries
        .filter(|entry| entry.what != Happening::Crashed)
        .find_map(|entry| entry.run.as_ref().map(|run| run.epoch).filter(|epoch| *epoch < present))
}
