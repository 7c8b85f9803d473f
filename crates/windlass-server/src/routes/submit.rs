//! Submits, one or many.

use std::collections::HashMap;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use windlass_core::store::{GetParams, Inserted, Parts};
use windlass_core::{
    Clock, Error, NewTask, Store, SystemClock, TaskId, TaskRecord, Timestamp, limits,
};
use windlass_engine::trace;

use crate::access::Caller;
use crate::app::{Shared, TRACEPARENT};
use crate::body::{self, Body, Media};
use crate::fields;
use crate::form::{Entry, Sort, entry};
use crate::listen::Bounds;
use crate::memory::{ResponseMemory, SMALL_BYTES};
use crate::openapi::call::{Call, Group, Takes, answer};
use crate::problem::{Outcome, Problem, Slug};
use crate::query::RawQuery;
use crate::trace_context;
use crate::wire::Json;
use crate::wire::submit::{FromHeaders, SUBMIT, read};
use crate::wire::task::Task;
use crate::wire::words::ProblemForm;

/// Most tasks of one batch.
const ITEMS_MAX: usize = 10_000;
/// Most tasks that are read back by one call of the store.
const READ_BACK: usize = 1_000;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

const HEADERS: [Entry; 2] = [
    entry("Idempotency-Key", Sort::Key, "The same as the field `idempotency_key`"),
    entry("traceparent", Sort::Text, "A W3C trace context; one that cannot be read is left out"),
];

pub(super) const ONE: Call = Call {
    group: Group::Tasks,
    id: "submit_task",
    summary: "Submit a task",
    details: "A paused queue takes submits. Once a task is stored the answer is a success, whatever happens next.",
    headers: &HEADERS,
    takes: Takes::Json(&SUBMIT),
    answers: &[
        answer::<Task<'static>>(201, "The new task"),
        answer::<Task<'static>>(200, "The task that an idempotency or unique key led to"),
    ],
    problems: &[Slug::UniqueConflict, Slug::IdempotencyMismatch, Slug::Unsupported],
    has_location: true,
    ..Call::PLAIN
};

/// Stores one task: 201, or 200 with the task that was there already.
pub(super) async fn one(
    State(shared): State<Shared>,
    caller: Caller,
    query: RawQuery,
    memory: ResponseMemory,
    request: Request,
) -> Outcome<Response> {
    query.none()?;
    let (origin, headers) = (Origin::of(&request), from_headers(request.headers())?);
    let config = shared.client().config();
    let body = body::json(request, body::single_bytes_max(&config.limits)).await?;
    if body.bytes.len() > SMALL_BYTES {
        // The response repeats the payload.
        memory.hold(body.bytes.len()).await?;
    }
    let task = read(&body.bytes, headers, config)?;
    let tasks = check_names(&shared, &caller, origin, vec![Ok(task)]).await?;
    let mut accepted = submit(&shared, &caller, tasks, Echo::Payloads).await;
    let Accepted { record, is_new } = accepted.pop().expect("one task has one answer")?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    // Ids of every store are plain words; a stranger's, with bytes that no header takes, has none.
    let location = is_new.then(|| format!("/api/v1/tasks/{}", record.id));
    let mut response = Json(status, Task::whole(&record)).into_response();
    if let Some(location) = location.and_then(|location| location.try_into().ok()) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(memory.attach(response))
}

pub(super) const BATCH: Call = Call {
    group: Group::Tasks,
    id: "submit_batch",
    summary: "Submit up to 10,000 tasks",
    details: "A JSON array, or NDJSON: one task in each line; 32 MiB in all. Each task is answered, in order.",
    takes: Takes::Batch(&SUBMIT),
    answers: &[answer::<Answers<'static>>(200, "What became of each")],
    ..Call::PLAIN
};

/// Stores many tasks and answers each, in order; the answers leave the payloads out.
pub(super) async fn batch(
    State(shared): State<Shared>,
    caller: Caller,
    query: RawQuery,
    request: Request,
) -> Outcome<Response> {
    query.none()?;
    if request.headers().contains_key(IDEMPOTENCY_KEY) {
        let text = "the header is for single submits; set the field of each task";
        return Err(Problem::field("idempotency_key", text));
    }
    let (origin, trace) = (Origin::of(&request), from_headers(request.headers())?.traceparent);
    let body = body::any(request, body::BATCH_BYTES_MAX).await?;
    let (tasks, _memory) = if body.bytes.len() > SMALL_BYTES {
        // Reading so much would hold up everyone else on this thread.
        let shared = shared.clone();
        let reading = tokio::task::spawn_blocking(move || {
            (read_all(&shared, &body, trace), body.into_memory())
        });
        let read = reading.await.map_err(|ended| Error::internal("read a batch").because(ended))?;
        (read.0?, read.1)
    } else {
        (read_all(&shared, &body, trace)?, body.into_memory())
    };
    let tasks = check_names(&shared, &caller, origin, tasks).await?;
    let accepted = submit(&shared, &caller, tasks, Echo::Nothing).await;
    Ok(Json(StatusCode::OK, Answers::new(&accepted)).into_response())
}

/// Where a request comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    Socket,
    /// Whoever has the store may bring any name.
    Process,
}

