//! Which references the running tasks of this process came by, so that they can be let go when the last of
//! a claim has ended.

use std::collections::HashMap;

use parking_lot::Mutex;
use windlass_core::{Claimed, Epoch, Transition, WorkerId};

use crate::postgres::outbox::Reference;

#[derive(Default)]
pub(super) struct Holding {
    claims: Mutex<HashMap<Epoch, Held>>,
}

struct Held {
    worker: WorkerId,
    tasks_left: usize,
    references: Vec<Reference>,
}

impl Holding {
    /// Notes a claim. All its tasks have one epoch.
    pub(super) fn begin(&self, worker: &WorkerId, tasks: &[Claimed], references: Vec<Reference>) {
        let Some(first) = tasks.first() else { return };
        let held = Held { worker: worker.clone(), tasks_left: tasks.len(), references };
        self.claims.lock().insert(first.epoch, held);
    }

    /// Notes endings that the ledger has answered; tells whose references are to be let go.
    pub(super) fn end(&self, transitions: &[Transition]) -> Vec<(WorkerId, Vec<Reference>)> {
        let mut claims = self.claims.lock();
        let mut over = Vec::new();
        for transition in transitions {
            let epoch = transition.lease.epoch;
            let Some(held) = claims.get_mut(&epoch) else { continue };
            held.tasks_left -= 1;
            if held.tasks_left == 0
                && let Some(held) = claims.remove(&epoch)
            {
                over.push((held.worker, held.references));
            }
        }
        over
    }

    /// Forgets a worker that is gone.
    pub(super) fn forget(&self, worker: &WorkerId) {
        self.claims.lock().retain(|_, held| held.worker != *worker);
    }
}
