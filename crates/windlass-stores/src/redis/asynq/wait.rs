//! Waiting on asynq's keys: producers of windlass ring, for those of Go someone has to look.

use std::sync::{Arc, Weak};
use std::time::Duration;

use windlass_core::store::IdlePoll;
use windlass_core::{QueueName, Result, TaskId};

use super::{Shared, keys, scripts};
use crate::redis::connection::Link;
use crate::redis::ears::{BLOCK_MAX, Ears, Listening};
use crate::redis::fleet::Fleet;
use crate::redis::news::{Herald, WATCH};
use crate::redis::options::{RedisOptions, millis};
use crate::redis::waiting::{Channels, Waiting};
use crate::wakes::{News, Wakes};

/// How fast pauses between looks for work that nobody rings for grow.
const SLOWER_EACH_TIME: f64 = 1.05;

impl Shared {
    /// Which of these queues have work, in one call, or on a Cluster in one for each.
    async fn poll(&self, queues: &[QueueName]) -> Result<Vec<QueueName>> {
        let mut ready = Vec::new();
        for queues in self.fleet.by_slot(queues) {
            let stems: Vec<_> = queues.iter().map(|queue| self.stem(queue)).collect();
            let call = scripts::POLL.on(&stems).arg(self.options().told_time());
            for at in self.ask(call).await?.list()? {
                let at = usize::try_from(at.number()?).unwrap_or(0);
                ready.extend(at.checked_sub(1).and_then(|at| queues.get(at)).cloned());
            }
        }
        Ok(ready)
    }

    /// Takes a cancellation that one of asynq's tools has asked for.
    async fn heard_of_cancel(&self, id: String) {
        let asked = async {
            let queues = self.all_queues().await?;
            for queues in self.fleet.by_slot(&queues) {
                let stems: Vec<_> = queues.iter().map(|queue| self.stem(queue)).collect();
                let call = scripts::CANCEL.on(&stems).arg(self.options().told_time()).arg(&id);
                let worker = self.ask(call).await?.text()?;
                if !worker.is_empty() {
                    let worker = windlass_core::WorkerId::new(worker);
                    let news = News { ordered: vec![worker], ..News::default() };
                    self.fleet.common.wakes.tell(news);
                }
            }
            Ok::<_, windlass_core::Error>(())
        };
        if let Err(error) = asked.await {
            tracing::warn!(
                task = id,
                error = error.chain(),
                "a cancellation over asynq was missed"
            );
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
        vec![keys::bell(&self.stem(queue))]
    }

    fn poke_stem(&self, queue: &QueueName) -> String {
        keys::own_stem(&self.stem(queue))
    }

    fn block(silences: u32, idle_poll: IdlePoll) -> Duration {
        let times = f64::from(silences.min(300));
        let longest = idle_poll.min.mul_f64(SLOWER_EACH_TIME.powf(times)).min(idle_poll.max);
        let longest = longest.min(BLOCK_MAX);
        // Not all processes in step.
        longest.mul_f64(0.75 + fastrand::f64() / 4.0)
    }

    async fn look_for_work(&self, queues: Vec<QueueName>) -> Vec<QueueName> {
        // Where it cannot be told, whoever waits looks by itself.
        self.poll(&queues).await.unwrap_or(queues)
    }
}

impl Waiting for Shared {
    /// Workers in Go tell nobody of ends.
    const LOOK_EVERY_HEARING: Duration = Duration::from_secs(1);

    fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    fn herald(&self) -> &Herald {
        &self.herald
    }

    fn channels(&self) -> Channels {
        let prefix = self.options().key_prefix();
        Channels {
            names: vec![self.fleet.orders_channel(), keys::cancel(prefix)],
            patterns: vec![keys::all_ends(prefix)],
        }
    }

    fn heard(&self, channel: &str, payload: &[u8]) {
        if channel == self.fleet.orders_channel() {
            self.fleet.heard_of_orders(payload);
            return;
        }
        let id = String::from_utf8_lossy(payload).into_owned();
        if channel == keys::cancel(self.options().key_prefix()) {
            if let Some(shared) = self.this.upgrade() {
                tokio::spawn(async move { shared.heard_of_cancel(id).await });
            }
            return;
        }
        self.fleet.common.wakes.tell(News { ended: vec![TaskId::new(id)], ..News::default() });
    }

    async fn watch_ends(&self, tasks: &[TaskId]) -> Result<()> {
        // An id does not tell its queue, unless it names it.
        let queues = self.all_queues().await?;
        let is_named = |(queue, _): &(&str, &str)| queues.iter().any(|one| one.as_str() == *queue);
        let named = tasks.iter().filter_map(|task| task.as_str().split_once('/').filter(is_named));
        let ids: Vec<_> = tasks.iter().map(TaskId::as_str).chain(named.map(|(_, id)| id)).collect();
        for queues in self.fleet.by_slot(&queues) {
            let stems: Vec<_> = queues.iter().map(|queue| self.stem(queue)).collect();
            let mut call =
                scripts::WATCH.on(&stems).arg(self.options().told_time()).arg(millis(WATCH));
            ids.iter().for_each(|id| call.add(*id));
            self.ask(call).await?;
        }
        Ok(())
    }

    async fn ended(&self, tasks: Vec<TaskId>) -> Result<Vec<TaskId>> {
        self.ended_of(tasks).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_between_looks_are_those_of_the_settings_and_vary() {
        let poll = IdlePoll { min: Duration::from_millis(200), max: Duration::from_secs(2) };
        let pauses = |silences| -> Vec<_> {
            (0..100).map(|_| <Shared as Listening>::block(silences, poll)).collect()
        };
        assert!(pauses(0).iter().all(|pause| *pause <= poll.min && *pause >= poll.min * 3 / 4));
        let longest = pauses(1_000);
        assert!(longest.iter().all(|pause| *pause <= poll.max && *pause >= poll.max * 3 / 4));
        assert!(longest.iter().any(|pause| *pause != longest[0]), "in step at the longest too");
    }
}
