//! Queues: what is in them, pause, resume, purge.

use axum::extract::{Request, State as Shares};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use windlass_core::store::{Action, Depth, Filter, Order, QueueRecord, RunOrder};
use windlass_core::{QueueName, State, Timestamp};

use super::Name;
use super::bulk::sweep;
use crate::access::Caller;
use crate::app::Shared;
use crate::audit::{self, Deed};
use crate::body;
use crate::problem::{Outcome, Problem, Slug};
use crate::query::RawQuery;
use crate::sweep::Sweep;
use crate::wire::queue::Queue;
use crate::wire::{Json, List};

/// All queues that the caller may see, by name.
pub(super) async fn list(
    Shares(shared): Shares<Shared>,
    caller: Caller,
    query: RawQuery,
) -> Outcome<Response> {
    query.none()?;
    let mut queues = shared.store().queues().await?;
    queues.retain(|queue| caller.reaches(&queue.name));
    let now = clock(&shared, &queues).await?;
    let data = queues.iter().map(|queue| Queue::new(queue, now)).collect();
    Ok(Json(StatusCode::OK, List::whole(data)).into_response())
}

/// One queue.
pub(super) async fn show(
    Shares(shared): Shares<Shared>,
    caller: Caller,
    Name(name): Name,
    query: RawQuery,
) -> Outcome<Response> {
    query.none()?;
    caller.check_queue(&QueueName::stored(&name))?;
    answer(&shared, &name).await
}

/// Has a queue give out nothing; one that is not known yet is made.
pub(super) async fn pause(
    Shares(shared): Shares<Shared>,
    caller: Caller,
    Name(name): Name,
    query: RawQuery,
    request: Request,
) -> Outcome<Response> {
    query.none()?;
    caller.check_queue(&QueueName::stored(&name))?;
    body::none(&shared, request).await?;
    let queue = match QueueName::new(&name) {
        Ok(queue) => queue,
        // A queue that another program made may have any name, but no new one may.
        Err(error) => match find(&shared, &name).await {
            Ok(found) => found.name,
            Err(_) => return Err(Problem::of_field("queue", &error)),
        },
    };
    shared.store().order(Order::Queue { queue, order: RunOrder::Pause }).await?;
    audit::note(&shared, &caller, Deed::to("pause", format!("queue {name}"))).await;
    answer(&shared, &name).await
}

/// Has a queue give out its tasks again.
pub(super) async fn resume(
    Shares(shared): Shares<Shared>,
    caller: Caller,
    Name(name): Name,
    query: RawQuery,
    request: Request,
) -> Outcome<Response> {
    query.none()?;
    caller.check_queue(&QueueName::stored(&name))?;
    body::none(&shared, request).await?;
    let queue = find(&shared, &name).await?.name;
    shared.store().order(Order::Queue { queue, order: RunOrder::Run }).await?;
    audit::note(&shared, &caller, Deed::to("resume", format!("queue {name}"))).await;
    answer(&shared, &name).await
}

/// Removes everything that waits in a queue.
pub(super) async fn purge(
    Shares(shared): Shares<Shared>,
    caller: Caller,
    Name(name): Name,
    query: RawQuery,
    request: Request,
) -> Outcome<Response> {
    let query = query.read(&[&["cursor", "dry_run"]])?;
    caller.check_queue(&QueueName::stored(&name))?;
    body::none(&shared, request).await?;
    let queue = Some(find(&shared, &name).await?.name);
    let filter = Filter { states: State::WAITING.to_vec(), queue, ..Filter::default() };
    let cursor = query.text("cursor").map(str::to_owned);
    let purge = Sweep { action: Action::Delete, filter, cursor };
    let swept = sweep(&shared, &caller, purge, query.flag("dry_run")?).await?;
    Ok(Json(StatusCode::OK, swept).into_response())
}

async fn answer(shared: &Shared, name: &str) -> Outcome<Response> {
    let record = find(shared, name).await?;
    let now = clock(shared, std::slice::from_ref(&record)).await?;
    Ok(Json(StatusCode::OK, Queue::new(&record, now)).into_response())
}

async fn find(shared: &Shared, name: &str) -> Outcome<QueueRecord> {
    let queues = shared.store().queues().await?;
    let found = queues.into_iter().find(|queue| queue.name.as_str() == name);
    let shown = windlass_core::limits::clip(name, 128);
    found.ok_or_else(|| Problem::new(Slug::NotFound, format!("no queue {shown:?}")))
}

/// The store's clock, if any age is to be told by it.
async fn clock(shared: &Shared, queues: &[QueueRecord]) -> Outcome<Timestamp> {
    if queues.iter().all(|queue| queue.oldest_pending_at.is_none()) {
        return Ok(Timestamp::default());
    }
    Ok(shared.store().inspect(Depth::Ping).await?.now)
}
