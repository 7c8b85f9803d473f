//! Which queues there are, as far as this process has heard, and where a task's id leads.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::RwLock;
use windlass_core::{QueueName, Result};

use super::Shared;
use super::id::{Id, queue_mark};

/// The queues that this process knows to be on record.
#[derive(Default)]
pub(super) struct Names {
    by_mark: RwLock<BTreeMap<u16, BTreeSet<QueueName>>>,
}

impl Names {
    pub(super) fn add(&self, queues: impl IntoIterator<Item = QueueName>) {
        let mut known = self.by_mark.write();
        for queue in queues {
            known.entry(queue_mark(queue.as_str())).or_default().insert(queue);
        }
    }

    pub(super) fn remove(&self, queue: &QueueName) {
        let (mut known, mark) = (self.by_mark.write(), queue_mark(queue.as_str()));
        if let Some(names) = known.get_mut(&mark) {
            names.remove(queue);
            if names.is_empty() {
                known.remove(&mark);
            }
        }
    }

    fn take(&self) -> Vec<QueueName> {
        std::mem::take(&mut *self.by_mark.write()).into_values().flatten().collect()
    }

    fn led_to(&self, id: Id) -> Vec<QueueName> {
        let known = self.by_mark.read();
        known.get(&id.mark()).map(|names| names.iter().cloned().collect()).unwrap_or_default()
    }
}

impl Shared {
    /// Puts all queues that this process knows on record again: the data are not those that it heard
    /// of, and something may have been written since.
    pub(super) async fn register_again(&self) -> Result<()> {
        let known = self.names.take();
        self.fleet.touch(&known).await?;
        self.names.add(known);
        Ok(())
    }

    /// All queues on record, by name.
    pub(super) async fn all_queues(&self) -> Result<Vec<QueueName>> {
        let queues = self.fleet.queue_names().await?;
        self.names.add(queues.iter().cloned());
        Ok(queues)
    }

    /// The queues in which the task of an id may be, as far as this process knows.
    pub(super) fn known_queues_of(&self, id: Id) -> Vec<QueueName> {
        self.names.led_to(id)
    }
}
