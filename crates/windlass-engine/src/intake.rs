//! Tasks that were claimed and have not started: a small buffer between store and slots.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use windlass_core::store::{CLAIM_BYTES_MAX, WakeMark};
use windlass_core::{Claimed, Priority};

use crate::leases::Controls;
use crate::paused_queues::ReportNumber;
use crate::suspects::Pass;

/// A claimed task, what reaches into its run, and since when it waits.
pub(crate) struct Waiting {
    pub(crate) task: Claimed,
    pub(crate) controls: Arc<Controls>,
    pub(crate) since: Instant,
    /// The last report of paused queues before its claim was sent.
    pub(crate) claimed_after: ReportNumber,
    /// What a suspect needs to run.
    pub(crate) pass: Option<Pass>,
}

/// What waits, the next to start first.
#[derive(Default)]
struct Buffer {
    tasks: VecDeque<Waiting>,
    /// How many there are of each priority.
    counts: [usize; Priority::DESCENDING.len()],
    /// Of their payloads.
    bytes: usize,
}

#[derive(Default)]
pub(crate) struct Intake {
    buffer: Mutex<Buffer>,
    /// Asked for and not here yet.
    coming: AtomicUsize,
    /// The mark of the last claim, if it brought less than it asked for.
    dry: Mutex<Option<WakeMark>>,
    /// There may be tasks, room for another claim, or tasks that have to go back.
    change: Notify,
}

/// Tasks that are on their way here; counted until dropped, which tells that the claim is over.
pub(crate) struct Coming<'a> {
    intake: &'a Intake,
    count: usize,
}

impl Intake {
    /// Takes what a claim has brought, be it nothing. Whoever is told of it finds it counted once.
    pub(crate) fn push(&self, arrived: impl Iterator<Item = Waiting>, coming: Coming<'_>) {
        let mut buffer = self.buffer.lock();
        arrived.for_each(|waiting| buffer.add(waiting));
        drop(buffer);
        drop(coming);
    }

    pub(crate) fn pop(&self) -> Option<Waiting> {
        self.buffer.lock().take_first()
    }

    /// Puts back what could not start.
    pub(crate) fn unpop(&self, waiting: Waiting) {
        self.buffer.lock().put_first(waiting);
    }

    /// Here or on the way.
    pub(crate) fn waiting(&self) -> usize {
        self.buffer.lock().tasks.len() + self.coming.load(Ordering::SeqCst)
    }

    /// True when the payloads of what waits here take all the memory that they may.
    pub(crate) fn is_full(&self) -> bool {
        self.buffer.lock().bytes >= CLAIM_BYTES_MAX
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

    /// Ends when tasks have arrived, a claim is over without any, or tasks that wait have to go back.
    pub(crate) async fn changed(&self) {
        self.change.notified().await;
    }

    /// Has the processor look again: tasks that wait have to go back.
    pub(crate) fn wake(&self) {
        self.change.notify_one();
    }

    /// Takes out everything that has waited longer than this.
    pub(crate) fn take_older(&self, than: Duration) -> Vec<Waiting> {
        self.take_all(|waiting| waiting.since.elapsed() >= than)
    }

    /// Takes out everything that fulfils a condition.
    pub(crate) fn take_all(&self, is_wanted: impl Fn(&Waiting) -> bool) -> Vec<Waiting> {
        self.buffer.lock().take_all(is_wanted)
    }
}

impl Buffer {
    /// Puts a task in front of the less urgent ones of its queue, and behind all others.
    fn add(&mut self, waiting: Waiting) {
        let priority = waiting.task.priority;
        self.count(&waiting);
        let is_any_less = self.counts[..rank(priority)].iter().any(|count| *count > 0);
        let is_behind = |other: &Waiting| {
            other.task.priority < priority && other.task.queue == waiting.task.queue
        };
        let last = self.tasks.len();
        // Looked for only where there is one: most buffers hold one priority.
        let at = if is_any_less { self.tasks.iter().position(is_behind) } else { None };
        self.tasks.insert(at.unwrap_or(last), waiting);
    }

