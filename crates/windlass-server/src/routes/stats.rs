//! Counts of everything, and what was done when.

use axum::extract::State as Shares;
use axum::http::StatusCode;
use windlass_core::statistics::Select;
use windlass_core::store::Filter;
use windlass_core::{Kind, QueueName};
use windlass_engine::Period;

use crate::access::Caller;
use crate::app::Shared;
use crate::form::{Entry, Sort, entry};
use crate::openapi::call::{Call, Group, answer};
use crate::problem::{Outcome, Problem};
use crate::query::RawQuery;
use crate::wire::Json;
use crate::wire::statistics::Series;
use crate::wire::stats::{Stats, Stored};

pub(super) const SHOW: Call = Call {
    group: Group::Server,
    id: "get_stats",
    summary: "Count everything, and tell what was done in the last hour, day and week",
    details: "What workers did is told some seconds later. Queues and types with the most tasks are told of, up to 100 each.",
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
    let (queues, workers) = tokio::try_join!(shared.queues(), shared.workers())?;
    let (profile, repairs_total) = (store.profile(), shared.client().metrics().repairs_total());
    let stored = Stored { profile: &profile, repairs_total };
    let windows = shared.windows().await?;
    Ok(Json(StatusCode::OK, Stats::new(stored, &queues, &workers, windows)))
}

/// The longest series: a week.
const MINUTES_MAX: u32 = 7 * 24 * 60;
/// A series of so many minutes needs nothing that is older than the last minutes.
const RECENT_MINUTES: u32 = 10;
/// The length of a series unless the caller says otherwise.
const MINUTES: u32 = 60;

const SERIES_OF: [Entry; 3] = [
    entry(
        "minutes",
        Sort::Count { least: 1, most: MINUTES_MAX },
        "How far back it reaches; 60 if absent",
    ),
    entry("queue", Sort::Stored, "Of this queue; of all if absent"),
    entry("type", Sort::Stored, "Of this type; of all if absent"),
];

pub(super) const SERIES: Call = Call {
    group: Group::Server,
    id: "get_timeseries",
    summary: "Read what was done, step by step",
    details: "Steps are 60 s long up to 120 minutes, 600 s up to a day, 3600 s above; there is a point for every one, the last is under way. What workers did is told some seconds later.",
    query: &[&SERIES_OF],
    answers: &[answer::<Series>(200, "Counts and durations, step by step")],
    ..Call::PLAIN
};

/// What was done, step by step, in one queue or in all.
pub(super) async fn series(
    Shares(shared): Shares<Shared>,
    caller: Caller,
    query: RawQuery,
) -> Outcome<Json<Series>> {
    let query = query.read(SERIES.query)?;
    let minutes = match query.text("minutes") {
        None => MINUTES,
        Some(text) => {
            let read = text.parse().ok().filter(|minutes| (1..=MINUTES_MAX).contains(minutes));
            read.ok_or_else(|| Problem::field("minutes", format!("use 1 to {MINUTES_MAX}")))?
        }
    };
    let (queue, kind) =
        (query.text("queue").map(QueueName::stored), query.text("type").map(Kind::stored));
    caller.check_filter(&Filter { queue: queue.clone(), ..Filter::default() })?;
    // A short one is made of what is read more often.
    let period = if minutes <= RECENT_MINUTES { Period::Recent } else { Period::All };
    let read = shared.client().statistics().read(period).await?;
    Ok(Json(StatusCode::OK, Series::new(&read, minutes, &Select { queue, kind })))
}
