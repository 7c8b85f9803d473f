//! The scout: for a worker that serves all queues, looks now and then which there are.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use windlass_core::store::QueueRecord;

use crate::quotas::Queues;
use crate::station::Station;

/// How often it looks. Where there are so many queues that a look takes long, it rests for so many times as long.
const EVERY: Duration = Duration::from_secs(5);
const EVERY_MAX: Duration = Duration::from_secs(30);
const REST_PER_LOOK: u32 = 100;
/// Most queues that a worker serves: each makes every claim a little dearer.
const QUEUES_MAX: usize = 1_000;

/// Starts the role; it ends when told to stop, at once where the queues are as they were named.
pub(crate) fn start(station: Arc<Station>, stop: CancellationToken) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut left_out_before = 0;
        while station.settings.serves_all && !stop.is_cancelled() {
            let began = Instant::now();
            match station.store.queues().await {
                Ok(found) => {
                    station.contact.answered();
                    let (queues, left_out) = served(&station.settings.queues, found);
                    if left_out > 0 && left_out != left_out_before {
                        tracing::warn!(left_out, most = QUEUES_MAX, "too many queues to serve all");
                    }
                    left_out_before = left_out;
                    station.serve(queues);
                }
                Err(error) => tracing::warn!(error = error.chain(), "could not look for queues"),
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(pause_after(began.elapsed())) => {}
            }
        }
    })
}

/// How long it rests after a look that took so long.
fn pause_after(look: Duration) -> Duration {
    (look * REST_PER_LOOK).clamp(EVERY, EVERY_MAX)
}

/// The queues that were named, then all others by name with a weight of 1; and how many were left
/// out for the bound. Where that has to be, those with tasks that can run go first.
fn served(named: &Queues, mut found: Vec<QueueRecord>) -> (Queues, usize) {
    let mut queues = named.clone();
    let known: HashSet<_> = named.weighted.iter().map(|(queue, _)| queue).collect();
    found.retain(|queue| !known.contains(&queue.name));
    let room = QUEUES_MAX.saturating_sub(known.len());
    let left_out = found.len().saturating_sub(room);
    if left_out > 0 {
        found.sort_by_key(|queue| queue.is_paused || queue.pending == [0; 4]);
        found.truncate(room);
        found.sort_by(|a, b| a.name.cmp(&b.name));
    }
    queues.weighted.extend(found.into_iter().map(|queue| (queue.name, 1)));
    (queues, left_out)
}

#[cfg(test)]
mod tests {
    use windlass_core::QueueName;
    use windlass_core::store::{PrioritySet, StateCounts};

    use super::*;

    fn record(name: &str, pending: u64) -> QueueRecord {
        QueueRecord {
            name: QueueName::stored(name),
            is_paused: false,
            counts: StateCounts::default(),
            pending: [0, pending, 0, 0],
            oldest_pending_at: None,
        }
    }

    fn named(weights: &[(&str, u32)]) -> Queues {
        let weighted = weights.iter().map(|(name, weight)| (QueueName::stored(name), *weight));
        Queues { weighted: weighted.collect(), is_strict: false, priorities: PrioritySet::ALL }
    }

    #[test]
    fn what_was_named_keeps_its_place_and_weight() {
        let found = vec![record("a", 0), record("mail", 0), record("{odd} \0name", 0)];
        let (queues, left_out) = served(&named(&[("mail", 7), ("soon", 2)]), found);
        let expected = named(&[("mail", 7), ("soon", 2), ("a", 1), ("{odd} \0name", 1)]);
        assert_eq!((queues.weighted, left_out), (expected.weighted, 0));
    }

    #[test]
    fn a_look_that_takes_long_is_repeated_less_often() {
        let millis = Duration::from_millis;
        for (look, rest) in [(1, 5_000), (50, 5_000), (100, 10_000), (60_000, 30_000)] {
            assert_eq!(pause_after(millis(look)), millis(rest));
        }
    }

    #[test]
    fn beyond_the_bound_queues_with_work_go_first() {
        let mut found: Vec<_> = (0..1_500).map(|n| record(&format!("empty-{n:04}"), 0)).collect();
        found.push(record("zebra", 3));
        let (queues, left_out) = served(&named(&[("default", 1)]), found);
        assert_eq!((queues.weighted.len(), left_out), (QUEUES_MAX, 502));
        assert_eq!(queues.weighted[0].0.as_str(), "default");
        assert_eq!(queues.weighted[QUEUES_MAX - 1].0.as_str(), "zebra");
    }
}
