//! A line in the log for each task that becomes a dead letter at the end of a run, in whatever worker it ran. Tasks whose worker
//! was lost too often are logged by the store, which decides that.

use windlass_core::store::Applied;
use windlass_core::{State, TaskId, Transition};

/// Runs whose end makes dead letters of their tasks, if it is stored.
pub(crate) struct DeadLetters(Vec<DeadLetter>);

struct DeadLetter {
    /// Its place in the batch.
    at: usize,
    task_id: TaskId,
    kind: String,
    queue: String,
    error: String,
}

impl DeadLetters {
    pub(crate) fn among(transitions: &[Transition]) -> Self {
        let dead =
            transitions.iter().enumerate().filter(|(_, it)| it.next.state == State::DeadLetter);
        let letter = |(at, it): (usize, &Transition)| DeadLetter {
            at,
            task_id: it.lease.task.clone(),
            kind: it.kind.to_string(),
            queue: it.queue.to_string(),
            error: it.next.note.as_ref().and_then(|note| note.error.clone()).unwrap_or_default(),
        };
        Self(dead.map(letter).collect())
    }

    /// Logs those whose end was stored.
    pub(crate) fn log(self, outcomes: &[Applied]) {
        let is_stored =
            |it: &DeadLetter| outcomes.get(it.at) == Some(&Applied::Applied(State::DeadLetter));
        for DeadLetter { task_id, kind, queue, error, .. } in self.0.into_iter().filter(is_stored) {
            tracing::warn!(%task_id, "type" = %kind, %queue, error, "dead letter");
        }
    }
}
