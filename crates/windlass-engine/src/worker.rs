//! A worker: its builder, and the life of its roles from start to graceful end.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};
use windlass_core::store::{PrioritySet, RunOrder};
use windlass_core::{Claimed, Clock, Ending, Error, Priority, QueueName, Result, SystemClock};

use crate::client::Client;
use crate::context::Context;
use crate::failure::Outcome;
use crate::handler::{Handler, RawTask, Registry};
use crate::healthchecker::Health;
use crate::heartbeater::Heartbeater;
use crate::inline::Inline;
use crate::quotas::Queues;
use crate::station::{Settings, Station, Unknown};
use crate::task::{DEFAULT_QUEUE, Task};
use crate::{healthchecker, leader, processor, scout, subscriber, syncer};

/// A worker that is being set up.
#[must_use = "a worker works once it is run"]
pub struct WorkerBuilder<S> {
    client: Client,
    state: Arc<S>,
    registry: Registry,
    queues: Vec<(String, u32)>,
    serves_all: bool,
    is_strict: bool,
    priorities: PrioritySet,
    concurrency: usize,
    name: String,
    unknown: Unknown,
    wall: Arc<dyn Clock>,
    has_own_thread: bool,
}

/// A worker that runs in the background; stop it with [`Worker::stop`].
#[must_use = "a worker that is dropped stops as by `stop`, but nobody waits for it"]
pub struct Worker {
    /// Dropped with the worker: it ends also when nobody waits for that.
    stop: DropGuard,
    drained: CancellationToken,
    ended: tokio::task::JoinHandle<Result<()>>,
    health: watch::Receiver<Health>,
}

