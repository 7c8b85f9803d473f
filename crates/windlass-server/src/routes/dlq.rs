//! Dead letters: tasks that will not run again by themselves.

use axum::extract::{Request, State as Shares};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use windlass_core::store::{Action, Changed, Filter, GetParams, Parts};
use windlass_core::{State, TaskId, limits};

use super::bulk::sweep;
use super::task::{conflict, held_elsewhere};
use super::tasks::{TASK_BYTES, page};
use crate::access::Caller;
use crate::app::Shared;
use crate::body;
use crate::fields::Object;
use crate::form::rule::{given, not_together};
use crate::form::{Entry, Form, Sort, entry};
use crate::memory::ResponseMemory;
use crate::openapi::call::{Call, Group, Takes, answer};
use crate::problem::{Outcome, Problem, Slug};
use crate::query::{CURSOR, DRY_RUN, FILTERS_BUT_STATE, PAGING, RawQuery};
use crate::sweep::{self, Sweep, Swept};
use crate::wire::task::Task;
use crate::wire::{Json, List, filter};

/// Which dead letters to run again.
const RETRY_FORM: Form = Form::new(
    "DeadLetterRetry",
    &[
        entry("task_id", Sort::Key, "One dead letter"),
        entry("filter", Sort::Object(&filter::FILTER_OF_DEAD), "Those that match"),
        entry("retry_all", Sort::Flag, "Really all"),
        entry("cursor", Sort::Cursor, "The `next_cursor` of the answer before"),
        entry("dry_run", Sort::Flag, "Changes nothing, and counts what would be changed"),
    ],
)
.with(|| {
    let of_filters: Vec<_> = FILTERS_BUT_STATE.iter().map(|filter| given(&[filter.name])).collect();
    let is_filtered = json!({
        "required": ["filter"],
        "properties": { "filter": { "anyOf": of_filters } },
    });
    let is_all =
        json!({ "required": ["retry_all"], "properties": { "retry_all": { "const": true } } });
    let mut rules = vec![json!({ "anyOf": [given(&["task_id"]), is_filtered, is_all] })];
    let others = ["filter", "retry_all", "cursor", "dry_run"];
    rules.extend(others.map(|other| not_together(&["task_id", other])));
    rules
});
const SWEEPING: [Entry; 2] = [CURSOR, DRY_RUN];

