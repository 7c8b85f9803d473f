//! The way in: submits tasks, waits for them, and looks after them.

use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::time::Instant;
use windlass_core::config::Config;
use windlass_core::dice::Dice;
use windlass_core::json::is_same_json;
use windlass_core::store::{
    Action, ChangeParams, Changed, GetParams, HandledKinds, Inserted, Parts, Reservation, Target,
};
use windlass_core::{
    Claimed, Ending, Error, ErrorKind, NewTask, Reason, Result, Store, TaskId, TaskRecord, When,
};

use crate::batcher::Batcher;
use crate::foreign;
use crate::handle::Handle;
use crate::live::{EventFilter, Listener, Live};
use crate::metrics::{Metrics, Watched};
use crate::outage::{Outage, warn_unless_outage};
use crate::queue_handle::QueueHandle;
use crate::statistics::Statistics;
use crate::task::{Configure, Options, Task, encode};
use crate::task_query::TaskQuery;
use crate::trace;
use crate::worker::WorkerBuilder;
use crate::worker_directory::WorkerDirectory;

/// Most tasks that one insert carries.
const BATCH_MAX: usize = 1_000;
/// How long a submit asks again whether its key or name is free that is in someone's open transaction,
/// and how long after each other.
const UNDECIDED_MAX: Duration = Duration::from_secs(30);
const UNDECIDED_PAUSE: Duration = Duration::from_millis(100);
/// How often a submit is repeated, with the same ids, while the store is away.
const REPEATS_MAX: u32 = 3;

/// Submits tasks to a store and looks after them. Cheap to clone; clones share their batches.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn Store>,
    /// The same, with its calls counted and told.
    watched: Arc<dyn Store>,
    metrics: Metrics,
    statistics: Statistics,
    live: Live,
    outage: Arc<Outage>,
    config: Config,
    /// Apart, since a keyed task may have to wait for another's key and must not hold plain ones up.
    plain: Batcher<NewTask, Answer>,
    keyed: Batcher<NewTask, Answer>,
    glances: Batcher<TaskId, Option<TaskRecord>>,
    directory: WorkerDirectory,
}

/// A task with its id, and what the store said to it.
struct Answer {
    task: NewTask,
    told: Inserted,
}

