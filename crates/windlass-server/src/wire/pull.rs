//! What workers in any language say, and what they are told.

mod form;

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use windlass_core::store::{
    Applied, HandledKinds, PrioritySet, ProgressReport, RunOrder, WorkerCard,
};
use windlass_core::{
    Claimed, Ending, Epoch, Kind, Lease, QueueName, TaskId, Timestamp, WorkerId, config::Config,
    limits,
};
use windlass_engine::{DEFAULT_QUEUE, Queues};

use self::form::{HELD, PROGRESS, RESULT, WORKER};
pub(crate) use self::form::{LEASE, PULSE, REPORT};
use super::Seconds;
use super::submit::bytes;
use super::task::Task;
use super::words::{OrderWord, SecondsWord, Time};
use crate::fields::{Field, Object};
use crate::problem::{Outcome, Problem};
use crate::remote::{Ask, Control, Heard, Leased, Pulse, Report, Reported, Said};

/// Most tasks of one lease: each may have a large payload, and all of them are one answer.
const TASKS_MAX: u32 = 100;
/// Longest wait for tasks.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Most slots that a worker may say it has.
const SLOTS_MAX: u32 = 1_000;
/// Largest weight of a queue.
const WEIGHT_MAX: u32 = 1_000;
/// Longest name and version of a worker.
const WORD_BYTES_MAX: usize = 128;

/// Reads the body of a lease.
pub(crate) fn ask(json: &[u8]) -> Outcome<Ask> {
    read_ask(Object::read(json, &LEASE)?)
}

fn read_ask(mut object: Object<'_>) -> Outcome<Ask> {
    let max = match object.take("max") {
        Some(field) => between(&field, 0, TASKS_MAX)?,
        None => 1,
    };
    let wait = match object.take("wait") {
        Some(field) => {
            let wait = field.duration()?;
            if wait > WAIT_MAX {
                return Err(field.refused(format!("at most {} s", WAIT_MAX.as_secs())));
            }
            wait
        }
        None => Duration::ZERO,
    };
    let weighted = match object.take("queues") {
        Some(field) => queues(&field)?,
        None => vec![(QueueName::new(DEFAULT_QUEUE)?, 1)],
    };
    let is_strict = object.take("strict").map(|field| field.flag()).transpose()?.unwrap_or(false);
    let suspects = object.take("suspects").map(|field| field.flag()).transpose()?.unwrap_or(true);
    let (mut worker, mut slots) = (None, None);
    let mut card = WorkerCard {
        queues: weighted.iter().map(|(name, _)| name.clone()).collect(),
        weights: weighted.iter().map(|(_, weight)| *weight).collect(),
        is_strict,
        slots: max.max(1),
        ..WorkerCard::default()
    };
    if let Some(field) = object.take("worker") {
        let mut object = field.object(&WORKER)?;
        worker = object.take("id").map(|field| worker_id(&field)).transpose()?;
        card.name = word(object.take("name"))?;
        card.version = word(object.take("version"))?;
        if let Some(field) = object.take("slots") {
            card.slots = between(&field, 1, SLOTS_MAX)?;
            slots = Some(card.slots);
        }
        card.kinds = object.take("types").map(|field| kinds(&field)).transpose()?.flatten();
    }
    let queues = Queues { weighted, is_strict, priorities: PrioritySet::ALL };
    Ok(Ask { worker, card, slots, queues, max: max as usize, wait, suspects })
}

/// Reads the body of a report.
pub(crate) fn report(json: &[u8], config: &Config) -> Outcome<Report> {
    let mut object = Object::read(json, &REPORT)?;
    let id = object.take("worker_id").map(|field| worker_id(&field)).transpose()?;
    let mut results = Vec::new();
    if let Some(field) = object.take("results") {
        for item in field.list()? {
            results.push(said(&item, config)?);
        }
    }
    let lease = object.take("lease");
    let mut ask = lease.map(|field| read_ask(field.object(&LEASE)?)).transpose()?;
    if let Some(ask) = &mut ask {
        ask.worker = ask.worker.take().or_else(|| id.clone());
    }
    let worker = id.ok_or_else(|| Problem::field("worker_id", "is missing"))?;
    Ok(Report { worker, results, ask })
}

