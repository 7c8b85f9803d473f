//! What every measurement needs: a store, a queue of its own in it, a worker that is registered.
//!
//! Only the calls to the store are timed. Making tasks, deciding transitions and heartbeats happen
//! between them, as they do in an engine on other threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use windlass::core::config::Config;
use windlass::core::dice::Dice;
use windlass::core::retry::Backoff;
use windlass::core::state::{self, Ending};
use windlass::core::store::{
    Action, Applied, ApplyParams, Beat, ChangeParams, ClaimParams, Filter, Inserted, Quota,
    Reservation, Target, WorkerCard,
};
use windlass::core::task::Extras;
use windlass::core::{
    Claimed, Error, ErrorKind, Kind, NewTask, Priority, QueueName, Result, Spec, State, Store,
    When, WorkerId,
};

/// The kind of the measured tasks.
pub(super) const KIND: &str = "bench";
const LEASE: Duration = Duration::from_secs(60);
const BEAT_EVERY: Duration = Duration::from_secs(10);
/// Tasks per call while tidying up.
const TIDY_PIECE: usize = 1_000;

/// A store with a queue and a worker in it.
pub(super) struct Scene {
    store: Arc<dyn Store>,
    worker: WorkerId,
    maker: TaskMaker,
    backoff: Backoff,
    dice: Dice,
    beaten_at: Instant,
}

/// Makes the tasks that are measured.
#[derive(Clone)]
pub(super) struct TaskMaker {
    queue: QueueName,
    kind: Kind,
    payload: Bytes,
    spec: Spec,
}

impl Scene {
    pub(super) async fn set(store: Arc<dyn Store>, payload_bytes: usize) -> Result<Self> {
        let name = unique_name();
        let defaults = Config::default().task;
        let mut scene = Self {
            worker: WorkerId::new(&name),
            maker: TaskMaker {
                queue: QueueName::new(&name)?,
                kind: Kind::new(KIND)?,
                // A JSON string, so that a worker can read it.
                payload: format!("\"{}\"", "x".repeat(payload_bytes.saturating_sub(2))).into(),
                spec: Spec {
                    max_retries: defaults.max_retries,
                    max_crashes: defaults.max_crashes,
                    timeout: defaults.timeout,
                    retention: store.profile().retention_default,
                    extras: Extras::default(),
                },
            },
            store,
            backoff: Backoff::default(),
            dice: Dice::seeded(1),
            beaten_at: Instant::now(),
        };
        scene.beat().await?;
        Ok(scene)
    }

    pub(super) fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    pub(super) fn queue(&self) -> &QueueName {
        &self.maker.queue
    }

    pub(super) fn maker(&self) -> TaskMaker {
        self.maker.clone()
    }

    /// Makes and inserts tasks; answers how long the insert took.
    pub(super) async fn insert(&mut self, count: usize) -> Result<Duration> {
        self.keep_alive().await?;
        let tasks = self.maker.make(self.store.as_ref(), count).await?;
        let start = Instant::now();
        let outcomes = self.store.insert(tasks).await?;
        let took = start.elapsed();
        check_inserted(&outcomes)?;
        Ok(took)
    }

    pub(super) async fn claim(&mut self, limit: usize) -> Result<(Vec<Claimed>, Duration)> {
        self.keep_alive().await?;
        let params = self.claim_params(limit);
        let start = Instant::now();
        let claim = self.store.claim(params).await?;
        Ok((claim.tasks, start.elapsed()))
    }

    /// Completes tasks and, with a limit, claims the next ones in the same trip.
    pub(super) async fn apply(
        &mut self,
        tasks: &[Claimed],
        then_claim: Option<usize>,
    ) -> Result<(Vec<Claimed>, Duration)> {
        self.keep_alive().await?;
        let transitions = tasks.iter().map(|task| {
            let ending = Ending::Completed { result: None };
            state::finish(task, ending, &self.backoff, &mut self.dice)
        });
        let params = ApplyParams {
            worker: self.worker.clone(),
            transitions: transitions.collect(),
            then_claim: then_claim.map(|limit| self.claim_params(limit)),
        };
        let start = Instant::now();
        let reply = self.store.apply(params).await?;
        let took = start.elapsed();
        let is_done = |outcome: &Applied| *outcome == Applied::Applied(State::Completed);
        if reply.outcomes.len() != tasks.len() || !reply.outcomes.iter().all(is_done) {
            return Err(Error::new(ErrorKind::Conflict, "a completion was not taken"));
        }
        let next = reply.claim.transpose()?.map(|claim| claim.tasks);
        Ok((next.unwrap_or_default(), took))
    }

    /// Removes everything that was put into the store.
    pub(super) async fn tidy(self) -> Result<()> {
        self.store.leave(self.worker.clone()).await?;
        let mut cursor = None;
        loop {
            let params = ChangeParams {
                target: Target::Matching {
                    filter: Filter { queue: Some(self.maker.queue.clone()), ..Filter::default() },
                    limit: TIDY_PIECE,
                    cursor,
                },
                action: Action::Delete,
                only_in: Vec::new(),
                by: Some(String::from("windlass bench")),
            };
            cursor = self.store.change(params).await?.next_cursor;
            if cursor.is_none() {
                return Ok(());
            }
        }
    }

    fn claim_params(&self, limit: usize) -> ClaimParams {
        ClaimParams {
            worker: self.worker.clone(),
            quotas: vec![Quota::of(self.maker.queue.clone(), limit)],
            limit,
            suspects_at_most: 1,
        }
    }

    async fn keep_alive(&mut self) -> Result<()> {
        if self.beaten_at.elapsed() > BEAT_EVERY {
            self.beat().await?;
        }
        Ok(())
    }

    async fn beat(&mut self) -> Result<()> {
        let beat = Beat {
            worker: self.worker.clone(),
            card: WorkerCard {
                pid: std::process::id(),
                name: String::from("bench"),
                version: String::from(env!("CARGO_PKG_VERSION")),
                queues: vec![self.maker.queue.clone()],
                ..WorkerCard::default()
            },
            lease: LEASE,
            held: None,
            progress: Vec::new(),
        };
        self.beaten_at = Instant::now();
        self.store.beat(beat).await?;
        Ok(())
    }
}

impl TaskMaker {
    pub(super) async fn make(&self, store: &dyn Store, count: usize) -> Result<Vec<NewTask>> {
        let wanted = vec![Reservation { queue: self.queue.clone(), count }];
        let ids = store.reserve(wanted).await?;
        let tasks = ids.into_iter().map(|id| NewTask {
            id,
            kind: self.kind.clone(),
            queue: self.queue.clone(),
            priority: Priority::Normal,
            payload: self.payload.clone(),
            when: When::Now,
            spec: self.spec.clone(),
            idempotency_key: None,
            unique: None,
        });
        Ok(tasks.collect())
    }
}

/// A measured insert must have stored everything, or its time means nothing.
pub(super) fn check_inserted(outcomes: &[Inserted]) -> Result<()> {
    for outcome in outcomes {
        match outcome {
            Inserted::New { .. } => {}
            Inserted::Bad(error) => return Err(error.clone()),
            Inserted::Existing { .. } | Inserted::Conflict { .. } => {
                return Err(Error::new(ErrorKind::Conflict, "a fresh task was there already"));
            }
        }
    }
    Ok(())
}

/// A name that no other measurement has, in this process or another.
fn unique_name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (pid, micros) = (std::process::id(), since_epoch.as_micros());
    format!("bench-{pid}-{micros}-{count}")
}
