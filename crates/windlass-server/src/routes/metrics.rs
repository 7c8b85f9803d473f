//! The metrics, for Prometheus, and the few numbers that an autoscaler needs.

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use windlass_core::store::Filter;
use windlass_core::{Error, ErrorKind, QueueName};
use windlass_engine::Metrics;

use crate::access::Caller;
use crate::app::Shared;
use crate::form::{Entry, Sort, entry};
use crate::memory::ResponseMemory;
use crate::openapi::call::{Call, Group, answer, page as shown};
use crate::problem::Outcome;
use crate::query::RawQuery;
use crate::wire::Json;
use crate::wire::autoscale::Autoscale;

/// About the size of the exposition when every queue has its own label value.
const TEXT_BYTES: usize = 128 * 1024;

pub(super) const SHOW: Call = Call {
    group: Group::Server,
    id: "get_metrics",
    summary: "Read the metrics, in the text format of Prometheus",
    answers: &[shown("Everything that is counted", Metrics::MEDIA)],
    ..Call::PLAIN
};

const QUEUE: [Entry; 1] = [entry("queue", Sort::Stored, "Of this queue; of all if absent")];

pub(super) const AUTOSCALE: Call = Call {
    group: Group::Server,
    id: "get_autoscale",
    summary: "Read the few numbers that an autoscaler needs",
    query: &[&QUEUE],
    answers: &[answer::<Autoscale>(200, "Work and slots, as of a second ago at most")],
    ..Call::PLAIN
};

/// Everything that is counted. Answers also while the store does not, without what only that knows.
pub(super) async fn show(
    State(shared): State<Shared>,
    query: RawQuery,
    memory: ResponseMemory,
) -> Outcome<Response> {
    query.none()?;
    memory.hold(TEXT_BYTES).await?;
    let text = shared.client().metrics().text().await;
    let headers = [(CONTENT_TYPE, Metrics::MEDIA), (CACHE_CONTROL, "no-store")];
    Ok(memory.attach((headers, text).into_response()))
}

/// Work and slots of a queue, or of all, as of a second ago at most. A queue that is not there yet has none.
pub(super) async fn autoscale(
    State(shared): State<Shared>,
    caller: Caller,
    query: RawQuery,
) -> Outcome<Json<Autoscale>> {
    let query = query.read(AUTOSCALE.query)?;
    let queue = query.text("queue").map(QueueName::stored);
    let filter = Filter { queue, ..Filter::default() };
    caller.check_filter(&filter)?;
    let silent = || Error::new(ErrorKind::Unavailable, "read the figures of the store");
    let figures = shared.client().metrics().figures().await.ok_or_else(silent)?;
    Ok(Json(StatusCode::OK, Autoscale::new(&figures, filter.queue.as_ref())))
}