fn said(field: &Field<'_>, config: &Config) -> Outcome<Said> {
    let mut object = field.object(&RESULT)?;
    let lease = lease(field, &mut object)?;
    let outcome = object.take("outcome").ok_or_else(|| missing(field, "outcome"))?;
    let name = outcome.text()?;
    let uses: &[&str] = match name.as_str() {
        "completed" => &["result", "result_base64"],
        "failed" => &["error", "after"],
        "discarded" => &["error"],
        "snoozed" => &["after"],
        "cancelled" | "timed_out" | "released" => &[],
        _ => {
            let known = "completed, failed, discarded, snoozed, cancelled, timed_out or released";
            return Err(outcome.refused(format!("use {known}")));
        }
    };
    // Those before are taken already.
    let mut unused = RESULT.names().into_iter().filter(|name| !uses.contains(name));
    if let Some(field) = unused.find_map(|name| object.take(name)) {
        return Err(field.refused(format!("has no meaning for the outcome {name}")));
    }
    let result = bytes(&mut object, "result", config)?;
    let error = object.take("error").map(|field| field.text()).transpose()?;
    let error = error.unwrap_or_else(|| String::from("the worker gave no reason"));
    let after = object.take("after").map(|field| field.duration()).transpose()?;
    let ending = match name.as_str() {
        "completed" => Ending::Completed { result },
        "failed" => Ending::Failed { error, retry_after: after },
        "discarded" => Ending::Discarded { error },
        "snoozed" => Ending::Snoozed { delay: after.ok_or_else(|| missing(field, "after"))? },
        "cancelled" => Ending::Cancelled,
        "timed_out" => Ending::TimedOut,
        _ => Ending::Released,
    };
    Ok(Said { lease, ending })
}

/// Reads the body of a heartbeat.
pub(crate) fn pulse(worker: WorkerId, json: &[u8]) -> Outcome<Pulse> {
    let mut object = Object::read(json, &PULSE)?;
    let (mut held, mut progress) = (Vec::new(), Vec::new());
    if let Some(field) = object.take("held") {
        for item in field.list()? {
            let mut object = item.object(&HELD)?;
            let lease = lease(&item, &mut object)?;
            if let Some(field) = object.take("progress") {
                let (fraction, note) = read_progress(&field)?;
                progress.push(ProgressReport { lease: lease.clone(), fraction, note });
            }
            held.push(lease);
        }
    }
    Ok(Pulse { worker, held, progress })
}

/// How far a run has come: a number from 0 to 1, or that with a note.
fn read_progress(field: &Field<'_>) -> Outcome<(f64, String)> {
    if field.sort() != "an object" {
        return Ok((part(field)?, String::new()));
    }
    let mut object = field.object(&PROGRESS)?;
    let fraction = object.take("fraction").ok_or_else(|| missing(field, "fraction"))?;
    Ok((part(&fraction)?, word(object.take("note"))?))
}

fn part(field: &Field<'_>) -> Outcome<f64> {
    let part = field.number()?;
    if (0.0..=1.0).contains(&part) { Ok(part) } else { Err(field.refused("from 0 to 1")) }
}

fn lease(field: &Field<'_>, object: &mut Object<'_>) -> Outcome<Lease> {
    let id = object.take("id").ok_or_else(|| missing(field, "id"))?;
    let task = id.text()?;
    limits::check_key("it", &task).map_err(|error| id.refused(error))?;
    let epoch = object.take("epoch").ok_or_else(|| missing(field, "epoch"))?;
    let number: Epoch = epoch.text()?.parse().map_err(|error| epoch.refused(error))?;
    Ok(Lease { task: TaskId::new(task), epoch: number })
}

fn missing(field: &Field<'_>, name: &str) -> Problem {
    Problem::field(&format!("{}.{name}", field.path), "is missing")
}

fn worker_id(field: &Field<'_>) -> Outcome<WorkerId> {
    let text = field.text()?;
    limits::check_key("it", &text).map_err(|error| field.refused(error))?;
    Ok(WorkerId::new(text))
}

fn word(field: Option<Field<'_>>) -> Outcome<String> {
    let Some(field) = field else { return Ok(String::new()) };
    let text = field.text()?;
    if text.len() > WORD_BYTES_MAX {
        return Err(field.refused(format!("at most {WORD_BYTES_MAX} bytes")));
    }
    Ok(text)
}

fn between(field: &Field<'_>, least: u32, most: u32) -> Outcome<u32> {
    let count = field.count()?;
    if (least..=most).contains(&count) {
        return Ok(count);
    }
    Err(field.refused(format!("use {least} to {most}")))
}

