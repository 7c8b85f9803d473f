//! Live events: what happens to tasks, queues and workers, told as it happens to whoever listens, here or in
//! other processes.
//!
//! Everything that happens passes through the store ([`crate::metrics::Watched`]), and there it is told
//! (`happening.rs` for tasks, `other.rs` and `beaten.rs` for queues and workers), a batch at a time, and only
//! while someone listens. Who listens here hears it from the hub (`hub.rs`, `keeper.rs`, `board.rs`); other processes
//! are told by the publisher (`publisher.rs`), if one of them has said that someone listens there (`audience.rs`).

mod audience;
mod beaten;
mod board;
mod depths;
mod filter;
mod happening;
mod hub;
mod keeper;
mod known;
mod order;
mod other;
mod packet;
mod publisher;
#[cfg(test)]
mod testing;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;
use windlass_core::event::EventTask;
use windlass_core::store::{
    Action, Applied, ApplyParams, Beat, ChangeParams, ChangeReply, GetParams, Inserted, Order,
    Orders, Parts, ProgressReport, Target,
};
use windlass_core::{
    Claimed, ErrorKind, NewTask, Result, State, Store, SystemClock, TaskId, TaskRecord, Transition,
    WorkerId,
};

use beaten::{Beaten, Beating};
pub use board::Told;
pub use filter::{EventFilter, Reach};
use happening::TaskEvent;
use hub::Hub;
pub use hub::Listener;
use other::OtherEvent;
use packet::News;
use publisher::Publisher;

use crate::identity::fresh_id;
use crate::store_clock::StoreClock;

/// How long somebody waits at most until what happened is told.
const TOLD_WITHIN: Duration = Duration::from_secs(1);

/// The live events of one client and of all that works through it. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Live {
    inner: Arc<Inner>,
    /// Where work is done for calls that come from a runtime which may end soon.
    home: Option<Handle>,
}

struct Inner {
    store: Arc<dyn Store>,
    clock: Arc<StoreClock>,
    hub: Arc<Hub>,
    publisher: Arc<Publisher>,
    beaten: Mutex<Beaten>,
    /// How many looks at the store are under way for what is to be told.
    errands: watch::Sender<usize>,
}

/// One of the looks at the store that are under way.
struct Errand(Arc<Inner>);

/// Ends of runs on their way into the store.
pub(crate) struct Ends {
    worker: WorkerId,
    runs: Vec<Transition>,
}

/// A change on its way into the store.
pub(crate) struct Change {
    action: Action,
    /// None where it is for whatever matches.
    ids: Option<Vec<TaskId>>,
}

impl Live {
    pub(crate) fn of(store: &Arc<dyn Store>) -> Self {
        let (origin, clock) =
            (fresh_id().to_string(), Arc::new(StoreClock::new(Arc::new(SystemClock))));
        let hub = Arc::new(Hub::new(store.clone(), origin.clone(), clock.clone()));
        let publisher = Publisher::new(store.clone(), origin, hub.clone());
        let inner = Inner {
            store: store.clone(),
            clock,
            hub,
            publisher: Arc::new(publisher),
            beaten: Mutex::default(),
            errands: watch::Sender::default(),
        };
        Self { inner: Arc::new(inner), home: None }
    }

    /// The same, for calls on a runtime that ends before this one.
    pub(crate) fn at_home(&self) -> Self {
        Self { home: Handle::try_current().ok(), ..self.clone() }
    }

    pub(crate) async fn listen(
        &self,
        filter: EventFilter,
        since: Option<&str>,
    ) -> Result<Listener> {
        self.inner.hub.listen(filter, since).await
    }

    /// False when it is known that nobody listens anywhere.
    fn may_be_wanted(&self) -> bool {
        self.inner.hub.is_active() || self.inner.publisher.may_be_wanted()
    }

    fn tell(&self, events: Vec<TaskEvent>) {
        if !events.is_empty() {
            self.say(News::of_tasks(events));
        }
    }

    fn say(&self, news: News) {
        let Inner { hub, publisher, .. } = &*self.inner;
        let home = self.handle().filter(|_| publisher.may_be_wanted());
        match (hub.is_active(), home) {
            (true, Some(home)) => {
                hub.push(news.clone());
                publisher.push(&home, news);
            }
            (true, None) => hub.push(news),
            (false, Some(home)) => publisher.push(&home, news),
            (false, None) => {}
        }
    }

