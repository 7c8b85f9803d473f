//! Natural batching: while one flush is in flight the next one collects, and an idle batcher flushes
//! at once. So a lone call has no added delay, and load turns into batches by itself.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use windlass_core::{Error, ErrorKind, Result};

/// Sends a batch on its way; answers each item, in order, or fails as a whole.
type Flush<I, O> = Box<dyn Fn(Vec<I>) -> FlushFuture<O> + Send + Sync>;
type FlushFuture<O> = Pin<Box<dyn Future<Output = Result<Vec<O>>> + Send>>;
/// Completes items before they are first sent; returns them also after a failure.
type Prepare<I> = Box<dyn Fn(Vec<I>) -> PrepareFuture<I> + Send + Sync>;
type PrepareFuture<I> = Pin<Box<dyn Future<Output = (Vec<I>, Result<()>)> + Send>>;

pub(crate) struct Batcher<I, O>(Arc<Inner<I, O>>);

struct Inner<I, O> {
    prepare: Prepare<I>,
    flush: Flush<I, O>,
    items_max: usize,
    queue: Mutex<Queue<I, O>>,
}

struct Queue<I, O> {
    waiting: Vec<(I, Reply<O>)>,
    is_flushing: bool,
}

type Reply<O> = oneshot::Sender<Result<O>>;

/// The task that sends batches until none is left. Where it dies before that (its runtime ends, a flush
/// panics), everybody who waits for it gets an error, and the next item starts another one.
struct Driver<I, O> {
    inner: Arc<Inner<I, O>>,
    /// Of the batch that is being sent.
    replies: Vec<Reply<O>>,
    is_done: bool,
}

impl<I, O> Clone for Batcher<I, O> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<I: Clone + Send + 'static, O: Send + 'static> Batcher<I, O> {
    /// A batcher that sends at most `items_max` items at once.
    pub(crate) fn new<F, R>(items_max: usize, flush: F) -> Self
    where
        F: Fn(Vec<I>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Vec<O>>> + Send + 'static,
    {
        Self::preparing(items_max, |items| std::future::ready((items, Ok(()))), flush)
    }

    /// A batcher that prepares items once, before they are first sent: a batch that is sent again in
    /// halves is sent as it was prepared.
    pub(crate) fn preparing<P, Q, F, R>(items_max: usize, prepare: P, flush: F) -> Self
    where
        P: Fn(Vec<I>) -> Q + Send + Sync + 'static,
        Q: Future<Output = (Vec<I>, Result<()>)> + Send + 'static,
        F: Fn(Vec<I>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Vec<O>>> + Send + 'static,
    {
        let prepare: Prepare<I> = Box::new(move |items| Box::pin(prepare(items)));
        let flush: Flush<I, O> = Box::new(move |items| Box::pin(flush(items)));
        let queue = Mutex::new(Queue { waiting: Vec::new(), is_flushing: false });
        Self(Arc::new(Inner { prepare, flush, items_max, queue }))
    }

    /// Sends one item with the next batch; answers when its batch was answered. The item goes its
    /// way also when the caller stops waiting.
    pub(crate) async fn send(&self, item: I) -> Result<O> {
        let (reply, answer) = oneshot::channel();
        self.queue_up([(item, reply)]);
        answer.await.unwrap_or_else(|_| Err(runtime_ended()))
    }

    /// Sends items with the next batches, in order. Outside a tokio runtime each gets an error.
    pub(crate) fn send_all(&self, items: Vec<I>) -> Vec<oneshot::Receiver<Result<O>>> {
        let channels = items.into_iter().map(|item| {
            let (reply, answer) = oneshot::channel();
            ((item, reply), answer)
        });
        let (sent, answers): (Vec<_>, Vec<_>) = channels.unzip();
        self.queue_up(sent);
        answers
    }

    fn queue_up(&self, sent: impl IntoIterator<Item = (I, Reply<O>)>) {
        let Ok(runtime) = Handle::try_current() else {
            let replies = sent.into_iter().map(|(_, reply)| reply);
            return fail(replies, &Error::invalid("a client works only inside a tokio runtime"));
        };
        let mut queue = self.0.queue.lock();
        queue.waiting.extend(sent);
        let is_driver_needed = !queue.is_flushing && !queue.waiting.is_empty();
        queue.is_flushing |= is_driver_needed;
        // A runtime that is ending drops the task inside `spawn`, and the driver's end takes the lock.
        drop(queue);
        if is_driver_needed {
            let inner = Arc::clone(&self.0);
            // A task of its own: a caller that gives up must not take the batch of others with it. Its
            // first steps in the caller's own turn were no faster (p50 of submit to start 0.42 ms both).
            runtime.spawn(Driver { inner, replies: Vec::new(), is_done: false }.drive());
        }
    }
}

impl<I: Clone + Send + 'static, O: Send + 'static> Driver<I, O> {
    async fn drive(mut self) {
        while let Some(items) = self.next_batch() {
            let answers = flush(&self.inner, items, false).await;
            for (answer, reply) in answers.into_iter().zip(self.replies.drain(..)) {
                // The caller may have gone.
                let _ = reply.send(answer);
            }
        }
    }

    fn next_batch(&mut self) -> Option<Vec<I>> {
        let mut queue = self.inner.queue.lock();
        if queue.waiting.is_empty() {
            queue.is_flushing = false;
            self.is_done = true;
            return None;
        }
        let count = queue.waiting.len().min(self.inner.items_max);
        let (items, replies) = queue.waiting.drain(..count).unzip();
        self.replies = replies;
        Some(items)
    }
}

impl<I, O> Drop for Driver<I, O> {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        let mut queue = self.inner.queue.lock();
        queue.is_flushing = false;
        let waiting = std::mem::take(&mut queue.waiting);
        drop(queue);
        let error = if std::thread::panicking() { panicked() } else { runtime_ended() };
        let waiting = waiting.into_iter().map(|(_, reply)| reply);
        fail(self.replies.drain(..).chain(waiting), &error);
    }
}

/// Flushes; a batch that fails for a reason of its own is halved until the bad item is alone.
fn flush<I: Clone + Send + 'static, O: Send + 'static>(
    inner: &Inner<I, O>,
    mut items: Vec<I>,
    mut is_prepared: bool,
) -> Pin<Box<dyn Future<Output = Vec<Result<O>>> + Send + '_>> {
    Box::pin(async move {
        let count = items.len();
        let mut prepared = Ok(());
        if !is_prepared {
            (items, prepared) = (inner.prepare)(items).await;
            is_prepared = prepared.is_ok();
        }
        let answer = match prepared {
            Ok(()) => (inner.flush)(items.clone()).await,
            Err(error) => Err(error),
        };
        match answer {
            Ok(answers) if answers.len() == count => answers.into_iter().map(Ok).collect(),
            Ok(answers) => {
                let text = format!("{} answers for a batch of {count}", answers.len());
                vec_of(count, &Error::internal(text))
            }
            // An outage hits every item alike; halving would only prolong it.
            Err(error) if count == 1 || error.is_unavailable() => vec_of(count, &error),
            Err(_) => {
                let second = items.split_off(count / 2);
                let mut answers = flush(inner, items, is_prepared).await;
                answers.extend(flush(inner, second, is_prepared).await);
                answers
            }
        }
    })
}

