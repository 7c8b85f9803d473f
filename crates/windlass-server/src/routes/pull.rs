//! The protocol of workers in any language: lease, report, show that one lives, leave.

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use windlass_core::WorkerId;

use super::Name;
use crate::access::Caller;
use crate::app::Shared;
use crate::body;
use crate::listen::Stopping;
use crate::problem::Outcome;
use crate::query::RawQuery;
use crate::remote;
use crate::wire::Json;
use crate::wire::pull::{Results, Tasks, Told, ask, pulse, report};

/// When waits have to end.
type Stop = Option<Extension<Stopping>>;

/// Leases tasks to a worker.
pub(super) async fn lease(
    State(shared): State<Shared>,
    caller: Caller,
    query: RawQuery,
    stop: Stop,
    request: Request,
) -> Outcome<Response> {
    query.none()?;
    let body = body::json(&shared, request, body::SINGLE_BYTES_MAX).await?;
    let leased = remote::lease(&shared, &caller, &ask(&body.bytes)?, &token(stop)).await?;
    let answer = Tasks::new(&leased, shared.client().config());
    Ok(Json(StatusCode::OK, answer).into_response())
}

/// Takes the results of runs, and leases the next tasks in the same trip.
pub(super) async fn results(
    State(shared): State<Shared>,
    caller: Caller,
    query: RawQuery,
    stop: Stop,
    request: Request,
) -> Outcome<Response> {
    query.none()?;
    let body = body::json(&shared, request, body::BATCH_BYTES_MAX).await?;
    let report = report(&body.bytes, shared.client().config())?;
    drop(body);
    let reported = remote::report(&shared, &caller, report, &token(stop)).await?;
    let answer = Results::new(&reported, shared.client().config());
    Ok(Json(StatusCode::OK, answer).into_response())
}

/// Renews everything that a worker holds.
pub(super) async fn heartbeat(
    State(shared): State<Shared>,
    caller: Caller,
    Name(name): Name,
    query: RawQuery,
    request: Request,
) -> Outcome<Response> {
    query.none()?;
    let body = body::json(&shared, request, body::SINGLE_BYTES_MAX).await?;
    let pulse = pulse(WorkerId::new(name), &body.bytes)?;
    let heard = remote::pulse(&shared, &caller, pulse).await?;
    let answer = Told::new(&heard, shared.client().config());
    Ok(Json(StatusCode::OK, answer).into_response())
}

/// Ends a worker: what it holds goes back at once.
pub(super) async fn leave(
    State(shared): State<Shared>,
    caller: Caller,
    Name(name): Name,
    query: RawQuery,
    request: Request,
) -> Outcome<Response> {
    query.none()?;
    body::none(&shared, request).await?;
    let released = remote::leave(&shared, &caller, WorkerId::new(name)).await?;
    Ok(Json(StatusCode::OK, json!({ "released": released })).into_response())
}

fn token(stop: Stop) -> CancellationToken {
    stop.map_or_else(CancellationToken::new, |Extension(Stopping(token))| token)
}
