//! Queues that cannot be used, for example since a key of one has another type: they are skipped, and logged now and
//! then.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use windlass_core::{ErrorKind, QueueName, Result};

use super::reply::Reply;

/// How often the same queue is logged.
const EVERY: Duration = Duration::from_secs(60);
/// Most queues remembered.
const REMEMBERED_MAX: usize = 1_000;

static LOGGED: Mutex<BTreeMap<QueueName, Instant>> = Mutex::new(BTreeMap::new());

/// How a script answers for a queue with a damaged key.
pub(super) const DAMAGED: &str = "damaged";

/// The answer of a script for one queue, or what is wrong with a queue that is damaged.
pub(super) fn damage_in(answer: Reply) -> Result<std::result::Result<Reply, String>> {
    if !answer.begins_with(DAMAGED) {
        return Ok(Ok(answer));
    }
    Ok(Err(answer.list()?.nth(1).map_or_else(|| Ok(String::new()), Reply::text)?))
}

/// Logs that a queue was skipped, unless it was logged lately.
pub(super) fn log_skipped(queue: &QueueName, trouble: &str) {
    if is_due(queue, Instant::now()) {
        tracing::error!(%queue, trouble, "a queue cannot be used and is skipped");
    }
}

/// The result of work on one queue; nothing, and a line in the log, when the queue cannot be used.
pub(super) fn skip<T>(queue: &QueueName, result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            log_skipped(queue, &error.chain());
            Ok(None)
        }
        Err(error) => Err(error),
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
