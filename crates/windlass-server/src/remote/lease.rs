//! Leasing: a worker asks for tasks, and waits for them if it likes.

use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use windlass_core::state::finish;
use windlass_core::store::{
    ApplyParams, CLAIM_BYTES_MAX, Claim, ClaimParams, RunOrder, WaitParams, Wake, WakeMark,
    WorkerCard,
};
use windlass_core::{Claimed, Ending, Error, Transition, WorkerId};
use windlass_engine::{Queues, share};

use super::known::Known;
use super::spare::hire;
use super::{Control, Sign, Standing, beat, check_worker, is_issued, standing, unknown};
use crate::access::Caller;
use crate::app::Shared;
use crate::memory::ResponseMemory;
use crate::problem::{Outcome, Problem, Slug};

/// How many tasks with two crashes or more are handed out at once, since each may be fatal.
const SUSPECTS_AT_ONCE: usize = 1;
/// A look for orders waits in vain, so that it may be any time.
const NOTICE: Duration = Duration::from_secs(1);
/// The pause after a wait that failed.
const AWAY_PAUSE: Duration = Duration::from_millis(300);

/// What a worker asks for.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    /// Who it is, if it was here before.
    pub(crate) worker: Option<WorkerId>,
    /// What it tells of itself; what it has told before need not be told again.
    pub(crate) card: WorkerCard,
    /// How many slots it says that it has.
    pub(crate) slots: Option<u32>,
    pub(crate) queues: Queues,
    pub(crate) max: usize,
    pub(crate) wait: Duration,
    /// Tasks with two crashes or more are welcome.
    pub(crate) suspects: bool,
}

/// What bounds a lease: memory for its tasks, and the end of the server.
#[derive(Clone, Copy)]
pub(crate) struct LeaseBounds<'a> {
    pub(crate) memory: &'a ResponseMemory,
    pub(crate) stop: &'a CancellationToken,
}

/// What it is given.
#[derive(Debug)]
pub(crate) struct Leased {
    pub(crate) worker: WorkerId,
    pub(crate) tasks: Vec<Claimed>,
    pub(crate) control: Control,
}

/// Leases tasks to a worker, waiting for some as long as it likes and the server goes on. Can be
/// dropped at any time.
pub(crate) async fn lease(
    shared: &Shared,
    caller: &Caller,
    ask: &Ask,
    bounds: LeaseBounds<'_>,
) -> Outcome<Leased> {
    check_ask(shared, caller, ask).await?;
    if let Some(worker) = &ask.worker {
        introduce(shared, caller, worker, ask).await?;
        return wait_for_tasks(shared, worker, ask, None, bounds).await;
    }
    let spare = hire(shared, caller, ask).await?;
    let leased = wait_for_tasks(shared, &spare.worker, ask, None, bounds).await?;
    if leased.tasks.is_empty() {
        // The client gets an id that nobody has; the worker stays here for the next one without an id.
        return Ok(Leased { worker: shared.remote().issue(ask.card.clone()), ..leased });
    }
    spare.give_away();
    Ok(leased)
}

/// The problem of asking for what the caller may not see.
pub(super) async fn check_ask(shared: &Shared, caller: &Caller, ask: &Ask) -> Outcome<()> {
    ask.queues.weighted.iter().try_for_each(|(queue, _)| caller.check_queue(queue))?;
    match &ask.worker {
        Some(worker) => check_worker(shared, caller, worker).await,
        None => Ok(()),
    }
}

/// Notes what a worker with an id says of itself. One that no store has heard of is registered.
pub(super) async fn introduce(
    shared: &Shared,
    caller: &Caller,
    worker: &WorkerId,
    ask: &Ask,
) -> Outcome<()> {
    match standing(shared, worker).await? {
        Standing::Known => {
            let card = ask.card.clone();
            shared.remote().with(worker, |known| known.introduce(card, ask.slots));
            Ok(())
        }
        Standing::Absent if is_issued(worker) => register(shared, caller, worker, ask).await,
        Standing::Absent | Standing::Gone => Err(unknown(worker)),
    }
}

pub(super) async fn register(
    shared: &Shared,
    caller: &Caller,
    worker: &WorkerId,
    ask: &Ask,
) -> Outcome<()> {
    shared.remote().new.take(caller).map_err(too_many_new)?;
    shared.remote().remember(worker, Known::new(ask.card.clone()));
    let beaten = beat(shared, worker, ask.card.clone(), Sign::default()).await;
    if beaten.is_err() {
        shared.remote().forget(worker);
    }
    beaten.map(|_| ())
}