impl Client {
    /// A client of this store, with the default settings.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self::with_config(store, Config::default())
    }

    /// A client of this store with settings of its own; what they leave to the store is as it has it.
    pub fn with_config(store: Arc<dyn Store>, mut config: Config) -> Self {
        config.task.retention.get_or_insert_with(|| store.profile().retention_default);
        let statistics = Statistics::new(&store, config.statistics.enabled);
        let metrics = Metrics::new(&store, statistics.clone());
        let live = Live::of(&store);
        let outage = Arc::<Outage>::default();
        let (counted, events) = (metrics.clone(), live.clone());
        let watched =
            Watched::around(Arc::clone(&store), counted, events, Arc::clone(&outage), None);
        let batcher = || {
            let (reserving, inserting) = (Arc::clone(&watched), Arc::clone(&watched));
            Batcher::preparing(
                BATCH_MAX,
                move |tasks| reserve(Arc::clone(&reserving), tasks),
                move |tasks| submit(Arc::clone(&inserting), tasks),
            )
        };
        let (plain, keyed) = (batcher(), batcher());
        let glanced = Arc::clone(&watched);
        let glances = Batcher::new(BATCH_MAX, move |ids| {
            let store = Arc::clone(&glanced);
            async move { store.get(GetParams { ids, parts: Parts::NONE }).await }
        });
        let directory = WorkerDirectory::new(Arc::clone(&watched));
        let inner = Inner {
            store,
            watched,
            metrics,
            statistics,
            live,
            outage,
            config,
            plain,
            keyed,
            glances,
            directory,
        };
        Self { inner: Arc::new(inner) }
    }

    /// What this client, its clones and all that works through them have done, and how the store stands,
    /// for Prometheus.
    pub fn metrics(&self) -> &Metrics {
        &self.inner.metrics
    }

    /// What this client and all others of the store have done, minute by minute, kept in the store.
    pub fn statistics(&self) -> &Statistics {
        &self.inner.statistics
    }

    /// Listens to live events, of this process and of all others on the store; after the event of an id, or from
    /// now on. The first to listen waits for a second, so that from then on nothing is missed anywhere; a
    /// PostgreSQL store behind a pooler tells only of this process.
    pub async fn listen(&self, filter: EventFilter, since: Option<&str>) -> Result<Listener> {
        self.inner.live.listen(filter, since).await
    }

    /// Waits until what happened through this client is told to those who listen in other processes, for a second at
    /// most. A program that ends right after a submit or a change calls this before; workers, and orders to
    /// queues, do it by themselves.
    pub async fn all_told(&self) {
        self.inner.live.all_told().await;
    }

    /// How claimed tasks end that their worker does not handle, in the given order.
    #[doc(hidden)]
    pub async fn foreign_endings(&self, tasks: &[&Claimed]) -> Vec<Ending> {
        foreign::endings(self, tasks).await
    }

    pub(crate) fn directory(&self) -> &WorkerDirectory {
        &self.inner.directory
    }

    pub(crate) fn live(&self) -> &Live {
        &self.inner.live
    }

    /// Submits a task: `.await` it, or set options first.
    pub fn enqueue<T: Task>(&self, task: T) -> Enqueue<T> {
        let payload = encode("the payload", &task);
        Enqueue { client: self.clone(), payload, options: T::defaults(), task: PhantomData }
    }

    /// Submits many tasks of one kind with the options of their kind; answers each, in order.
    pub async fn enqueue_all<T: Task>(
        &self,
        tasks: impl IntoIterator<Item = T>,
    ) -> Result<Vec<Result<Handle<T>>>> {
        let prepare = |task: T| {
            let payload = encode("the payload", &task)?;
            T::defaults().into_task(T::KIND, payload, &self.inner.config)
        };
        let tasks = tasks.into_iter().map(prepare).collect::<Result<Vec<_>>>()?;
        let handle = |stored: Result<(NewTask, Inserted)>| {
            let (id, is_new) = stored.and_then(|(task, told)| accept(task.id, told))?;
            Ok(Handle::new(self.clone(), id, is_new))
        };
        Ok(self.insert_all(tasks).await.into_iter().map(handle).collect())
    }

    /// Submits tasks that [`Options::into_task`] made, and answers each, in order, with what the store said: the
    /// task as it was sent, with the id that was reserved for it and the trace context that it carries.
    ///
    /// They become pending in the order given, except that those with a key may come before or
    /// after those without. All of them go their way also when the caller stops waiting.
    pub async fn insert_all(&self, mut tasks: Vec<NewTask>) -> Vec<Result<(NewTask, Inserted)>> {
        let sending = trace::Sending::begin(&mut tasks);
        let keyed_marks: Vec<_> = tasks.iter().map(is_keyed).collect();
        let (keyed, plain): (Vec<_>, _) = tasks.into_iter().partition(is_keyed);
        let mut keyed = self.inner.keyed.send_all(keyed).into_iter();
        let mut plain = self.inner.plain.send_all(plain).into_iter();
        let mut answers = Vec::with_capacity(keyed_marks.len());
        for is_keyed in keyed_marks {
            let answer = if is_keyed { keyed.next() } else { plain.next() };
            let answer = answer.expect("each task has one answer");
            let answer = answer.await.unwrap_or_else(|_| Err(runtime_ended()));
            answers.push(self.settle(answer));
        }
        let answers = join_all(answers).await;
        sending.end(&answers);
        answers
    }

    /// Sends a task by itself that was not decided with its batch, since a key or a name of it is in
    /// someone's open transaction, until it is: only who wants that waits for the end of that transaction.
    async fn settle(&self, answer: Result<Answer>) -> Result<(NewTask, Inserted)> {
        let Answer { task, mut told } = answer?;
        let (started, mut dice) = (Instant::now(), Dice::thrown());
        while is_undecided(&told) && started.elapsed() < UNDECIDED_MAX {
            tokio::time::sleep(UNDECIDED_PAUSE.mul_f64(0.5 + dice.unit())).await;
            let answers = self.inner.watched.insert(vec![task.clone()]).await?;
            let answer = answers.into_iter().next();
            told = answer.ok_or_else(|| Error::internal("an insert without an answer"))?;
        }
        if let Inserted::Existing { id, is_same_request: false } = &told
            && self.is_same_request(&task, id).await?
        {
            told = Inserted::Existing { id: id.clone(), is_same_request: true };
        }
        Ok((task, told))
    }

    /// Compares a task with the first one under its idempotency key. Stores compare payloads byte by byte, but a client
    /// that writes the same JSON in another way means the same request.
    async fn is_same_request(&self, task: &NewTask, first: &TaskId) -> Result<bool> {
        let parts = Parts { payload: true, ..Parts::NONE };
        let params = GetParams { ids: vec![first.clone()], parts };
        let first = self.inner.watched.get(params).await?.pop().flatten();
        Ok(first.is_some_and(|first| {
            first.kind == task.kind
                && first.queue == task.queue
                && is_same_json(&first.payload, &task.payload)
        }))
    }

    /// Submits a task of any kind by name; for callers that have no type for it.
    pub async fn enqueue_raw(
        &self,
        kind: &str,
        payload: Bytes,
        options: Options,
    ) -> Result<(TaskId, bool)> {
        let mut task = options.into_task(kind, payload, &self.inner.config)?;
        let sending = trace::Sending::begin(std::slice::from_mut(&mut task));
        let batcher = if is_keyed(&task) { &self.inner.keyed } else { &self.inner.plain };
        let answer = self.settle(batcher.send(task).await).await;
        sending.end(std::slice::from_ref(&answer));
        let (task, told) = answer?;
        accept(task.id, told)
    }

    /// A worker that will run tasks from this client's store.
    pub fn worker(&self) -> WorkerBuilder<()> {
        WorkerBuilder::new(self.clone(), ())
    }

    /// A task that was submitted elsewhere or before, by its id; whether there is one shows in use.
    pub fn handle<T: Task>(&self, id: TaskId) -> Handle<T> {
        Handle::new(self.clone(), id, false)
    }

    /// Everything that is kept of a task; `None` when there is no such task (any more).
    pub async fn get(&self, id: &TaskId) -> Result<Option<TaskRecord>> {
        let params = GetParams { ids: vec![id.clone()], parts: Parts::ALL };
        Ok(self.inner.watched.get(params).await?.pop().flatten())
    }

    /// Reads a task without its payload, result and history; many at the same time share a trip.
    pub async fn glance(&self, id: &TaskId) -> Result<Option<TaskRecord>> {
        self.inner.glances.send(id.clone()).await
    }

    /// Calls a task off: at once when it waits, else when its run ends.
    pub async fn cancel(&self, id: &TaskId) -> Result<Changed> {
        self.change(id, Action::Cancel).await
    }

    /// Runs a finished task again, or a waiting one now.
    pub async fn rerun(&self, id: &TaskId) -> Result<Changed> {
        self.change(id, Action::Rerun).await
    }

    /// Moves a waiting task to another time.
    pub async fn reschedule(&self, id: &TaskId, when: When) -> Result<Changed> {
        self.change(id, Action::Reschedule(when)).await
    }

    /// Removes a task that does not run.
    pub async fn delete(&self, id: &TaskId) -> Result<Changed> {
        self.change(id, Action::Delete).await
    }

    /// A queue, to pause, resume or purge it.
    pub fn queue(&self, name: &str) -> QueueHandle {
        QueueHandle::new(self.clone(), name)
    }

    /// All tasks, to be narrowed down and then read or changed.
    pub fn tasks(&self) -> TaskQuery {
        TaskQuery::new(self.clone())
    }

    /// The store behind this client, as it was given.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.store
    }

    /// The same store for those who work with tasks through it: what they do is counted in
    /// [`Client::metrics`], and told to those who listen.
    pub fn watched(&self) -> &Arc<dyn Store> {
        &self.inner.watched
    }

    /// The same for a worker that handles these kinds. Foreign tasks that it claims and releases are neither counted nor
    /// published as events.
    #[doc(hidden)]
    pub fn watched_for(&self, kinds: Option<&HandledKinds>) -> Arc<dyn Store> {
        let Inner { store, watched, metrics, live, outage, .. } = &*self.inner;
        if kinds.is_none() {
            return Arc::clone(watched);
        }
        let (store, metrics, live) = (Arc::clone(store), metrics.clone(), live.clone());
        Watched::around(store, metrics, live, Arc::clone(outage), kinds.cloned())
    }

    /// The settings of this client.
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// What a submit by other means came to.
    #[doc(hidden)]
    pub fn accept<T: Task>(self, (id, inserted): (TaskId, Inserted)) -> Result<Handle<T>> {
        let (id, is_new) = accept(id, inserted)?;
        Ok(Handle::new(self, id, is_new))
    }

    /// Saves the statistics at the end of something. They are worth no waiting for a store that is away.
    pub(crate) async fn save_statistics(&self) {
        if let Err(error) = self.inner.statistics.save().await {
            tracing::warn!(error = error.chain(), "the last seconds of statistics are not saved");
        }
    }

    async fn change(&self, id: &TaskId, action: Action) -> Result<Changed> {
        let target = Target::Tasks(vec![id.clone()]);
        let params = ChangeParams { target, action, only_in: Vec::new(), by: None };
        let mut reply = self.inner.watched.change(params).await?;
        reply.outcomes.pop().ok_or_else(|| Error::internal("a change without an answer"))
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Client({})", self.inner.store.profile().name)
    }
}

