//! The process under which the power is cut: it loads a store as hard as it can and says, line by
//! line, what it sends and what is acknowledged. It ends by being killed.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use windlass_core::config::Config;
use windlass_core::dice::Dice;
use windlass_core::retry::Backoff;
use windlass_core::state::{self, Ending};
use windlass_core::store::{
    Applied, ApplyParams, Beat, Claim, ClaimParams, Inserted, Quota, RETENTION_DEFAULT,
    Reservation, WorkerCard,
};
use windlass_core::task::Extras;
use windlass_core::{
    Claimed, Kind, NewTask, Priority, QueueName, Spec, State, Store, TaskId, When, WorkerId,
};

use super::ledger::{self, Moment, Run, Word};
use crate::torture::chance::pick;
use crate::{Result, shell};

/// Enough to keep the group commit busy with whatever comes together by chance.
const INSERTERS: u64 = 6;
const WORKERS: u64 = 2;
/// Tasks per call; the small ones are the ones that feel a missing flush.
const INSERT_SIZES: [usize; 8] = [1, 1, 1, 2, 7, 40, 150, 500];
const CLAIM_SIZES: [usize; 6] = [1, 1, 5, 30, 150, 400];
/// Inserters rest above this, so that the audit after the cut does not take longer than the load.
const WAITING_MAX: u64 = 10_000;
const QUEUES: [&str; 2] = ["cut-a", "cut-b"];
/// Nobody submits to this one: a claim from it finds nothing, and what travels with it has no other
/// commit to lean on.
const EMPTY_QUEUE: &str = "cut-empty";
/// In every second load the inserters stop here, and a single worker rests now and then: no other commit
/// carries to the disk what was answered last.
const QUIET_AFTER: u64 = 300;
const QUIET_REST_MAX: Duration = Duration::from_millis(100);
/// Longer than any load: nobody expires while it runs.
const LEASE: Duration = Duration::from_secs(600);
/// Retries, snoozes and schedules lie beyond the end of the torture, so that they rest where they are.
const LATER: Duration = Duration::from_secs(24 * 60 * 60);

/// What the parent tells the load.
#[derive(clap::Args)]
pub(crate) struct LoadArgs {
    /// The store.
    #[arg(long)]
    url: String,
    /// Of all chance in it.
    #[arg(long)]
    seed: u64,
}

/// The end of a part of the load; it has no other.
enum Never {}

pub(crate) fn run_load(args: &LoadArgs) -> Result {
    let runtime = tokio::runtime::Runtime::new()?;
    let Err(error) = runtime.block_on(load(args));
    // After the cut this is the store's complaint that its disk is gone, which is as it should be;
    // before it the parent reports it.
    let text = shell::chain(error.as_ref());
    announce(&ledger::line(Word::Failed, Moment::now()?, [text.as_str()]))?;
    std::process::exit(1);
}

/// The payload of a task, made from its id so that the audit can tell whether it was kept.
pub(super) fn payload_of(id: &TaskId) -> Vec<u8> {
    let bytes = id.as_str().as_bytes();
    let length = bytes.iter().map(|byte| usize::from(*byte)).sum::<usize>() % 700;
    bytes.iter().copied().cycle().take(length).collect()
}

/// The result of a task that completes.
pub(super) fn result_of(id: &TaskId) -> Vec<u8> {
    id.as_str().as_bytes().to_vec()
}

/// The queues of the load.
pub(super) fn queues() -> Result<Vec<QueueName>> {
    Ok(QUEUES.iter().map(|name| QueueName::new(name)).collect::<Result<_, _>>()?)
}

/// Registers a worker, or renews it.
pub(super) async fn beat(store: &dyn Store, worker: &WorkerId) -> Result {
    store
        .beat(Beat {
            worker: worker.clone(),
            card: WorkerCard::default(),
            lease: LEASE,
            held: None,
            progress: Vec::new(),
        })
        .await?;
    Ok(())
}

/// A wish for tasks of all queues of the load.
pub(super) fn claim_params(worker: &WorkerId, limit: usize) -> Result<ClaimParams> {
    let quotas = queues()?.into_iter().map(|queue| Quota::of(queue, limit));
    Ok(ClaimParams {
        worker: worker.clone(),
        quotas: quotas.collect(),
        limit,
        suspects_at_most: limit,
    })
}

