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

    /// The rules that cannot be asked of this store, as `topic::rule`. A rule that skips itself
    /// without being listed fails, and so does a listed rule that runs.
    fn skipped_rules() -> &'static [&'static str]
    where
        Self: Sized,
    {
        &[]
    }

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

    /// Gives a key of a queue that holds its pending tasks another type, behind the store's back. False where a
    /// store has no keys of its own for a queue.
    async fn damage(&self, _queue: &QueueName) -> bool {
        false
    }

    /// Undoes [`Subject::damage`].
    async fn undo_damage(&self, _queue: &QueueName) {}

    /// False where a queue that was used once is listed for ever.
    fn forgets_queues(&self) -> bool {
        true
    }

    /// How many rows or keys the store keeps for tasks: the tasks themselves, their unique keys,
    /// large values. `None` where one cannot look inside.
    async fn rows_kept(&self) -> Option<u64>;
}

/// The rules about a queue of which a part is damaged; stores without parts of their own for a queue skip them.
pub const DAMAGE_RULES: [&str; 3] = [
    "batches::a_damaged_queue_does_not_stop_claims_from_others",
    "batches::a_damaged_queue_does_not_stop_reports_and_beats_of_others",
    "batches::a_damaged_queue_does_not_stop_reads_and_upkeep_of_others",
];

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

    fn skipped_rules() -> &'static [&'static str] {
        &[
            "batches::an_unreadable_record_does_not_stop_a_claim",
            "batches::an_unreadable_record_does_not_stop_a_promote",
            "batches::an_unreadable_record_does_not_stop_an_expire",
            "batches::an_unreadable_record_does_not_stop_a_prune",
            "batches::an_unreadable_record_does_not_stop_an_apply_or_a_list",
            "batches::an_unreadable_record_does_not_stop_a_leave",
            "batches::an_unreadable_record_does_not_stop_a_change_by_filter",
            "batches::an_unreadable_record_does_not_stop_a_get",
            DAMAGE_RULES[0],
            DAMAGE_RULES[1],
            DAMAGE_RULES[2],
        ]
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