/// The types that a worker handles.
fn kinds(field: &Field<'_>) -> Outcome<Option<HandledKinds>> {
    let mut kinds = Vec::new();
    for item in field.list()? {
        kinds.push(Kind::new(&item.text()?).map_err(|error| item.refused(error))?);
    }
    if kinds.is_empty() {
        return Err(field.refused("name at least one type, or leave it out for every type"));
    }
    Ok(HandledKinds::new(kinds))
}

/// Names, or names with their weights.
fn queues(field: &Field<'_>) -> Outcome<Vec<(QueueName, u32)>> {
    let named =
        |field: &Field<'_>, name: &str| QueueName::new(name).map_err(|error| field.refused(error));
    let mut queues = Vec::new();
    if field.sort() == "an object" {
        for entry in field.entries()? {
            let name = entry.path.strip_prefix(&format!("{}.", field.path)).unwrap_or_default();
            queues.push((named(&entry, name)?, between(&entry, 1, WEIGHT_MAX)?));
        }
    } else {
        for item in field.list()? {
            queues.push((named(&item, &item.text()?)?, 1));
        }
    }
    if queues.is_empty() {
        return Err(field.refused("name at least one queue"));
    }
    Ok(queues)
}

/// What a worker is given.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Leased")]
pub(crate) struct Tasks<'a> {
    worker: Named<'a>,
    tasks: Vec<LeasedTask<'a>>,
    control: ControlOut,
}

#[derive(Serialize, JsonSchema)]
struct Named<'a> {
    #[schemars(with = "String")]
    id: &'a WorkerId,
}

#[derive(Serialize, JsonSchema)]
struct LeasedTask<'a> {
    #[serde(flatten)]
    task: Task<'a>,
    /// Good until then without another sign of life.
    #[schemars(with = "Time")]
    lease_expires_at: Timestamp,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Control")]
struct ControlOut {
    #[schemars(with = "OrderWord")]
    state: RunOrder,
    /// Seconds between signs of life.
    #[schemars(with = "SecondsWord")]
    heartbeat: Seconds,
    /// Seconds for which a sign of life renews everything that the worker holds.
    #[schemars(with = "SecondsWord")]
    lease: Seconds,
}

impl ControlOut {
    fn new(control: Control, config: &Config) -> Self {
        let (heartbeat, lease) = (config.worker.heartbeat, config.worker.lease);
        Self { state: control.order, heartbeat: Seconds(heartbeat), lease: Seconds(lease) }
    }
}

impl<'a> Tasks<'a> {
    pub(crate) fn new(leased: &'a Leased, config: &Config) -> Self {
        let Leased { worker, tasks, control } = leased;
        let lease_expires_at = control.lease_until;
        let task =
            |task: &'a Claimed| LeasedTask { task: Task::leased(task, worker), lease_expires_at };
        let tasks = tasks.iter().map(task).collect();
        Self { worker: Named { id: worker }, tasks, control: ControlOut::new(*control, config) }
    }
}

/// What became of a report.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Results<'a> {
    results: Vec<ResultOut<'a>>,
    #[serde(flatten)]
    leased: Option<Tasks<'a>>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ResultStatus")]
struct ResultOut<'a> {
    #[schemars(with = "String")]
    id: &'a TaskId,
    #[schemars(extend("enum" = ["applied", "already", "lease-lost", "unrecorded"]))]
    status: &'static str,
}

impl<'a> Results<'a> {
    pub(crate) fn new(reported: &'a Reported, config: &Config) -> Self {
        let result =
            |(id, applied): &'a (TaskId, Applied)| ResultOut { id, status: status(*applied) };
        let results = reported.outcomes.iter().map(result).collect();
        let leased = reported.leased.as_ref().map(|leased| Tasks::new(leased, config));
        Self { results, leased }
    }
}

fn status(applied: Applied) -> &'static str {
    match applied {
        Applied::Applied(_) => "applied",
        Applied::Already => "already",
        Applied::Refused(_) => "lease-lost",
        Applied::Unrecorded => "unrecorded",
    }
}

/// The answer to a heartbeat.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Told<'a> {
    control: ControlOut,
    /// Runs to stop.
    #[schemars(with = "Vec<String>")]
    cancel: &'a [TaskId],
    /// Runs that belong to somebody else by now.
    #[schemars(with = "Vec<String>")]
    lost: &'a [TaskId],
}

impl<'a> Told<'a> {
    pub(crate) fn new(heard: &'a Heard, config: &Config) -> Self {
        let control = ControlOut::new(heard.control, config);
        Self { control, cancel: &heard.cancel, lost: &heard.lost }
    }
}
