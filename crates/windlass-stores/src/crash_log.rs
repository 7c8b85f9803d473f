//! A line in the log for each task that becomes a dead letter since its worker was lost too often.

use std::fmt::Display;

use windlass_core::State;
use windlass_core::state::Step;

/// Logs the task if this step, which an expiry decided, makes a dead letter of it.
pub(crate) fn note(task_id: impl Display, kind: impl Display, queue: impl Display, step: &Step) {
    if step.state == State::DeadLetter {
        let error = step.note.as_ref().and_then(|note| note.error.as_deref()).unwrap_or_default();
        tracing::warn!(%task_id, "type" = %kind, %queue, error, "dead letter");
    }
}