/// A submit that is being prepared; `.await` sends it.
#[must_use = "a task is submitted by awaiting this"]
pub struct Enqueue<T> {
    client: Client,
    payload: Result<Bytes>,
    options: Options,
    task: PhantomData<fn() -> T>,
}

impl<T: Task> Enqueue<T> {
    /// The task, for those who submit it by other means than the client's, such as the caller's own
    /// transaction; [`Client::accept`] makes a handle of the answer.
    #[doc(hidden)]
    pub fn into_parts(self) -> Result<(Client, NewTask)> {
        let mut task = self.options.into_task(T::KIND, self.payload?, self.client.config())?;
        trace::inherit(&mut task);
        Ok((self.client, task))
    }
}

impl<T: Task> Configure for Enqueue<T> {
    fn options_mut(&mut self) -> &mut Options {
        &mut self.options
    }
}

impl<T: Task> IntoFuture for Enqueue<T> {
    type Output = Result<Handle<T>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (id, is_new) =
                self.client.enqueue_raw(T::KIND, self.payload?, self.options).await?;
            Ok(Handle::new(self.client, id, is_new))
        })
    }
}

/// True for a task with a key that another task may hold.
fn is_keyed(task: &NewTask) -> bool {
    task.idempotency_key.is_some() || task.unique.is_some()
}

