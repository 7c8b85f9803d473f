//! Wake-ups inside one process: workers that wait for work, callers that wait for a task's end.
//!
//! Nothing is written for a wake-up. A claim carries away a mark, the number of rings so far; a wait
//! that brings the mark back ends at once when its queues have rung since, so a ring between the
//! two is never missed.

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use windlass_core::store::{WaitParams, Wake, WakeMark};
use windlass_core::{QueueName, Result, TaskId, WorkerId};

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
    queues: HashMap<QueueName, u64>,
    /// The last ring for each worker that was given orders.
    orders: HashMap<WorkerId, u64>,
    /// The last ring that was for everybody.
    all: u64,
    /// Tasks that someone waits for: how many wait, and the ring that told of its end.
    watched: HashMap<TaskId, Watched>,
    /// How many waits are under way.
    waiting: usize,
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
        if news.ready.is_empty() && news.ordered.is_empty() && !is_end_awaited {
            return;
        }
        rings.count += 1;
        let count = rings.count;
        for queue in news.ready {
            rings.queues.insert(queue, count);
        }
        for worker in news.ordered {
            rings.orders.insert(worker, count);
        }
        for task in &news.ended {
            if let Some(watched) = rings.watched.get_mut(task) {
                watched.finished = count;
            }
        }
        self.notify(&rings);
    }

    /// Tells that anything may have happened: another process has written.
    #[cfg_attr(
        not(any(feature = "sqlite", feature = "postgres")),
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
        let has_work = |queue| rings.queues.get(queue).is_some_and(|last| *last > since);
        let has_orders = |worker| rings.orders.get(worker).is_some_and(|last| *last > since);
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