pub(super) const LIST: Call = Call {
    group: Group::DeadLetters,
    id: "list_dead_letters",
    summary: "List dead letters, each with its last error",
    query: &[FILTERS_BUT_STATE, &PAGING],
    answers: &[answer::<List<Task<'static>>>(200, "A page of dead letters")],
    ..Call::PLAIN
};

/// A page of dead letters, each with the error that it died of: that is what one comes here for.
pub(super) async fn list(
    Shares(shared): Shares<Shared>,
    caller: Caller,
    query: RawQuery,
    memory: ResponseMemory,
) -> Outcome<Response> {
    let mut params = query.read(LIST.query)?.page()?;
    memory.hold(params.limit * TASK_BYTES).await?;
    params.filter.states = vec![State::DeadLetter];
    let mut page = page(&shared, &caller, params).await?;
    let ids = page.tasks.iter().map(|task| task.id.clone()).collect();
    let parts = Parts { history: true, ..Parts::NONE };
    let histories = shared.store().get(GetParams { ids, parts }).await?;
    for (task, found) in page.tasks.iter_mut().zip(histories) {
        task.history = found.map(|found| found.history).unwrap_or_default();
    }
    let data = page.tasks.iter().map(Task::listed).collect();
    let list = List { data, next_cursor: page.next_cursor };
    Ok(memory.attach(Json(StatusCode::OK, list).into_response()))
}

pub(super) const RETRY: Call = Call {
    group: Group::DeadLetters,
    id: "retry_dead_letters",
    summary: "Run dead letters again: one, those that match, or all",
    takes: Takes::Json(&RETRY_FORM),
    answers: &[answer::<Swept>(200, "What was changed")],
    problems: &[Slug::NotFound, Slug::StateConflict],
    ..Call::PLAIN
};

/// Runs dead letters again: one, those that match a filter, or all.
pub(super) async fn retry(
    Shares(shared): Shares<Shared>,
    caller: Caller,
    query: RawQuery,
    request: Request,
) -> Outcome<Response> {
    query.none()?;
    let body = body::json(request, body::SINGLE_BYTES_MAX).await?;
    let mut object = Object::read(&body.bytes, &RETRY_FORM)?;
    let dry = object.take("dry_run").map(|field| field.flag()).transpose()?;
    let all = object.take("retry_all").map(|field| field.flag()).transpose()?;
    let (is_dry, is_all) = (dry == Some(true), all == Some(true));
    let cursor = object.take("cursor").map(|field| field.text()).transpose()?;
    let filter = match (object.take("task_id"), object.take("filter")) {
        (Some(field), None) if all.is_none() && cursor.is_none() && dry.is_none() => {
            let text = field.text()?;
            limits::check_key("it", &text).map_err(|error| field.refused(error))?;
            return retry_one(&shared, &caller, TaskId::new(text)).await;
        }
        (Some(field), _) => return Err(field.refused("give a task_id and nothing else")),
        (None, Some(field)) => filter::read(&field, &filter::FILTER_OF_DEAD)?,
        (None, None) if is_all => Filter::default(),
        (None, None) => {
            let text = "say which: task_id, filter or \"retry_all\": true";
            return Err(Problem::new(Slug::InvalidRequest, text));
        }
    };
    if filter == Filter::default() && !is_all {
        return Err(Problem::field("filter", "is empty; say \"retry_all\": true if you mean it"));
    }
    let filter = Filter { states: vec![State::DeadLetter], ..filter };
    let retry = Sweep { action: Action::Rerun, filter, cursor };
    let swept = sweep(&shared, &caller, retry, is_dry).await?;
    Ok(Json(StatusCode::OK, swept).into_response())
}

pub(super) const PURGE: Call = Call {
    group: Group::DeadLetters,
    id: "delete_dead_letters",
    summary: "Remove dead letters: those that match, or all",
    query: &[FILTERS_BUT_STATE, &SWEEPING],
    takes: Takes::Empty,
    answers: &[answer::<Swept>(200, "What was removed")],
    ..Call::PLAIN
};

/// Removes dead letters: those that match, or all.
pub(super) async fn purge(
    Shares(shared): Shares<Shared>,
    caller: Caller,
    query: RawQuery,
    request: Request,
) -> Outcome<Response> {
    let query = query.read(PURGE.query)?;
    body::none(request).await?;
    let filter = Filter { states: vec![State::DeadLetter], ..query.filter()? };
    let cursor = query.text("cursor").map(str::to_owned);
    let purge = Sweep { action: Action::Delete, filter, cursor };
    let swept = sweep(&shared, &caller, purge, query.flag("dry_run")?).await?;
    Ok(Json(StatusCode::OK, swept).into_response())
}

async fn retry_one(shared: &Shared, caller: &Caller, id: TaskId) -> Outcome<Response> {
    let (ids, only_in) = (vec![id.clone()], [State::DeadLetter]);
    let reply = sweep::change(shared, caller, ids, Action::Rerun, &only_in).await?;
    match reply.outcomes.first() {
        Some(Changed::Done(_) | Changed::Requested) => {
            Ok(Json(StatusCode::OK, Swept { changed: 1, ..Swept::default() }).into_response())
        }
        Some(Changed::Conflict(state)) => Err(conflict(&id, *state)),
        Some(Changed::HeldElsewhere(state)) => Err(held_elsewhere(&id, *state)),
        Some(Changed::NotFound) | None => Err(Problem::no_task(&id)),
    }
}
