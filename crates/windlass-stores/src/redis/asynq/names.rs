//! Which queues there are: those that this process has put on record, and those that others have.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use windlass_core::{QueueName, Result};

use super::Shared;

/// How long a queue counts as on record: someone may remove it with asynq's tools, and then sees nothing of what
/// is written for it.
const KNOWN_FOR: Duration = Duration::from_secs(60);

/// The queues that this process knows to be on record, and since when.
#[derive(Default)]
pub(super) struct Names(RwLock<BTreeMap<QueueName, Instant>>);

impl Names {
    fn has(&self, queue: &QueueName) -> bool {
        self.0.read().get(queue).is_some_and(|since| since.elapsed() < KNOWN_FOR)
    }

    fn add(&self, queues: impl IntoIterator<Item = QueueName>) {
        let now = Instant::now();
        self.0.write().extend(queues.into_iter().map(|queue| (queue, now)));
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
        self.fleet.queue_names().await
    }

    /// Puts queues on record again that this process has written for: the data are not those that it knew.
    pub(super) async fn register_again(&self) -> Result<()> {
        let known: Vec<_> = std::mem::take(&mut *self.names.0.write()).into_keys().collect();
        self.register_queues(&known).await
    }
}