impl Origin {
    pub(super) fn of(request: &Request) -> Self {
        let is_socket = request.extensions().get::<Bounds>().is_some();
        if is_socket { Self::Socket } else { Self::Process }
    }
}

/// Refuses tasks that bring new queues or types too many.
async fn check_names(
    shared: &Shared,
    caller: &Caller,
    origin: Origin,
    tasks: Vec<Outcome<NewTask>>,
) -> Outcome<Vec<Outcome<NewTask>>> {
    if origin == Origin::Process {
        return Ok(tasks);
    }
    let names = shared.names();
    names.learn(&**shared.store(), tasks.iter().filter_map(|task| task.as_ref().ok())).await?;
    let check = |task: Outcome<NewTask>| {
        let task = task?;
        // A queue that it may not see is refused for that.
        if caller.reaches(&task.queue) {
            names.check(caller, &task)?;
        }
        Ok(task)
    };
    Ok(tasks.into_iter().map(check).collect())
}

fn read_all(
    shared: &Shared,
    body: &Body,
    traceparent: Option<String>,
) -> Outcome<Vec<Outcome<NewTask>>> {
    let config = shared.client().config();
    let one = |json: &[u8]| {
        let headers = FromHeaders { idempotency_key: None, traceparent: traceparent.clone() };
        read(json, headers, config)
    };
    match body.media {
        Media::Json => {
            let (items, count) = fields::items(&body.bytes, ITEMS_MAX)?;
            check_count(count)?;
            Ok(items.into_iter().map(|item| one(item.get().as_bytes())).collect())
        }
        Media::Ndjson => {
            let lines = body.bytes.split(|byte| *byte == b'\n').zip(1_usize..);
            let lines: Vec<_> = lines.filter(|(line, _)| !line.trim_ascii().is_empty()).collect();
            check_count(lines.len())?;
            let read = |(line, number)| one(line).map_err(|problem| problem.in_line(number));
            Ok(lines.into_iter().map(read).collect())
        }
        Media::Absent => Err(Problem::new(Slug::MalformedJson, "the body is empty: send JSON")),
        Media::Other => Err(body::not_json()),
    }
}

fn check_count(count: usize) -> Outcome<()> {
    if count > ITEMS_MAX {
        let text = format!("the batch has {count} tasks, at most {ITEMS_MAX} allowed");
        return Err(Problem::new(Slug::PayloadTooLarge, text));
    }
    Ok(())
}

/// What an answer repeats of what was sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Echo {
    Payloads,
    Nothing,
}

/// A task that is in the store.
struct Accepted {
    record: TaskRecord,
    is_new: bool,
}

/// Stores those that could be read and says what became of each, in order.
async fn submit(
    shared: &Shared,
    caller: &Caller,
    tasks: Vec<Outcome<NewTask>>,
    echo: Echo,
) -> Vec<Outcome<Accepted>> {
    let permitted = |task: Outcome<NewTask>| {
        let task = task?;
        caller.check_queue(&task.queue)?;
        Ok(task)
    };
    let mut sound = Vec::with_capacity(tasks.len());
    let refused: Vec<_> =
        tasks.into_iter().map(|task| permitted(task).map(|task| sound.push(task))).collect();
    let stored = shared.client().insert_all(sound).await;
    let placed: Vec<_> = stored.into_iter().map(|stored| place(stored?)).collect();
    let mut records = read_back(&**shared.store(), &placed, echo).await;
    let mut placed = placed.into_iter();
    let answer = |refused: Outcome<()>| {
        refused?;
        let placed = placed.next().expect("each task that was sent has an answer")?;
        let (record, is_new) = match placed {
            Placed::New { task, created_at: Some(at) } => (task.into_record(at), true),
            Placed::New { task, created_at: None } => {
                let payload = task.payload.clone();
                // Stored, and not to be read back: gone already, or the store has gone away since. To say that
                // the submit failed would have it repeated.
                let read = records.remove(&task.id);
                let record = read.unwrap_or_else(|| task.into_record(SystemClock.now()));
                (TaskRecord { payload, ..record }, true)
            }
            Placed::There { task, id } => {
                let as_sent = || NewTask { id: id.clone(), ..task }.into_record(SystemClock.now());
                (records.get(&id).cloned().unwrap_or_else(as_sent), false)
            }
        };
        // A key may have led to a task of a queue that the caller may not see.
        caller.check_queue(&record.queue)?;
        Ok(Accepted { record, is_new })
    };
    refused.into_iter().map(answer).collect()
}

