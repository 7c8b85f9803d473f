//! Which kinds live workers handle, according to the store. A client and its clones read the list of workers only after
//! a worker has claimed a task that it does not handle, about once a second, and share the result.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;
use windlass_core::store::WorkerRecord;
use windlass_core::{Claimed, Kind, QueueName, Result, Store};

use crate::hush::Hush;

/// How long a reading is valid that shows a handler for every kind asked for.
const FRESH: Duration = Duration::from_secs(1);
/// How long any other reading is valid: the handler may have started since.
const FRESH_WITHOUT: Duration = Duration::from_millis(250);
/// A reading is valid for at least this many times the duration of the read: fleets can be large.
const REST_PER_READ: u32 = 20;

/// The kinds of live workers.
pub(crate) struct WorkerDirectory {
    store: Arc<dyn Store>,
    last: Mutex<Option<Reading>>,
    /// Limits its log lines.
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

    /// Returns for each task whether a live worker of its queue handles it.
    pub(crate) async fn are_handled(&self, tasks: &[&Claimed]) -> Result<Vec<bool>> {
        // The lock is held during the read, so that concurrent callers share one read.
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
