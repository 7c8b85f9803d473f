//! Waiting on Redis Streams: a bell for each priority of a queue.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use windlass_core::store::Quota;
use windlass_core::{Priority, QueueName, Result, TaskId};

use super::id::Id;
use super::{Shared, keys};
use crate::redis::connection::Link;
use crate::redis::ears::{Ears, Listening};
use crate::redis::fleet::Fleet;
use crate::redis::news::{Herald, watch};
use crate::redis::options::RedisOptions;
use crate::redis::waiting::{Channels, Waiting};
use crate::wakes::{News, Wakes};

impl Shared {
    /// Notes what is claimed.
    pub(super) fn learn(&self, quotas: &[Quota]) {
        let mut served = self.served.lock();
        for quota in quotas {
            match served.get_mut(&quota.queue) {
                Some(known) => known.extend(quota.priorities.descending()),
                None => {
                    served.insert(quota.queue.clone(), quota.priorities.descending().collect());
                }
            }
        }
    }
}

impl Listening for Shared {
    fn this(&self) -> Weak<Self> {
        self.this.clone()
    }

    fn ears(&self) -> &Ears {
        &self.ears
    }

    fn server(&self) -> &Arc<RedisOptions> {
        &self.fleet.common.options
    }

    fn link(&self) -> &Link {
        &self.fleet.link
    }

    fn wakes(&self) -> &Wakes {
        &self.fleet.common.wakes
    }

    fn bells(&self, queue: &QueueName) -> Vec<String> {
        let stem = self.stem(queue);
        let served = self.served.lock();
        let is_served =
            |priority: &Priority| served.get(queue).is_none_or(|known| known.contains(priority));
        let priorities = Priority::DESCENDING.into_iter().filter(is_served);
        priorities.map(|priority| keys::bell(&stem, priority)).collect()
    }

    fn poke_stem(&self, queue: &QueueName) -> String {
        self.stem(queue)
    }

    /// Whoever waits looks by itself now and then: a bell may have been lost with its hearer.
    async fn look_for_work(&self, queues: Vec<QueueName>) -> Vec<QueueName> {
        queues
    }
}

impl Waiting for Shared {
    const LOOK_EVERY_HEARING: Duration = Duration::from_secs(5);

    fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    fn herald(&self) -> &Herald {
        &self.herald
    }

    fn channels(&self) -> Channels {
        Channels {
            names: vec![self.fleet.orders_channel()],
            patterns: vec![keys::all_ends(self.options().key_prefix())],
        }
    }

    fn heard(&self, channel: &str, payload: &[u8]) {
        if channel == self.fleet.orders_channel() {
            self.fleet.heard_of_orders(payload);
        } else if let Some(id) = Id::from_stored(payload) {
            self.fleet.common.wakes.tell(News { ended: vec![id.task_id()], ..News::default() });
        }
    }

    async fn watch_ends(&self, tasks: &[TaskId]) -> Result<()> {
        let ids = tasks.iter().filter_map(Id::of);
        let queues: BTreeSet<QueueName> = ids.flat_map(|id| self.known_queues_of(id)).collect();
        for queue in queues {
            let command = watch(keys::watch(&self.stem(&queue)));
            self.fleet.link.command("watch for ends", &command).await?;
        }
        Ok(())
    }

    async fn ended(&self, tasks: Vec<TaskId>) -> Result<Vec<TaskId>> {
        self.ended_of(tasks).await
    }
}
