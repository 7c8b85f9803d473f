//! Wake-ups inside one process: workers that wait for work, callers that wait for a task's end.
//!
//! Nothing is written for a wake-up. A claim carries away a mark, the number of rings so far; a wait
//! that brings the mark back ends at once when its queues have rung since, so a ring between the
//! two is never missed.

use std::collections::HashMap;
use std::future::Future;
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use windlass_core::store::{WaitParams, Wake, WakeMark};
use windlass_core::{QueueName, Result, TaskId, WorkerId};

/// Most queues, and most workers, of which the last ring is known each by itself.
const KNOWN_MAX: usize = 1_000;

/// As good as for ever.
const A_YEAR: Duration = Duration::from_secs(365 * 86_400);

/// What a change has to tell after its commit.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Queues that may have work.
    pub(crate) ready: Vec<QueueName>,
    /// Tasks that are finished or gone.
    pub(crate) ended: Vec<TaskId>,
    /// Workers that may have orders.
    pub(crate) ordered: Vec<WorkerId>,
    /// Queues that were paused: every worker that serves one of them may have orders.
    pub(crate) paused: Vec<QueueName>,
}

pub(crate) struct Wakes {
    rings: Mutex<Rings>,
    changed: Notify,
    /// Called when a wait begins; a shared store then looks out for other processes.
    on_wait: Box<dyn Fn() + Send + Sync>,
}

#[derive(Debug, Default)]
struct Rings {
    /// Grows with every ring.
    count: u64,
    /// The last ring of each queue.
    queues: LastRings<QueueName>,
    /// The last ring for each worker that was given orders.
    orders: LastRings<WorkerId>,
    /// The last pause of each queue.
    pauses: LastRings<QueueName>,
    /// The last pause of any queue. A wait compares this first: most waits have seen no pause at all, and a worker
    /// may serve 1,000 queues.
    last_pause: u64,
    /// The last ring that was for everybody.
    all: u64,
    /// Tasks that someone waits for: how many wait, and the ring that told of its end.
    watched: HashMap<TaskId, Watched>,
    /// How many waits are under way.
    waiting: usize,
}

/// The last ring for each of some keys. Of those that have rung least lately only a bound is known: who waits since
/// before it is woken once in vain.
#[derive(Debug)]
struct LastRings<K> {
    known: HashMap<K, u64>,
    /// The last ring of a key that is not known was no later.
    others: u64,
}

impl<K> Default for LastRings<K> {
    fn default() -> Self {
        Self { known: HashMap::new(), others: 0 }
    }
}

impl<K: Eq + Hash> LastRings<K> {
    fn note(&mut self, key: K, count: u64) {
        self.known.insert(key, count);
        if self.known.len() > KNOWN_MAX {
            let mut rings: Vec<_> = self.known.values().copied().collect();
            let middle = rings.len() / 2;
            self.others = *rings.select_nth_unstable(middle).1;
            self.known.retain(|_, last| *last > self.others);
        }
    }

    /// True when a key may have rung since.
    fn has_rung(&self, key: &K, since: u64) -> bool {
        self.known.get(key).copied().unwrap_or(self.others) > since
    }
}

#[derive(Debug, Default)]
struct Watched {
    waiting: usize,
    finished: u64,
}

impl Wakes {
    pub(crate) fn new(on_wait: impl Fn() + Send + Sync + 'static) -> Self {
        let (rings, changed) = (Mutex::default(), Notify::new());
        Self { rings, changed, on_wait: Box::new(on_wait) }
    }

    /// The mark for a claim; take it before looking for tasks.
    pub(crate) fn mark(&self) -> WakeMark {
        WakeMark(self.rings.lock().count)
    }

    /// Tells what a change has brought. Ends of tasks cost nothing while nobody waits for one.
    pub(crate) fn tell(&self, news: News) {
        let mut rings = self.rings.lock();
        let is_end_awaited = !news.ended.is_empty() && !rings.watched.is_empty();
        let News { ready, ended, ordered, paused } = news;
        if ready.is_empty() && ordered.is_empty() && paused.is_empty() && !is_end_awaited {
            return;
        }
        rings.count += 1;
        let count = rings.count;
        for queue in ready {
            rings.queues.note(queue, count);
        }
        for worker in ordered {
            rings.orders.note(worker, count);
        }
        for queue in paused {
            rings.pauses.note(queue, count);
            rings.last_pause = count;
        }
        for task in &ended {
            if let Some(watched) = rings.watched.get_mut(task) {
                watched.finished = count;
            }
        }
        self.notify(&rings);
    }

