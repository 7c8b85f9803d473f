//! Reports: how runs ended, and the next tasks in the same trip.

use windlass_core::store::{
    Applied, ApplyParams, ApplyReply, GetParams, Parts, Refusal, RunOrder, WorkerRecord,
};
use windlass_core::{Ending, Error, Lease, State, TaskId, TaskRecord, Transition, WorkerId};

use super::known::Run;
use super::lease::{
    Ask, Handed, LeaseBounds, Leased, check_ask, claim_bytes_max, claim_params, introduce, judge,
    renew, store_for, wait_for_tasks,
};
use super::{check_worker, recognise, unknown};
use crate::access::Caller;
use crate::app::Shared;
use crate::problem::Outcome;

/// What a worker reports.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) worker: WorkerId,
    pub(crate) results: Vec<Said>,
    /// What it wants next.
    pub(crate) ask: Option<Ask>,
}

/// How one run ended, in its worker's words.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) lease: Lease,
    pub(crate) ending: Ending,
}

/// What became of a report.
pub(crate) struct Reported {
    /// One for each result, in order.
    pub(crate) outcomes: Vec<(TaskId, Applied)>,
    /// What was asked for; nothing when the worker is not known any more.
    pub(crate) leased: Option<Leased>,
}

/// Reports how runs ended: what counts is the lease, and that it is the reporter's own. That may also be a
/// worker of windlass whose run goes on elsewhere, as those of webhooks do.
pub(crate) async fn report(
    shared: &Shared,
    caller: &Caller,
    report: Report,
    bounds: LeaseBounds<'_>,
) -> Outcome<Reported> {
    let Report { worker, results, ask } = report;
    log_results(&worker, &results);
    let ids: Vec<_> = results.iter().map(|said| said.lease.task.clone()).collect();
    caller.check_tasks(shared, &ids).await?;
    check_reporter(shared, caller, &worker).await?;
    if let Some(ask) = &ask {
        check_ask(shared, caller, ask).await?;
    }
    let runs = find_runs(shared, &worker, &results).await?;
    let transitions = results
        .iter()
        .zip(&runs)
        .filter_map(|(said, run)| run.as_ref().map(|run| transition(shared, run, said)));
    let transitions: Vec<_> = transitions.collect();
    let asking = match &ask {
        Some(ask) => {
            let asker = ask.worker.clone().unwrap_or_else(|| worker.clone());
            let introduced = introduce(shared, caller, &asker, ask).await;
            introduced.is_ok().then(|| (asker, ask.clone()))
        }
        None => None,
    };
    let successes: Vec<_> = transitions.iter().map(success).collect();
    // Results are taken whatever memory there is; then the next tasks have to wait for it.
    let bytes_max = asking.as_ref().map_or(0, |(_, ask)| claim_bytes_max(shared, ask));
    let claim = bounds.memory.try_hold_claim(bytes_max);
    let at_once = asking.as_ref().filter(|(_, ask)| claim.is_some() && ask.max > 0);
    let (mut applied, handed) = apply(shared, &worker, transitions, at_once).await?;
    bounds.memory.set(handed.as_ref().map_or(0, Handed::bytes));
    drop(claim);
    refuse_late_successes(shared, &successes, &mut applied).await?;
    let mut applied = applied.into_iter();
    let outcomes = results.into_iter().zip(runs).map(|(said, run)| {
        // What nobody has a record of cannot be asked about.
        let gone = Applied::Refused(Refusal::Gone);
        let Some(run) = run else { return (said.lease.task, gone) };
        let applied = applied.next().unwrap_or(gone);
        if applied == Applied::Unrecorded {
            // It will be reported again.
            shared.remote().put_back(&worker, run);
        }
        (said.lease.task, applied)
    });
    let outcomes: Vec<_> = outcomes.collect();
    let is_refused = |(_, applied): &(_, Applied)| matches!(applied, Applied::Refused(_));
    if !outcomes.is_empty() && outcomes.iter().all(is_refused) {
        // What is remembered here may be old: perhaps all is lost because the worker is.
        check_there(shared, &worker).await?;
    }
    let leased = match asking {
        // The results are stored by now: whatever this comes to, the answer must tell so.
        Some((asker, ask)) => wait_for_tasks(shared, &asker, &ask, handed, bounds).await.ok(),
        None => None,
    };
    Ok(Reported { outcomes, leased })
}

/// Runs of other programs at DEBUG, as those of workers of windlass are.
fn log_results(worker_id: &WorkerId, results: &[Said]) {
    if tracing::enabled!(tracing::Level::DEBUG) {
        for Said { lease, ending } in results {
            let (outcome, error) = ending.outcome();
            tracing::debug!(task_id = %lease.task, %worker_id, outcome, error, "run reported");
        }
    }
}

