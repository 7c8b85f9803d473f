//! Queues and tasks whose data are damaged: they are skipped, and logged now and then.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
#[cfg(any(feature = "postgres", feature = "redis"))]
use windlass_core::QueueName;

/// How often the same queue or task is logged.
const EVERY: Duration = Duration::from_secs(60);
/// Most of them remembered.
const REMEMBERED_MAX: usize = 1_000;

static LOGGED: Mutex<BTreeMap<String, Instant>> = Mutex::new(BTreeMap::new());

/// Logs that a queue was skipped, unless it was logged lately.
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(crate) fn log_skipped(queue: &QueueName, trouble: &str) {
    if is_due(queue.as_str(), Instant::now()) {
        tracing::error!(%queue, trouble, "a queue cannot be used and is skipped");
    }
}

/// Logs that a row of a task was skipped, unless it was logged lately.
#[cfg(feature = "sqlite")]
pub(crate) fn log_unreadable(number: i64, trouble: &str) {
    // No queue has a name with a colon.
    if is_due(&format!("task:{number}"), Instant::now()) {
        tracing::error!(number, trouble, "a task cannot be read and is skipped");
    }
}

fn is_due(name: &str, now: Instant) -> bool {
    let mut logged = LOGGED.lock();
    if logged.get(name).is_some_and(|at| now.duration_since(*at) < EVERY) {
        return false;
    }
    if logged.len() >= REMEMBERED_MAX {
        logged.clear();
    }
    logged.insert(name.to_owned(), now);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_logged_now_and_then() {
        let (queue, now) = ("logged-now-and-then", Instant::now());
        assert!(is_due(queue, now));
        assert!(!is_due(queue, now + EVERY / 2));
        assert!(is_due(queue, now + EVERY));
    }
}