    /// Tells of queues and workers: through the store also to those who listen here, so that all hear the same order.
    fn tell_others(&self, others: Vec<OtherEvent>) {
        let Inner { hub, publisher, .. } = &*self.inner;
        if others.is_empty() || !self.may_be_wanted() {
            return;
        }
        match self.handle().filter(|_| publisher.is_able()) {
            Some(home) => publisher.push(&home, News::of_others(others)),
            None if hub.is_active() => hub.push(News::of_others(others)),
            None => {}
        }
    }

    /// Waits until all that happened so far is told elsewhere, a second at most.
    pub(crate) async fn all_told(&self) {
        let mut errands = self.inner.errands.subscribe();
        let told = async {
            let _ = errands.wait_for(|count| *count == 0).await;
            self.inner.publisher.all_told().await;
        };
        let _ = tokio::time::timeout(TOLD_WITHIN, told).await;
    }

    fn handle(&self) -> Option<Handle> {
        self.home.clone().or_else(|| Handle::try_current().ok())
    }

    /// Something happened that no event tells.
    fn gap(&self) {
        if self.may_be_wanted() {
            self.say(News::GAP);
        }
    }

    /// Something happened that only the figures show.
    fn look(&self) {
        if self.may_be_wanted() {
            self.say(News::LOOK);
        }
    }

    /// What will be told of tasks that are about to be inserted.
    pub(crate) fn inserting(&self, tasks: &[NewTask]) -> Option<Vec<EventTask>> {
        self.may_be_wanted().then(|| tasks.iter().map(happening::submitting).collect())
    }

    pub(crate) fn inserted(&self, tasks: Option<Vec<EventTask>>, told: &[Inserted]) {
        if let Some(tasks) = tasks {
            self.tell(happening::submitted(tasks, told, self.inner.clock.now()));
        }
    }

    pub(crate) fn claimed(&self, worker: &WorkerId, tasks: &[Claimed]) {
        let Some(last) = tasks.last().filter(|_| self.may_be_wanted()) else { return };
        self.inner.clock.hear(last.claimed_at);
        self.tell(happening::started(worker, tasks));
    }

    /// What will be told of runs whose end is about to be applied.
    pub(crate) fn applying(&self, params: &ApplyParams) -> Option<Ends> {
        let (worker, runs) = (&params.worker, &params.transitions);
        self.may_be_wanted().then(|| Ends { worker: worker.clone(), runs: runs.clone() })
    }

    pub(crate) fn applied(&self, ends: Option<Ends>, outcomes: &[Applied]) {
        if let Some(Ends { worker, runs }) = ends {
            self.tell(happening::ended(&worker, &runs, outcomes, self.inner.clock.now()));
        }
    }

    /// Runs whose end was stored without anyone here hearing of it: told as they were reported.
    pub(crate) fn ended_unheard(&self, worker: &WorkerId, reported: &[&Transition]) {
        if reported.is_empty() || !self.may_be_wanted() {
            return;
        }
        let runs: Vec<_> = reported.iter().map(|run| (*run).clone()).collect();
        let outcomes: Vec<_> = runs.iter().map(|run| Applied::Applied(run.next.state)).collect();
        self.tell(happening::ended(worker, &runs, &outcomes, self.inner.clock.now()));
    }

    /// What will be told of a beat.
    pub(crate) fn beating(&self, beat: &Beat) -> Beating {
        let is_wanted = !beat.progress.is_empty() && self.may_be_wanted();
        Beating::of(beat, if is_wanted { beat.progress.clone() } else { Vec::new() })
    }

    pub(crate) fn beaten(&self, beating: Beating, orders: &Orders) {
        self.inner.clock.hear(orders.now);
        let events = self.inner.beaten.lock().beaten(&beating, orders);
        self.tell_others(events);
        if !orders.given_back.is_empty() {
            self.gap();
        }
        let progress = beating.progress;
        if !progress.is_empty() {
            let live = self.clone();
            self.spawn(async move { live.tell_progress(progress).await });
        }
    }

