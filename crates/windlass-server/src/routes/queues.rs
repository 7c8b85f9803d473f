//! Queues: what is in them, pause, resume, purge.

use axum::extract::{Request, State as Shares};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use windlass_core::statistics::rates_per_second;
use windlass_core::store::{Action, Depth, Filter, Order, QueueRecord, RunOrder};
use windlass_core::{QueueName, State, Timestamp};
use windlass_engine::Period;

use super::Name;
use super::bulk::sweep;
use super::submit::Origin;
use crate::access::Caller;
use crate::app::Shared;
use crate::audit::{self, Deed};
use crate::body;
use crate::form::{Entry, Sort, entry};
use crate::memory::ResponseMemory;
use crate::openapi::call::{Call, Group, Takes, answer};
use crate::problem::{Outcome, Problem, Slug};
use crate::query::{CURSOR, DRY_RUN, RawQuery};
use crate::sweep::{Sweep, Swept};
use crate::wire::queue::{Queue, Rates};
use crate::wire::{Json, List};

/// What a queue takes in a list, about.
const QUEUE_BYTES: usize = 400;

const QUEUE: [Entry; 1] = [entry("queue", Sort::Text, "The name of a queue")];
const NEW_QUEUE: [Entry; 1] = [entry("queue", Sort::Name, "The name of a queue")];
const CREATE: [Entry; 1] =
    [entry("create", Sort::Flag, "Makes the queue when it is not there; without, that is 404")];
const SWEEPING: [Entry; 2] = [CURSOR, DRY_RUN];

pub(super) const LIST: Call = Call {
    group: Group::Queues,
    id: "list_queues",
    summary: "List queues: what is in each, and since when",
    answers: &[answer::<List<Queue>>(200, "All queues")],
    ..Call::PLAIN
};

/// All queues that the caller may see, by name.
pub(super) async fn list(
    Shares(shared): Shares<Shared>,
    caller: Caller,
    query: RawQuery,
    memory: ResponseMemory,
) -> Outcome<Response> {
    query.none()?;
    let queues = shared.queues().await?;
    let queues: Vec<_> = queues.iter().filter(|queue| caller.reaches(&queue.name)).collect();
    memory.hold(queues.len() * QUEUE_BYTES).await?;
    let now = clock(&shared, queues.iter().copied()).await?;
    let rates = rates(&shared).await;
    let data = queues.into_iter().map(|queue| Queue::new(queue, now, rates(queue))).collect();
    Ok(memory.attach(Json(StatusCode::OK, List::whole(data)).into_response()))
}

pub(super) const SHOW: Call = Call {
    group: Group::Queues,
    id: "get_queue",
    summary: "Read a queue",
    path: &QUEUE,
    answers: &[answer::<Queue>(200, "The queue")],
    ..Call::PLAIN
};

/// One queue.
pub(super) async fn show(
    Shares(shared): Shares<Shared>,
    caller: Caller,
    Name(name): Name,
    query: RawQuery,
) -> Outcome<Response> {
    query.none()?;
    caller.check_queue(&QueueName::stored(&name))?;
    told(&shared, &name).await
}

pub(super) const PAUSE: Call = Call {
    group: Group::Queues,
    id: "pause_queue",
    summary: "Pause a queue",
    details: "It gives nothing out and takes submits. Tasks that workers have claimed and not started go back; running \
              ones finish. With `create=true` a queue that is not there is made.",
    path: &NEW_QUEUE,
    query: &[&CREATE],
    takes: Takes::Empty,
    answers: &[answer::<Queue>(200, "The queue")],
    ..Call::PLAIN
};

