//! What is left of traces without the feature `otel`: the span that logs show around a run.

use std::sync::Arc;

use tracing::Span;
use windlass_core::store::Inserted;
use windlass_core::{Claimed, Ending, NewTask, Result, Store, WorkerId};

/// The span of a run, for logs.
pub(crate) struct Run(Span);

impl Run {
    pub(crate) fn begin(task: &Claimed, _: &WorkerId, _: &Arc<dyn Store>) -> Self {
        Self(tracing::info_span!(
            "task",
            task_id = %task.id, "type" = %task.kind, queue = %task.queue, attempt = task.attempts,
        ))
    }

    pub(crate) fn span(&self) -> &Span {
        &self.0
    }

    pub(crate) fn end(self, _: &Ending) {}
}

/// A submit under way.
pub(crate) struct Sending;

impl Sending {
    pub(crate) fn begin(_: &mut [NewTask]) -> Self {
        Self
    }

    pub(crate) fn end(self, _: &[Result<(NewTask, Inserted)>]) {}
}

pub(crate) fn inherit(_: &mut NewTask) {}

/// The trace context of whoever asks: none without the feature `otel`.
pub fn traceparent() -> Option<String> {
    None
}

/// True where spans are handed on: nowhere without the feature `otel`.
pub fn is_sampled() -> bool {
    false
}

/// A request that a server answers.
#[derive(Debug)]
pub struct Request;

impl Request {
    /// A request of this method and route, with this trace context.
    pub fn begin(_: &str, _: Option<&str>, _: Option<&str>) -> Self {
        Self
    }

    /// The span to answer it in.
    pub fn span(&self) -> Span {
        Span::none()
    }

    /// It was answered with this status.
    pub fn end(self, _: u16) {}
}