impl<S: Send + Sync + 'static> WorkerBuilder<S> {
    pub(crate) fn new(client: Client, state: S) -> Self {
        Self {
            client,
            state: Arc::new(state),
            registry: Registry::default(),
            queues: Vec::new(),
            serves_all: false,
            is_strict: false,
            priorities: PrioritySet::ALL,
            concurrency: 1,
            name: String::new(),
            unknown: Unknown::Fails,
            wall: Arc::new(SystemClock),
            has_own_thread: true,
        }
    }

    /// Gives the handlers that follow something to share; those before keep what they had.
    pub fn state<N: Send + Sync + 'static>(self, state: N) -> WorkerBuilder<N> {
        WorkerBuilder {
            client: self.client,
            state: Arc::new(state),
            registry: self.registry,
            queues: self.queues,
            serves_all: self.serves_all,
            is_strict: self.is_strict,
            priorities: self.priorities,
            concurrency: self.concurrency,
            name: self.name,
            unknown: self.unknown,
            wall: self.wall,
            has_own_thread: self.has_own_thread,
        }
    }

    /// Adds a handler; its first argument says for which tasks. Two handlers for one kind are refused at the start.
    pub fn handle<T: Task, H: Handler<T, S>>(mut self, handler: H) -> Self {
        self.registry.add(handler, Arc::clone(&self.state));
        self
    }

    /// Adds a handler that blocks its thread (no `async`).
    pub fn handle_blocking<T, F>(mut self, handler: F) -> Self
    where
        T: Task,
        F: Fn(T, Context<S>) -> Outcome<T::Output> + Send + Sync + 'static,
    {
        self.registry.add_blocking(handler, Arc::clone(&self.state));
        self
    }

    /// Adds a handler for tasks of this kind that takes the payload as it was submitted, and whose
    /// result is kept byte for byte.
    pub fn handle_raw<F, R>(mut self, kind: &'static str, handler: F) -> Self
    where
        F: Fn(RawTask, Context<S>) -> R + Send + Sync + 'static,
        R: Future<Output = Outcome<Bytes>> + Send + 'static,
    {
        self.registry.add_raw(kind, handler, Arc::clone(&self.state));
        self
    }

    /// Adds a handler for tasks of all kinds that no other handler knows; without one, such tasks go
    /// the way that [`WorkerBuilder::unknown`] says. It takes the payload as it was submitted, and its
    /// result is kept byte for byte: what should be JSON, it must write as JSON.
    pub fn handle_any<F, R>(mut self, handler: F) -> Self
    where
        F: Fn(RawTask, Context<S>) -> R + Send + Sync + 'static,
        R: Future<Output = Outcome<Bytes>> + Send + 'static,
    {
        self.registry.add_default(handler, Arc::clone(&self.state));
        self
    }

    /// Calls this before every run: for logging, metrics and the like. It must not block. It gets
    /// what the worker knows of the task, whatever its kind; every run already has a `tracing` span
    /// `task` with its id, kind, queue and attempt.
    pub fn before(mut self, hook: impl Fn(&Claimed) + Send + Sync + 'static) -> Self {
        self.registry.hooks.add_before(hook);
        self
    }

    /// Calls this after every run with how it ended, be it by a timeout, a panic or a lost lease. It
    /// must not block. The end is not in the store yet, which may still refuse it.
    pub fn after(mut self, hook: impl Fn(&Claimed, &Ending) + Send + Sync + 'static) -> Self {
        self.registry.hooks.add_after(hook);
        self
    }

    /// Serves this queue; the weight is its share while all queues are backed up. Without any, the
    /// queue `default` is served.
    pub fn queue(mut self, queue: &str, weight: u32) -> Self {
        self.queues.push((queue.into(), weight));
        self
    }

    /// Serves every queue of the store, those too that come later, each with a weight of 1 unless
    /// [`WorkerBuilder::queue`] names it. At most 1,000; looked for every 5 s.
    pub fn all_queues(mut self) -> Self {
        self.serves_all = true;
        self
    }

    /// Serves the queues strictly in the order given: the next only when those before are empty.
    pub fn strict(mut self) -> Self {
        self.is_strict = true;
        self
    }

    /// Serves only these priorities.
    pub fn priorities(mut self, priorities: &[Priority]) -> Self {
        self.priorities = PrioritySet::of(priorities);
        self
    }

    /// How many tasks run at once.
    pub fn concurrency(mut self, tasks: usize) -> Self {
        self.concurrency = tasks;
        self
    }

    /// A name to know it by in lists of workers.
    pub fn name(mut self, name: &str) -> Self {
        self.name = name.into();
        self
    }

    /// How tasks end whose kind neither this worker nor another live worker of their queue handles. Tasks that another
    /// worker handles are released immediately, and no attempt counts.
    pub fn unknown(mut self, unknown: Unknown) -> Self {
        self.unknown = unknown;
        self
    }

    /// For tests that drive time by hand: tells the wall time by this clock, and beats on the
    /// caller's runtime, whose time can be paused.
    #[doc(hidden)]
    pub fn driven_by(mut self, clock: Arc<dyn Clock>) -> Self {
        self.wall = clock;
        self.has_own_thread = false;
        self
    }

    /// Works until SIGTERM or SIGINT, then finishes what runs and ends. A second signal ends at once.
    pub async fn run(self) -> Result<()> {
        let (first, second) = (Signals::new()?, Signals::new()?);
        let work = self.run_until(first.next());
        tokio::select! {
            outcome = work => outcome,
            () = second.second() => {
                Err(Error::new(windlass_core::ErrorKind::Unavailable, "stopped by a second signal"))
            }
        }
    }

    /// Works until the future ends, then finishes what runs and ends.
    pub async fn run_until(self, end: impl Future<Output = ()>) -> Result<()> {
        self.start().await?.run_until(end).await
    }

    /// Works in the background; comes back when the worker is registered and claims.
    pub async fn start(self) -> Result<Worker> {
        if self.registry.is_empty() {
            return Err(Error::invalid(
                "a worker needs a handler: add one with handle or handle_any",
            ));
        }
        let (client, settings, registry) = self.into_parts()?;
        if !settings.serves_all {
            for (kind, queue) in registry.unserved(&settings.queues.weighted) {
                tracing::warn!(kind, queue, "tasks of this kind go to a queue not served here");
            }
        }
        let station = Station::new(client, settings, registry);
        let heartbeater = Heartbeater::start(Arc::clone(&station)).await?;
        let mut fit = station.identity.watch();
        let registered = async {
            while !*fit.borrow_and_update() {
                if fit.changed().await.is_err() {
                    break;
                }
            }
        };
        registered.await;
        let (stop, drained) = (CancellationToken::new(), CancellationToken::new());
        let (health, told) = watch::channel(Health::GOOD);
        let ended = tokio::spawn(work(station, heartbeater, health, stop.clone(), drained.clone()));
        Ok(Worker { stop: stop.drop_guard(), drained, ended, health: told })
    }

    /// Does not work by itself: the caller has tasks run one by one. Without queues named, all are
    /// served.
    pub fn inline(self) -> Result<Inline> {
        let serves_all = self.serves_all || self.queues.is_empty();
        let (client, settings, registry) = self.into_parts()?;
        Ok(Inline::new(Station::new(client, settings, registry), serves_all))
    }

    fn into_parts(mut self) -> Result<(Client, Settings, Registry)> {
        let has_default = self.queues.iter().any(|(queue, _)| queue == DEFAULT_QUEUE);
        if self.queues.is_empty() || (self.serves_all && !has_default) {
            self.queues.push((DEFAULT_QUEUE.into(), 1));
        }
        self.registry.check()?;
        if self.concurrency == 0 {
            return Err(Error::invalid("a worker needs a concurrency of at least 1"));
        }
        let has_priorities = self.client.store().profile().capabilities.has_priorities;
        if !has_priorities && !self.priorities.contains(Priority::Normal) {
            let why = "all tasks of this store are of priority normal: use a queue for each";
            return Err(Error::unsupported(format!("serve other priorities than normal; {why}")));
        }
        let mut weighted: Vec<(QueueName, u32)> = Vec::new();
        for (queue, weight) in &self.queues {
            if *weight == 0 {
                return Err(Error::invalid(format!("queue {queue} needs a weight of at least 1")));
            }
            let queue = QueueName::new(queue)?;
            if weighted.iter().any(|(known, _)| *known == queue) {
                return Err(Error::invalid(format!("queue {queue} is named twice")));
            }
            weighted.push((queue, *weight));
        }
        let queues = Queues { weighted, is_strict: self.is_strict, priorities: self.priorities };
        let settings = Settings {
            queues,
            serves_all: self.serves_all,
            concurrency: self.concurrency,
            name: self.name,
            unknown: self.unknown,
            wall: self.wall,
            has_own_thread: self.has_own_thread,
        };
        Ok((self.client, settings, self.registry))
    }
}