fn too_many_new(wait: Duration) -> Problem {
    let text = "too many new workers: send the id of the first answer in every later request";
    Problem::new(Slug::RateLimited, text).retry_after(wait)
}

/// Asks the store for tasks until there are some, or the time is over; `first` is what it has
/// answered already.
pub(super) async fn wait_for_tasks(
    shared: &Shared,
    worker: &WorkerId,
    ask: &Ask,
    mut first: Option<Handed>,
    LeaseBounds { memory, stop }: LeaseBounds<'_>,
) -> Outcome<Leased> {
    if ask.max == 0 {
        let control = renew(shared, worker).await?;
        return Ok(Leased { worker: worker.clone(), tasks: Vec::new(), control });
    }
    let (end, round) = (Instant::now() + ask.wait, shared.client().config().worker.heartbeat);
    let mut told = None;
    loop {
        let control = renew(shared, worker).await?;
        // Who rests already waits; who is told to rest while it waits hears of it at once.
        let before = *told.get_or_insert(control.order);
        let is_told_to_rest = control.order != RunOrder::Run && control.order != before;
        let mut mark = None;
        if first.is_some() || control.order == RunOrder::Run {
            let handed = match first.take() {
                Some(handed) => handed,
                None => {
                    let _claim = memory.hold_claim(claim_bytes_max(shared, ask)).await?;
                    let handed = claim(shared, worker, ask).await?;
                    memory.set(handed.bytes());
                    handed
                }
            };
            if !handed.is_empty() {
                let (worker, tasks) = (worker.clone(), handed.take().tasks);
                return Ok(Leased { worker, tasks, control });
            }
            mark = Some(handed.take().mark);
        }
        let rest = end.saturating_duration_since(Instant::now());
        let is_over = rest.is_zero() || stop.is_cancelled();
        if is_over || is_told_to_rest || control.order == RunOrder::Drain {
            return Ok(Leased { worker: worker.clone(), tasks: Vec::new(), control });
        }
        stop.run_until_cancelled(pass(shared, worker, ask, mark, rest.min(round))).await;
    }
}

/// What the worker has to do. Its sign of life is given here where it is due, or where there may be orders.
pub(super) async fn renew(shared: &Shared, worker: &WorkerId) -> Outcome<Control> {
    let settings = &shared.client().config().worker;
    let known = shared.remote().with(worker, |known| {
        (known.should_beat(settings.heartbeat, settings.lease), known.mark())
    });
    let (is_due, mark) = known.ok_or_else(|| unknown(worker))?;
    if is_due || may_have_orders(shared, worker, mark) {
        let card = shared.remote().with(worker, |known| known.card.clone());
        beat(shared, worker, card.ok_or_else(|| unknown(worker))?, Sign::default()).await?;
    }
    shared.remote().with(worker, |known| known.control()).ok_or_else(|| unknown(worker))
}

/// True when the store has been told of orders to this worker since it was last heard, by whomever. Costs no
/// trip: a store knows by itself what rang, and a wait that would have to wait is given up.
fn may_have_orders(shared: &Shared, worker: &WorkerId, since: Option<WakeMark>) -> bool {
    let params = WaitParams {
        orders: Some(worker.clone()),
        since,
        at_most: NOTICE,
        ..WaitParams::default()
    };
    matches!(shared.store().wait(params).now_or_never(), Some(Ok(Wake::Orders)))
}

/// What the store is asked for.
pub(super) fn claim_params(shared: &Shared, worker: &WorkerId, ask: &Ask) -> ClaimParams {
    let quotas = share(&ask.queues, ask.max, &mut shared.remote().dice.lock());
    let (worker, limit) = (worker.clone(), ask.max);
    let suspects_at_most = if ask.suspects { SUSPECTS_AT_ONCE } else { 0 };
    ClaimParams { worker, quotas, limit, suspects_at_most }
}

/// The most that a claim may bring: it stops behind the task with which it has enough.
pub(super) fn claim_bytes_max(shared: &Shared, ask: &Ask) -> usize {
    let payload_bytes_max = shared.client().config().limits.payload_bytes_max;
    ask.max.saturating_mul(payload_bytes_max).min(CLAIM_BYTES_MAX + payload_bytes_max)
}

/// Tasks that were claimed for a worker; they go back unless it takes them.
pub(super) struct Handed {
    shared: Shared,
    worker: WorkerId,
    claim: Option<Claim>,
}