/// True where nothing was decided and nothing stored, since someone's transaction is still open.
fn is_undecided(told: &Inserted) -> bool {
    match told {
        Inserted::Bad(error) => matches!(error.reason(), Reason::KeyBusy | Reason::NameBusy),
        Inserted::New { .. } | Inserted::Existing { .. } | Inserted::Conflict { .. } => false,
    }
}

/// Draws the ids of a batch, once: under them its insert can be repeated, whole or in halves.
async fn reserve(store: Arc<dyn Store>, mut tasks: Vec<NewTask>) -> (Vec<NewTask>, Result<()>) {
    let wanted = tasks.iter().map(|task| Reservation { queue: task.queue.clone(), count: 1 });
    let ids = match store.reserve(wanted.collect()).await {
        Ok(ids) if ids.len() == tasks.len() => ids,
        Ok(ids) => {
            let text = format!("{} ids for a batch of {}", ids.len(), tasks.len());
            return (tasks, Err(Error::corrupt(text)));
        }
        Err(error) => return (tasks, Err(error)),
    };
    for (task, id) in tasks.iter_mut().zip(ids) {
        task.id = id;
    }
    (tasks, Ok(()))
}

/// One batch, with its ids, on its way into the store.
async fn submit(store: Arc<dyn Store>, tasks: Vec<NewTask>) -> Result<Vec<Answer>> {
    let told = insert(&store, &tasks).await?;
    Ok(tasks.into_iter().zip(told).map(|(task, told)| Answer { task, told }).collect())
}

