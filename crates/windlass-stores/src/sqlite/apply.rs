//! Apply in SQLite: fenced endings.

use windlass_core::store::{Applied, Refusal};
use windlass_core::{ErrorKind, Result, State, Transition, duration};

use super::row::{Row, epoch_of, uuid_of};
use super::transaction::Tx;

impl Tx<'_> {
    pub(super) fn apply(&mut self, transition: &Transition) -> Result<Applied> {
        let lease = &transition.lease;
        let row = match uuid_of(&lease.task).map(|id| Row::by_id(self, id)).transpose() {
            // Its neighbours in the batch must not suffer for it.
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                tracing::error!(task = %lease.task, error = error.chain(), "an end was refused");
                return Ok(Applied::Refused(Refusal::LeaseLost));
            }
            found => found?.flatten(),
        };
        let Some(mut row) = row else {
            return Ok(Applied::Refused(Refusal::Gone));
        };
        if row.applied_epoch.map(epoch_of) == Some(lease.epoch) {
            return Ok(Applied::Already);
        }
        if row.state != State::Running || row.epoch.map(epoch_of) != Some(lease.epoch) {
            return Ok(Applied::Refused(Refusal::LeaseLost));
        }
        row.applied_epoch = row.epoch;
        row.started_at = transition.took.map(|took| self.now.before(took).as_millis());
        row.retention_ms = duration::as_millis_ceil(transition.retention);
        let state = transition.chosen_state(row.is_cancel_requested);
        row.end_run(self, state, transition.next.clone())?;
        Ok(Applied::Applied(state))
    }
}
