//! Dead letters: tasks that will not run again by themselves.

use axum::extract::{Request, State as Shares};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use windlass_core::store::{Action, Changed, Filter, GetParams, Parts};
use windlass_core::{State, TaskId};

use super::bulk::{flag, sweep};
use super::task::{conflict, held_elsewhere};
use super::tasks::page;
use crate::access::Caller;
use crate::app::Shared;
use crate::body;
use crate::fields::Object;
use crate::problem::{Outcome, Problem, Slug};
use crate::query::{FILTERS, PAGING, RawQuery};
use crate::sweep::{self, Sweep, Swept};
use crate::wire::task::Task;
use crate::wire::{Json, List, filter};

/// All filters but the state, which is settled.
const FILTERS_OF_DEAD: &[&str] = FILTERS.split_at(1).1;

/// A page of dead letters, each with the error that it died of: that is what one comes here for.
pub(super) async fn list(
    Shares(shared): Shares<Shared>,
    caller: Caller,
    query: RawQuery,
) -> Outcome<Response> {
    let mut params = query.read(&[FILTERS_OF_DEAD, &PAGING])?.page()?;
    params.filter.states = vec![State::DeadLetter];
    let mut page = page(&shared, &caller, params).await?;
    let ids = page.tasks.iter().map(|task| task.id.clone()).collect();
    let parts = Parts { history: true, ..Parts::NONE };
    let histories = shared.store().get(GetParams { ids, parts }).await?;
    for (task, found) in page.tasks.iter_mut().zip(histories) {
        task.history = found.map(|found| found.history).unwrap_or_default();
    }
    let data = page.tasks.iter().map(Task::listed).collect();
    Ok(Json(StatusCode::OK, List { data, next_cursor: page.next_cursor }).into_response())
}

/// Runs dead letters again: one, those that match a filter, or all.
pub(super) async fn retry(
    Shares(shared): Shares<Shared>,
    caller: Caller,
    query: RawQuery,
    request: Request,
) -> Outcome<Response> {
    query.none()?;
    let body = body::json(&shared, request, body::SINGLE_BYTES_MAX).await?;
    let known = ["task_id", "filter", "retry_all", "cursor", "dry_run"];
    let mut object = Object::read(&body.bytes, &known)?;
    let is_dry = flag(&mut object, "dry_run")?;
    let is_all = flag(&mut object, "retry_all")?;
    let cursor = object.take("cursor").map(|field| field.text()).transpose()?;
    let filter = match (object.take("task_id"), object.take("filter")) {
        (Some(field), None) if !is_all && cursor.is_none() && !is_dry => {
            return retry_one(&shared, &caller, TaskId::new(field.text()?)).await;
        }
        (Some(field), _) => return Err(field.refused("give a task_id and nothing else")),
        (None, Some(field)) => filter::read(&field, FILTERS_OF_DEAD)?,
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

/// Removes dead letters: those that match, or all.
pub(super) async fn purge(
    Shares(shared): Shares<Shared>,
    caller: Caller,
    query: RawQuery,
    request: Request,
) -> Outcome<Response> {
    let query = query.read(&[FILTERS_OF_DEAD, &["cursor", "dry_run"]])?;
    body::none(&shared, request).await?;
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
