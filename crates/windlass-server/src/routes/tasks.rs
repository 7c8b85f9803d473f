//! Lists and counts of tasks.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::State as Shares;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::time::Instant;
use windlass_core::State;
use windlass_core::store::{Filter, ListParams, Page};

use crate::access::Caller;
use crate::app::Shared;
use crate::form::{Entry, Sort, entry};
use crate::memory::ResponseMemory;
use crate::openapi::call::{Call, Group, answer};
use crate::problem::{Outcome, Problem};
use crate::query::{FILTERS, PAGING, RawQuery};
use crate::sweep;
use crate::wire::task::Task;
use crate::wire::words::CountsWord;
use crate::wire::{Counts, Json, List};

/// How long a page is filled.
const PAGE_TIME: Duration = Duration::from_secs(1);
/// Memory that is held for a task of a list before the list is read.
pub(super) const TASK_BYTES: usize = 1024;

pub(super) const LIST: Call = Call {
    group: Group::Tasks,
    id: "list_tasks",
    summary: "List tasks, newest first",
    details: "On Redis stores: one state after the other, newest in that state first. Payload, result and error are null here: read the task itself.",
    query: &[&FILTERS, &PAGING],
    answers: &[answer::<List<Task<'static>>>(200, "A page of tasks")],
    ..Call::PLAIN
};

/// A page of tasks.
pub(super) async fn list(
    Shares(shared): Shares<Shared>,
    caller: Caller,
    query: RawQuery,
    memory: ResponseMemory,
) -> Outcome<Response> {
    let params = query.read(LIST.query)?.page()?;
    memory.hold(params.limit * TASK_BYTES).await?;
    let page = page(&shared, &caller, params).await?;
    let data = page.tasks.iter().map(Task::listed).collect();
    let list = List { data, next_cursor: page.next_cursor };
    Ok(memory.attach(Json(StatusCode::OK, list).into_response()))
}

/// A page that is full, or the last, where that does not take long: a store looks at a stretch of
/// tasks at a time, and few of them, or none, may match.
pub(super) async fn page(
    shared: &Shared,
    caller: &Caller,
    mut params: ListParams,
) -> Outcome<Page> {
    caller.check_filter(&params.filter)?;
    let end = Instant::now() + PAGE_TIME;
    let mut whole = Page::default();
    loop {
        let page = shared.store().list(params.clone()).await?;
        params.limit -= page.tasks.len().min(params.limit);
        whole.tasks.extend(page.tasks);
        whole.next_cursor = page.next_cursor;
        if params.limit == 0 || whole.next_cursor.is_none() || Instant::now() >= end {
            return Ok(whole);
        }
        params.cursor = whole.next_cursor.clone();
    }
}

#[derive(Serialize, JsonSchema)]
struct Count {
    count: u64,
    /// There may be more: counting one by one has an end.
    capped: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<CountsWord>")]
    by: Option<Counts>,
}

/// What counts are told apart by.
#[derive(Clone, Copy)]
enum By {
    State,
    Queue,
}

const COUNT_QUERY: [Entry; 2] = [
    entry("by", Sort::OneOf(&["state", "queue"]), "Counts apart, too"),
    entry("exact", Sort::Flag, "Counts one by one, up to 10,000 or for 5 s, then `capped` is true"),
];

pub(super) const COUNT: Call = Call {
    group: Group::Tasks,
    id: "count_tasks",
    summary: "Count tasks",
    details: "Counts by state and queue are kept; every other filter needs `exact=true`.",
    query: &[&FILTERS, &COUNT_QUERY],
    answers: &[answer::<Count>(200, "How many there are")],
    ..Call::PLAIN
};

/// How many tasks there are: by the kept counts, or one by one.
pub(super) async fn count(
    Shares(shared): Shares<Shared>,
    caller: Caller,
    query: RawQuery,
) -> Outcome<Response> {
    let query = query.read(COUNT.query)?;
    let filter = query.filter()?;
    caller.check_filter(&filter)?;
    let by = match query.text("by") {
        None => None,
        Some("state") => Some(By::State),
        Some("queue") => Some(By::Queue),
        Some(_) => return Err(Problem::field("by", "use state or queue")),
    };
    let is_exact = query.flag("exact")?;
    let uncounted = FILTERS
        .iter()
        .map(|filter| filter.name)
        .find(|name| !["state", "queue"].contains(name) && query.text(name).is_some());
    if let (Some(name), false) = (uncounted, is_exact) {
        return Err(Problem::field(name, "no count is kept of this; add exact=true"));
    }
    let count = if is_exact {
        one_by_one(&shared, filter, by).await?
    } else {
        from_counts(&shared, &filter, by).await?
    };
    Ok(Json(StatusCode::OK, count).into_response())
}

async fn from_counts(shared: &Shared, filter: &Filter, by: Option<By>) -> Outcome<Count> {
    let is_meant = |state: &State| filter.states.is_empty() || filter.states.contains(state);
    let states: Vec<_> = State::ALL.into_iter().filter(is_meant).collect();
    let queues = shared.queues().await?;
    let is_asked = |name| filter.queue.as_ref().is_none_or(|asked| asked == name);
    let queues: Vec<_> = queues.iter().filter(|queue| is_asked(&queue.name)).collect();
    let in_state = |state: &State| queues.iter().map(|queue| queue.counts.get(*state)).sum();
    let by_state: Vec<(String, u64)> =
        states.iter().map(|state| (state.to_string(), in_state(state))).collect();
    let count = by_state.iter().map(|(_, count)| count).sum();
    let by = by.map(|by| match by {
        By::State => Counts(by_state),
        By::Queue => Counts(
            queues
                .iter()
                .map(|queue| {
                    let count = states.iter().map(|state| queue.counts.get(*state)).sum();
                    (queue.name.to_string(), count)
                })
                .collect(),
        ),
    });
    Ok(Count { count, capped: false, by })
}

async fn one_by_one(shared: &Shared, filter: Filter, by: Option<By>) -> Outcome<Count> {
    let (mut count, mut groups) = (0, BTreeMap::new());
    let capped = sweep::walk(&**shared.store(), filter, |task| {
        count += 1;
        let group = match by {
            None => return,
            Some(By::State) => task.state.to_string(),
            Some(By::Queue) => task.queue.to_string(),
        };
        *groups.entry(group).or_default() += 1;
    });
    let capped = capped.await?;
    Ok(Count { count, capped, by: by.map(|_| Counts(groups.into_iter().collect())) })
}
