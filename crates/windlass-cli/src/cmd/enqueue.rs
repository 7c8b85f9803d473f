//! `windlass enqueue`: submits a task, or the same task many times.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD as BASE64;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use windlass::Timestamp;

use super::filters::span;
use super::{Desk, wait};
use crate::caller::{Access, Answer, Caller, lenient};
use crate::exit::{Code, Done, Failure};
use crate::output::{Format, one_line, tell};
use crate::settings::read_bytes;
use crate::table::{grouped, plain};
use crate::telemetry::submitting;

const EXAMPLES: &str = "\
Examples:
  windlass enqueue echo '{\"hello\":\"world\"}' --wait
  windlass enqueue email.send @letter.json --queue mail --delay 10m --max-retries 8
  echo '{\"ms\":100}' | windlass enqueue sleep -
  windlass enqueue noop --count 10000 -o jsonl
  windlass enqueue report.daily --idempotency-key report-2026-11-15

With --wait it exits with 0 when the task completed, 6 when it ended dead or cancelled, 7 when
--wait-timeout was over.";

/// Most tasks in one request.
const BATCH: u64 = 1_000;
/// Most bytes of tasks in one request: a quarter of what the server takes, so that the bar moves.
const BATCH_BYTES: usize = 8 * 1024 * 1024;

/// What to submit.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The type of the task, which names its handler.
    #[arg(value_name = "TYPE")]
    kind: String,
    /// The payload: JSON, @FILE, or - for the standard input; null without. A file that is no text goes as bytes
    /// (payload_base64).
    payload: Option<String>,
    /// The queue; `default` without.
    #[arg(long)]
    queue: Option<String>,
    /// critical, high, normal or low.
    #[arg(long)]
    priority: Option<String>,
    /// Not before this time has passed, e.g. 10m.
    #[arg(long, value_name = "TIME", value_parser = span, conflicts_with = "at", allow_hyphen_values = true)]
    delay: Option<Duration>,
    /// Not before this instant (RFC 3339).
    #[arg(long, value_name = "TIME")]
    at: Option<Timestamp>,
    /// Runs after the first that a failing task may have.
    #[arg(long, value_name = "COUNT")]
    max_retries: Option<u32>,
    /// Runs lost with their worker that it survives.
    #[arg(long, value_name = "COUNT")]
    max_crashes: Option<u32>,
    /// Longest run.
    #[arg(long, value_name = "TIME", value_parser = span)]
    timeout: Option<Duration>,
    /// No run starts at or after this instant, and one that runs is stopped at it (RFC 3339).
    #[arg(long, value_name = "TIME")]
    deadline: Option<Timestamp>,
    /// How long the finished task is kept.
    #[arg(long, value_name = "TIME", value_parser = span)]
    retention: Option<Duration>,
    /// A repeated submit with this key answers with the first task.
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// No second such task for this long.
    #[arg(long, value_name = "TIME", value_parser = span)]
    unique_for: Option<Duration>,
    /// What makes it the same task; without, its queue, type and payload.
    #[arg(long, value_name = "KEY", requires = "unique_for")]
    unique_key: Option<String>,
    /// A word to find it by; may be given several times.
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// A note of yours; may be given several times.
    #[arg(long = "meta", value_name = "NAME=VALUE", value_parser = pair)]
    metadata: Vec<(String, String)>,
    /// How many times. Programs get a summary, and each task with -o jsonl.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    count: u64,
    /// Waits until it is finished, and shows its result. Where finished tasks are not kept, this one is for a minute.
    #[arg(long)]
    wait: bool,
    /// How long to wait at most; for ever without.
    #[arg(long, value_name = "TIME", value_parser = span, requires = "wait")]
    wait_timeout: Option<Duration>,
}

/// A payload as the API takes it.
enum Payload {
    Json(Box<RawValue>),
    /// Bytes that are no text.
    Base64(String),
}

/// The body of a submit; only what was given.
#[derive(Serialize)]
struct Body<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<&'a str>,
    #[serde(flatten)]
    options: serde_json::Map<String, Value>,
}

pub(crate) async fn run(args: Args, desk: &Desk) -> Done {
    let most = desk.settings.config.limits.payload_bytes_max;
    let payload = args.payload.as_deref().map(|text| read_payload(text, most)).transpose()?;
    let (payload, payload_base64) = match &payload {
        Some(Payload::Json(json)) => (Some(&**json), None),
        Some(Payload::Base64(text)) => (None, Some(text.as_str())),
        None => (None, None),
    };
    let body = Body { kind: &args.kind, payload, payload_base64, options: options(&args) };
    let caller = desk.caller(Access::Write).await?;
    if args.count == 1 {
        return one(desk, &caller, &body, &args).await;
    }
    many(desk, &caller, &body, &args).await
}

