//! Workers in any language: they lease tasks over HTTP, report how their runs ended, and show that
//! they live.
//!
//! The store has the truth. What is remembered here of a worker spares questions and can be lost at any
//! time: a worker may speak to another server in its next request.

mod known;
mod lease;
mod pulse;
mod report;

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::time::Instant;
use windlass_core::dice::Dice;
use windlass_core::store::{Beat, HeldLeases, Orders, ProgressReport, RunOrder, WorkerCard};
use windlass_core::{Claimed, Lease, Timestamp, WorkerId};

pub(crate) use lease::{Ask, Leased, lease};
pub(crate) use pulse::{Heard, Pulse, pulse};
pub(crate) use report::{Report, Reported, Said, report};

use crate::access::Caller;
use crate::app::Shared;
use crate::problem::{Outcome, Problem, Slug};
use known::{Known, Run};

/// The workers that have spoken to this server.
pub(crate) struct Remote {
    workers: Mutex<HashMap<WorkerId, Known>>,
    dice: Mutex<Dice>,
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
        Self { workers: Mutex::default(), dice: Mutex::new(Dice::thrown()) }
    }

    /// Remembers a worker, and forgets those that have been silent for long.
    fn remember(&self, worker: &WorkerId, known: Known) {
        let mut workers = self.workers.lock();
        workers.retain(|_, known| !known.is_forgettable());
        workers.insert(worker.clone(), known);
    }

    fn forget(&self, worker: &WorkerId) {
        self.workers.lock().remove(worker);
    }

    /// Does something with what is known of a worker; nothing where nothing is.
    fn with<T>(&self, worker: &WorkerId, look: impl FnOnce(&mut Known) -> T) -> Option<T> {
        self.workers.lock().get_mut(worker).map(look)
    }

    /// Takes out what is known of these runs, in their order.
    fn take_runs(&self, worker: &WorkerId, leases: &[&Lease]) -> Vec<Option<Run>> {
        let taken = self.with(worker, |known| {
            leases.iter().map(|lease| known.take_run(lease)).collect::<Vec<_>>()
        });
        taken.unwrap_or_else(|| leases.iter().map(|_| None).collect())
    }

    /// Notes what a worker was given.
    fn hand_out(&self, worker: &WorkerId, tasks: &[Claimed]) {
        self.with(worker, |known| known.hand_out(tasks));
    }
}

/// A name for a worker that has none.
fn new_id() -> WorkerId {
    WorkerId::remote(uuid::Uuid::new_v4().simple())
}

/// Finds out who a worker is that says it was here before.
async fn recognise(shared: &Shared, worker: &WorkerId) -> Outcome<()> {
    if shared.remote().with(worker, |_| ()).is_some() {
        return Ok(());
    }
    // Nobody can speak for a worker that is no HTTP client.
    if !worker.is_remote() {
        return Err(unknown(worker));
    }
    let workers = shared.store().workers().await?;
    let found = workers.into_iter().find(|record| record.id == *worker && !record.is_gone);
    let record = found.ok_or_else(|| unknown(worker))?;
    shared.remote().remember(worker, Known::elsewhere(&record));
    Ok(())
}

/// The problem of a worker that serves queues that the caller may not see: speaking for it, one could end
/// its runs.
async fn check_worker(shared: &Shared, caller: &Caller, worker: &WorkerId) -> Outcome<()> {
    if !caller.is_limited() {
        return Ok(());
    }
    recognise(shared, worker).await?;
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