/// What a submit came to.
enum Placed {
    /// It is stored; the time is the store's, where this call has stored it.
    New { task: NewTask, created_at: Option<Timestamp> },
    /// A key led to a task that was there.
    There { task: NewTask, id: TaskId },
}

fn place((task, inserted): (NewTask, Inserted)) -> Outcome<Placed> {
    match inserted {
        Inserted::New { created_at } => Ok(Placed::New { task, created_at }),
        Inserted::Existing { id, is_same_request: true } => Ok(Placed::There { task, id }),
        Inserted::Existing { id, is_same_request: false } => {
            let text = format!("the idempotency key was used for a different task, {id}");
            Err(Problem::new(Slug::IdempotencyMismatch, text).with("existing_id", id.as_str()))
        }
        Inserted::Conflict { holder } => {
            let text = format!("the unique key is held by task {holder}");
            Err(Problem::new(Slug::UniqueConflict, text).with("existing_id", holder.as_str()))
        }
        Inserted::Bad(error) => Err(error.into()),
    }
}

/// The records of tasks that were there before this call; without those that are gone or cannot be read now, since
/// by now the submit has succeeded whatever happens here.
async fn read_back(
    store: &dyn Store,
    placed: &[Outcome<Placed>],
    echo: Echo,
) -> HashMap<TaskId, TaskRecord> {
    let (mut new, mut there) = (Vec::new(), Vec::new());
    for placed in placed.iter().filter_map(|one| one.as_ref().ok()) {
        match placed {
            Placed::New { created_at: Some(_), .. } => {}
            Placed::New { task, created_at: None } => new.push(task.id.clone()),
            Placed::There { id, .. } => there.push(id.clone()),
        }
    }
    let there_parts = if echo == Echo::Payloads { Parts::ALL } else { Parts::NONE };
    let mut records = HashMap::with_capacity(new.len() + there.len());
    for (ids, parts) in [(new, Parts::NONE), (there, there_parts)] {
        for ids in ids.chunks(READ_BACK) {
            match store.get(GetParams { ids: ids.to_vec(), parts }).await {
                Ok(found) => {
                    let found = found.into_iter().flatten();
                    records.extend(found.map(|record| (record.id.clone(), record)));
                }
                Err(error) => {
                    tracing::warn!(error = error.chain(), "cannot read submitted tasks back");
                    return records;
                }
            }
        }
    }
    records
}

/// What became of a batch.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "BatchAnswer")]
struct Answers<'a> {
    results: Vec<Answer<'a>>,
    created: usize,
    existing: usize,
    failed: usize,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "BatchItem")]
struct Answer<'a> {
    #[schemars(extend("enum" = ["created", "existing", "failed"]))]
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<Task<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<ProblemForm>")]
    error: Option<&'a Problem>,
}

impl<'a> Answers<'a> {
    fn new(accepted: &'a [Outcome<Accepted>]) -> Self {
        let answer = |one: &'a Outcome<Accepted>| match one {
            Ok(Accepted { record, is_new }) => {
                let status = if *is_new { "created" } else { "existing" };
                Answer { status, task: Some(Task::listed(record)), error: None }
            }
            Err(problem) => Answer { status: "failed", task: None, error: Some(problem) },
        };
        let results: Vec<_> = accepted.iter().map(answer).collect();
        let count = |status| results.iter().filter(|answer| answer.status == status).count();
        let (created, existing, failed) = (count("created"), count("existing"), count("failed"));
        // One line for the whole batch: its tasks share what went wrong.
        if let Some(cause) = accepted.iter().find_map(|one| one.as_ref().err()?.cause()) {
            tracing::error!(error = cause.chain(), failed, "tasks of a batch were not stored");
        }
        Self { results, created, existing, failed }
    }
}

fn from_headers(headers: &HeaderMap) -> Outcome<FromHeaders> {
    let mut keys = headers.get_all(IDEMPOTENCY_KEY).iter();
    let refused = |why: &dyn std::fmt::Display| Problem::field("Idempotency-Key", why);
    let key = match (keys.next(), keys.next()) {
        (None, _) => None,
        (Some(_), Some(_)) => return Err(refused(&"is there twice")),
        (Some(key), None) => {
            let plain = "in a header it must be visible ASCII; the field takes all letters";
            let key = key.to_str().map_err(|_| refused(&plain))?;
            limits::check_key("it", key).map_err(|error| refused(&error))?;
            Some(key.to_owned())
        }
    };
    // Whoever made a trace context that cannot be read is far away: it is left out, as W3C says.
    let given = headers.get(TRACEPARENT).and_then(|value| value.to_str().ok());
    let given = given.filter(|text| trace_context::is_sound(text));
    // A request with a span of its own stands between the client and the submit.
    let given = given.filter(|_| !trace::is_sampled());
    Ok(FromHeaders { idempotency_key: key, traceparent: given.map(str::to_owned) })
}