/// The problem of results of a worker that nobody knows, or that was lost: what it held went to others.
async fn check_reporter(shared: &Shared, caller: &Caller, worker: &WorkerId) -> Outcome<()> {
    if !worker.is_remote() {
        // A worker of windlass may serve other queues besides. Of its runs only those can be ended whose tasks the
        // caller may see.
        return check_there(shared, worker).await;
    }
    recognise(shared, worker).await?;
    check_worker(shared, caller, worker).await
}

/// The problem of a worker that is not there by the store's account.
async fn check_there(shared: &Shared, worker: &WorkerId) -> Outcome<()> {
    let workers = shared.store().workers().await?;
    let is_it = |record: &WorkerRecord| record.id == *worker && !record.is_gone;
    if workers.iter().any(is_it) {
        return Ok(());
    }
    shared.remote().forget(worker);
    Err(unknown(worker))
}

/// What is known of these runs, here or in the store; nothing of those of other workers.
async fn find_runs(
    shared: &Shared,
    worker: &WorkerId,
    results: &[Said],
) -> Outcome<Vec<Option<Run>>> {
    let leases: Vec<_> = results.iter().map(|said| &said.lease).collect();
    let mut runs = shared.remote().take_runs(worker, &leases);
    let is_missing = |(_, run): &(&&Lease, &Option<Run>)| run.is_none();
    let missing: Vec<_> =
        leases.iter().zip(&runs).filter(is_missing).map(|(l, _)| l.task.clone()).collect();
    if missing.is_empty() {
        return Ok(runs);
    }
    let params = GetParams { ids: missing, parts: Parts::NONE };
    let mut found = shared.store().get(params).await?.into_iter();
    for run in runs.iter_mut().filter(|run| run.is_none()) {
        let its = found.next().flatten().filter(|record| is_of(record, worker));
        *run = its.and_then(Run::of);
    }
    Ok(runs)
}

/// True unless somebody else has run it. A task that waits to run again may not tell who has.
fn is_of(record: &TaskRecord, worker: &WorkerId) -> bool {
    record.worker.as_ref().is_none_or(|its| its == worker)
}

fn transition(shared: &Shared, run: &Run, said: &Said) -> Transition {
    // The record may tell of a later run: the lease that is reported is the worker's own.
    let mut task = run.task.clone();
    task.epoch = said.lease.epoch;
    let transition = judge(shared, &task, run.ending(said.ending.clone()));
    match run.since {
        Some(since) => transition.took(since.elapsed()),
        None => transition,
    }
}

/// The lease of a run that has succeeded.
fn success(transition: &Transition) -> Option<Lease> {
    (transition.next.state == State::Completed).then(|| transition.lease.clone())
}

/// A lease may have been ended by another than its worker: the server does so when a run is over its time. A success
/// that is reported then is not stored, and its worker must not believe so.
async fn refuse_late_successes(
    shared: &Shared,
    successes: &[Option<Lease>],
    applied: &mut [Applied],
) -> Outcome<()> {
    let doubtful = successes.iter().zip(applied).filter(|(_, told)| **told == Applied::Already);
    let doubtful: Vec<_> =
        doubtful.filter_map(|(lease, told)| Some((lease.as_ref()?, told))).collect();
    if doubtful.is_empty() {
        return Ok(());
    }
    let ids = doubtful.iter().map(|(lease, _)| lease.task.clone()).collect();
    let records = shared.store().get(GetParams { ids, parts: Parts::NONE }).await?;
    for ((lease, told), record) in doubtful.into_iter().zip(records) {
        // One that is gone, or has run again since, tells nothing of this run.
        let its = record.filter(|record| record.epoch == Some(lease.epoch));
        if its.is_some_and(|record| record.state != State::Completed) {
            *told = Applied::Refused(Refusal::LeaseLost);
        }
    }
    Ok(())
}

/// Stores the ends of runs and claims in the same trip, driven to its end.
async fn apply(
    shared: &Shared,
    worker: &WorkerId,
    transitions: Vec<Transition>,
    asking: Option<&(WorkerId, Ask)>,
) -> Outcome<(Vec<Applied>, Option<Handed>)> {
    let mut then_claim = None;
    if let Some((asker, ask)) = asking
        && let Ok(control) = renew(shared, asker).await
        && control.order == RunOrder::Run
    {
        then_claim = claim_params(shared, asker, ask).map(|(params, _)| params);
    }
    if transitions.is_empty() && then_claim.is_none() {
        return Ok((Vec::new(), None));
    }
    let params = ApplyParams { worker: worker.clone(), transitions, then_claim };
    let (shared_too, asking) = (shared.clone(), asking.cloned());
    let applying = async move {
        let store = match &asking {
            Some((_, ask)) => store_for(&shared_too, ask),
            None => shared_too.store().clone(),
        };
        let ApplyReply { outcomes, claim } = store.apply(params).await?;
        let handed = match (asking, claim) {
            (Some((asker, ask)), Some(Ok(claim))) => {
                Some(Handed::new(&shared_too, &asker, &ask, claim).await)
            }
            (_, _) => None,
        };
        Ok::<_, Error>((outcomes, handed))
    };
    Ok(shared.to_its_end(applying).await??)
}