async fn load(args: &LoadArgs) -> Result<Never> {
    let store = windlass_stores::open(&args.url).await?;
    let waiting = Arc::new(AtomicU64::new(0));
    let inserted = Arc::new(AtomicU64::new(0));
    let is_quiet = Dice::seeded(args.seed).unit() < 0.5;
    let inserted_max = if is_quiet { QUIET_AFTER } else { u64::MAX };
    let mut parts = JoinSet::new();
    for number in 0..INSERTERS {
        let inserter = Inserter {
            store: Arc::clone(&store),
            waiting: Arc::clone(&waiting),
            inserted: Arc::clone(&inserted),
            inserted_max,
            dice: Dice::seeded(args.seed ^ number),
            spec: plain_spec(),
        };
        parts.spawn(inserter.run());
    }
    for number in 0..if is_quiet { 1 } else { WORKERS } {
        let worker = Worker {
            store: Arc::clone(&store),
            waiting: Arc::clone(&waiting),
            dice: Dice::seeded(args.seed ^ (INSERTERS + number)),
            sizes: if is_quiet { &[1] } else { &CLAIM_SIZES },
            rest_max: if is_quiet { QUIET_REST_MAX } else { Duration::ZERO },
            id: WorkerId::new(format!("load-{}-{number}", args.seed)),
        };
        parts.spawn(worker.run());
    }
    match parts.join_next().await {
        Some(ended) => ended?,
        None => Err("nothing to do".into()),
    }
}

/// What the defaults say.
pub(super) fn plain_spec() -> Spec {
    let defaults = Config::default().task;
    Spec {
        max_retries: defaults.max_retries,
        max_crashes: defaults.max_crashes,
        timeout: defaults.timeout,
        retention: RETENTION_DEFAULT,
        extras: Extras::default(),
    }
}

/// A task with the payload that belongs to its id.
pub(super) fn plain_task(id: TaskId, queue: QueueName, spec: &Spec) -> Result<NewTask> {
    Ok(NewTask {
        kind: Kind::new("torture.power-cut")?,
        queue,
        priority: Priority::Normal,
        payload: payload_of(&id).into(),
        when: When::Now,
        spec: spec.clone(),
        idempotency_key: None,
        unique: None,
        id,
    })
}

/// Submits for ever.
struct Inserter {
    store: Arc<dyn Store>,
    waiting: Arc<AtomicU64>,
    inserted: Arc<AtomicU64>,
    inserted_max: u64,
    dice: Dice,
    spec: Spec,
}

impl Inserter {
    async fn run(mut self) -> Result<Never> {
        loop {
            let is_over = self.inserted.load(Ordering::Relaxed) >= self.inserted_max;
            if is_over || self.waiting.load(Ordering::Relaxed) > WAITING_MAX {
                tokio::time::sleep(Duration::from_millis(1)).await;
                continue;
            }
            let tasks = self.make_tasks().await?;
            let ids: Vec<_> = tasks.iter().map(|task| task.id.clone()).collect();
            let is_due_count = tasks.iter().filter(|task| task.when == When::Now).count() as u64;
            let names = || ids.iter().map(TaskId::as_str);
            announce(&ledger::line(Word::SentInsert, Moment::now()?, names()))?;
            let outcomes = self.store.insert(tasks).await?;
            let answered_at = Moment::now()?;
            if outcomes.len() != ids.len() || !outcomes.iter().all(Inserted::is_new) {
                return Err("a plain insert was not taken".into());
            }
            announce(&ledger::line(Word::AckedInsert, answered_at, names()))?;
            self.waiting.fetch_add(is_due_count, Ordering::Relaxed);
            self.inserted.fetch_add(ids.len() as u64, Ordering::Relaxed);
        }
    }

    async fn make_tasks(&mut self) -> Result<Vec<NewTask>> {
        let queue = pick(&queues()?, &mut self.dice).clone();
        let count = *pick(&INSERT_SIZES, &mut self.dice);
        let wanted = vec![Reservation { queue: queue.clone(), count }];
        let ids = self.store.reserve(wanted).await?;
        let tasks = ids.into_iter().map(|id| {
            let mut task = plain_task(id, queue.clone(), &self.spec)?;
            task.priority = *pick(&Priority::DESCENDING, &mut self.dice);
            if self.dice.unit() < 0.05 {
                task.when = When::After(LATER);
            }
            Ok(task)
        });
        tasks.collect()
    }
}

/// Claims and finishes for ever.
struct Worker {
    store: Arc<dyn Store>,
    waiting: Arc<AtomicU64>,
    dice: Dice,
    /// Tasks per claim.
    sizes: &'static [usize],
    /// Longest pause after endings that were answered.
    rest_max: Duration,
    id: WorkerId,
}

