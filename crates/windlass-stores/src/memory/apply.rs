//! Apply in memory.

use windlass_core::store::{Applied, Refusal};
use windlass_core::{State, Transition};

use super::model::Model;

impl Model {
    pub(super) fn apply(&mut self, transition: Transition) -> Applied {
        let lease = &transition.lease;
        let Some(number) = self.ids.get(&lease.task).copied() else {
            return Applied::Refused(Refusal::Gone);
        };
        let now = self.now();
        let Some(row) = self.rows.get_mut(&number) else {
            return Applied::Refused(Refusal::Gone);
        };
        if row.applied_epoch == Some(lease.epoch) {
            return Applied::Already;
        }
        if row.record.state != State::Running || row.record.epoch != Some(lease.epoch) {
            return Applied::Refused(Refusal::LeaseLost);
        }
        row.applied_epoch = Some(lease.epoch);
        row.record.started_at = transition.took.map(|took| now.before(took));
        row.record.spec.retention = transition.retention;
        let state = transition.chosen_state(row.record.is_cancel_requested);
        self.end_run(number, state, transition.next);
        Applied::Applied(state)
    }
}