fn fail<O>(replies: impl Iterator<Item = Reply<O>>, error: &Error) {
    for reply in replies {
        // The caller may have gone.
        let _ = reply.send(Err(error.clone()));
    }
}

fn vec_of<O>(count: usize, error: &Error) -> Vec<Result<O>> {
    (0..count).map(|_| Err(error.clone())).collect()
}

fn runtime_ended() -> Error {
    Error::new(ErrorKind::Unavailable, "the runtime ended before the batch was answered")
}

fn panicked() -> Error {
    Error::new(ErrorKind::Unavailable, "a panic ended the batch before it was answered")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt;
    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test]
    async fn what_arrives_during_a_flush_shares_the_next() {
        let gate = Arc::new(Semaphore::new(0));
        let sizes = Arc::new(Mutex::new(Vec::new()));
        let batcher = {
            let (gate, sizes) = (Arc::clone(&gate), Arc::clone(&sizes));
            Batcher::new(100, move |items: Vec<u32>| {
                let gate = Arc::clone(&gate);
                sizes.lock().push(items.len());
                async move {
                    gate.acquire().await.unwrap().forget();
                    Ok(items)
                }
            })
        };
        let first = batcher.send_all(vec![0]);
        tokio::task::yield_now().await;
        let rest = batcher.send_all((1..=10).collect());
        gate.add_permits(2);
        let mut answers = Vec::new();
        for answer in first.into_iter().chain(rest) {
            answers.push(answer.await.unwrap().unwrap());
        }
        assert_eq!(answers, (0..=10).collect::<Vec<_>>());
        assert_eq!(*sizes.lock(), [1, 10]);
    }

    #[tokio::test]
    async fn a_caller_that_gives_up_takes_no_batch_with_it() {
        let (gate, done) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let batcher = {
            let (gate, done) = (Arc::clone(&gate), Arc::clone(&done));
            Batcher::new(100, move |items: Vec<u32>| {
                let (gate, done) = (Arc::clone(&gate), Arc::clone(&done));
                async move {
                    gate.acquire().await.unwrap().forget();
                    done.add_permits(items.len());
                    Ok(items)
                }
            })
        };
        assert!(batcher.send(1).now_or_never().is_none());
        let second = batcher.send_all(vec![2]).pop().unwrap();
        gate.add_permits(2);
        assert_eq!(second.await.unwrap().unwrap(), 2);
        done.acquire_many(2).await.unwrap().forget();
    }

    #[tokio::test]
    async fn one_bad_item_fails_alone() {
        let flushes = Arc::new(AtomicUsize::new(0));
        let batcher = {
            let flushes = Arc::clone(&flushes);
            Batcher::new(100, move |items: Vec<u32>| {
                flushes.fetch_add(1, Ordering::SeqCst);
                async move { if items.contains(&3) { Err(Error::invalid("three")) } else { Ok(items) } }
            })
        };
        let answers = batcher.send_all((0..8).collect());
        for (number, answer) in answers.into_iter().enumerate() {
            assert_eq!(answer.await.unwrap().is_ok(), number != 3, "{number}");
        }
        assert_eq!(flushes.load(Ordering::SeqCst), 7);
    }

    #[tokio::test]
    async fn an_outage_is_told_to_everyone_without_halving() {
        let flushes = Arc::new(AtomicUsize::new(0));
        let batcher = {
            let flushes = Arc::clone(&flushes);
            Batcher::new(100, move |_: Vec<u32>| {
                flushes.fetch_add(1, Ordering::SeqCst);
                async { Err::<Vec<u32>, _>(Error::new(ErrorKind::Unavailable, "away")) }
            })
        };
        for answer in batcher.send_all((0..8).collect()) {
            assert!(answer.await.unwrap().unwrap_err().is_unavailable());
        }
        assert_eq!(flushes.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn halves_of_a_batch_are_sent_as_it_was_prepared() {
        let drawn = Arc::new(AtomicUsize::new(0));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let batcher = {
            let (drawn, seen) = (Arc::clone(&drawn), Arc::clone(&seen));
            let prepare = move |mut items: Vec<usize>| {
                items.iter_mut().for_each(|item| *item = drawn.fetch_add(1, Ordering::SeqCst));
                std::future::ready((items, Ok(())))
            };
            Batcher::preparing(100, prepare, move |items: Vec<usize>| {
                seen.lock().push(items.clone());
                async move { if items.len() > 1 { Err(Error::invalid("two")) } else { Ok(items) } }
            })
        };
        for (number, answer) in batcher.send_all(vec![9; 4]).into_iter().enumerate() {
            assert_eq!(answer.await.unwrap().unwrap(), number);
        }
        assert_eq!(drawn.load(Ordering::SeqCst), 4);
        assert_eq!(seen.lock()[0], [0, 1, 2, 3]);
    }

    #[tokio::test]
    async fn an_item_that_cannot_be_prepared_fails_alone() {
        let prepare = |items: Vec<u32>| {
            let prepared = if items.contains(&3) { Err(Error::invalid("three")) } else { Ok(()) };
            std::future::ready((items, prepared))
        };
        let batcher = Batcher::preparing(100, prepare, |items: Vec<u32>| async { Ok(items) });
        for (number, answer) in batcher.send_all((0..8).collect()).into_iter().enumerate() {
            assert_eq!(answer.await.unwrap().is_ok(), number != 3, "{number}");
        }
    }

    /// A batcher of which the first flush never ends.
    fn stuck_at_first() -> Batcher<u32, u32> {
        let flushes = AtomicUsize::new(0);
        Batcher::new(1, move |items: Vec<u32>| {
            let is_first = flushes.fetch_add(1, Ordering::SeqCst) == 0;
            async move {
                if is_first {
                    std::future::pending::<()>().await;
                }
                Ok(items)
            }
        })
    }

    #[test]
    fn the_end_of_a_runtime_fails_what_it_was_to_send_and_no_more() {
        let runtime =
            || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let batcher = stuck_at_first();
        let (first, other) = (runtime(), runtime());
        let answers = first.block_on(async {
            let answers = batcher.send_all(vec![1, 2]);
            tokio::task::yield_now().await;
            answers
        });
        drop(first);
        for answer in answers {
            let error = answer.blocking_recv().unwrap().unwrap_err();
            assert!(error.is_unavailable() && error.to_string().contains("runtime"), "{error}");
        }
        let again = async {
            let answer = tokio::time::timeout(std::time::Duration::from_secs(60), batcher.send(3));
            answer.await.expect("the batcher does not hang")
        };
        assert_eq!(other.block_on(again).unwrap(), 3);
    }

    #[tokio::test]
    async fn a_flush_that_panics_fails_its_batch_and_no_later_one() {
        let batcher = Batcher::new(1, |items: Vec<u32>| async move {
            assert_ne!(items, [1], "as planned");
            Ok(items)
        });
        let error = batcher.send(1).await.unwrap_err();
        assert!(error.to_string().contains("panic"), "{error}");
        assert_eq!(batcher.send(2).await.unwrap(), 2);
    }

    #[test]
    fn a_call_outside_a_runtime_is_an_error_and_hinders_no_later_one() {
        let batcher = Batcher::new(1, |items: Vec<u32>| async move { Ok(items) });
        for answer in batcher.send_all(vec![1, 2]) {
            let error = answer.blocking_recv().unwrap().unwrap_err();
            assert!(error.to_string().contains("tokio"), "{error}");
        }
        let runtime = tokio::runtime::Runtime::new().unwrap();
        assert_eq!(runtime.block_on(batcher.send(3)).unwrap(), 3);
    }

    #[tokio::test]
    async fn a_batch_is_no_larger_than_allowed() {
        let batcher = Batcher::new(3, |items: Vec<u32>| async move {
            assert!(items.len() <= 3);
            Ok(items)
        });
        for answer in batcher.send_all((0..10).collect()) {
            answer.await.unwrap().unwrap();
        }
    }
}
