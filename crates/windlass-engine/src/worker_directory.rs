//! Which kinds are handled by live workers, by the store's account. It is read only when a worker has met a task that
//! it does not handle, and seldom; a client and its clones share what was read.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;
use windlass_core::store::WorkerRecord;
use windlass_core::{Claimed, Kind, QueueName, Result, Store};

use crate::hush::Hush;

/// For how long a reading counts that shows a handler of every kind in question.
const FRESH: Duration = Duration::from_secs(1);
/// For how long one that does not: the handler may have come since.
const FRESH_WITHOUT: Duration = Duration::from_millis(250);
/// A reading counts for this many times as long as it took, where that is longer: fleets can be large.
const REST_PER_READ: u32 = 20;

/// Who handles what.
pub(crate) struct WorkerDirectory {
    store: Arc<dyn Store>,
    last: Mutex<Option<Reading>>,
    /// For what is logged of it.
    pub(crate) hush: Hush,
}

struct Reading {
    workers: Vec<WorkerRecord>,
    began: Instant,
    took: Duration,
}

impl WorkerDirectory {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, last: Mutex::default(), hush: Hush::default() }
    }

    /// Of each task, whether a live worker handles it.
    pub(crate) async fn are_handled(&self, tasks: &[&Claimed]) -> Result<Vec<bool>> {
        // Held while it is read: whoever asks meanwhile takes the same answer.
        let mut last = self.last.lock().await;
        if let Some(reading) = &*last {
            let handled = reading.are_handled(tasks);
            let fresh = if handled.contains(&false) { FRESH_WITHOUT } else { FRESH };
            if reading.began.elapsed() < fresh.max(reading.took * REST_PER_READ) {
                return Ok(handled);
            }
        }
        let began = Instant::now();
        let workers = self.store.workers().await?;
        let reading = last.insert(Reading { workers, began, took: began.elapsed() });
        Ok(reading.are_handled(tasks))
    }
}

impl Reading {
    fn are_handled(&self, tasks: &[&Claimed]) -> Vec<bool> {
        // Many tasks have few kinds.
        let mut known: HashMap<(&QueueName, &Kind), bool> = HashMap::new();
        let mut handled = Vec::with_capacity(tasks.len());
        for task in tasks {
            let is_handled = known.entry((&task.queue, &task.kind)).or_insert_with(|| {
                let mut workers = self.workers.iter().filter(|worker| worker.serves(&task.queue));
                workers.any(|worker| worker.card.handles(&task.kind))
            });
            handled.push(*is_handled);
        }
        handled
    }
}
