//! In which queues a duty has something to do. Go programs write without a word, so all queues are asked; but many in one
//! call, and a duty visits only those where something is due.

use futures_util::future::try_join_all;
use windlass_core::{QueueName, Result, Timestamp};

use super::{Shared, scripts};
use crate::redis::reply::next;

/// Up to so many queues are visited without a question.
const FEW: usize = 64;
/// Queues in one question: the server is held up for less than a millisecond.
const ASKED_AT_ONCE: usize = 200;
/// Queues through which the sweep takes its steps at each tend.
const MENDED_AT_ONCE: usize = 64;

/// The queues to visit, and when there is something to do in one of the others.
pub(super) struct DueQueues {
    pub(super) queues: Vec<QueueName>,
    pub(super) next_due: Option<Timestamp>,
}

impl Shared {
    /// The queues where a duty has something to do: `promote`, `prune`, `recover` or `tend`.
    pub(super) async fn due(&self, queues: Vec<QueueName>, duty: &str) -> Result<DueQueues> {
        if queues.len() <= FEW {
            return Ok(DueQueues { queues, next_due: None });
        }
        let mut due = DueQueues { queues: Vec::new(), next_due: None };
        for (queue, time, now) in self.ask_for_due(&queues, duty).await? {
            match time {
                Some(time) if time <= now => due.queues.push(queue.clone()),
                Some(time) => {
                    due.next_due = Some(due.next_due.map_or(time, |other| other.min(time)));
                }
                None => {}
            }
        }
        Ok(due)
    }

    /// When a duty has something to do in each of these queues, if ever, and the store's clock.
    async fn ask_for_due<'a>(
        &self,
        queues: &'a [QueueName],
        duty: &str,
    ) -> Result<Vec<(&'a QueueName, Option<Timestamp>, Timestamp)>> {
        let chunks = self.fleet.by_slot(queues).flat_map(|group| group.chunks(ASKED_AT_ONCE));
        let asked = chunks.map(|chunk| async move {
            let stems: Vec<_> = chunk.iter().map(|queue| self.stem(queue)).collect();
            let call = scripts::DUE.on(&stems).arg(self.options().told_time()).arg(duty);
            let mut times = self.ask(call).await?.list()?;
            let now = next(&mut times, "due")?.time()?;
            let told = chunk.iter().zip(times);
            told.map(|(queue, time)| Ok((queue, time.time_if_any()?, now)))
                .collect::<Result<Vec<_>>>()
        });
        Ok(try_join_all(asked).await?.into_iter().flatten().collect())
    }

    /// The queues where something is to be promoted. Of very many not all are asked each time.
    pub(super) async fn due_to_promote(
        &self,
        queues: Vec<QueueName>,
        now: Timestamp,
    ) -> Result<DueQueues> {
        let asked = self.turns.lock().choose(queues, now);
        if asked.len() <= FEW {
            return self.due(asked, "promote").await;
        }
        let found = self.ask_for_due(&asked, "promote").await?;
        let mut turns = self.turns.lock();
        let mut queues = Vec::new();
        for (queue, due, now) in found {
            turns.note(queue, due);
            if due.is_some_and(|due| due <= now) {
                queues.push(queue.clone());
            }
        }
        Ok(DueQueues { queues, next_due: turns.next_due(now) })
    }

    /// The queues whose turn it is to be looked through.
    pub(super) fn mended_next(&self, mut queues: Vec<QueueName>) -> Vec<QueueName> {
        if queues.len() <= MENDED_AT_ONCE {
            return queues;
        }
        queues.sort();
        let mut last = self.mended_last.lock();
        let from = last.take().map_or(0, |last| queues.partition_point(|queue| *queue <= last));
        let chosen: Vec<_> = queues.drain(from..).take(MENDED_AT_ONCE).collect();
        // The last ones had their turn: the next tend begins with the first.
        *last = chosen.last().filter(|_| chosen.len() == MENDED_AT_ONCE).cloned();
        chosen
    }
}