/// Has a queue give out nothing; one that is not known yet is made where the caller asks for that.
pub(super) async fn pause(
    Shares(shared): Shares<Shared>,
    caller: Caller,
    Name(name): Name,
    query: RawQuery,
    request: Request,
) -> Outcome<Response> {
    let creates = query.read(PAUSE.query)?.flag("create")?;
    caller.check_queue(&QueueName::stored(&name))?;
    let origin = Origin::of(&request);
    body::none(request).await?;
    let queue = match find(&shared, &name).await {
        Ok(found) => found.name,
        Err(problem) if problem.slug() == Slug::NotFound => {
            let queue =
                QueueName::new(&name).map_err(|error| Problem::of_field("queue", &error))?;
            if !creates {
                let hint = "to make it, send ?create=true, or use `windlass queue pause --create`";
                return Err(Problem::new(Slug::NotFound, format!("{}; {hint}", problem.detail())));
            }
            if origin == Origin::Socket {
                shared.names().check_queue(&**shared.store(), &caller, &queue).await?;
            }
            queue
        }
        Err(problem) => return Err(problem),
    };
    shared.store().order(Order::Queue { queue, order: RunOrder::Pause }).await?;
    audit::note(&shared, &caller, Deed::to("pause", format!("queue {name}"))).await;
    told(&shared, &name).await
}

pub(super) const RESUME: Call = Call {
    group: Group::Queues,
    id: "resume_queue",
    summary: "Resume a queue",
    path: &QUEUE,
    takes: Takes::Empty,
    answers: &[answer::<Queue>(200, "The queue")],
    ..Call::PLAIN
};

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
    body::none(request).await?;
    let queue = find(&shared, &name).await?.name;
    shared.store().order(Order::Queue { queue, order: RunOrder::Run }).await?;
    audit::note(&shared, &caller, Deed::to("resume", format!("queue {name}"))).await;
    told(&shared, &name).await
}

pub(super) const PURGE: Call = Call {
    group: Group::Queues,
    id: "purge_queue",
    summary: "Remove what is pending, scheduled or retrying in a queue",
    details: "Worked through for about 5 s; while `next_cursor` is not null, send the same again with it as `cursor`.",
    path: &QUEUE,
    query: &[&SWEEPING],
    takes: Takes::Empty,
    answers: &[answer::<Swept>(200, "What was removed")],
    ..Call::PLAIN
};

/// Removes everything that waits in a queue.
pub(super) async fn purge(
    Shares(shared): Shares<Shared>,
    caller: Caller,
    Name(name): Name,
    query: RawQuery,
    request: Request,
) -> Outcome<Response> {
    let query = query.read(PURGE.query)?;
    caller.check_queue(&QueueName::stored(&name))?;
    body::none(request).await?;
    let queue = Some(find(&shared, &name).await?.name);
    let filter = Filter { states: State::WAITING.to_vec(), queue, ..Filter::default() };
    let cursor = query.text("cursor").map(str::to_owned);
    let purge = Sweep { action: Action::Delete, filter, cursor };
    let swept = sweep(&shared, &caller, purge, query.flag("dry_run")?).await?;
    Ok(Json(StatusCode::OK, swept).into_response())
}

async fn told(shared: &Shared, name: &str) -> Outcome<Response> {
    let record = find(shared, name).await?;
    let now = clock(shared, [&record]).await?;
    Ok(Json(StatusCode::OK, Queue::new(&record, now, rates(shared).await(&record))).into_response())
}

async fn find(shared: &Shared, name: &str) -> Outcome<QueueRecord> {
    let queues = shared.queues().await?;
    let found = queues.iter().find(|queue| queue.name.as_str() == name).cloned();
    let shown = windlass_core::limits::clip(name, 128);
    found.ok_or_else(|| Problem::new(Slug::NotFound, format!("no queue {shown:?}")))
}

/// What comes into queues and leaves them. A queue is told also while its statistics cannot be read.
async fn rates(shared: &Shared) -> impl Fn(&QueueRecord) -> Rates {
    let read = shared.client().statistics().read(Period::Recent).await.ok();
    let rates = read.map(|read| rates_per_second(&read.spans, read.now, read.observed_since));
    move |queue| Some(rates.as_ref()?.get(&queue.name).copied().unwrap_or_default())
}

/// The store's clock, if any age is to be told by it.
async fn clock(
    shared: &Shared,
    queues: impl IntoIterator<Item = &QueueRecord>,
) -> Outcome<Timestamp> {
    if queues.into_iter().all(|queue| queue.oldest_pending_at.is_none()) {
        return Ok(Timestamp::default());
    }
    Ok(shared.store().inspect(Depth::Ping).await?.now)
}
