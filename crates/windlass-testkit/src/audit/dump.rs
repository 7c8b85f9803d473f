//! The dump: everything a store says it contains, read through the `Store` trait.

use std::collections::{BTreeMap, HashMap};

use windlass_core::store::{
    Depth, GetParams, ListParams, Parts, QueueRecord, Severity, StateCounts,
};
use windlass_core::{QueueName, Result, Store, TaskId, TaskRecord};

/// How much to read in one call.
const PIECE: usize = 500;

/// A store at rest.
#[derive(Debug, Clone, Default)]
pub struct Dump {
    /// Every task with payload, result and history.
    pub tasks: HashMap<TaskId, TaskRecord>,
    /// Its counters.
    pub queues: Vec<QueueRecord>,
    /// What reading it brought to light: listed twice, listed and not found, its own inspection's
    /// problems.
    pub troubles: Vec<String>,
}

impl Dump {
    /// Reads a store, which must be at rest.
    pub async fn of(store: &dyn Store) -> Result<Self> {
        let mut dump = Self::default();
        dump.inspect(store).await?;
        let mut params = ListParams { limit: PIECE, ..ListParams::default() };
        loop {
            let page = store.list(params.clone()).await?;
            let ids = page.tasks.into_iter().map(|record| record.id).collect();
            dump.read(store, ids).await?;
            if page.next_cursor.is_none() {
                break;
            }
            params.cursor = page.next_cursor;
        }
        dump.queues = store.queues().await?;
        Ok(dump)
    }

    async fn inspect(&mut self, store: &dyn Store) -> Result<()> {
        let inspection = store.inspect(Depth::Full).await?;
        if !inspection.is_writable() {
            self.troubles.push(String::from("the store takes no writes"));
        }
        for finding in inspection.findings {
            if finding.severity == Severity::Problem {
                self.troubles.push(format!("{}: {}", finding.subject, finding.text));
            }
        }
        Ok(())
    }

    async fn read(&mut self, store: &dyn Store, ids: Vec<TaskId>) -> Result<()> {
        let answers = store.get(GetParams { ids: ids.clone(), parts: Parts::ALL }).await?;
        for (id, answer) in ids.into_iter().zip(answers) {
            let Some(record) = answer else {
                self.troubles.push(format!("task {id} is listed and not found"));
                continue;
            };
            if let Some(twin) = self.tasks.insert(id, record) {
                self.troubles.push(format!("task {} is listed twice", twin.id));
            }
        }
        Ok(())
    }
}

/// How the counters of a store differ from its tasks; nothing when they agree.
pub fn counter_trouble<'a>(
    tasks: impl IntoIterator<Item = &'a TaskRecord>,
    queues: &[QueueRecord],
) -> Option<String> {
    let mut counted = BTreeMap::<&QueueName, StateCounts>::new();
    for record in tasks {
        counted.entry(&record.queue).or_default().add(record.state, 1);
    }
    let kept: BTreeMap<_, _> = queues
        .iter()
        .filter(|queue| queue.counts.total() > 0)
        .map(|queue| (&queue.name, queue.counts))
        .collect();
    (counted != kept).then(|| format!("counters say {kept:?}, the tasks are {counted:?}"))
}
