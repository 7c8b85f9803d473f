//! Workers: who they are and what they run.

use axum::extract::{Request, State as Shares};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use windlass_core::limits::clip;
use windlass_core::store::{Depth, Filter, Order, RunOrder, WorkerCard, WorkerRecord};
use windlass_core::{ErrorKind, State, WorkerId};

use super::Name;
use crate::access::Caller;
use crate::app::Shared;
use crate::audit::{self, Deed};
use crate::body;
use crate::memory::ResponseMemory;
use crate::openapi::call::{Call, Group, Takes, WORKER_ID, answer};
use crate::problem::{Outcome, Problem, Slug};
use crate::query::RawQuery;
use crate::sweep;
use crate::wire::task::Task;
use crate::wire::worker::Worker;
use crate::wire::{Json, List};

/// Bytes of a worker in a list, about, and of the name of each of its queues and types.
const WORKER_BYTES: usize = 1024;
const NAME_BYTES: usize = 32;
/// Most tasks of one worker that are told.
const TASKS_MAX: usize = 500;

pub(super) const LIST: Call = Call {
    group: Group::Workers,
    id: "list_workers",
    summary: "List workers that live, or ended within the last hour",
    answers: &[answer::<List<Worker<'static>>>(200, "All workers")],
    ..Call::PLAIN
};

/// All workers that live, and those that ended within the last hour.
pub(super) async fn list(
    Shares(shared): Shares<Shared>,
    query: RawQuery,
    memory: ResponseMemory,
) -> Outcome<Response> {
    query.none()?;
    let workers = shared.workers().await?;
    let kinds =
        |card: &WorkerCard| card.kinds.as_ref().and_then(|k| k.names()).map_or(0, <[_]>::len);
    let names = |worker: &WorkerRecord| worker.card.queues.len() + kinds(&worker.card);
    let names: usize = workers.iter().map(names).sum();
    memory.hold(workers.len() * WORKER_BYTES + names * NAME_BYTES).await?;
    let now = shared.store().inspect(Depth::Ping).await?.now;
    let data = workers.iter().map(|worker| Worker::new(worker, now)).collect();
    Ok(memory.attach(Json(StatusCode::OK, List::whole(data)).into_response()))
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "WorkerWithTasks")]
struct WithTasks<'a> {
    #[serde(flatten)]
    worker: Worker<'a>,
    tasks: Vec<Task<'a>>,
    /// There may be more tasks of it than these.
    tasks_capped: bool,
}

pub(super) const SHOW: Call = Call {
    group: Group::Workers,
    id: "get_worker",
    summary: "Read a worker and what it runs",
    path: &WORKER_ID,
    answers: &[answer::<WithTasks<'static>>(200, "The worker")],
    ..Call::PLAIN
};

/// One worker, and the tasks that it runs.
pub(super) async fn show(
    Shares(shared): Shares<Shared>,
    Name(name): Name,
    query: RawQuery,
) -> Outcome<Response> {
    query.none()?;
    let store = shared.store();
    let worker = &find(&shared, &name).await?;
    let mut running = Vec::new();
    let mut is_capped = false;
    if worker.running_count > 0 {
        let filter = Filter { states: vec![State::Running], ..Filter::default() };
        is_capped = sweep::walk(&**store, filter, |task| {
            if task.worker.as_ref() == Some(&worker.id) && running.len() < TASKS_MAX {
                running.push(task.clone());
            }
        })
        .await?;
    }
    let shown = WithTasks {
        worker: Worker::new(worker, store.inspect(Depth::Ping).await?.now),
        tasks_capped: is_capped || running.len() == TASKS_MAX,
        tasks: running.iter().map(Task::listed).collect(),
    };
    Ok(Json(StatusCode::OK, shown).into_response())
}

pub(super) const PAUSE: Call = Call {
    group: Group::Workers,
    id: "pause_worker",
    summary: "Have a worker take nothing new",
    path: &WORKER_ID,
    takes: Takes::Empty,
    answers: &[answer::<Worker<'static>>(200, "The worker; its state follows when it has heard")],
    problems: &[Slug::StateConflict],
    ..Call::PLAIN
};

/// Has a worker take nothing new until told otherwise.
pub(super) async fn pause(
    Shares(shared): Shares<Shared>,
    caller: Caller,
    Name(name): Name,
    query: RawQuery,
    request: Request,
) -> Outcome<Response> {
    query.none()?;
    body::none(request).await?;
    order(&shared, &caller, &name, RunOrder::Pause).await
}

pub(super) const RESUME: Call = Call {
    group: Group::Workers,
    id: "resume_worker",
    summary: "Have a worker take tasks again",
    path: &WORKER_ID,
    takes: Takes::Empty,
    answers: &[answer::<Worker<'static>>(200, "The worker; its state follows when it has heard")],
    problems: &[Slug::StateConflict],
    ..Call::PLAIN
};

/// Has a worker take tasks again.
pub(super) async fn resume(
    Shares(shared): Shares<Shared>,
    caller: Caller,
    Name(name): Name,
    query: RawQuery,
    request: Request,
) -> Outcome<Response> {
    query.none()?;
    body::none(request).await?;
    order(&shared, &caller, &name, RunOrder::Run).await
}

pub(super) const DRAIN: Call = Call {
    group: Group::Workers,
    id: "drain_worker",
    summary: "Have a worker finish what it runs, and end",
    path: &WORKER_ID,
    takes: Takes::Empty,
    answers: &[answer::<Worker<'static>>(200, "The worker; its state follows when it has heard")],
    problems: &[Slug::StateConflict],
    ..Call::PLAIN
};

/// Has a worker finish what it runs, and end.
pub(super) async fn drain(
    Shares(shared): Shares<Shared>,
    caller: Caller,
    Name(name): Name,
    query: RawQuery,
    request: Request,
) -> Outcome<Response> {
    query.none()?;
    body::none(request).await?;
    order(&shared, &caller, &name, RunOrder::Drain).await
}

/// Gives an order, and answers the worker: what it was told, and what it does so far.
async fn order(shared: &Shared, caller: &Caller, name: &str, order: RunOrder) -> Outcome<Response> {
    let worker = WorkerId::new(name);
    let given = shared.store().order(Order::Worker { worker, order }).await;
    if let Err(error) = given {
        return Err(match error.kind() {
            ErrorKind::NotFound => not_there(shared, name).await?,
            _ => error.into(),
        });
    }
    let action = match order {
        RunOrder::Run => "resume",
        RunOrder::Pause => "pause",
        RunOrder::Drain => "drain",
    };
    audit::note(shared, caller, Deed::to(action, format!("worker {name}"))).await;
    let record = find(shared, name).await?;
    let now = shared.store().inspect(Depth::Ping).await?.now;
    Ok(Json(StatusCode::OK, Worker::new(&record, now)).into_response())
}

async fn find(shared: &Shared, name: &str) -> Outcome<WorkerRecord> {
    let workers = shared.store().workers().await?;
    let found = workers.into_iter().find(|worker| worker.id.as_str() == name);
    found.ok_or_else(|| no_worker(name))
}

/// The problem of an order to a worker that is not there, or not any more.
async fn not_there(shared: &Shared, name: &str) -> Outcome<Problem> {
    if !find(shared, name).await?.is_gone {
        return Ok(no_worker(name));
    }
    let text = format!("worker {:?} is gone, and takes no orders", clip(name, 255));
    Ok(Problem::new(Slug::StateConflict, text))
}

fn no_worker(name: &str) -> Problem {
    Problem::new(Slug::NotFound, format!("no worker {:?}", clip(name, 255)))
}
