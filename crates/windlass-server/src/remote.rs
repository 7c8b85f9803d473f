//! Workers in any language: they lease tasks over HTTP, report how their runs ended, and show that
//! they live.
//!
//! The store has the truth. What is remembered here of a worker spares questions and can be lost at any
//! time: a worker may speak to another server in its next request.

mod known;
mod lease;
mod pulse;
mod report;
mod spare;

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use windlass_core::dice::Dice;
use windlass_core::store::{Beat, HeldLeases, Orders, ProgressReport, RunOrder, WorkerCard};
use windlass_core::{Claimed, Lease, Timestamp, WorkerId};

pub(crate) use lease::{Ask, LeaseBounds, Leased, lease};
pub(crate) use pulse::{Heard, Pulse, pulse};
pub(crate) use report::{Report, Reported, Said, report};

use crate::access::Caller;
use crate::access::bucket::Allowance;
use crate::app::Shared;
use crate::problem::{Outcome, Problem, Slug};
use known::{Known, Run};
use spare::Spares;

/// New workers of a token in a minute: each leaves a record in the store.
const NEW_PER_MINUTE: u32 = 1_000;
/// Workers that are remembered. Of more, nothing is known here that the store does not say.
const REMEMBERED_MAX: usize = 20_000;
/// How often those are forgotten that have been silent for long.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// The workers that have spoken to this server.
pub(crate) struct Remote {
    workers: Mutex<Workers>,
    spare: Spares,
    new: Allowance,
    dice: Mutex<Dice>,
}

struct Workers {
    known: HashMap<WorkerId, Known>,
    swept: Instant,
}

/// What a worker is told to do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Control {
    pub(crate) order: RunOrder,
    /// Until when everything that it holds is good without another sign of life.
    pub(crate) lease_until: Timestamp,
}

impl Remote {
    pub(crate) fn new() -> Self {
        let workers = Workers { known: HashMap::new(), swept: Instant::now() };
        Self {
            workers: Mutex::new(workers),
            spare: Spares::default(),
            new: Allowance::new(NEW_PER_MINUTE),
            dice: Mutex::new(Dice::thrown()),
        }
    }

    /// Remembers a worker, and now and then forgets those that have been silent for long.
    fn remember(&self, worker: &WorkerId, known: Known) {
        let mut workers = self.workers.lock();
        if workers.swept.elapsed() >= SWEEP_EVERY {
            workers.swept = Instant::now();
            workers.known.retain(|_, known| !known.is_forgettable());
        }
        workers.known.insert(worker.clone(), known);
    }

    /// Makes up an id for a client that has none. Nothing is registered before it comes back with it.
    fn issue(&self, card: WorkerCard) -> WorkerId {
        let worker = new_id();
        if self.workers.lock().known.len() < REMEMBERED_MAX {
            self.remember(&worker, Known::issued(card));
        }
        worker
    }

    fn forget(&self, worker: &WorkerId) {
        self.workers.lock().known.remove(worker);
    }

    /// Does something with what is known of a worker; nothing where nothing is.
    fn with<T>(&self, worker: &WorkerId, look: impl FnOnce(&mut Known) -> T) -> Option<T> {
        self.workers.lock().known.get_mut(worker).map(look)
    }

    /// Takes out what is known of these runs, in their order.
    fn take_runs(&self, worker: &WorkerId, leases: &[&Lease]) -> Vec<Option<Run>> {
        let taken = self.with(worker, |known| {
            leases.iter().map(|lease| known.take_run(lease)).collect::<Vec<_>>()
        });
        taken.unwrap_or_else(|| leases.iter().map(|_| None).collect())
    }

    /// Remembers a run again that was taken.
    fn put_back(&self, worker: &WorkerId, run: Run) {
        self.with(worker, |known| known.put_back(run));
    }

    /// Notes what a worker was given.
    fn hand_out(&self, worker: &WorkerId, tasks: &[Claimed]) {
        self.with(worker, |known| known.hand_out(tasks));
    }
}

/// True for an id that a server may have made up.
fn is_issued(worker: &WorkerId) -> bool {
    let plain = worker.as_str().rsplit('-').next().unwrap_or_default();
    let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    plain.len() == 32 && plain.bytes().all(is_hex) && *worker == WorkerId::remote(plain)
}

