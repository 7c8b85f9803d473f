//! A stage for tests: a fresh store and one helper for each thing that people do with it.
//!
//! `scene.rs` has the stage itself, submits and reads; `scene/` has what workers (`work`), leaders
//! (`upkeep`) and operators (`operate`) do, and the books that must always balance (`books`).

mod books;
mod operate;
mod upkeep;
mod work;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use windlass_core::store::{
    Capabilities, Depth, Filter, GetParams, Inserted, ListParams, Parts, Reservation,
};
use windlass_core::{NewTask, QueueName, State, Store, TaskId, TaskRecord, Timestamp};

pub use work::{Run, claim_of, completed, discarded, failed, snoozed};

use crate::draft::{Draft, draft};
use crate::subject::Subject;

/// How long a worker's leases are good for in tests.
pub const LEASE: Duration = Duration::from_secs(15);
/// The smallest step of a store's clock.
pub const MS: Duration = Duration::from_millis(1);
/// One second.
pub const SECOND: Duration = Duration::from_secs(1);
/// One hour.
pub const HOUR: Duration = Duration::from_secs(3_600);

/// Longest that one rule may take before it counts as hung.
const PATIENCE: Duration = Duration::from_secs(120);

/// A fresh store and what a test does with it.
#[derive(Clone)]
pub struct Scene {
    /// The store, or the handle on it through which this scene acts.
    pub store: Arc<dyn Store>,
    subject: Arc<dyn Subject>,
    serial: Arc<AtomicU64>,
    skipped: Arc<OnceLock<&'static str>>,
}

/// A rule, as [`check`] asks for it. Boxed, since thousands of tests would each compile their own [`check`] otherwise.
pub type Rule = fn(Scene) -> Pin<Box<dyn Future<Output = ()>>>;

/// Asks a fresh store for one rule; afterwards its books must balance, whatever the rule did. The
/// rule skips itself if and only if the subject lists its name (`topic::rule`).
pub fn check<S: Subject>(name: &str, rule: Rule) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let scene = Scene::on(Arc::new(S::fresh().await));
        let asked = tokio::time::timeout(PATIENCE, rule(scene.clone())).await;
        assert!(asked.is_ok(), "the rule did not come to an end within {PATIENCE:?}");
        scene.books_balance_after_prune().await;
        let is_listed = S::skipped_rules().contains(&name);
        match scene.skipped.get() {
            Some(reason) if is_listed => eprintln!("SKIPPED: {name}: {reason}"),
            Some(reason) => {
                panic!("{name} skipped itself ({reason}); the subject does not list it")
            }
            None => assert!(!is_listed, "the subject lists {name} as skipped, but the rule ran"),
        }
    });
}

impl Scene {
    /// A scene on a subject.
    pub fn on(subject: Arc<dyn Subject>) -> Self {
        Self { store: subject.store(), subject, serial: Arc::default(), skipped: Arc::default() }
    }

    /// The same scene through a further handle on the same data, as another process would have it
    /// or as the same one would after a restart.
    pub async fn elsewhere(&self) -> Self {
        Self { store: self.subject.another().await, ..self.clone() }
    }

    /// Moves the store's clock forward.
    pub fn advance(&self, by: Duration) {
        self.subject.advance(by);
    }

    /// The store's clock.
    pub async fn now(&self) -> Timestamp {
        self.store.inspect(Depth::Ping).await.unwrap().now
    }

    /// What the store says it can do.
    pub fn capabilities(&self) -> Capabilities {
        self.store.profile().capabilities
    }

    /// Records that this rule cannot be asked of this store; the subject must list the rule.
    pub fn skip(&self, reason: &'static str) {
        // A rule that skips twice keeps its first reason.
        let _ = self.skipped.set(reason);
    }

    /// True where upkeep forgets queues that are idle for long.
    pub fn forgets_queues(&self) -> bool {
        self.subject.forgets_queues()
    }

    /// Makes a task's stored record unreadable; false where nothing can spoil.
    pub async fn spoil(&self, task: &TaskId) -> bool {
        self.subject.spoil(task).await
    }

    /// Damages a key of a queue; false where a queue has no keys of its own.
    pub async fn damage(&self, queue: &str) -> bool {
        self.subject.damage(&QueueName::stored(queue)).await
    }

    /// Undoes the damage.
    pub async fn undo_damage(&self, queue: &str) {
        self.subject.undo_damage(&QueueName::stored(queue)).await;
    }

