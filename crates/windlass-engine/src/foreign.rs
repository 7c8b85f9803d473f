//! Claimed tasks of kinds that this worker does not handle: how they end, before they take a slot.

use std::time::Duration;

use parking_lot::Mutex;
use windlass_core::state::unhandled;
use windlass_core::store::{GetParams, Parts};
use windlass_core::{Claimed, Ending, Kind, TaskRecord};

use crate::client::Client;
use crate::intake::Waiting;
use crate::outage::warn_unless_outage;
use crate::station::{Station, Unknown};

/// How long a task that nobody handles is snoozed: as long as it has waited already, within bounds.
pub(crate) const WAIT_MIN: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(10);
/// How long after a worker first met it a task that nobody handles fails instead.
const UNHANDLED_MAX: Duration = Duration::from_secs(600);

/// The foreign tasks of claims, until the processor ends them.
#[derive(Default)]
pub(crate) struct ForeignTasks(Mutex<Vec<Waiting>>);

/// How a foreign task is handled.
pub(crate) enum ForeignOutcome {
    /// The run ends before it has begun.
    Ends(Ending),
    /// The task takes a slot, where the run fails because there is no handler.
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

/// Decides how foreign tasks of this worker's claims end.
pub(crate) async fn judge(
    station: &Station,
    tasks: Vec<Waiting>,
) -> Vec<(Waiting, ForeignOutcome)> {
    let claimed: Vec<_> = tasks.iter().map(|waiting| &waiting.task).collect();
    let endings = endings(&station.client, &claimed).await;
    let outcome = |(waiting, ending): (Waiting, Ending)| {
        let fails =
            ending != Ending::HandledElsewhere && station.settings.unknown == Unknown::Fails;
        // A failure is a run, so that the worker's hooks see it.
        let runs = fails || matches!(ending, Ending::Failed { .. });
        (waiting, if runs { ForeignOutcome::Runs } else { ForeignOutcome::Ends(ending) })
    };
    tasks.into_iter().zip(endings).map(outcome).collect()
}

/// How foreign tasks end. Tasks that another live worker handles are released. The others wait for a handler, and fail
/// after ten minutes.
pub(crate) async fn endings(client: &Client, tasks: &[&Claimed]) -> Vec<Ending> {
    let (directory, mut endings) = (client.directory(), Vec::with_capacity(tasks.len()));
    let handled = match directory.are_handled(tasks).await {
        Ok(handled) => handled,
        Err(error) => {
            if directory.hush.allows("workers") {
                warn_unless_outage!(error, "could not read the list of workers");
            }
            // Released tasks are claimed and checked again once the store answers.
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
            tracing::warn!("type" = %kind, %queue, task_id = %task.id, "no live worker handles tasks of this type");
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

/// How long each task has waited for a handler. Its age does not matter: it may have been scheduled, or have waited behind
/// other tasks.
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
                warn_unless_outage!(error, "could not read the timelines of tasks");
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