    /// Tells that anything may have happened: another process has written.
    #[cfg_attr(
        not(any(feature = "sqlite", feature = "postgres", feature = "redis")),
        expect(dead_code, reason = "only shared stores need it")
    )]
    pub(crate) fn ring_all(&self) {
        let mut rings = self.rings.lock();
        rings.count += 1;
        rings.all = rings.count;
        self.notify(&rings);
    }

    /// True while someone waits; a store need not look for other processes' writes otherwise.
    #[cfg_attr(
        not(any(feature = "sqlite", feature = "redis")),
        expect(dead_code, reason = "only shared stores need it")
    )]
    pub(crate) fn is_awaited(&self) -> bool {
        self.rings.lock().waiting > 0
    }

    /// Waits as [`windlass_core::Store::wait`] promises. `ended` reads which of the tasks are
    /// finished or gone by now.
    pub(crate) async fn wait<F, R>(&self, mut params: WaitParams, ended: F) -> Result<Wake>
    where
        F: Fn(Vec<TaskId>) -> R,
        R: Future<Output = Result<Vec<TaskId>>>,
    {
        if params.since.is_none() && !params.queues.is_empty() {
            return Ok(Wake::Work);
        }
        if params.since.is_none() && params.orders.is_some() {
            return Ok(Wake::Orders);
        }
        let now = Instant::now();
        let deadline = now.checked_add(params.at_most).unwrap_or(now + A_YEAR);
        // Watch before looking: an end between the two would be waited for in vain.
        let watch = Watch::new(self, std::mem::take(&mut params.tasks));
        let mut seen_all = watch.since;
        let done = watch.ended(&ended).await?;
        if !done.is_empty() {
            return Ok(Wake::Finished(done));
        }
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let (wake, all) = self.look(&params, &watch);
            if let Some(wake) = wake {
                return Ok(wake);
            }
            if all > seen_all {
                seen_all = all;
                let done = watch.ended(&ended).await?;
                if !done.is_empty() {
                    return Ok(Wake::Finished(done));
                }
            }
            if tokio::time::timeout_at(deadline, changed).await.is_err() {
                return Ok(Wake::TimedOut);
            }
        }
    }

    /// What has rung since the mark, if anything, and the last ring for everybody.
    fn look(&self, params: &WaitParams, watch: &Watch<'_>) -> (Option<Wake>, u64) {
        let rings = self.rings.lock();
        let since = params.since.map_or(0, |mark| mark.0);
        let has_work = |queue| rings.queues.has_rung(queue, since);
        let is_paused = |queue| rings.pauses.has_rung(queue, since);
        let has_pauses = rings.last_pause > since && params.served_queues.iter().any(is_paused);
        let has_orders = |worker| has_pauses || rings.orders.has_rung(worker, since);
        // An end before this wait began may be the one before a rerun.
        let has_ended = |task: &&TaskId| {
            rings.watched.get(*task).is_some_and(|watched| watched.finished > watch.since)
        };
        let queues = &params.queues;
        let finished: Vec<_> = watch.tasks.iter().filter(has_ended).cloned().collect();
        let wake = if !queues.is_empty() && (rings.all > since || queues.iter().any(has_work)) {
            Some(Wake::Work)
        } else if !finished.is_empty() {
            Some(Wake::Finished(finished))
        } else if params.orders.as_ref().is_some_and(has_orders) {
            Some(Wake::Orders)
        } else {
            None
        };
        (wake, rings.all)
    }

    fn notify(&self, rings: &Rings) {
        if rings.waiting > 0 {
            self.changed.notify_waiters();
        }
    }
}

/// A wait under way; dropping it, as a caller that gives up does, leaves no trace.
struct Watch<'a> {
    wakes: &'a Wakes,
    tasks: Vec<TaskId>,
    /// The rings before it began.
    since: u64,
}

impl<'a> Watch<'a> {
    fn new(wakes: &'a Wakes, tasks: Vec<TaskId>) -> Self {
        let mut rings = wakes.rings.lock();
        rings.waiting += 1;
        for task in &tasks {
            rings.watched.entry(task.clone()).or_default().waiting += 1;
        }
        let since = rings.count;
        drop(rings);
        (wakes.on_wait)();
        Self { wakes, tasks, since }
    }

    async fn ended<F, R>(&self, ended: &F) -> Result<Vec<TaskId>>
    where
        F: Fn(Vec<TaskId>) -> R,
        R: Future<Output = Result<Vec<TaskId>>>,
    {
        if self.tasks.is_empty() {
            return Ok(Vec::new());
        }
        ended(self.tasks.clone()).await
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let mut rings = self.wakes.rings.lock();
        rings.waiting -= 1;
        for task in &self.tasks {
            if let Some(watched) = rings.watched.get_mut(task) {
                watched.waiting -= 1;
                if watched.waiting == 0 {
                    rings.watched.remove(task);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(wakes: &Wakes, number: usize) {
        let (queue, worker) = (queue(number), WorkerId::new(format!("worker-{number}")));
        wakes.tell(News { ready: vec![queue], ordered: vec![worker], ..News::default() });
    }

    fn queue(number: usize) -> QueueName {
        QueueName::stored(&format!("queue-{number}"))
    }

    async fn look(wakes: &Wakes, number: usize, since: WakeMark) -> Wake {
        let params = WaitParams {
            queues: vec![queue(number)],
            since: Some(since),
            at_most: Duration::ZERO,
            ..WaitParams::default()
        };
        wakes.wait(params, async |_| Ok(Vec::new())).await.unwrap()
    }

    #[tokio::test]
    async fn rings_of_many_queues_and_workers_are_known_in_bounded_space() {
        let wakes = Wakes::new(|| {});
        let start = wakes.mark();
        for number in 0..20_000 {
            ring(&wakes, number);
        }
        {
            let rings = wakes.rings.lock();
            assert!(rings.queues.known.len() <= KNOWN_MAX, "queues");
            assert!(rings.orders.known.len() <= KNOWN_MAX, "workers");
        }
        let end = wakes.mark();
        for number in [0, 10_000, 19_999] {
            assert_eq!(look(&wakes, number, start).await, Wake::Work, "{number} rang since");
            assert_eq!(look(&wakes, number, end).await, Wake::TimedOut, "{number} rang before");
        }
        ring(&wakes, 7);
        assert_eq!(look(&wakes, 7, end).await, Wake::Work, "it rang again");
        assert_eq!(look(&wakes, 8, end).await, Wake::TimedOut, "another one rang");
    }
}