/// Inserts, again while the store is away: the ids make a repetition harmless.
async fn insert(store: &Arc<dyn Store>, tasks: &[NewTask]) -> Result<Vec<Inserted>> {
    let mut dice = Dice::thrown();
    for repeat in 0..REPEATS_MAX {
        match store.insert(tasks.to_vec()).await {
            Err(error) if error.is_unavailable() => {
                warn_unless_outage!(error, "submit will be repeated");
                let pause = f64::from(1 << repeat) * 0.1 * (1.0 + dice.unit());
                tokio::time::sleep(Duration::from_secs_f64(pause)).await;
            }
            answer => return answer,
        }
    }
    store.insert(tasks.to_vec()).await
}

/// The task that a submit came to, and whether it is new.
fn accept(id: TaskId, inserted: Inserted) -> Result<(TaskId, bool)> {
    match inserted {
        Inserted::New { .. } => Ok((id, true)),
        Inserted::Existing { id, is_same_request: true } => Ok((id, false)),
        Inserted::Existing { id, is_same_request: false } => {
            let text = format!("the idempotency key was used for a different task, {id}");
            Err(Error::invalid(text).reason_is(Reason::IdempotencyMismatch))
        }
        Inserted::Conflict { holder } => {
            let text = format!("the unique key is held by task {holder}");
            Err(Error::new(ErrorKind::Conflict, text).reason_is(Reason::UniqueKey))
        }
        Inserted::Bad(error) => Err(error),
    }
}

fn runtime_ended() -> Error {
    Error::new(ErrorKind::Unavailable, "the runtime ended before the submit was answered")
}

#[cfg(test)]
mod tests {
    use windlass_core::unique::{Hold, OnConflict, Unique};
    use windlass_testkit::fleet;

    use super::*;

    fn task(client: &Client, payload: &'static str, options: Options) -> NewTask {
        options.into_task("do", Bytes::from_static(payload.as_bytes()), client.config()).unwrap()
    }

    #[tokio::test]
    async fn tasks_with_and_without_keys_are_answered_in_order() {
        let client = Client::new(fleet::memory());
        let rule = |on_conflict| Unique { key: None, hold: Hold::UntilFinished, on_conflict };
        let answers = client
            .insert_all(vec![
                task(&client, "1", Options::new()),
                task(&client, "2", Options::new().unique_rule(rule(OnConflict::Reject))),
                task(&client, "3", Options::new()),
                task(&client, "2", Options::new().unique_rule(rule(OnConflict::Reject))),
                task(&client, "2", Options::new().unique_rule(rule(OnConflict::Return))),
            ])
            .await;
        let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
        for (at, payload) in [(0, "1"), (1, "2"), (2, "3")] {
            let (task, inserted) = &answers[at];
            assert!(inserted.is_new(), "{at}: {inserted:?}");
            assert_eq!(client.get(&task.id).await.unwrap().unwrap().payload, payload);
        }
        let first = &answers[1].0.id;
        assert!(matches!(&answers[3].1, Inserted::Conflict { holder } if holder == first));
        assert!(matches!(&answers[4].1, Inserted::Existing { id, .. } if id == first));
    }

    #[tokio::test]
    async fn same_json_in_another_form_is_the_same_request() {
        let client = Client::new(fleet::memory());
        let submit = |payload: &'static str, queue: &'static str| {
            let options = Options::new().idempotency_key("once").queue(queue);
            client.enqueue_raw("do", Bytes::from_static(payload.as_bytes()), options)
        };
        let (first, _) = submit(r#"{"a":1,"b":2}"#, "mail").await.unwrap();
        assert_eq!(submit(r#"{ "b": 2, "a": 1 }"#, "mail").await.unwrap(), (first, false));
        for (payload, queue) in [(r#"{"a":1,"b":3}"#, "mail"), (r#"{ "b": 2, "a": 1 }"#, "bulk")] {
            let error = submit(payload, queue).await.unwrap_err();
            assert_eq!(error.reason(), Reason::IdempotencyMismatch, "{payload} {queue}");
        }
    }
}
