//! One task: what it is, what happened to it, and what can be done to it.

use std::time::Duration;

use axum::Extension;
use axum::extract::{Request, State as Shares};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::time::Instant;
use windlass_core::store::{Action, Changed, GetParams, Parts, WaitParams, Wake};
use windlass_core::{State, TaskId, TaskRecord, When, history, limits};

use super::Name;
use crate::access::Caller;
use crate::app::Shared;
use crate::body;
use crate::fields::Object;
use crate::form::rule::{any_of, not_together};
use crate::form::{Entry, Form, Sort, entry};
use crate::listen::Stopping;
use crate::memory::ResponseMemory;
use crate::openapi::call::{Call, Group, TASK_ID, Takes, answer};
use crate::problem::{Outcome, Problem, Slug};
use crate::query::RawQuery;
use crate::sweep;
use crate::wire::task::Task;
use crate::wire::timeline::Event;
use crate::wire::{Brief, Deleted, Json, List};

/// Longest wait for a task's end.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// How long one wait in the store lasts before it is begun anew.
const ROUND: Duration = Duration::from_secs(20);
/// Between rounds while the store is away.
const AWAY_PAUSE: Duration = Duration::from_millis(300);

const WAIT: [Entry; 1] =
    [entry("wait", Sort::Wait, "Answers when the task is finished, or after so long; up to 60 s")];
const PURGE: [Entry; 1] = [entry("purge", Sort::Flag, "Removes the record of a finished task")];

/// The form of a snooze.
const SNOOZE_FORM: Form = Form::new("Snooze", &UNTIL)
    .with(|| vec![any_of(&["for", "until"]), not_together(&["for", "until"])]);

/// The time to which something is put off.
pub(super) const UNTIL: [Entry; 2] =
    [entry("for", Sort::Duration, "From now on"), entry("until", Sort::Time, "When")];