    /// How many rows the store keeps for tasks, if one can look inside.
    pub async fn rows_kept(&self) -> Option<u64> {
        self.subject.rows_kept().await
    }

    /// A number that no one in this scene has had before.
    pub fn serial(&self) -> u64 {
        self.serial.fetch_add(1, Ordering::Relaxed)
    }

    /// The draft with an id of the store's.
    pub async fn make(&self, draft: Draft) -> NewTask {
        let wanted = Reservation { queue: draft.queue_name().clone(), count: 1 };
        let mut ids = self.store.reserve(vec![wanted]).await.unwrap();
        assert_eq!(ids.len(), 1, "one id was asked for, these came: {ids:?}");
        draft.with_id(ids.remove(0))
    }

    /// Inserts tasks that have ids.
    pub async fn insert(&self, tasks: Vec<NewTask>) -> Vec<Inserted> {
        let count = tasks.len();
        let answers = self.store.insert(tasks).await.unwrap();
        assert_eq!(answers.len(), count, "each item of an insert is answered");
        answers
    }

    /// Submits a draft, whatever comes of it.
    pub async fn offer(&self, draft: Draft) -> (TaskId, Inserted) {
        let task = self.make(draft).await;
        let id = task.id.clone();
        (id, self.insert(vec![task]).await.remove(0))
    }

    /// Submits a draft that must be taken.
    pub async fn submit(&self, draft: Draft) -> TaskId {
        self.submit_all([draft]).await.remove(0)
    }

    /// Submits drafts in one call; all must be taken.
    pub async fn submit_all(&self, drafts: impl IntoIterator<Item = Draft>) -> Vec<TaskId> {
        let mut tasks = Vec::new();
        for draft in drafts {
            tasks.push(self.make(draft).await);
        }
        let ids: Vec<_> = tasks.iter().map(|task| task.id.clone()).collect();
        for (id, answer) in ids.iter().zip(self.insert(tasks).await) {
            assert!(answer.is_new(), "task {id} should be new, not {answer:?}");
        }
        ids
    }

    /// Submits this many plain tasks in one call.
    pub async fn submit_many(&self, count: usize) -> Vec<TaskId> {
        self.submit_all(std::iter::repeat_n(draft(), count)).await
    }

    /// Reads a task with all its parts.
    pub async fn find(&self, id: &TaskId) -> Option<TaskRecord> {
        let params = GetParams { ids: vec![id.clone()], parts: Parts::ALL };
        let mut found = self.store.get(params).await.unwrap();
        assert_eq!(found.len(), 1, "one task was asked for");
        found.remove(0)
    }

    /// Reads a task that must be there.
    pub async fn record(&self, id: &TaskId) -> TaskRecord {
        let found = self.find(id).await;
        found.unwrap_or_else(|| panic!("task {id} should be there"))
    }

    /// The state of a task that must be there.
    pub async fn state(&self, id: &TaskId) -> State {
        self.record(id).await.state
    }

    /// Requires a task to be in a state.
    pub async fn expect(&self, id: &TaskId, state: State, why: &str) {
        let record = self.record(id).await;
        assert_eq!(record.state, state, "{why}; the record: {record:#?}");
    }

    /// Requires a task to be gone from every read.
    pub async fn expect_gone(&self, id: &TaskId, why: &str) {
        let found = self.find(id).await;
        assert!(found.is_none(), "{why}, but get shows {found:#?}");
        let listed = self.list(Filter::default()).await;
        let seen = listed.iter().any(|record| record.id == *id);
        assert!(!seen, "{why}, but list shows task {id}");
    }

    /// All tasks that match, by following the cursors of small pages.
    pub async fn list(&self, filter: Filter) -> Vec<TaskRecord> {
        let mut params = ListParams { filter, limit: 7, cursor: None };
        let mut tasks = Vec::new();
        for _ in 0..10_000 {
            let page = self.store.list(params.clone()).await.unwrap();
            let (count, limit) = (page.tasks.len(), params.limit);
            assert!(count <= limit, "a page of {limit} came with {count} tasks");
            tasks.extend(page.tasks);
            params.cursor = page.next_cursor;
            if params.cursor.is_none() {
                return tasks;
            }
        }
        panic!("the list does not come to an end: {} tasks", tasks.len());
    }
}
