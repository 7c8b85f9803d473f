//! The ids of the spans of runs. They follow from the task and the epoch of the run, so that whoever runs a task again
//! knows the span of the run before without anyone having stored it: its epoch is in the task's timeline.
//!
//! OpenTelemetry lets nobody choose the id of a span, but lets a program choose who makes ids: [`RunIds`]. A
//! program that has another such maker gets spans all the same, just without the links between runs.

use std::cell::Cell;

use opentelemetry::trace::{SpanId, TraceId};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};
use windlass_core::{Claimed, Epoch, TaskId};

thread_local! {
    static NEXT: Cell<Option<(TraceId, SpanId)>> = const { Cell::new(None) };
}

/// Makes ids: for the runs of tasks those that other workers expect, and random ones for everything else.
///
/// Give it to the provider of your tracers, by `SdkTracerProvider::builder().with_id_generator(RunIds::default())`, and
/// the span of a retry has a link to the span of the run before, wherever that one ran.
#[derive(Debug, Default)]
pub struct RunIds {
    others: RandomIdGenerator,
}

impl IdGenerator for RunIds {
    fn new_trace_id(&self) -> TraceId {
        NEXT.get().map_or_else(|| self.others.new_trace_id(), |(trace, _)| trace)
    }

    fn new_span_id(&self) -> SpanId {
        NEXT.get().map_or_else(|| self.others.new_span_id(), |(_, span)| span)
    }
}

/// Starts the span of a run: the first that `start` starts gets its ids.
pub(super) fn for_run<T>(task: &Claimed, start: impl FnOnce() -> T) -> T {
    /// Also when it panics: the next span of this thread is another.
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            NEXT.set(None);
        }
    }
    let _reset = Reset;
    NEXT.set(Some((of_task(task), of_run(&task.id, task.epoch))));
    start()
}

/// The trace of a task that was submitted without one: all its runs are in it.
fn of_task(task: &Claimed) -> TraceId {
    let created = task.created_at.as_millis().to_be_bytes();
    TraceId::from_bytes(digest("windlass task", &task.id, &created))
}

/// The span of a run.
pub(super) fn of_run(task: &TaskId, epoch: Epoch) -> SpanId {
    SpanId::from_bytes(digest("windlass run", task, &epoch.0.to_be_bytes()))
}

/// As many bytes as are wanted, the same for the same. (That all are zero, which is no id, happens to nobody.)
fn digest<const N: usize>(what: &str, task: &TaskId, which: &[u8]) -> [u8; N] {
    let mut hasher = blake3::Hasher::new_derive_key(what);
    hasher.update(which).update(task.as_str().as_bytes());
    let mut bytes = [0; N];
    hasher.finalize_xof().fill(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_the_same_id_everywhere_and_another_run_another() {
        let (a, b) = (TaskId::new("a"), TaskId::new("b"));
        // Workers of another version must come to the same.
        assert_eq!(of_run(&a, Epoch(7)).to_string(), "01839cc1953e10f1");
        assert_ne!(of_run(&a, Epoch(7)), of_run(&a, Epoch(8)));
        assert_ne!(of_run(&a, Epoch(7)), of_run(&b, Epoch(7)));
    }

    #[test]
    fn only_the_span_of_a_run_gets_its_ids() {
        let ids = RunIds::default();
        assert_ne!(ids.new_span_id(), ids.new_span_id());
        assert_ne!(ids.new_trace_id(), ids.new_trace_id());
    }
}