async fn one(desk: &Desk, caller: &Caller, body: &Body<'_>, args: &Args) -> Done {
    let answer = submitting(caller.send("/api/v1/tasks", body)).await?;
    if args.wait {
        let task = answer.value()?;
        let id = task["id"].as_str().unwrap_or_default();
        // Known before the wait, which may be interrupted.
        tell!("waiting for task {}", plain(id));
        return wait::and_show(desk, caller, id, args.wait_timeout).await;
    }
    desk.output.object(&answer, |task, style| {
        let (id, state) = (task["id"].as_str().unwrap_or_default(), &task["state"]);
        let state = style.state(state.as_str().unwrap_or_default());
        let known = if answer.status == 200 { ", which was there already" } else { "" };
        format!("task {} is {state}{known}", plain(id))
    })
}

/// What became of many submits.
#[derive(Default)]
struct Tally {
    /// Those whose end is awaited.
    ids: Vec<String>,
    created: u64,
    existing: u64,
    failed: u64,
    first_failure: Option<Failure>,
}

async fn many(desk: &Desk, caller: &Caller, body: &Body<'_>, args: &Args) -> Done {
    let bar = ProgressBar::new(args.count);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {human_pos}/{human_len} {per_sec}") {
        bar.set_style(style);
    }
    let task = serde_json::value::to_raw_value(body)
        .map_err(|cause| Failure::usage(format!("write the request: {cause}")))?;
    let batch = batch_count(task.get().len());
    let mut tally = Tally::default();
    let mut left = args.count;
    let mut cut_short = None;
    while left > 0 && cut_short.is_none() {
        let (count, failed_before) = (left.min(batch), tally.failed);
        let tasks: Vec<_> = (0..count).map(|_| &task).collect();
        let answer = submitting(caller.send("/api/v1/tasks/batch", &tasks)).await;
        match answer.and_then(|answer| take(desk, &answer, &mut tally, args.wait)) {
            Ok(()) => {
                left -= count;
                // Nothing was stored, and the store cannot be reached: the rest would fare no better.
                let is_away = |failure: &Failure| failure.code == Code::Unreachable;
                let failed = tally.failed - failed_before;
                if failed == count && tally.first_failure.as_ref().is_some_and(is_away) {
                    cut_short = tally.first_failure.take();
                }
            }
            // What is stored is stored, and the caller must know of it.
            Err(failure) if left < args.count => cut_short = Some(failure),
            Err(failure) => return Err(failure),
        }
        bar.set_position(args.count - left);
    }
    bar.finish_and_clear();
    let states = wait_for_all(desk, caller, &tally.ids, args).await?;
    summary(desk, &tally, args.wait.then_some(&states))?;
    let is_unfinished = states.iter().any(|(state, _)| state != "completed");
    let stored = tally.created + tally.existing;
    match cut_short.or(tally.first_failure) {
        Some(failure) if stored == 0 => Err(failure),
        Some(failure) => {
            let (stored, count) = (grouped(stored), grouped(args.count));
            let text = format!("only {stored} of {count} tasks are submitted: {failure}");
            Err(Failure::new(Code::Partly, text))
        }
        None if is_unfinished => {
            Err(Failure::new(Code::TaskFailed, "not all tasks completed; see `windlass task list`"))
        }
        None => Ok(()),
    }
}

/// Waits for the ends of tasks, within the time for all of them; answers how many ended in each state. With `jsonl`,
/// each task is printed at its end.
async fn wait_for_all(
    desk: &Desk,
    caller: &Caller,
    ids: &[String],
    args: &Args,
) -> Done<BTreeMap<String, u64>> {
    let mut states = BTreeMap::new();
    let deadline = args.wait_timeout.and_then(|time| Instant::now().checked_add(time));
    for id in ids {
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let seen = wait::until_finished(caller, id, left).await?;
        if desk.output.format == Format::Jsonl {
            desk.output.line(&one_line(&String::from_utf8_lossy(&seen.body)))?;
        }
        let state = seen.value()?["state"].as_str().unwrap_or_default().to_owned();
        *states.entry(state).or_default() += 1;
    }
    Ok(states)
}

/// How many tasks of so many bytes one request carries.
fn batch_count(task_bytes: usize) -> u64 {
    let fitting = BATCH_BYTES / (task_bytes + 1);
    u64::try_from(fitting).unwrap_or(BATCH).clamp(1, BATCH)
}

