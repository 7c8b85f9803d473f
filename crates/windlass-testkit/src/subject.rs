//! How tests get at a store.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use windlass_core::{ManualClock, QueueName, Store, TaskId};
use windlass_stores::memory::MemoryStore;

/// A store under test: empty at first, with a clock that only the test moves.
#[async_trait]
pub trait Subject: Send + Sync + 'static {
    /// An empty store with data of its own.
    async fn fresh() -> Self
    where
        Self: Sized;

    /// The store.
    fn store(&self) -> Arc<dyn Store>;

    /// A further handle on the same data, as another process would open it; the same store again
    /// where it cannot be shared.
    async fn another(&self) -> Arc<dyn Store>;

    /// Moves the store's clock forward; time in tests is shifted, never slept.
    fn advance(&self, by: Duration);

    /// Makes the stored record of a task unreadable, behind the store's back. False where nothing
    /// can spoil, since nothing is written down.
    async fn spoil(&self, task: &TaskId) -> bool;

    /// Makes a queue without tasks unusable behind the store's back, and nothing else; or usable again. False where
    /// queues have nothing of their own that could break.
    async fn set_broken(&self, _queue: &QueueName, _is_broken: bool) -> bool {
        false
    }

    /// How many rows or keys the store keeps for tasks: the tasks themselves, their unique keys,
    /// large values. `None` where one cannot look inside.
    async fn rows_kept(&self) -> Option<u64>;
}

/// The memory store as a subject; also the oracle that other stores are compared with.
pub struct MemorySubject {
    clock: Arc<ManualClock>,
    store: MemoryStore,
}

impl MemorySubject {
    /// The store itself, for what only an oracle can answer.
    pub fn oracle(&self) -> &MemoryStore {
        &self.store
    }
}

#[async_trait]
impl Subject for MemorySubject {
    async fn fresh() -> Self {
        let clock = Arc::new(ManualClock::default());
        let store = MemoryStore::new(clock.clone());
        Self { clock, store }
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    async fn another(&self) -> Arc<dyn Store> {
        self.store()
    }

    fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn spoil(&self, _task: &TaskId) -> bool {
        false
    }

    async fn rows_kept(&self) -> Option<u64> {
        None
    }
}