impl Worker {
    /// How the worker stands with its store; changes as that changes.
    pub fn health(&self) -> watch::Receiver<Health> {
        self.health.clone()
    }

    /// Works until the future ends or the worker is told to drain, then stops it.
    pub async fn run_until(self, end: impl Future<Output = ()>) -> Result<()> {
        tokio::select! {
            () = end => {}
            () = self.drained.cancelled() => tracing::info!("told to drain"),
        }
        self.stop().await
    }

    /// Claims no more, lets what runs finish within the shutdown timeout, gives the rest back, and
    /// ends.
    pub async fn stop(self) -> Result<()> {
        drop(self.stop);
        self.ended
            .await
            .unwrap_or_else(|cause| Err(Error::internal("the worker ended early").because(cause)))
    }
}

/// The life of a worker whose heart beats already.
async fn work(
    station: Arc<Station>,
    heartbeater: Heartbeater,
    health: watch::Sender<Health>,
    stop: CancellationToken,
    drained: CancellationToken,
) -> Result<()> {
    let (ended, endings) = mpsc::unbounded_channel();
    let syncer = syncer::start(Arc::clone(&station), endings);
    let processor = processor::start(Arc::clone(&station), ended);
    let rest = CancellationToken::new();
    let leader = leader::start(Arc::clone(&station.link), rest.clone());
    let healthchecker = healthchecker::start(
        Arc::clone(&station.link),
        health,
        healthchecker::WORKER_HEARTBEATS_PER_PING,
        rest.clone(),
    );
    let subscriber = subscriber::start(Arc::clone(&station), rest.clone());
    let scout = scout::start(Arc::clone(&station), rest.clone());

    let mut order = station.order.subscribe();
    tokio::select! {
        () = stop.cancelled() => {}
        _ = order.wait_for(|order| *order == RunOrder::Drain) => drained.cancel(),
    }
    tracing::info!(running = station.leases.count(), "stopping: no more claims");
    station.stopping.cancel();
    let join = |role: &'static str, outcome: std::result::Result<(), tokio::task::JoinError>| {
        if let Err(error) = outcome {
            tracing::error!(role, %error, "a role ended early");
        }
    };
    join("processor", processor.await);
    // The syncer ends when the last run has reported its end.
    let patience: Duration = station.client.config().worker.shutdown_timeout;
    let mut syncer = syncer;
    match tokio::time::timeout(patience, &mut syncer).await {
        Ok(outcome) => join("syncer", outcome),
        Err(_) => {
            tracing::warn!(running = station.leases.count(), "time is over: runs are given back");
            station.leases.stop_all();
            join("syncer", syncer.await);
        }
    }
    rest.cancel();
    join("leader", leader.await);
    join("healthchecker", healthchecker.await);
    join("subscriber", subscriber.await);
    join("scout", scout.await);
    heartbeater.stop().await;
    station.client.save_statistics().await;
    let worker_id = station.identity.id();
    station.store.leave(worker_id.clone()).await?;
    tracing::info!(%worker_id, "worker stopped");
    Ok(())
}

/// Signals within this time are one: `timeout` and shells send theirs to a process and to its whole group.
const ONE_SIGNAL: Duration = Duration::from_millis(200);

/// SIGTERM and SIGINT.
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let failed = |cause| {
            Error::new(windlass_core::ErrorKind::Unavailable, "listen for signals").because(cause)
        };
        Ok(Self {
            terminate: signal(SignalKind::terminate()).map_err(failed)?,
            interrupt: signal(SignalKind::interrupt()).map_err(failed)?,
        })
    }

    async fn next(mut self) {
        self.wait().await;
    }

    /// Ends at the second signal; those that come with the first are one with it.
    async fn second(mut self) {
        self.wait().await;
        let since = std::time::Instant::now();
        loop {
            self.wait().await;
            if since.elapsed() >= ONE_SIGNAL {
                return;
            }
        }
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