impl Handed {
    /// Notes what the worker gets. What must not start any more it does not get.
    pub(super) async fn new(shared: &Shared, worker: &WorkerId, claim: Claim) -> Self {
        let is_over =
            |task: &Claimed| task.spec.extras.deadline.is_some_and(|at| at <= task.claimed_at);
        let (over, tasks): (Vec<_>, Vec<_>) = claim.tasks.into_iter().partition(is_over);
        end(shared, worker, over, &Ending::DeadlinePassed { has_started: false }).await;
        shared.remote().hand_out(worker, &tasks);
        let claim = Some(Claim { tasks, ..claim });
        Self { shared: shared.clone(), worker: worker.clone(), claim }
    }

    fn is_empty(&self) -> bool {
        self.claim.as_ref().is_none_or(|claim| claim.tasks.is_empty())
    }

    /// Of their payloads.
    pub(super) fn bytes(&self) -> usize {
        let tasks = self.claim.iter().flat_map(|claim| &claim.tasks);
        tasks.map(|task| task.payload.len()).sum()
    }

    /// Takes them: from now on they are their worker's.
    fn take(mut self) -> Claim {
        self.claim.take().expect("a claim is taken once")
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        let Some(claim) = self.claim.take().filter(|claim| !claim.tasks.is_empty()) else { return };
        let leases: Vec<_> = claim.tasks.iter().map(Claimed::lease).collect();
        self.shared.remote().take_runs(&self.worker, &leases.iter().collect::<Vec<_>>());
        let (shared, worker) = (self.shared.clone(), self.worker.clone());
        self.shared.detach(async move {
            end(&shared, &worker, claim.tasks, &Ending::Released).await;
        });
    }
}

/// One claim, driven to its end.
async fn claim(shared: &Shared, worker: &WorkerId, ask: &Ask) -> Outcome<Handed> {
    let (shared_too, worker_too, ask) = (shared.clone(), worker.clone(), ask.clone());
    let claiming = async move {
        loop {
            let params = claim_params(&shared_too, &worker_too, &ask);
            let claim = shared_too.store().claim(params).await?;
            let has_brought = !claim.tasks.is_empty();
            let handed = Handed::new(&shared_too, &worker_too, claim).await;
            // Where all that came was over its deadline, there may be more behind it.
            if has_brought && handed.is_empty() {
                continue;
            }
            return Ok(handed);
        }
    };
    shared.to_its_end(claiming).await?.map_err(|error| refused(shared, worker, error))
}

/// The problem of a claim that failed.
fn refused(shared: &Shared, worker: &WorkerId, error: Error) -> Problem {
    if error.is_lease_lost() {
        shared.remote().forget(worker);
        return unknown(worker);
    }
    error.into()
}

/// Ends runs that have not begun. Where that fails they come back by themselves.
async fn end(shared: &Shared, worker: &WorkerId, tasks: Vec<Claimed>, ending: &Ending) {
    if tasks.is_empty() {
        return;
    }
    let transitions = tasks.iter().map(|task| judge(shared, task, ending.clone())).collect();
    let params = ApplyParams { worker: worker.clone(), transitions, then_claim: None };
    if let Err(error) = shared.store().apply(params).await {
        tracing::warn!(%worker, error = error.chain(), "leased tasks are not given back");
    }
}

/// What an ending makes of its task.
pub(super) fn judge(shared: &Shared, task: &Claimed, ending: Ending) -> Transition {
    let config = shared.client().config();
    let ending = ending.within(&config.limits);
    finish(task, ending, &config.task.retry, &mut shared.remote().dice.lock())
}

/// Lets time pass until there may be tasks, or orders.
async fn pass(
    shared: &Shared,
    worker: &WorkerId,
    ask: &Ask,
    claimed: Option<WakeMark>,
    time: Duration,
) {
    // Who rests waits for orders only, from its last beat on.
    let (queues, since) = match claimed {
        Some(mark) => (ask.queues.weighted.iter().map(|(name, _)| name.clone()).collect(), mark),
        None => match shared.remote().with(worker, |known| known.mark()).flatten() {
            Some(mark) => (Vec::new(), mark),
            None => return tokio::time::sleep(time).await,
        },
    };
    let (orders, since) = (Some(worker.clone()), Some(since));
    let params = WaitParams { queues, orders, since, at_most: time, ..WaitParams::default() };
    if let Err(error) = shared.store().wait(params).await {
        tracing::debug!(error = error.chain(), "waiting for work");
        tokio::time::sleep(time.min(AWAY_PAUSE)).await;
    }
}