    /// A worker has left. Its process may end now: that is told first.
    pub(crate) async fn left(&self, worker: &WorkerId, released: u64) {
        let event = self.inner.beaten.lock().left(worker, self.inner.clock.now());
        if !self.may_be_wanted() {
            return;
        }
        match event {
            Some(event) => self.tell_others(vec![event]),
            None => self.look(),
        }
        if released > 0 {
            self.gap();
        }
        self.all_told().await;
    }

    /// What will be told of an order.
    pub(crate) fn ordering(&self, order: &Order) -> Option<OtherEvent> {
        other::ordering(order, self.inner.clock.now()).filter(|_| self.may_be_wanted())
    }

    /// An order was given, or not. Whoever gave it hears so after it was told: what they order next, wherever, is
    /// told after it.
    pub(crate) async fn ordered(&self, event: Option<OtherEvent>, given: &Result<()>) {
        let Some(event) = event else { return };
        match given {
            Ok(()) => self.tell_others(vec![event]),
            // Whether it was given, nobody knows.
            Err(error) if error.kind() == ErrorKind::Unavailable => self.gap(),
            Err(_) => return,
        }
        self.all_told().await;
    }

    /// Tasks were taken back from lost workers.
    pub(crate) fn expired(&self, count: u64) {
        if count > 0 {
            self.gap();
            self.look();
        }
    }

    /// What will be told of a change.
    pub(crate) fn changing(&self, params: &ChangeParams) -> Option<Change> {
        if params.action == Action::Delete || !self.may_be_wanted() {
            return None;
        }
        let ids = match &params.target {
            Target::Tasks(ids) => Some(ids.clone()),
            Target::Matching { .. } => None,
        };
        Some(Change { action: params.action, ids })
    }

    pub(crate) fn changed(&self, change: Option<Change>, reply: &ChangeReply) {
        let Some(Change { action, ids }) = change else { return };
        let Some(ids) = ids else {
            // Which ones, the store does not say.
            if reply.changed_count > reply.requested_count {
                self.gap();
            }
            return;
        };
        let done = happening::changed(&ids, &reply.outcomes);
        if !done.is_empty() {
            let live = self.clone();
            self.spawn(async move { live.tell_changes(action, done).await });
        }
    }

    async fn tell_changes(&self, action: Action, done: Vec<(TaskId, State)>) {
        let ids = done.iter().map(|(id, _)| id.clone()).collect();
        let Some(records) = self.records(ids).await else { return };
        let event = |((_, state), record): (&(TaskId, State), &Option<_>)| {
            record.as_ref().and_then(|record| happening::change(action, *state, record))
        };
        self.tell(done.iter().zip(&records).filter_map(event).collect());
    }

    async fn tell_progress(&self, reports: Vec<ProgressReport>) {
        let ids = reports.iter().map(|report| report.lease.task.clone()).collect();
        let Some(records) = self.records(ids).await else { return };
        let now = self.inner.clock.now();
        let event = |(report, record): (&ProgressReport, &Option<_>)| {
            record.as_ref().and_then(|record| happening::progress(report, record, now))
        };
        self.tell(reports.iter().zip(&records).filter_map(event).collect());
    }

    /// The records of tasks of which only the ids are known; a gap when they cannot be read.
    async fn records(&self, ids: Vec<TaskId>) -> Option<Vec<Option<TaskRecord>>> {
        match self.inner.store.get(GetParams { ids, parts: Parts::NONE }).await {
            Ok(records) => Some(records),
            Err(error) => {
                tracing::debug!(error = error.chain(), "cannot read what was changed");
                self.gap();
                None
            }
        }
    }

    /// Does what takes a look at the store, on nobody's way.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Some(home) = self.handle() {
            let errand = Errand::begin(&self.inner);
            home.spawn(async move {
                work.await;
                drop(errand);
            });
        }
    }
}

impl Errand {
    fn begin(inner: &Arc<Inner>) -> Self {
        inner.errands.send_modify(|count| *count += 1);
        Self(Arc::clone(inner))
    }
}

impl Drop for Errand {
    fn drop(&mut self) {
        self.0.errands.send_modify(|count| *count -= 1);
    }
}
