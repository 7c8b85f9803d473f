//! Leasing: a worker asks for tasks, and waits for them if it likes.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use windlass_core::state::finish;
use windlass_core::store::{
    ApplyParams, CLAIM_BYTES_MAX, Claim, ClaimParams, RunOrder, WaitParams, Wake, WakeMark,
    WorkerCard,
};
use windlass_core::{Claimed, Ending, Error, Store, Transition, WorkerId};
use windlass_engine::{ClaimTurn, Queues, share};

use super::known::Known;
use super::spare::hire;
use super::{Control, Sign, Standing, beat, check_worker, is_issued, standing, unknown};
use crate::access::Caller;
use crate::app::Shared;
use crate::memory::ResponseMemory;
use crate::problem::{Outcome, Problem, Slug};

/// How many tasks with two crashes or more are handed out at once, since each may be fatal.
const SUSPECTS_AT_ONCE: usize = 1;
/// Most tasks of other types that a claim skips.
const SKIPPED_MAX: usize = 100;
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
                let (worker, tasks) = (worker.clone(), handed.take());
                return Ok(Leased { worker, tasks, control });
            }
            mark = handed.mark;
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

/// The next claim, and whether other queues are to be claimed from after it. Nothing while every queue is closed because of
/// its foreign tasks.
pub(super) fn claim_params(
    shared: &Shared,
    worker: &WorkerId,
    ask: &Ask,
) -> Option<(ClaimParams, bool)> {
    let queues = || Cow::Borrowed(&ask.queues);
    let turn = shared
        .remote()
        .with(worker, |known| known.paces.turn(queues(), ask.max, Instant::now()))
        .unwrap_or_else(|| ClaimTurn { queues: queues(), limit: ask.max, is_alone: false });
    if turn.queues.weighted.is_empty() {
        return None;
    }
    let limit = turn.limit.min(ask.max + SKIPPED_MAX);
    let quotas = share(&turn.queues, limit, &mut shared.remote().dice.lock());
    let worker = worker.clone();
    let suspects_at_most = if ask.suspects { SUSPECTS_AT_ONCE } else { 0 };
    let params = ClaimParams { worker, quotas, limit, suspects_at_most };
    Some((params, turn.is_alone))
}

/// The most that a claim may bring: it stops behind the task with which it has enough.
pub(super) fn claim_bytes_max(shared: &Shared, ask: &Ask) -> usize {
    let payload_bytes_max = shared.client().config().limits.payload_bytes_max;
    let skipped_max = if ask.card.kinds.is_some() { SKIPPED_MAX } else { 0 };
    let limit = ask.max + skipped_max;
    limit.saturating_mul(payload_bytes_max).min(CLAIM_BYTES_MAX + payload_bytes_max)
}

/// The store for claims of a worker: tasks that it does not handle are neither counted nor published as events.
pub(super) fn store_for(shared: &Shared, ask: &Ask) -> Arc<dyn Store> {
    shared.client().watched_for(ask.card.kinds.as_ref())
}

/// Tasks that were claimed for a worker; they go back unless it takes them.
pub(super) struct Handed {
    shared: Shared,
    worker: WorkerId,
    tasks: Vec<Claimed>,
    /// The mark to wait from; nothing while every queue is closed.
    mark: Option<WakeMark>,
}

impl Handed {
    /// Notes the tasks that the worker receives. Tasks past their deadline and tasks of types that the worker does not
    /// handle end here.
    pub(super) async fn new(shared: &Shared, worker: &WorkerId, ask: &Ask, claim: Claim) -> Self {
        let is_over =
            |task: &Claimed| task.spec.extras.deadline.is_some_and(|at| at <= task.claimed_at);
        let (over, tasks): (Vec<_>, Vec<_>) = claim.tasks.into_iter().partition(is_over);
        end(shared, worker, over, &Ending::DeadlinePassed { has_started: false }).await;
        let (mut tasks, foreign) = part(shared, worker, ask, tasks);
        // If other workers took the skipped tasks, the claim has more of the worker's tasks than it asked for.
        let surplus = tasks.split_off(tasks.len().min(ask.max));
        end(shared, worker, surplus, &Ending::HandledElsewhere).await;
        shared.remote().hand_out(worker, &tasks);
        let (shared, worker, mark) = (shared.clone(), worker.clone(), Some(claim.mark));
        let handed = Self { shared, worker, tasks, mark };
        end_foreign(&handed.shared, &handed.worker, foreign).await;
        handed
    }

    fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Of their payloads.
    pub(super) fn bytes(&self) -> usize {
        self.tasks.iter().map(|task| task.payload.len()).sum()
    }

    /// Takes them: from now on they are their worker's.
    fn take(mut self) -> Vec<Claimed> {
        std::mem::take(&mut self.tasks)
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        let tasks = std::mem::take(&mut self.tasks);
        if tasks.is_empty() {
            return;
        }
        let leases: Vec<_> = tasks.iter().map(Claimed::lease).collect();
        self.shared.remote().take_runs(&self.worker, &leases.iter().collect::<Vec<_>>());
        let (shared, worker) = (self.shared.clone(), self.worker.clone());
        self.shared.detach(async move {
            end(&shared, &worker, tasks, &Ending::Released).await;
        });
    }
}

/// Splits tasks into those that the worker handles and foreign ones.
fn part(
    shared: &Shared,
    worker: &WorkerId,
    ask: &Ask,
    tasks: Vec<Claimed>,
) -> (Vec<Claimed>, Vec<Claimed>) {
    if ask.card.kinds.is_none() {
        return (tasks, Vec::new());
    }
    let handles = |task: &Claimed| ask.card.handles(&task.kind);
    let mut dice = shared.remote().dice.lock();
    let mut tasks = Some(tasks);
    let parted = shared.remote().with(worker, |known| {
        known.paces.part(tasks.take().unwrap_or_default(), handles, Instant::now(), &mut dice)
    });
    // A worker that is no longer remembered is not paced.
    parted.unwrap_or_else(|| tasks.unwrap_or_default().into_iter().partition(handles))
}

/// Ends tasks of types that their worker does not handle, by the same rules as the engine.
async fn end_foreign(shared: &Shared, worker: &WorkerId, tasks: Vec<Claimed>) {
    if tasks.is_empty() {
        return;
    }
    let endings = shared.client().foreign_endings(&tasks.iter().collect::<Vec<_>>()).await;
    let transition = |(task, ending): (&Claimed, Ending)| judge(shared, task, ending);
    let transitions = tasks.iter().zip(endings).map(transition).collect();
    apply_ends(shared, worker, transitions).await;
}

/// One claim, driven to its end.
async fn claim(shared: &Shared, worker: &WorkerId, ask: &Ask) -> Outcome<Handed> {
    let (shared_too, worker_too, ask) = (shared.clone(), worker.clone(), ask.clone());
    let claiming = async move {
        let store = store_for(&shared_too, &ask);
        let mut mark = None;
        loop {
            let Some((params, is_alone)) = claim_params(&shared_too, &worker_too, &ask) else {
                let tasks = Vec::new();
                return Ok(Handed { shared: shared_too, worker: worker_too, tasks, mark });
            };
            let claim = store.claim(params).await?;
            let has_brought = !claim.tasks.is_empty();
            let handed = Handed::new(&shared_too, &worker_too, &ask, claim).await;
            // Nothing in the claim is for the worker: there may be more behind it, or in other queues.
            if handed.is_empty() && (has_brought || is_alone) {
                mark = handed.mark;
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
    apply_ends(shared, worker, transitions).await;
}

async fn apply_ends(shared: &Shared, worker: &WorkerId, transitions: Vec<Transition>) {
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
    // A paced queue is polled when it opens; its wake-ups are for other workers.
    let now = Instant::now();
    let (opening, paced) = shared
        .remote()
        .with(worker, |known| {
            // Before the announcement: a queue that opened during the claim is polled immediately.
            let opening = known.paces.next_opening();
            known.paces.announce(now);
            let names = ask.queues.weighted.iter().map(|(name, _)| name);
            let paced: Vec<_> = names.filter(|name| known.paces.is_paced(name)).cloned().collect();
            (opening, paced)
        })
        .unwrap_or_default();
    let time = opening.map_or(time, |at| time.min(at.saturating_duration_since(now)));
    let names = ask.queues.weighted.iter().map(|(name, _)| name);
    let open: Vec<_> = names.filter(|name| !paced.contains(name)).cloned().collect();
    // Who rests waits for orders only, from its last beat on.
    let (queues, since) = match claimed.filter(|_| !open.is_empty()) {
        Some(mark) => (open, mark),
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