    fn take_first(&mut self) -> Option<Waiting> {
        let waiting = self.tasks.pop_front()?;
        self.counts[rank(waiting.task.priority)] -= 1;
        self.bytes -= waiting.task.payload.len();
        Some(waiting)
    }

    fn put_first(&mut self, waiting: Waiting) {
        self.count(&waiting);
        self.tasks.push_front(waiting);
    }

    fn count(&mut self, waiting: &Waiting) {
        self.counts[rank(waiting.task.priority)] += 1;
        self.bytes += waiting.task.payload.len();
    }

    fn take_all(&mut self, is_wanted: impl Fn(&Waiting) -> bool) -> Vec<Waiting> {
        if !self.tasks.iter().any(&is_wanted) {
            return Vec::new();
        }
        let all = std::mem::take(self).tasks;
        let (taken, kept): (Vec<_>, Vec<_>) = all.into_iter().partition(is_wanted);
        for waiting in kept {
            self.count(&waiting);
            self.tasks.push_back(waiting);
        }
        taken
    }
}

fn rank(priority: Priority) -> usize {
    usize::from(priority.as_number())
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        self.intake.coming.fetch_sub(self.count, Ordering::SeqCst);
        // Only now: who looks sooner finds no room, and nobody would tell of it again.
        self.intake.change.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use windlass_core::{Epoch, Kind, QueueName, Result, Spec, TaskId, Timestamp, WorkerId};

    use super::*;
    use crate::leases::Leases;

    fn waiting(queue: &str, priority: Priority) -> Result<Waiting> {
        let task = Claimed {
            id: TaskId::new("task"),
            epoch: Epoch(1),
            kind: Kind::new("kind")?,
            queue: QueueName::new(queue)?,
            priority,
            payload: Default::default(),
            attempts: 1,
            crashes: 0,
            spec: Spec {
                max_retries: 3,
                max_crashes: 3,
                timeout: Duration::from_secs(1),
                retention: Duration::from_secs(1),
                extras: Default::default(),
            },
            is_cancel_requested: false,
            created_at: Timestamp::default(),
            pending_at: Timestamp::default(),
            claimed_at: Timestamp::default(),
        };
        let controls = Leases::default().add(&task, &WorkerId::new("worker"), Instant::now());
        let claimed_after = ReportNumber::default();
        Ok(Waiting { task, controls, since: Instant::now(), claimed_after, pass: None })
    }

    #[test]
    fn an_urgent_task_starts_before_the_others_of_its_queue() -> Result<()> {
        let (low, high, critical) = (Priority::Low, Priority::High, Priority::Critical);
        let intake = Intake::default();
        let arrived =
            [("a", low), ("b", low), ("a", high), ("b", high), ("a", critical), ("a", high)];
        let arrived: Result<Vec<_>> =
            arrived.into_iter().map(|(queue, priority)| waiting(queue, priority)).collect();
        intake.push(arrived?.into_iter(), intake.expect(6));
        let order = std::iter::from_fn(|| intake.pop());
        let order: Vec<_> =
            order.map(|one| (one.task.queue.to_string(), one.task.priority)).collect();
        let wanted =
            [("a", critical), ("a", high), ("a", high), ("a", low), ("b", high), ("b", low)];
        assert_eq!(order, wanted.map(|(queue, priority)| (queue.to_owned(), priority)));
        Ok(())
    }

    #[test]
    fn payloads_that_wait_are_bounded() -> Result<()> {
        let intake = Intake::default();
        let heavy = || -> Result<Waiting> {
            let mut waiting = waiting("a", Priority::Normal)?;
            waiting.task.payload = vec![0; CLAIM_BYTES_MAX / 2].into();
            Ok(waiting)
        };
        intake.push([heavy()?].into_iter(), intake.expect(1));
        assert!(!intake.is_full());
        intake.push([heavy()?].into_iter(), intake.expect(1));
        assert!(intake.is_full());
        let first = intake.pop().expect("two wait");
        assert!(!intake.is_full());
        intake.unpop(first);
        assert!(intake.is_full());
        assert_eq!(intake.take_older(Duration::ZERO).len(), 2);
        assert!(!intake.is_full());
        Ok(())
    }

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
