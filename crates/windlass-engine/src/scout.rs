//! The scout: for a worker that serves all queues, looks now and then which there are.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use windlass_core::store::QueueRecord;

use crate::outage::warn_unless_outage;
use crate::quotas::Queues;
use crate::station::Station;

/// The pause between two reads of the queues. It grows up to `EVERY_MAX` while a read takes long.
const EVERY: Duration = Duration::from_secs(5);
const EVERY_MAX: Duration = Duration::from_secs(10);
const REST_PER_LOOK: u32 = 20;
/// How often while queues with work had to be left out.
const EVERY_CROWDED: Duration = Duration::from_secs(1);
/// Most queues that a worker serves: each makes every claim a little dearer.
const QUEUES_MAX: usize = 1_000;

/// Starts the role; it ends when told to stop, at once where the queues are as they were named.
pub(crate) fn start(station: Arc<Station>, stop: CancellationToken) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut left_out_before = 0;
        while station.settings.serves_all && !stop.is_cancelled() {
            let (began, mut is_crowded) = (Instant::now(), false);
            match station.store.queues().await {
                Ok(found) => {
                    station.contact.answered();
                    let Served { queues, left_out, leaves_work } =
                        served(&station.settings.queues, found);
                    is_crowded = leaves_work;
                    if left_out > 0 && left_out != left_out_before {
                        tracing::warn!(left_out, most = QUEUES_MAX, "too many queues to serve all");
                    }
                    left_out_before = left_out;
                    station.serve(queues);
                }
                Err(error) => warn_unless_outage!(error, "could not look for queues"),
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(pause_after(began.elapsed(), is_crowded)) => {}
            }
        }
    })
}

/// How long it rests after a look that took so long.
fn pause_after(look: Duration, is_crowded: bool) -> Duration {
    let least = if is_crowded { EVERY_CROWDED } else { EVERY };
    let rest = if is_crowded { look } else { look * REST_PER_LOOK };
    rest.clamp(least, EVERY_MAX)
}

/// What is served.
struct Served {
    queues: Queues,
    /// How many were left out for the bound.
    left_out: usize,
    /// Some of those have tasks that can run.
    leaves_work: bool,
}

/// The queues that were named, then all others by name with a weight of 1. Where some have to be left out for the bound, those
/// with tasks that can run go first.
fn served(named: &Queues, mut found: Vec<QueueRecord>) -> Served {
    let mut queues = named.clone();
    let known: HashSet<_> = named.weighted.iter().map(|(queue, _)| queue).collect();
    found.retain(|queue| !known.contains(&queue.name));
    let room = QUEUES_MAX.saturating_sub(known.len());
    let left_out = found.len().saturating_sub(room);
    let is_idle = |queue: &QueueRecord| queue.is_paused || queue.pending == [0; 4];
    let leaves_work = left_out > 0 && found.iter().filter(|queue| !is_idle(queue)).count() > room;
    if left_out > 0 {
        found.sort_by_key(is_idle);
        found.truncate(room);
        found.sort_by(|a, b| a.name.cmp(&b.name));
    }
    queues.weighted.extend(found.into_iter().map(|queue| (queue.name, 1)));
    Served { queues, left_out, leaves_work }
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
        let served = served(&named(&[("mail", 7), ("soon", 2)]), found);
        let expected = named(&[("mail", 7), ("soon", 2), ("a", 1), ("{odd} \0name", 1)]);
        assert_eq!((served.queues.weighted, served.left_out), (expected.weighted, 0));
    }

    #[test]
    fn a_look_that_takes_long_is_repeated_less_often() {
        let pause = |look: u64, is_crowded| {
            pause_after(Duration::from_millis(look), is_crowded).as_millis()
        };
        assert_eq!(
            [pause(1, false), pause(400, false), pause(60_000, false)],
            [5_000, 8_000, 10_000]
        );
        assert_eq!([pause(1, true), pause(3_000, true)], [1_000, 3_000]);
    }

    #[test]
    fn beyond_the_bound_queues_with_work_go_first() {
        let empty = |number| record(&format!("empty-{number:04}"), 0);
        let mut found: Vec<_> = (0..1_500).map(empty).collect();
        found.push(record("zebra", 3));
        let crowded: Vec<_> = (0..1_500).map(|n| record(&format!("full-{n:04}"), 1)).collect();
        let default = named(&[("default", 1)]);
        let Served { queues, left_out, leaves_work } = served(&default, found);
        assert_eq!((queues.weighted.len(), left_out, leaves_work), (QUEUES_MAX, 502, false));
        assert_eq!(queues.weighted[0].0.as_str(), "default");
        assert_eq!(queues.weighted[QUEUES_MAX - 1].0.as_str(), "zebra");
        assert!(served(&default, crowded).leaves_work);
    }
}
