//! Which queues there are, as far as this process has heard, and where a task's id leads.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::RwLock;
use windlass_core::{QueueName, Result};

use super::Shared;
use super::id::{Id, queue_mark};
use super::keys;
use super::reply::Reply;

/// The queues that this process knows to be on record.
#[derive(Default)]
pub(super) struct Names {
    by_mark: RwLock<BTreeMap<u16, BTreeSet<QueueName>>>,
}

impl Names {
    fn has(&self, queue: &QueueName) -> bool {
        let known = self.by_mark.read();
        known.get(&queue_mark(queue.as_str())).is_some_and(|names| names.contains(queue))
    }

    pub(super) fn add(&self, queues: impl IntoIterator<Item = QueueName>) {
        let mut known = self.by_mark.write();
        for queue in queues {
            known.entry(queue_mark(queue.as_str())).or_default().insert(queue);
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
    /// Puts queues on record before anything is written for them.
    pub(super) async fn register_queues<'a>(
        &self,
        queues: impl IntoIterator<Item = &'a QueueName>,
    ) -> Result<()> {
        let new: BTreeSet<_> =
            queues.into_iter().filter(|queue| !self.common.names.has(queue)).cloned().collect();
        if new.is_empty() {
            return Ok(());
        }
        let mut command = redis::cmd("SADD");
        command.arg(keys::queues(&self.fleet));
        for queue in &new {
            command.arg(queue.as_str());
        }
        self.link.command("register a queue", &command).await?;
        self.common.names.add(new);
        Ok(())
    }

    /// Puts all queues that this process knows on record again: the data are not those that it heard
    /// of, and something may have been written since.
    pub(super) async fn register_again(&self) -> Result<()> {
        let known = self.common.names.take();
        self.register_queues(&known).await
    }

    /// All queues on record, by name.
    pub(super) async fn all_queues(&self) -> Result<Vec<QueueName>> {
        let mut command = redis::cmd("SMEMBERS");
        command.arg(keys::queues(&self.fleet));
        let value = self.link.command("read the queues", &command).await?;
        let value = match value {
            redis::Value::Set(members) => redis::Value::Array(members),
            other => other,
        };
        let queues = read_queues(Reply::new("read the queues", value))?;
        self.common.names.add(queues.iter().cloned());
        Ok(queues)
    }

    /// The queues in which the task of an id may be, as far as this process knows.
    pub(super) fn known_queues_of(&self, id: Id) -> Vec<QueueName> {
        self.common.names.led_to(id)
    }
}

/// Reads names of queues, in their order.
pub(super) fn read_queues(reply: Reply) -> Result<Vec<QueueName>> {
    let mut queues: Vec<_> = reply
        .list()?
        .map(|name| name.text().map(|name| QueueName::stored(&name)))
        .collect::<Result<_>>()?;
    queues.sort();
    Ok(queues)
}
