//! Heartbeats: one call renews everything that a worker holds, and tells it what to stop.

use std::time::Duration;

use windlass_core::store::{Applied, ApplyParams, GetParams, HeldLeases, Parts, ProgressReport};
use windlass_core::{Lease, State, TaskId, TaskRecord, WorkerId};

use super::known::Run;
use super::lease::judge;
use super::{Control, Sign, beat, check_worker, recognise, unknown};
use crate::access::Caller;
use crate::app::Shared;
use crate::problem::Outcome;

/// How long a run that is over its time may take to stop by itself.
const GRACE: Duration = Duration::from_secs(10);

/// What a worker says of itself.
#[derive(Debug)]
pub(crate) struct Pulse {
    pub(crate) worker: WorkerId,
    /// Everything that it holds.
    pub(crate) held: Vec<Lease>,
    pub(crate) progress: Vec<ProgressReport>,
}

/// What it is told.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) control: Control,
    /// Runs that it should stop.
    pub(crate) cancel: Vec<TaskId>,
    /// Runs that are not its own any more.
    pub(crate) lost: Vec<TaskId>,
}

/// Hears that a worker lives and what it holds.
pub(crate) async fn pulse(shared: &Shared, caller: &Caller, pulse: Pulse) -> Outcome<Heard> {
    let Pulse { worker, held, progress } = pulse;
    check_worker(shared, caller, &worker).await?;
    caller.check_tasks(shared, &names(&held)).await?;
    recognise(shared, &worker).await?;
    let runs = find_runs(shared, &worker, &held).await?;
    let on_its_way = shared.client().config().worker.heartbeat * 2;
    let slots_used = u32::try_from(runs.len()).unwrap_or(u32::MAX);
    let card = shared.remote().with(&worker, |known| {
        known.card.slots_used = slots_used;
        known.card.clone()
    });
    let card = card.ok_or_else(|| unknown(&worker))?;
    let held = Some(HeldLeases { leases: held, older_than: on_its_way });
    let orders = beat(shared, &worker, card, Sign { held, progress }).await?;
    let is_lost = |run: &Run| orders.lost.contains(&run.task.lease());
    let is_overdue = |run: &Run| run.due() <= orders.now;
    let runs = runs.into_iter().filter(|run| !is_lost(run));
    let runs: Vec<_> = runs.map(|run| Run { is_overdue: is_overdue(&run), ..run }).collect();
    let (mut cancel, mut lost) = (names(&orders.cancels), names(&orders.lost));
    let overdue: Vec<_> = runs.iter().filter(|run| run.is_overdue).collect();
    let hopeless = |run: &Run| run.due().after(GRACE) <= orders.now;
    let (ended, late): (Vec<_>, Vec<_>) = overdue.into_iter().cloned().partition(hopeless);
    for run in late {
        if !cancel.contains(&run.task.id) {
            cancel.push(run.task.id);
        }
    }
    lost.extend(end(shared, &worker, ended).await?);
    let runs = runs.into_iter().filter(|run| !lost.contains(&run.task.id)).collect();
    let told = shared.remote().with(&worker, |known| {
        known.named(runs, on_its_way);
        known.control()
    });
    Ok(Heard { control: told.ok_or_else(|| unknown(&worker))?, cancel, lost })
}

fn names(leases: &[Lease]) -> Vec<TaskId> {
    leases.iter().map(|lease| lease.task.clone()).collect()
}

/// What is known of these runs, here or in the store; those that do not run are left out.
async fn find_runs(shared: &Shared, worker: &WorkerId, held: &[Lease]) -> Outcome<Vec<Run>> {
    let known =
        |lease: &Lease| shared.remote().with(worker, |known| known.run(lease).cloned()).flatten();
    let (mut runs, mut missing) = (Vec::new(), Vec::new());
    for lease in held {
        match known(lease) {
            Some(run) => runs.push(run),
            None => missing.push(lease),
        }
    }
    if missing.is_empty() {
        return Ok(runs);
    }
    let ids = missing.iter().map(|lease| lease.task.clone()).collect();
    let records = shared.store().get(GetParams { ids, parts: Parts::NONE }).await?;
    let is_run = |(lease, record): &(&Lease, TaskRecord)| {
        record.state == State::Running && record.epoch == Some(lease.epoch)
    };
    let found = missing.into_iter().zip(records).filter_map(|(lease, found)| Some((lease, found?)));
    runs.extend(found.filter(is_run).filter_map(|(_, record)| Run::of(record)));
    Ok(runs)
}

/// Ends runs that did not stop in time, and answers which are their worker's no more.
async fn end(shared: &Shared, worker: &WorkerId, runs: Vec<Run>) -> Outcome<Vec<TaskId>> {
    if runs.is_empty() {
        return Ok(Vec::new());
    }
    let transition = |run: &Run| judge(shared, &run.task, run.overdue_ending());
    let transitions = runs.iter().map(transition).collect();
    let params = ApplyParams { worker: worker.clone(), transitions, then_claim: None };
    let store = shared.store().clone();
    let reply = shared.to_its_end(async move { store.apply(params).await }).await??;
    let mut ended = Vec::with_capacity(runs.len());
    for (run, applied) in runs.into_iter().zip(&reply.outcomes) {
        match applied {
            Applied::Applied(state) => {
                tracing::warn!(task = %run.task.id, %worker, %state, "ended: its worker did not stop it in time");
            }
            // Its queue cannot be used: the run is the worker's until that is repaired.
            Applied::Unrecorded => continue,
            Applied::Already | Applied::Refused(_) => {}
        }
        ended.push(run.task.id);
    }
    Ok(ended)
}
