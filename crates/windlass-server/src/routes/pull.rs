//! The protocol of workers in any language: lease, report, show that one lives, leave.

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use windlass_core::WorkerId;

use super::Name;
use crate::access::Caller;
use crate::app::Shared;
use crate::body;
use crate::listen::Stopping;
use crate::memory::ResponseMemory;
use crate::openapi::call::{Call, Group, Takes, WORKER_ID, answer};
use crate::problem::{Outcome, Slug};
use crate::query::RawQuery;
use crate::remote::{self, LeaseBounds};
use crate::wire::Json;
use crate::wire::pull::{LEASE, PULSE, REPORT, Results, Tasks, Told, ask, pulse, report};

/// When waits have to end.
type Stop = Option<Extension<Stopping>>;

pub(super) const LEASE_CALL: Call = Call {
    group: Group::Pull,
    id: "lease_tasks",
    summary: "Lease tasks, or wait for some",
    takes: Takes::Json(&LEASE),
    answers: &[answer::<Tasks<'static>>(200, "Tasks to run; none when the wait is over")],
    problems: &[Slug::LeaseLost],
    ..Call::PLAIN
};

/// Leases tasks to a worker.
pub(super) async fn lease(
    State(shared): State<Shared>,
    caller: Caller,
    query: RawQuery,
    stop: Stop,
    memory: ResponseMemory,
    request: Request,
) -> Outcome<Response> {
    query.none()?;
    let body = body::json(request, body::SINGLE_BYTES_MAX).await?;
    let ask = ask(&body.bytes)?;
    drop(body);
    let bounds = LeaseBounds { memory: &memory, stop: &token(stop) };
    let leased = remote::lease(&shared, &caller, &ask, bounds).await?;
    let answer = Tasks::new(&leased, shared.client().config());
    Ok(memory.attach(Json(StatusCode::OK, answer).into_response()))
}

pub(super) const RESULTS: Call = Call {
    group: Group::Pull,
    id: "report_results",
    summary: "Report how runs ended, and lease the next tasks",
    details: "Idempotent for the same epoch.",
    takes: Takes::Json(&REPORT),
    answers: &[answer::<Results<'static>>(
        200,
        "What became of each, and the next tasks if `lease` was there",
    )],
    problems: &[Slug::LeaseLost],
    ..Call::PLAIN
};

/// Takes the results of runs, and leases the next tasks in the same trip.
pub(super) async fn results(
    State(shared): State<Shared>,
    caller: Caller,
    query: RawQuery,
    stop: Stop,
    memory: ResponseMemory,
    request: Request,
) -> Outcome<Response> {
    query.none()?;
    let body = body::json(request, body::BATCH_BYTES_MAX).await?;
    let report = report(&body.bytes, shared.client().config())?;
    let _memory = body.into_memory();
    let bounds = LeaseBounds { memory: &memory, stop: &token(stop) };
    let reported = remote::report(&shared, &caller, report, bounds).await?;
    let answer = Results::new(&reported, shared.client().config());
    Ok(memory.attach(Json(StatusCode::OK, answer).into_response()))
}

pub(super) const HEARTBEAT: Call = Call {
    group: Group::Pull,
    id: "send_heartbeat",
    summary: "Show that a worker lives, and renew everything that it holds",
    path: &WORKER_ID,
    takes: Takes::Json(&PULSE),
    answers: &[answer::<Told<'static>>(200, "What to do")],
    problems: &[Slug::LeaseLost],
    ..Call::PLAIN
};

/// Renews everything that a worker holds.
pub(super) async fn heartbeat(
    State(shared): State<Shared>,
    caller: Caller,
    Name(name): Name,
    query: RawQuery,
    request: Request,
) -> Outcome<Response> {
    query.none()?;
    let body = body::json(request, body::SINGLE_BYTES_MAX).await?;
    let pulse = pulse(WorkerId::new(name), &body.bytes)?;
    let heard = remote::pulse(&shared, &caller, pulse).await?;
    let answer = Told::new(&heard, shared.client().config());
    Ok(Json(StatusCode::OK, answer).into_response())
}

pub(super) const LEAVE: Call = Call {
    group: Group::Pull,
    id: "leave",
    summary: "End a worker: what it holds goes back at once",
    path: &WORKER_ID,
    takes: Takes::Empty,
    answers: &[answer::<Left>(200, "How many tasks went back")],
    problems: &[Slug::LeaseLost],
    ..Call::PLAIN
};

/// The answer to a worker that ends.
#[derive(Serialize, JsonSchema)]
struct Left {
    /// Tasks that went back.
    released: u64,
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
    body::none(request).await?;
    let released = remote::leave(&shared, &caller, WorkerId::new(name)).await?;
    Ok(Json(StatusCode::OK, Left { released }).into_response())
}

fn token(stop: Stop) -> CancellationToken {
    stop.map_or_else(CancellationToken::new, |Extension(Stopping(token))| token)
}
