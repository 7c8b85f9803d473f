//! Wake-ups inside one process: workers that wait for work, callers that wait for a task's end.
//!
//! Nothing is written for a wake-up. A claim carries away a mark, the number of rings so far; a wait
//! that brings the mark back ends at once when its queues have rung since, so a ring between the
//! two is never missed.

use std::collections::HashMap;
use std::future::Future;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use windlass_core::store::{WaitParams, Wake, WakeMark};
use windlass_core::{QueueName, Result, TaskId};

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

    /// Tells that work may be there in these queues.
    pub(crate) fn ring<'a>(&self, queues: impl IntoIterator<Item = &'a QueueName>) {
        let mut rings = self.rings.lock();
        rings.count += 1;
        let count = rings.count;
        for queue in queues {
            match rings.queues.get_mut(queue) {
                Some(last) => *last = count,
                None => {
                    rings.queues.insert(queue.clone(), count);
                }
            }
        }
        self.notify(&rings);
    }

    /// Tells that anything may have happened: another process has written.
    #[cfg_attr(not(feature = "sqlite"), expect(dead_code, reason = "only shared stores need it"))]
    pub(crate) fn ring_all(&self) {
        let mut rings = self.rings.lock();
        rings.count += 1;
        rings.all = rings.count;
        self.notify(&rings);
    }

    /// Tells that these tasks are finished or gone. Costs nothing while nobody waits for a task.
    pub(crate) fn finished<'a>(&self, tasks: impl IntoIterator<Item = &'a TaskId>) {
        let mut rings = self.rings.lock();
        if rings.watched.is_empty() {
            return;
        }
        rings.count += 1;
        let count = rings.count;
        for task in tasks {
            if let Some(watched) = rings.watched.get_mut(task) {
                watched.finished = count;
            }
        }
        self.notify(&rings);
    }

    /// True while someone waits; a store need not look for other processes' writes otherwise.
    #[cfg_attr(not(feature = "sqlite"), expect(dead_code, reason = "only shared stores need it"))]
    pub(crate) fn is_awaited(&self) -> bool {
        self.rings.lock().waiting > 0
    }

    /// Waits as [`windlass_core::Store::wait`] promises. `ended` reads which of the tasks are
    /// finished or gone by now.
    pub(crate) async fn wait<F, R>(&self, params: WaitParams, ended: F) -> Result<Wake>
    where
        F: Fn(Vec<TaskId>) -> R,
        R: Future<Output = Result<Vec<TaskId>>>,
    {
        if params.since.is_none() && !params.queues.is_empty() {
            return Ok(Wake::Work);
        }
        let deadline = Instant::now() + params.at_most;
        // Watch before looking: an end between the two would be waited for in vain.
        let watch = Watch::new(self, params.tasks);
        let mut seen_all = self.mark().0;
        let done = watch.ended(&ended).await?;
        if !done.is_empty() {
            return Ok(Wake::Finished(done));
        }
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let (work, finished, all) = self.look(&params.queues, params.since, &watch.tasks);
            if work {
                return Ok(Wake::Work);
            }
            if !finished.is_empty() {
                return Ok(Wake::Finished(finished));
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

    /// Whether one of the queues has rung since the mark, which of the tasks are known to have
    /// ended, and the last ring for everybody.
    fn look(
        &self,
        queues: &[QueueName],
        since: Option<WakeMark>,
        tasks: &[TaskId],
    ) -> (bool, Vec<TaskId>, u64) {
        let rings = self.rings.lock();
        let since = since.map_or(0, |mark| mark.0);
        let has_rung = |queue| rings.queues.get(queue).is_some_and(|last| *last > since);
        let work = !queues.is_empty() && (rings.all > since || queues.iter().any(has_rung));
        let has_ended =
            |task: &&TaskId| rings.watched.get(*task).is_some_and(|watched| watched.finished > 0);
        (work, tasks.iter().filter(has_ended).cloned().collect(), rings.all)
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
}

impl<'a> Watch<'a> {
    fn new(wakes: &'a Wakes, tasks: Vec<TaskId>) -> Self {
        let mut rings = wakes.rings.lock();
        rings.waiting += 1;
        for task in &tasks {
            rings.watched.entry(task.clone()).or_default().waiting += 1;
        }
        drop(rings);
        (wakes.on_wait)();
        Self { wakes, tasks }
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
