//! Which queues there are: those that this process has put on record, and those that others have.

use std::collections::BTreeSet;

use parking_lot::RwLock;
use windlass_core::{QueueName, Result};

use super::Shared;

/// The queues that this process knows to be on record.
#[derive(Default)]
pub(super) struct Names(RwLock<BTreeSet<QueueName>>);

impl Names {
    fn has(&self, queue: &QueueName) -> bool {
        self.0.read().contains(queue)
    }

    pub(super) fn add(&self, queues: impl IntoIterator<Item = QueueName>) {
        self.0.write().extend(queues);
    }

    /// Forgets a queue that someone has removed: it is put on record again before something is written
    /// for it.
    fn keep_only(&self, queues: &[QueueName]) {
        self.0.write().retain(|queue| queues.contains(queue));
    }
}

impl Shared {
    /// Puts queues on record before anything is written for them: asynq's tools see no others.
    pub(super) async fn register_queues<'a>(
        &self,
        queues: impl IntoIterator<Item = &'a QueueName>,
    ) -> Result<()> {
        let new: BTreeSet<_> =
            queues.into_iter().filter(|queue| !self.names.has(queue)).cloned().collect();
        if new.is_empty() {
            return Ok(());
        }
        self.fleet.add_queues(&new).await?;
        self.names.add(new);
        Ok(())
    }

    /// All queues on record, by name.
    pub(super) async fn all_queues(&self) -> Result<Vec<QueueName>> {
        let queues = self.fleet.queue_names().await?;
        self.names.keep_only(&queues);
        Ok(queues)
    }

    /// Puts queues on record again that this process has written for, if the data are not those that it knew.
    pub(super) async fn register_again(&self) -> Result<()> {
        let known: Vec<_> = std::mem::take(&mut *self.names.0.write()).into_iter().collect();
        self.register_queues(&known).await
    }
}
