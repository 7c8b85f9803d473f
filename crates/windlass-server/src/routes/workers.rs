//! Workers: who they are and what they run.

use axum::extract::State as Shares;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use windlass_core::State;
use windlass_core::limits::clip;
use windlass_core::store::{Depth, Filter};

use super::Name;
use crate::app::Shared;
use crate::problem::{Outcome, Problem, Slug};
use crate::query::RawQuery;
use crate::sweep;
use crate::wire::task::Task;
use crate::wire::worker::Worker;
use crate::wire::{Json, List};

/// Most tasks of one worker that are told.
const TASKS_MAX: usize = 500;

/// All workers that live, and those that ended within the last hour.
pub(super) async fn list(Shares(shared): Shares<Shared>, query: RawQuery) -> Outcome<Response> {
    query.none()?;
    let workers = shared.store().workers().await?;
    let now = shared.store().inspect(Depth::Ping).await?.now;
    let data = workers.iter().map(|worker| Worker::new(worker, now)).collect();
    Ok(Json(StatusCode::OK, List::whole(data)).into_response())
}

#[derive(Serialize)]
struct WithTasks<'a> {
    #[serde(flatten)]
    worker: Worker<'a>,
    tasks: Vec<Task<'a>>,
    /// There may be more tasks of it than these.
    tasks_capped: bool,
}

/// One worker, and the tasks that it runs.
pub(super) async fn show(
    Shares(shared): Shares<Shared>,
    Name(name): Name,
    query: RawQuery,
) -> Outcome<Response> {
    query.none()?;
    let store = shared.store();
    let workers = store.workers().await?;
    let Some(worker) = workers.iter().find(|worker| worker.id.as_str() == name) else {
        let text = format!("no worker {:?}", clip(&name, 255));
        return Err(Problem::new(Slug::NotFound, text));
    };
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
