//! Every lease that this worker knows it holds: from the claim's answer until the end of its run was
//! answered. What is not in here and the store thinks is ours, was lost on its way.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use windlass_core::store::ProgressReport;
use windlass_core::{Claimed, Lease, TaskId, WorkerId};

#[derive(Default)]
pub(crate) struct Leases(Mutex<HashMap<Lease, Arc<Controls>>>);

/// What reaches into a run from outside, and what the run notes for others.
pub(crate) struct Controls {
    /// Who holds its lease.
    pub(crate) worker: WorkerId,
    /// The moment before it was claimed.
    pub(crate) asked: Instant,
    /// The handler is asked to stop.
    pub(crate) cancel: CancellationToken,
    /// The run is given up: its lease is lost, or the worker ends.
    pub(crate) stop: CancellationToken,
    /// The last progress that the handler has reported and no heartbeat has carried yet.
    progress: Mutex<Option<(f64, String)>>,
    /// Until when the lease is surely held, once the run is given up for losing it.
    lease_end: Mutex<Option<Instant>>,
}

impl Controls {
    /// Gives the run up. First that, then the handler is asked to stop: whatever it says because it
    /// was asked must not be taken for its own verdict.
    pub(crate) fn give_up(&self) {
        self.stop.cancel();
        self.cancel.cancel();
    }

    /// Gives the run up because its lease is lost, or will be at this instant.
    fn lose(&self, lease_end: Instant) {
        self.lease_end.lock().get_or_insert(lease_end);
        self.give_up();
    }

    /// The instant from which on another worker may run the task; nothing while the lease is held.
    pub(crate) fn lease_end(&self) -> Option<Instant> {
        *self.lease_end.lock()
    }

    /// Notes how far the run has come, for the next heartbeat.
    pub(crate) fn set_progress(&self, fraction: f64, note: &str) {
        *self.progress.lock() = Some((fraction, note.into()));
    }
}

impl Leases {
    pub(crate) fn add(&self, task: &Claimed, worker: &WorkerId, asked: Instant) -> Arc<Controls> {
        let controls = Arc::new(Controls {
            worker: worker.clone(),
            asked,
            cancel: CancellationToken::new(),
            stop: CancellationToken::new(),
            progress: Mutex::default(),
            lease_end: Mutex::default(),
        });
        if task.is_cancel_requested {
            controls.cancel.cancel();
        }
        self.0.lock().insert(task.lease(), Arc::clone(&controls));
        controls
    }

    pub(crate) fn remove(&self, lease: &Lease) {
        self.0.lock().remove(lease);
    }

    pub(crate) fn count(&self) -> usize {
        self.0.lock().len()
    }

    /// All leases held under this id.
    pub(crate) fn of(&self, worker: &WorkerId) -> Vec<Lease> {
        let held = self.0.lock();
        held.iter().filter(|(_, held)| held.worker == *worker).map(|(l, _)| l.clone()).collect()
    }

    /// Asks the handlers of these runs to stop.
    pub(crate) fn cancel(&self, leases: &[Lease]) {
        let held = self.0.lock();
        for lease in leases {
            if let Some(held) = held.get(lease) {
                held.cancel.cancel();
            }
        }
    }

    /// Gives these runs up: their leases are lost.
    pub(crate) fn stop(&self, leases: &[Lease]) {
        let held = self.0.lock();
        for held in leases.iter().filter_map(|lease| held.get(lease)) {
            held.lose(Instant::now());
        }
    }

    /// Gives up the runs of tasks that the store has given back, if they were claimed before the beat that it
    /// answered. A later claim of the same task is valid.
    pub(crate) fn stop_given_back(&self, tasks: &[TaskId], beat_sent: Instant) {
        for (lease, held) in self.0.lock().iter() {
            if held.asked < beat_sent && tasks.contains(&lease.task) {
                held.lose(Instant::now());
            }
        }
    }

    /// Gives up all runs; their leases stay held.
    pub(crate) fn stop_all(&self) {
        for held in self.0.lock().values() {
            held.give_up();
        }
    }

    /// Gives up all runs: their leases will be lost at this instant.
    pub(crate) fn lose_all(&self, lease_end: Instant) {
        for held in self.0.lock().values() {
            held.lose(lease_end);
        }
    }

    /// Keeps what a failed beat did not tell, unless its handler has told more since.
    pub(crate) fn keep_progress(&self, reports: Vec<ProgressReport>) {
        let held = self.0.lock();
        for ProgressReport { lease, fraction, note } in reports {
            if let Some(held) = held.get(&lease) {
                held.progress.lock().get_or_insert((fraction, note));
            }
        }
    }

    /// What handlers have told since the last time this was asked.
    pub(crate) fn take_progress(&self) -> Vec<ProgressReport> {
        let held = self.0.lock();
        let report = |(lease, held): (&Lease, &Arc<Controls>)| {
            let (fraction, note) = held.progress.lock().take()?;
            Some(ProgressReport { lease: lease.clone(), fraction, note })
        };
        held.iter().filter_map(report).collect()
    }
}
