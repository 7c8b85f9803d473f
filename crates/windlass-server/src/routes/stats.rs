//! Counts of everything.

use axum::extract::State as Shares;
use axum::http::StatusCode;

use crate::app::Shared;
use crate::openapi::call::{Call, Group, answer};
use crate::problem::Outcome;
use crate::query::RawQuery;
use crate::wire::Json;
use crate::wire::stats::{Stats, Stored};

pub(super) const SHOW: Call = Call {
    group: Group::Server,
    id: "get_stats",
    summary: "Count everything",
    answers: &[answer::<Stats>(
        200,
        "Counts of tasks, queues and workers, and what the store promises",
    )],
    ..Call::PLAIN
};

/// How many tasks, queues and workers there are, and what the store promises.
pub(super) async fn show(Shares(shared): Shares<Shared>, query: RawQuery) -> Outcome<Json<Stats>> {
    query.none()?;
    let store = shared.store();
    let (queues, workers) = (store.queues().await?, store.workers().await?);
    let (profile, repairs_total) = (store.profile(), shared.client().metrics().repairs_total());
    let stored = Stored { profile: &profile, repairs_total };
    Ok(Json(StatusCode::OK, Stats::new(stored, &queues, &workers)))
}
