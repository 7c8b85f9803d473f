//! Tasks that were claimed and have not started: a small buffer between store and slots.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use windlass_core::Claimed;
use windlass_core::store::WakeMark;

use crate::leases::Controls;
use crate::suspects::Pass;

/// A claimed task, what reaches into its run, and since when it waits.
pub(crate) struct Waiting {
    pub(crate) task: Claimed,
    pub(crate) controls: Controls,
    pub(crate) since: Instant,
    /// What a suspect needs to run.
    pub(crate) pass: Option<Pass>,
}

#[derive(Default)]
pub(crate) struct Intake {
    buffer: Mutex<VecDeque<Waiting>>,
    /// Asked for and not here yet.
    coming: AtomicUsize,
    /// The mark of the last claim, if it brought less than it asked for.
    dry: Mutex<Option<WakeMark>>,
    /// A claim is over: there may be tasks, or room for another.
    over: Notify,
}

/// Tasks that are on their way here; counted until dropped, which tells that the claim is over.
pub(crate) struct Coming<'a> {
    intake: &'a Intake,
    count: usize,
}

impl Intake {
    /// Takes what a claim has brought, be it nothing. Whoever is told of it finds it counted once.
    pub(crate) fn push(&self, arrived: impl Iterator<Item = Waiting>, coming: Coming<'_>) {
        self.buffer.lock().extend(arrived);
        drop(coming);
    }

    pub(crate) fn pop(&self) -> Option<Waiting> {
        self.buffer.lock().pop_front()
    }

    /// Puts back what could not start.
    pub(crate) fn unpop(&self, waiting: Waiting) {
        self.buffer.lock().push_front(waiting);
    }

    /// Here or on the way.
    pub(crate) fn waiting(&self) -> usize {
        self.buffer.lock().len() + self.coming.load(Ordering::SeqCst)
    }

    /// Announces a claim of so many tasks.
    pub(crate) fn expect(&self, count: usize) -> Coming<'_> {
        self.coming.fetch_add(count, Ordering::SeqCst);
        Coming { intake: self, count }
    }

    /// Remembers whether a claim brought all that it asked for.
    pub(crate) fn note(&self, asked: usize, got: usize, mark: WakeMark) {
        *self.dry.lock() = (got < asked).then_some(mark);
    }

    /// The mark to wait from, when there is nothing to claim.
    pub(crate) fn dry(&self) -> Option<WakeMark> {
        *self.dry.lock()
    }

    /// There may be work again.
    pub(crate) fn refresh(&self) {
        *self.dry.lock() = None;
    }

    /// Ends when tasks have arrived, or a claim is over without any.
    pub(crate) async fn changed(&self) {
        self.over.notified().await;
    }

    /// Takes out everything that has waited longer than this.
    pub(crate) fn take_older(&self, than: Duration) -> Vec<Waiting> {
        let mut buffer = self.buffer.lock();
        let old = buffer.iter().take_while(|waiting| waiting.since.elapsed() >= than).count();
        buffer.drain(..old).collect()
    }
}

impl Coming<'_> {
    pub(crate) fn count(&self) -> usize {
        self.count
    }
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        self.intake.coming.fetch_sub(self.count, Ordering::SeqCst);
        // Only now: who looks sooner finds no room, and nobody would tell of it again.
        self.intake.over.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn whoever_is_told_that_a_claim_is_over_finds_room() {
        let intake = Intake::default();
        for is_answered in [true, false] {
            let coming = intake.expect(3);
            assert!(intake.changed().now_or_never().is_none() && intake.waiting() == 3);
            if is_answered {
                intake.push(std::iter::empty(), coming);
            } else {
                drop(coming);
            }
            assert!(intake.changed().now_or_never().is_some() && intake.waiting() == 0);
        }
    }
}