/// A name for a worker that has none.
fn new_id() -> WorkerId {
    WorkerId::remote(uuid::Uuid::new_v4().simple())
}

/// What is known of a worker by its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Known,
    /// It was lost, has left, or is no HTTP client: nobody can speak for it.
    Gone,
    /// No store has heard of it.
    Absent,
}

/// Finds out who a worker is that says it was here before.
async fn standing(shared: &Shared, worker: &WorkerId) -> Outcome<Standing> {
    if shared.remote().with(worker, |_| ()).is_some() {
        return Ok(Standing::Known);
    }
    // Nobody can speak for a worker that is no HTTP client.
    if !worker.is_remote() {
        return Ok(Standing::Gone);
    }
    let workers = shared.store().workers().await?;
    match workers.into_iter().find(|record| record.id == *worker) {
        Some(record) if record.is_gone => Ok(Standing::Gone),
        Some(record) => {
            shared.remote().remember(worker, Known::elsewhere(&record));
            Ok(Standing::Known)
        }
        None => Ok(Standing::Absent),
    }
}

/// The problem of a worker that is not known.
async fn recognise(shared: &Shared, worker: &WorkerId) -> Outcome<()> {
    match standing(shared, worker).await? {
        Standing::Known => Ok(()),
        Standing::Gone | Standing::Absent => Err(unknown(worker)),
    }
}

/// The problem of a worker that serves queues that the caller may not see: speaking for it, one could end
/// its runs.
async fn check_worker(shared: &Shared, caller: &Caller, worker: &WorkerId) -> Outcome<()> {
    if !caller.is_limited() {
        return Ok(());
    }
    if standing(shared, worker).await? == Standing::Gone {
        return Err(unknown(worker));
    }
    let queues = shared.remote().with(worker, |known| known.card.queues.clone());
    queues.unwrap_or_default().iter().try_for_each(|queue| caller.check_queue(queue))
}

/// The problem of a worker that the store does not know, or not any more.
fn unknown(worker: &WorkerId) -> Problem {
    let shown = windlass_core::limits::clip(worker.as_str(), 64);
    let text = format!(
        "worker {shown:?} is unknown or was lost, and its tasks went to others: lease without an id"
    );
    Problem::new(Slug::LeaseLost, text)
}

/// What a sign of life carries besides.
#[derive(Default)]
struct Sign {
    held: Option<HeldLeases>,
    progress: Vec<ProgressReport>,
}

/// Shows the store that a worker lives. An order that it did not know is obeyed from now on, and that is
/// told to the store at once: else others would see it only after its next sign of life.
async fn beat(shared: &Shared, worker: &WorkerId, card: WorkerCard, sign: Sign) -> Outcome<Orders> {
    let orders = beat_once(shared, worker, card.clone(), sign).await?;
    if orders.order != card.doing {
        let obeying = WorkerCard { doing: orders.order, ..card };
        if let Err(problem) = beat_once(shared, worker, obeying, Sign::default()).await {
            tracing::debug!(%worker, ?problem, "that an order is obeyed is told with the next beat");
        }
    }
    Ok(orders)
}

async fn beat_once(
    shared: &Shared,
    worker: &WorkerId,
    card: WorkerCard,
    sign: Sign,
) -> Outcome<Orders> {
    let (sent, lease) = (Instant::now(), shared.client().config().worker.lease);
    let Sign { held, progress } = sign;
    let beat = Beat { worker: worker.clone(), card, lease, held, progress };
    let store = shared.store().clone();
    match shared.to_its_end(async move { store.beat(beat).await }).await? {
        Ok(orders) => {
            let until = orders.now.after(lease);
            shared.remote().with(worker, |known| known.beaten(sent, &orders, until));
            Ok(orders)
        }
        Err(error) if error.is_lease_lost() => {
            shared.remote().forget(worker);
            Err(unknown(worker))
        }
        Err(error) => Err(error.into()),
    }
}

/// Ends a worker, and answers how many tasks it gave back.
pub(crate) async fn leave(shared: &Shared, caller: &Caller, worker: WorkerId) -> Outcome<u64> {
    if !worker.is_remote() {
        return Err(unknown(&worker));
    }
    check_worker(shared, caller, &worker).await?;
    shared.remote().forget(&worker);
    let store = shared.store().clone();
    Ok(shared.to_its_end(async move { store.leave(worker).await }).await??)
}
