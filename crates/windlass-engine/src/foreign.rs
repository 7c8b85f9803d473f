//! Claimed tasks of kinds that this worker does not handle: what becomes of them, before they take a slot.

use std::time::Duration;

use parking_lot::Mutex;
use windlass_core::state::unhandled;
use windlass_core::store::{GetParams, Parts};
use windlass_core::{Claimed, Ending, Kind, TaskRecord};

use crate::client::Client;
use crate::intake::Waiting;
use crate::station::{Station, Unknown};

/// How long a task waits that nobody handles: as long as it has waited already, within bounds.
pub(crate) const WAIT_MIN: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(10);
/// How long after a worker first met it a task that nobody handles fails instead.
const UNHANDLED_MAX: Duration = Duration::from_secs(600);

/// What claims have brought of them.
#[derive(Default)]
pub(crate) struct ForeignTasks(Mutex<Vec<Waiting>>);

/// What becomes of one.
pub(crate) enum Verdict {
    /// Its run is over before it has begun.
    Ends(Ending),
    /// It takes a slot like any other, and fails there for want of a handler.
    Runs,
}

impl ForeignTasks {
    pub(crate) fn push(&self, tasks: impl Iterator<Item = Waiting>) {
        self.0.lock().extend(tasks);
    }

    pub(crate) fn take(&self) -> Vec<Waiting> {
        std::mem::take(&mut *self.0.lock())
    }

    pub(crate) fn is_any(&self) -> bool {
        !self.0.lock().is_empty()
    }
}

/// Decides what becomes of foreign tasks that a claim of this worker has brought.
pub(crate) async fn judge(station: &Station, tasks: Vec<Waiting>) -> Vec<(Waiting, Verdict)> {
    let claimed: Vec<_> = tasks.iter().map(|waiting| &waiting.task).collect();
    let endings = endings(&station.client, &claimed).await;
    let verdict = |(waiting, ending): (Waiting, Ending)| {
        let fails =
            ending != Ending::HandledElsewhere && station.settings.unknown == Unknown::Fails;
        // A failure goes the way of all runs, past the hooks.
        let runs = fails || matches!(ending, Ending::Failed { .. });
        (waiting, if runs { Verdict::Runs } else { Verdict::Ends(ending) })
    };
    tasks.into_iter().zip(endings).map(verdict).collect()
}

/// How tasks end that their worker does not handle: released where another live worker handles them. Where none does,
/// they wait for one, and fail ten minutes later.
pub(crate) async fn endings(client: &Client, tasks: &[&Claimed]) -> Vec<Ending> {
    let (directory, mut endings) = (client.directory(), Vec::with_capacity(tasks.len()));
    let handled = match directory.are_handled(tasks).await {
        Ok(handled) => handled,
        Err(error) => {
            if directory.hush.allows("workers") {
                tracing::warn!(error = error.chain(), "could not read who handles which types");
            }
            // Released, they are met again when the store answers.
            vec![true; tasks.len()]
        }
    };
    let nowhere = tasks.iter().zip(&handled).filter(|(_, is_handled)| !**is_handled);
    let nowhere: Vec<_> = nowhere.map(|(task, _)| *task).collect();
    let mut waited = waited(client, &nowhere).await.into_iter();
    for (task, is_handled) in tasks.iter().zip(handled) {
        if is_handled {
            endings.push(Ending::HandledElsewhere);
            continue;
        }
        let (kind, queue) = (&task.kind, &task.queue);
        if directory.hush.allows(&unhandled(kind)) {
            tracing::warn!(%kind, %queue, task = %task.id, "no live worker handles tasks of this type");
        }
        let waited = waited.next().unwrap_or_default();
        endings.push(if waited < UNHANDLED_MAX {
            Ending::Unhandled { delay: waited.clamp(WAIT_MIN, WAIT_MAX) }
        } else {
            no_handler(kind)
        });
    }
    endings
}

/// How long each task has waited for somebody who handles it. However old it is: it may have been scheduled, or have
/// waited behind others.
async fn waited(client: &Client, tasks: &[&Claimed]) -> Vec<Duration> {
    if tasks.is_empty() {
        return Vec::new();
    }
    let ids = tasks.iter().map(|task| task.id.clone()).collect();
    let params = GetParams { ids, parts: Parts { history: true, ..Parts::NONE } };
    let records = match client.watched().get(params).await {
        Ok(records) => records,
        Err(error) => {
            if client.directory().hush.allows("timeline") {
                tracing::warn!(error = error.chain(), "could not read the timelines of tasks");
            }
            return Vec::new();
        }
    };
    let since = |(task, record): (&&Claimed, Option<TaskRecord>)| {
        let since = record?.history.waits_since(&unhandled(&task.kind))?;
        Some(task.claimed_at.since(since))
    };
    tasks.iter().zip(records).map(since).map(Option::unwrap_or_default).collect()
}

/// The failure of a task that nobody handles.
pub(crate) fn no_handler(kind: &Kind) -> Ending {
    Ending::Failed { error: format!("no handler for tasks of type {kind}"), retry_after: None }
}
