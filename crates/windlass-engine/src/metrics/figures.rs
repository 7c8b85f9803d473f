//! What only the store knows: read when someone asks, at most once a second, however many ask.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::Instant;
use windlass_core::store::{BrokerState, Depth, QueueRecord, RunOrder, WorkerRecord};
use windlass_core::{Result, Store, Timestamp, WorkerId};

use crate::outage::warn_unless_outage;

/// How long what was read is told to others who ask.
const FRESH_FOR: Duration = Duration::from_secs(1);
/// How long whoever asks waits for the store.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a store has, by its own counters.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    /// When, by the store's clock.
    pub now: Timestamp,
    /// All queues.
    pub queues: Vec<QueueRecord>,
    /// All workers that live.
    pub workers: Vec<WorkerRecord>,
    /// Workers whose lease is over, and who are not declared lost yet: they may beat again.
    pub lapsed: Vec<WorkerId>,
    /// The brokers in front of the store.
    pub brokers: Vec<BrokerState>,
}

impl Figures {
    pub(crate) async fn read(store: &Arc<dyn Store>) -> Result<Self> {
        let (queues, mut workers) = (store.queues().await?, store.workers().await?);
        let inspection = store.inspect(Depth::Ping).await?;
        let now = inspection.now;
        workers.retain(|worker| !worker.is_gone);
        let (workers, lapsed): (Vec<_>, Vec<_>) =
            workers.into_iter().partition(|worker| worker.lease_until > now);
        let lapsed = lapsed.into_iter().map(|worker| worker.id).collect();
        Ok(Self { now, queues, workers, lapsed, brokers: inspection.brokers })
    }

    /// True for a worker that takes tasks.
    pub fn is_active(worker: &WorkerRecord) -> bool {
        worker.order == RunOrder::Run && worker.card.doing == RunOrder::Run
    }
}

/// The last figures, and the store to read new ones from.
pub(super) struct Reading {
    store: Arc<dyn Store>,
    last: Arc<Mutex<Option<Read>>>,
}

struct Read {
    at: Instant,
    figures: Arc<Figures>,
}

impl Reading {
    pub(super) fn of(store: Arc<dyn Store>) -> Self {
        Self { store, last: Arc::default() }
    }

    /// The figures as of a moment ago; nothing when the store does not answer in time.
    pub(super) async fn figures(&self) -> Option<Arc<Figures>> {
        let end = Instant::now() + PATIENCE;
        // Whoever reads holds this: the others wait for what it finds.
        let last = tokio::time::timeout_at(end, Arc::clone(&self.last).lock_owned()).await.ok()?;
        if let Some(read) = last.as_ref().filter(|read| read.at.elapsed() < FRESH_FOR) {
            return Some(Arc::clone(&read.figures));
        }
        // On its own, to its end: a call of a store is never dropped half-way.
        let reading = tokio::spawn(read(Arc::clone(&self.store), last));
        tokio::time::timeout_at(end, reading).await.ok()?.ok()?
    }
}

async fn read(
    store: Arc<dyn Store>,
    mut last: OwnedMutexGuard<Option<Read>>,
) -> Option<Arc<Figures>> {
    match Figures::read(&store).await {
        Ok(figures) => {
            let figures = Arc::new(figures);
            *last = Some(Read { at: Instant::now(), figures: Arc::clone(&figures) });
            Some(figures)
        }
        Err(error) => {
            warn_unless_outage!(error, "metrics are told without those of the store");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;
    use windlass_testkit::faults::{FaultyStore, Method};
    use windlass_testkit::fleet;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_storm_of_questions_is_one_read_a_second() {
        let (store, faults) = FaultyStore::around(fleet::memory());
        let reading = Reading::of(store);
        let told = join_all((0..100).map(|_| reading.figures())).await;
        assert!(told.iter().all(Option::is_some));
        assert_eq!(faults.calls(Method::Queues), 1);
        tokio::time::advance(FRESH_FOR - Duration::from_millis(1)).await;
        reading.figures().await.unwrap();
        assert_eq!(faults.calls(Method::Queues), 1);
        tokio::time::advance(Duration::from_millis(1)).await;
        reading.figures().await.unwrap();
        assert_eq!(faults.calls(Method::Queues), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_hangs_is_asked_once_and_waited_for_no_longer_than_bearable() {
        let (store, faults) = FaultyStore::around(fleet::memory());
        let reading = Reading::of(store);
        faults.hold(Method::Queues);
        for _ in 0..5 {
            assert_eq!(reading.figures().await, None);
        }
        assert_eq!(faults.calls(Method::Queues), 1);
    }

    #[tokio::test]
    async fn a_store_that_is_away_tells_nothing_and_is_asked_again() {
        let (store, faults) = FaultyStore::around(fleet::memory());
        let reading = Reading::of(store);
        faults.go_away();
        assert_eq!(reading.figures().await, None);
        faults.come_back();
        assert!(reading.figures().await.is_some());
    }
}