impl Worker {
    async fn run(mut self) -> Result<Never> {
        announce(&ledger::line(Word::Worker, Moment::now()?, [self.id.as_str()]))?;
        beat(self.store.as_ref(), &self.id).await?;
        let mut tasks = Vec::new();
        loop {
            if tasks.is_empty() {
                let wish = self.wish()?;
                let claim = self.store.claim(wish).await?;
                tasks = self.take(claim, Moment::now()?)?;
            }
            if tasks.is_empty() {
                tokio::time::sleep(Duration::from_millis(1)).await;
                continue;
            }
            tasks = self.finish(tasks).await?;
            if !self.rest_max.is_zero() {
                tokio::time::sleep(self.rest_max.mul_f64(self.dice.unit())).await;
            }
        }
    }

    fn wish(&mut self) -> Result<ClaimParams> {
        claim_params(&self.id, *pick(self.sizes, &mut self.dice))
    }

    /// The claim that travels with endings, if one does; some find nothing.
    fn next_wish(&mut self) -> Result<Option<ClaimParams>> {
        let unit = self.dice.unit();
        let is_quiet = !self.rest_max.is_zero();
        if unit >= 0.6 && !is_quiet {
            return Ok(None);
        }
        let wish = self.wish()?;
        if unit < 0.3 && !is_quiet {
            return Ok(Some(wish));
        }
        let quotas = vec![Quota::of(QueueName::new(EMPTY_QUEUE)?, wish.limit)];
        Ok(Some(ClaimParams { quotas, ..wish }))
    }

    /// Writes down what was given.
    fn take(&self, claim: Claim, answered_at: Moment) -> Result<Vec<Claimed>> {
        let tasks = claim.tasks;
        if let Some(task) = tasks.iter().find(|task| task.payload != payload_of(&task.id)) {
            return Err(format!("task {} came with another payload", task.id).into());
        }
        let runs: Vec<_> = tasks.iter().map(|task| run_of(task, State::Running)).collect();
        if !runs.is_empty() {
            announce(&ledger::line_of_runs(Word::AckedClaim, answered_at, &runs))?;
        }
        self.waiting.fetch_sub(
            (tasks.len() as u64).min(self.waiting.load(Ordering::Relaxed)),
            Ordering::Relaxed,
        );
        Ok(tasks)
    }

    /// Ends all runs, in various ways; often the next claim comes in the same trip.
    async fn finish(&mut self, tasks: Vec<Claimed>) -> Result<Vec<Claimed>> {
        let backoff = Backoff::default();
        let mut transitions = Vec::new();
        let mut runs = Vec::new();
        for task in &tasks {
            let ending = self.choose_ending(task);
            let transition = state::finish(task, ending, &backoff, &mut self.dice);
            runs.push(run_of(task, transition.next.state));
            transitions.push(transition);
        }
        announce(&ledger::line_of_runs(Word::SentApply, Moment::now()?, &runs))?;
        let then_claim = self.next_wish()?;
        let params = ApplyParams { worker: self.id.clone(), transitions, then_claim };
        let reply = self.store.apply(params).await?;
        let answered_at = Moment::now()?;
        let expected = runs.iter().map(|run| Applied::Applied(run.state));
        if !reply.outcomes.iter().copied().eq(expected) {
            return Err(format!("an apply was not taken: {:?}", reply.outcomes).into());
        }
        announce(&ledger::line_of_runs(Word::AckedApply, answered_at, &runs))?;
        reply.claim.map_or(Ok(Vec::new()), |claim| self.take(claim?, answered_at))
    }

    fn choose_ending(&mut self, task: &Claimed) -> Ending {
        let unit = self.dice.unit();
        let error = || String::from("as the dice fell");
        if unit < 0.85 {
            Ending::Completed { result: Some(result_of(&task.id).into()) }
        } else if unit < 0.90 {
            Ending::Failed { error: error(), retry_after: Some(LATER) }
        } else if unit < 0.95 {
            Ending::Discarded { error: error() }
        } else {
            Ending::Snoozed { delay: LATER }
        }
    }
}

fn run_of(task: &Claimed, state: State) -> Run {
    Run { id: task.id.clone(), epoch: task.epoch, state }
}

/// Says a line. When this returns, the parent will read it, whatever happens to this process.
fn announce(line: &str) -> Result {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(line.as_bytes())?;
    stdout.flush()?;
    Ok(())
}
