//! The span of a submit: `send <queue>`, one for each call however many tasks it carries.

use std::collections::BTreeSet;

use opentelemetry::trace::TraceContextExt;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use windlass_core::store::Inserted;
use windlass_core::{NewTask, Result};

use super::context;
use super::run::fail;

/// Most contexts of its tasks that a submit is linked to.
const LINKS_MAX: usize = 128;

/// A submit under way.
pub(crate) struct Sending(Span);

impl Sending {
    /// Begins it, and has the tasks that bring no trace context of their own carry this one.
    ///
    /// Where the span does not go to a collector, they carry the context around it as it is.
    pub(crate) fn begin(tasks: &mut [NewTask]) -> Self {
        let around = context::current();
        let span = span_of(tasks);
        if !span.is_disabled() {
            describe(&span, tasks, around.is_valid());
        }
        let own = context::span_context(&span);
        let handed_on = if own.is_sampled() || !around.is_valid() { own } else { around };
        if let Some(text) = context::written(&handed_on) {
            let bare = tasks.iter_mut().filter(|task| task.spec.extras.traceparent.is_none());
            bare.for_each(|task| task.spec.extras.traceparent = Some(text.clone()));
        }
        Self(span)
    }

    /// Tells what the store said.
    pub(crate) fn end(self, answers: &[Result<(NewTask, Inserted)>]) {
        let Self(span) = self;
        if span.is_disabled() {
            return;
        }
        if let [Ok((task, told))] = answers {
            let (id, outcome) = match told {
                Inserted::New { .. } => (&task.id, "new"),
                Inserted::Existing { id, .. } => (id, "existing"),
                Inserted::Conflict { holder } => (holder, "conflict"),
                Inserted::Bad(_) => (&task.id, "refused"),
            };
            span.set_attribute("messaging.message.id", id.to_string());
            span.set_attribute("windlass.outcome", outcome);
        }
        let error = answers.iter().find_map(|answer| match answer {
            Err(error) | Ok((_, Inserted::Bad(error))) => Some(error),
            Ok((
                _,
                Inserted::New { .. } | Inserted::Existing { .. } | Inserted::Conflict { .. },
            )) => None,
        });
        if let Some(error) = error {
            fail(&span, "refused", error.chain());
        }
    }
}

/// Has a task that is submitted by other means carry the context around the caller.
pub(crate) fn inherit(task: &mut NewTask) {
    let carried = &mut task.spec.extras.traceparent;
    if carried.is_none() {
        *carried = context::traceparent();
    }
}

fn span_of(tasks: &[NewTask]) -> Span {
    let Some(first) = tasks.first() else { return Span::none() };
    let named = |name| tracing::info_span!("send", otel.name = %name, otel.kind = "producer");
    match tasks.iter().all(|task| task.queue == first.queue) {
        true => named(format_args!("send {}", first.queue)),
        false => named(format_args!("send")),
    }
}

fn describe(span: &Span, tasks: &[NewTask], has_parent: bool) {
    let mut given = given(tasks).into_iter();
    if !has_parent && let Some(first) = given.next() {
        context::follow(span, first);
    }
    for other in given.filter_map(context::read) {
        span.add_link(other.span().span_context().clone());
    }
    span.set_attribute("messaging.system", "windlass");
    span.set_attribute("messaging.operation.type", "send");
    span.set_attribute("messaging.operation.name", "send");
    if let Some(queue) = common(tasks, |task| task.queue.as_str()) {
        span.set_attribute("messaging.destination.name", queue.to_owned());
    }
    if let Some(kind) = common(tasks, |task| task.kind.as_str()) {
        span.set_attribute("windlass.kind", kind.to_owned());
    }
    if tasks.len() > 1 {
        let count = i64::try_from(tasks.len()).unwrap_or(i64::MAX);
        span.set_attribute("messaging.batch.message_count", count);
    }
}

/// The contexts that tasks bring themselves, each once.
fn given(tasks: &[NewTask]) -> BTreeSet<&str> {
    let mut given = BTreeSet::new();
    for text in tasks.iter().filter_map(|task| task.spec.extras.traceparent.as_deref()) {
        if given.len() < LINKS_MAX {
            given.insert(text);
        }
    }
    given
}

/// What all tasks have in common; nothing where they differ.
fn common<'a>(tasks: &'a [NewTask], part: impl Fn(&'a NewTask) -> &'a str) -> Option<&'a str> {
    let first = part(tasks.first()?);
    tasks.iter().all(|task| part(task) == first).then_some(first)
}