/// Counts what a batch came to; with `jsonl`, each task is printed now that it is durable, unless its end is awaited.
fn take(desk: &Desk, answer: &Answer, tally: &mut Tally, is_awaited: bool) -> Done {
    #[derive(serde::Deserialize)]
    struct Batch {
        results: Vec<Box<RawValue>>,
        created: u64,
        existing: u64,
        failed: u64,
    }
    #[derive(serde::Deserialize)]
    struct One {
        task: Option<Box<RawValue>>,
        error: Option<Value>,
    }
    let batch: Batch = answer.read()?;
    tally.created += batch.created;
    tally.existing += batch.existing;
    tally.failed += batch.failed;
    for result in batch.results {
        let one: One = serde_json::from_str(result.get())
            .map_err(|cause| Failure::new(Code::Error, format!("read the answer: {cause}")))?;
        if let Some(error) = one.error {
            tally.first_failure.get_or_insert_with(|| Failure::of_problem(&error));
        }
        if let Some(task) = one.task {
            if is_awaited {
                let task = lenient(task.get()).unwrap_or_default();
                tally.ids.push(task["id"].as_str().unwrap_or_default().to_owned());
            } else if desk.output.format == Format::Jsonl {
                desk.output.line(&one_line(task.get()))?;
            }
        }
    }
    Ok(())
}

/// Shows how many tasks were submitted, and how many of those that were awaited ended in each state.
fn summary(desk: &Desk, tally: &Tally, states: Option<&BTreeMap<String, u64>>) -> Done {
    let (created, existing, failed) = (tally.created, tally.existing, tally.failed);
    match desk.output.format {
        Format::Jsonl => Ok(()),
        Format::Json => {
            let mut whole = json!({"created": created, "existing": existing, "failed": failed});
            if let Some(states) = states {
                whole["states"] = json!(states);
            }
            desk.output.line(&whole.to_string())
        }
        Format::Table => {
            let mut text = format!("{} tasks submitted", grouped(created));
            if existing > 0 {
                text.push_str(&format!(", {} were there already", grouped(existing)));
            }
            let style = desk.output.style();
            for (state, count) in states.into_iter().flatten() {
                text.push_str(&format!(", {} {}", grouped(*count), style.state(state)));
            }
            desk.output.line(&text)
        }
    }
}

/// The fields of the request that were given.
fn options(args: &Args) -> serde_json::Map<String, Value> {
    let seconds = |time: Option<Duration>| time.map(|time| json!(time.as_secs_f64()));
    let unique = args.unique_for.map(|time| {
        let mut unique = json!({"for": time.as_secs_f64()});
        if let Some(key) = &args.unique_key {
            unique["key"] = json!(key);
        }
        unique
    });
    let metadata: serde_json::Map<_, _> =
        args.metadata.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    let fields = [
        ("queue", args.queue.as_ref().map(|queue| json!(queue))),
        ("priority", args.priority.as_ref().map(|priority| json!(priority))),
        ("delay", seconds(args.delay)),
        ("run_at", args.at.map(|at| json!(at))),
        ("max_retries", args.max_retries.map(|count| json!(count))),
        ("max_crashes", args.max_crashes.map(|count| json!(count))),
        ("timeout", seconds(args.timeout)),
        ("deadline", args.deadline.map(|at| json!(at))),
        ("retention", seconds(args.retention)),
        ("awaited", args.wait.then(|| json!(true))),
        ("idempotency_key", args.idempotency_key.as_ref().map(|key| json!(key))),
        ("unique", unique),
        ("tags", (!args.tags.is_empty()).then(|| json!(args.tags))),
        ("metadata", (!metadata.is_empty()).then_some(Value::Object(metadata))),
    ];
    fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// The payload as it was given, byte for byte. A text must be JSON; bytes that are no text go as they are. More than
/// may be stored is refused.
fn read_payload(text: &str, bytes_max: usize) -> Done<Payload> {
    let bytes = match (text, text.strip_prefix('@')) {
        ("-", _) => read_bytes("the standard input", std::io::stdin(), bytes_max)?,
        (_, Some(path)) => {
            let file = std::fs::File::open(path)
                .map_err(|cause| Failure::usage(format!("read {path}: {cause}")))?;
            read_bytes(path, file, bytes_max)?
        }
        (text, None) => text.as_bytes().to_vec(),
    };
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(binary) => return Ok(Payload::Base64(BASE64.encode(binary.as_bytes()))),
    };
    serde_json::from_str(text.trim()).map(Payload::Json).map_err(|cause| {
        let hint = "a text needs quotes of its own, e.g. '\"hello\"'";
        Failure::usage(format!("the payload is not JSON: {cause}; {hint}"))
    })
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}
