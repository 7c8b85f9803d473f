//! Queues that cannot be used, since their data are damaged: they are skipped, and logged now and then.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use windlass_core::QueueName;

/// How often the same queue is logged.
const EVERY: Duration = Duration::from_secs(60);
/// Most queues remembered.
const REMEMBERED_MAX: usize = 1_000;

static LOGGED: Mutex<BTreeMap<QueueName, Instant>> = Mutex::new(BTreeMap::new());

/// Logs that a queue was skipped, unless it was logged lately.
pub(crate) fn log_skipped(queue: &QueueName, trouble: &str) {
    if is_due(queue, Instant::now()) {
        tracing::error!(%queue, trouble, "a queue cannot be used and is skipped");
    }
}

fn is_due(queue: &QueueName, now: Instant) -> bool {
    let mut logged = LOGGED.lock();
    if logged.get(queue).is_some_and(|at| now.duration_since(*at) < EVERY) {
        return false;
    }
    if logged.len() >= REMEMBERED_MAX {
        logged.clear();
    }
    logged.insert(queue.clone(), now);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_logged_now_and_then() {
        let (queue, now) = (QueueName::stored("logged-now-and-then"), Instant::now());
        assert!(is_due(&queue, now));
        assert!(!is_due(&queue, now + EVERY / 2));
        assert!(is_due(&queue, now + EVERY));
    }
}
