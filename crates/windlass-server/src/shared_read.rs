//! A read of the store that many requests share: however many ask at the same time, one read is under way, and one
//! more serves all who have asked since it began.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Mutex;
use windlass_core::Result;

/// The last read, and how many have begun.
pub(crate) struct SharedRead<T> {
    begun: AtomicU64,
    last: Mutex<Option<LastRead<T>>>,
}

struct LastRead<T> {
    number: u64,
    outcome: Result<Arc<T>>,
}

impl<T> Default for SharedRead<T> {
    fn default() -> Self {
        Self { begun: AtomicU64::new(0), last: Mutex::new(None) }
    }
}

impl<T> SharedRead<T> {
    /// What a read has found that began after this call: its own, or that of another who waits.
    pub(crate) async fn get(&self, read: impl Future<Output = Result<T>>) -> Result<Arc<T>> {
        let begun_before = self.begun.load(Ordering::SeqCst);
        // The request that reads the store holds this lock; the others wait for its result.
        let mut last = self.last.lock().await;
        if let Some(last) = last.as_ref().filter(|last| last.number > begun_before) {
            return last.outcome.clone();
        }
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let outcome = read.await.map(Arc::new);
        *last = Some(LastRead { number, outcome: outcome.clone() });
        outcome
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;
    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn those_who_ask_during_a_read_share_the_next_one() {
        let (reads, shared, go) = (AtomicU64::new(0), SharedRead::default(), Notify::new());
        let ask = || {
            shared.get(async {
                let number = reads.fetch_add(1, Ordering::SeqCst) + 1;
                go.notified().await;
                Ok(number)
            })
        };
        let first = async { *ask().await.unwrap() };
        let later = async {
            while reads.load(Ordering::SeqCst) == 0 {
                tokio::task::yield_now().await;
            }
            join_all((0..100).map(|_| async { *ask().await.unwrap() })).await
        };
        let release = async {
            while reads.load(Ordering::SeqCst) == 0 {
                tokio::task::yield_now().await;
            }
            go.notify_one();
            while reads.load(Ordering::SeqCst) == 1 {
                tokio::task::yield_now().await;
            }
            go.notify_one();
        };
        let (first, later, ()) = tokio::join!(first, later, release);
        assert_eq!((first, later), (1, vec![2; 100]));
        go.notify_one();
        assert_eq!(*ask().await.unwrap(), 3, "a result of an earlier read is not returned again");
    }
}
