//! Queues with a damaged key: one of another type or content than asynq and windlass write.
//!
//! Such a queue is skipped, logged, and tried again by the next call; all other queues are served. Scripts check
//! before they write, so nothing of a damaged queue is lost when its key is repaired.

use windlass_core::store::Finding;
use windlass_core::{QueueName, Result, WorkerId};

use super::{Shared, scripts};
use crate::redis::troubles::read_damage;
pub(super) use crate::redis::troubles::{DAMAGED, damage_in, log_skipped as log, skip};

impl Shared {
    /// The damaged keys of a queue, also those that some workers have there.
    pub(super) async fn find_damage(
        &self,
        queue: &QueueName,
        workers: &[WorkerId],
    ) -> Result<Vec<Finding>> {
        let mut call = scripts::DAMAGE.on(&[self.stem(queue)]).arg(self.options().told_time());
        workers.iter().for_each(|worker| call.add(worker.as_str()));
        read_damage(&format!("queue {queue}"), self.ask(call).await?)
    }
}