pub(super) const SHOW: Call = Call {
    group: Group::Tasks,
    id: "get_task",
    summary: "Read a task, or wait for its end",
    path: &TASK_ID,
    query: &[&WAIT],
    answers: &[answer::<Task<'static>>(200, "The task")],
    ..Call::PLAIN
};

/// The task; with `wait`, as soon as it is finished, or at the end of the wait.
pub(super) async fn show(
    Shares(shared): Shares<Shared>,
    caller: Caller,
    name: Name,
    query: RawQuery,
    stopping: Option<Extension<Stopping>>,
    memory: ResponseMemory,
) -> Outcome<Response> {
    let query = query.read(SHOW.query)?;
    let id = id(name)?;
    caller.check_tasks(&shared, std::slice::from_ref(&id)).await?;
    let mut was_there = false;
    if let Some(time) = query.duration("wait")? {
        if time > WAIT_MAX {
            return Err(Problem::field("wait", format!("at most {} s", WAIT_MAX.as_secs())));
        }
        let _leave = shared.wait(&caller)?;
        let params = GetParams { ids: vec![id.clone()], parts: Parts::NONE };
        let seen = shared.store().get(params).await;
        was_there = seen.is_ok_and(|found| found.iter().any(Option::is_some));
        let finished = finished(&shared, &id, time);
        match stopping {
            // Who waits is answered before the server ends, with the state as it is.
            Some(Extension(Stopping(stop))) => drop(stop.run_until_cancelled(finished).await),
            None => finished.await,
        }
    }
    let limits = &shared.client().config().limits;
    memory.hold(limits.payload_bytes_max + limits.result_bytes_max).await?;
    let record = match shared.client().get(&id).await? {
        None if was_there => return Err(vanished(&id)),
        found => found.ok_or_else(|| Problem::no_task(&id))?,
    };
    caller.check_queue(&record.queue)?;
    Ok(memory.attach(Json(StatusCode::OK, Task::whole(&record)).into_response()))
}

pub(super) const EVENTS: Call = Call {
    group: Group::Tasks,
    id: "get_task_events",
    summary: "Read the whole timeline of a task",
    path: &TASK_ID,
    answers: &[answer::<List<Event>>(200, "Everything that happened, oldest first")],
    ..Call::PLAIN
};

/// Everything that happened to the task, oldest first.
pub(super) async fn events(
    Shares(shared): Shares<Shared>,
    caller: Caller,
    name: Name,
    query: RawQuery,
    memory: ResponseMemory,
) -> Outcome<Response> {
    query.none()?;
    // The record comes whole, with its payload and result.
    let limits = &shared.client().config().limits;
    memory.hold(limits.payload_bytes_max + limits.result_bytes_max).await?;
    let record = record(&shared, &caller, &id(name)?).await?;
    let events = history::timeline(&record).into_iter().map(Event::from).collect();
    Ok(memory.attach(Json(StatusCode::OK, List::whole(events)).into_response()))
}

pub(super) const CANCEL: Call = Call {
    group: Group::Tasks,
    id: "cancel_task",
    summary: "Cancel a task",
    path: &TASK_ID,
    takes: Takes::Empty,
    answers: &[
        answer::<AfterChange<'static>>(200, "Cancelled now"),
        answer::<AfterChange<'static>>(202, "It runs, and is told"),
    ],
    problems: &[Slug::StateConflict],
    ..Call::PLAIN
};

/// Calls the task off: 200 at once, 202 when it runs and will hear of it.
pub(super) async fn cancel(
    Shares(shared): Shares<Shared>,
    caller: Caller,
    name: Name,
    query: RawQuery,
    request: Request,
) -> Outcome<Response> {
    query.none()?;
    body::none(request).await?;
    change(&shared, &caller, &id(name)?, Action::Cancel, &[]).await
}

pub(super) const DELETE: Call = Call {
    group: Group::Tasks,
    id: "delete_task",
    summary: "Cancel a task, or remove a finished one",
    path: &TASK_ID,
    query: &[&PURGE],
    takes: Takes::Empty,
    answers: &[
        answer::<ChangedOrDeleted<'static>>(200, "Cancelled now, or removed"),
        answer::<AfterChange<'static>>(202, "It runs, and is told"),
    ],
    problems: &[Slug::StateConflict],
    ..Call::PLAIN
};

/// The same as a cancel; with `purge`, removes the record of a finished task.
pub(super) async fn delete(
    Shares(shared): Shares<Shared>,
    caller: Caller,
    name: Name,
    query: RawQuery,
    request: Request,
) -> Outcome<Response> {
    let is_purge = query.read(DELETE.query)?.flag("purge")?;
    body::none(request).await?;
    let id = id(name)?;
    if is_purge {
        return change(&shared, &caller, &id, Action::Delete, &State::TERMINAL).await;
    }
    change(&shared, &caller, &id, Action::Cancel, &[]).await
}

pub(super) const RETRY: Call = Call {
    group: Group::Tasks,
    id: "retry_task",
    summary: "Run a task again, or now",
    details: "What is finished starts over; what is scheduled or retrying runs now.",
    path: &TASK_ID,
    takes: Takes::Empty,
    answers: &[answer::<AfterChange<'static>>(200, "The task")],
    problems: &[Slug::StateConflict],
    ..Call::PLAIN
};

/// Runs the task again, or now.
pub(super) async fn retry(
    Shares(shared): Shares<Shared>,
    caller: Caller,
    name: Name,
    query: RawQuery,
    request: Request,
) -> Outcome<Response> {
    query.none()?;
    body::none(request).await?;
    change(&shared, &caller, &id(name)?, Action::Rerun, &[]).await
}

pub(super) const SNOOZE: Call = Call {
    group: Group::Tasks,
    id: "snooze_task",
    summary: "Move a waiting task to another time",
    path: &TASK_ID,
    takes: Takes::Json(&SNOOZE_FORM),
    answers: &[answer::<AfterChange<'static>>(200, "The task")],
    problems: &[Slug::StateConflict],
    ..Call::PLAIN
};

/// Moves the task to another time.
pub(super) async fn snooze(
    Shares(shared): Shares<Shared>,
    caller: Caller,
    name: Name,
    query: RawQuery,
    request: Request,
) -> Outcome<Response> {
    query.none()?;
    let body = body::json(request, body::SINGLE_BYTES_MAX).await?;
    let when = when(&mut Object::read(&body.bytes, &SNOOZE_FORM)?)?;
    let Some(when) = when else {
        return Err(Problem::new(Slug::InvalidRequest, "say how long: for or until"));
    };
    change(&shared, &caller, &id(name)?, Action::Reschedule(when), &[]).await
}

/// Reads the time to which something is put off.
pub(super) fn when(object: &mut Object<'_>) -> Outcome<Option<When>> {
    match (object.take("for"), object.take("until")) {
        (None, None) => Ok(None),
        (Some(time), None) => Ok(Some(When::After(time.duration()?))),
        (None, Some(until)) => Ok(Some(When::At(until.time()?))),
        (Some(_), Some(until)) => Err(until.refused("give for or until, not both")),
    }
}

/// A task after a change; in short when nothing more of it can be read.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "ChangedTaskAnswer")]
enum AfterChange<'a> {
    Whole(Box<Task<'a>>),
    Brief(Brief<'a>),
}

/// The same, or that it was removed.
#[derive(JsonSchema)]
#[schemars(rename = "ChangedOrDeletedAnswer", untagged)]
#[expect(dead_code, reason = "the two are answered apart: this is their schema")]
enum ChangedOrDeleted<'a> {
    Changed(AfterChange<'a>),
    Deleted(Deleted<'a>),
}

/// Changes one task and answers it as it is afterwards.
pub(super) async fn change(
    shared: &Shared,
    caller: &Caller,
    id: &TaskId,
    action: Action,
    only_in: &[State],
) -> Outcome<Response> {
    let reply = sweep::change(shared, caller, vec![id.clone()], action, only_in).await?;
    let (status, state) = match reply.outcomes.first() {
        Some(Changed::Done(state)) => (StatusCode::OK, *state),
        Some(Changed::Requested) => (StatusCode::ACCEPTED, Some(State::Running)),
        Some(Changed::Conflict(state)) => return Err(conflict(id, *state)),
        Some(Changed::HeldElsewhere(state)) => return Err(held_elsewhere(id, *state)),
        Some(Changed::NotFound) | None => return Err(Problem::no_task(id)),
    };
    let Some(state) = state else {
        return Ok(Json(status, Deleted { id: id.as_str(), deleted: true }).into_response());
    };
    // The change is made, so what follows must not fail: the record may be gone already, since
    // nobody wanted it kept, or the store away.
    match shared.client().get(id).await {
        Ok(Some(record)) => {
            let whole = AfterChange::Whole(Box::new(Task::whole(&record)));
            Ok(Json(status, whole).into_response())
        }
        Ok(None) | Err(_) => {
            Ok(Json(status, AfterChange::Brief(Brief { id, state })).into_response())
        }
    }
}

/// The problem of a state that forbids a change.
pub(super) fn conflict(id: &TaskId, state: State) -> Problem {
    Problem::new(Slug::StateConflict, format!("task {id} is {state}")).with("state", state.as_str())
}

/// The problem of a task that some other program has.
pub(super) fn held_elsewhere(id: &TaskId, state: State) -> Problem {
    let text =
        format!("task {id} is held by a program outside windlass; try again when it is done");
    Problem::new(Slug::StateConflict, text).with("state", state.as_str())
}

/// The problem of a task that was there when the wait for its end began.
fn vanished(id: &TaskId) -> Problem {
    let text = format!("task {id} is gone: it was deleted, or it ended and nothing of it is kept");
    Problem::new(Slug::NotFound, text)
}

async fn record(shared: &Shared, caller: &Caller, id: &TaskId) -> Outcome<TaskRecord> {
    let record = shared.client().get(id).await?.ok_or_else(|| Problem::no_task(id))?;
    caller.check_queue(&record.queue)?;
    Ok(record)
}

/// Ends when the task is finished or gone, or the time is over; a store that is away is waited for.
async fn finished(shared: &Shared, id: &TaskId, time: Duration) {
    let end = Instant::now() + time;
    loop {
        let rest = end.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return;
        }
        let params = WaitParams {
            tasks: vec![id.clone()],
            at_most: rest.min(ROUND),
            ..WaitParams::default()
        };
        match shared.store().wait(params).await {
            Ok(Wake::Finished(_)) => return,
            Ok(Wake::Work | Wake::Orders | Wake::TimedOut) => {}
            Err(error) => {
                tracing::debug!(task = %id, error = error.chain(), "waiting for the store");
                tokio::time::sleep(rest.min(AWAY_PAUSE)).await;
            }
        }
    }
}

/// The id in a path; what no store could have made is not found.
fn id(Name(name): Name) -> Outcome<TaskId> {
    let id = TaskId::new(&name);
    limits::check_key("task id", &name).map_err(|_| {
        Problem::new(Slug::NotFound, format!("no task {:?}", limits::clip(&name, 255)))
    })?;
    Ok(id)
}
