//! `windlass task`: looks at tasks, waits for them, and changes them.

use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD as BASE64;
use clap::Subcommand;
use serde_json::{Value, json};

use super::bulk::{self, Change, Chosen};
use super::filters::{Query, StateAndFilters, span};
use super::{Desk, ids, wait};
use crate::caller::{Access, escaped};
use crate::exit::Done;
use crate::output::{Format, List, Style, one_line, values};
use crate::table::{Table, age, cell, plain, short};

/// How long a list looks for its first task; then it says how to go on.
const LOOK_MAX: Duration = Duration::from_secs(30);

#[derive(Subcommand)]
pub(crate) enum Command {
    /// List tasks, newest first.
    #[command(after_help = "\
Examples:
  windlass task list --state dead_letter,retrying
  windlass task list --queue mail --created-after 1h --all -o jsonl

Payloads and results are left out (null); `windlass task show` has them.")]
    List(ListArgs<StateAndFilters>),
    /// Show everything that is kept of a task.
    #[command(after_help = "Example:\n  windlass task show 0190c8f0-…")]
    Show {
        /// The task; six characters of the beginning or the end of its id are enough where they fit no other of the
        /// newest 10,000.
        id: String,
    },
    /// Tell the whole life of a task: submits, runs, failures, and who asked for what.
    #[command(after_help = "Example:\n  windlass task events 0190c8f0-…")]
    Events {
        /// The task; six characters of the beginning or the end of its id are enough where they fit no other of the
        /// newest 10,000.
        id: String,
    },
    /// Wait until a task is finished.
    #[command(after_help = "\
Examples:
  windlass task wait 0190c8f0-…
  windlass task wait 0190c8f0-… --timeout 30s && echo done

Exits with 0 when it completed, 6 when it ended dead or cancelled, 7 when the time was over,
3 when there is no such task, or not any more.")]
    Wait {
        /// The task; six characters of the beginning or the end of its id are enough where they fit no other of the
        /// newest 10,000.
        id: String,
        /// How long at most; for ever without.
        #[arg(long, value_name = "TIME", value_parser = span)]
        timeout: Option<Duration>,
    },
    /// Call tasks off: at once while they wait, else when their run ends.
    #[command(after_help = "\
Examples:
  windlass task cancel 0190c8f0-… 0190c8f1-…
  windlass task cancel --queue mail --state pending --dry-run")]
    Cancel(Chosen),
    /// Run finished tasks again, or waiting ones now.
    #[command(after_help = "\
Examples:
  windlass task retry 0190c8f0-…
  windlass task retry --state dead_letter --type email.send --yes")]
    Retry(Chosen),
    /// Move waiting tasks to a later time.
    #[command(after_help = "\
Examples:
  windlass task snooze 0190c8f0-… --for 10m
  windlass task snooze --queue mail --until 2026-12-24T08:00:00Z --yes")]
    Snooze {
        #[command(flatten)]
        chosen: Chosen,
        /// For this long from now.
        #[arg(long = "for", value_name = "TIME", value_parser = span, required_unless_present = "until", conflicts_with = "until")]
        span: Option<Duration>,
        /// Until this time (RFC 3339).
        #[arg(long, value_name = "TIME")]
        until: Option<windlass::Timestamp>,
    },
    /// Remove tasks that do not run, with all that is known of them.
    #[command(after_help = "\
Examples:
  windlass task delete 0190c8f0-… --yes
  windlass task delete --state completed --created-before 7d --dry-run")]
    Delete(Chosen),
}

/// What to list.
#[derive(clap::Args)]
pub(crate) struct ListArgs<F: clap::Args> {
    #[command(flatten)]
    filters: F,
    /// How many at most on one page.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=500))]
    limit: u32,
    /// Where the last page ended.
    #[arg(long)]
    cursor: Option<String>,
    /// All pages, one after the other.
    #[arg(long)]
    all: bool,
}

pub(crate) async fn run(command: Command, desk: &Desk) -> Done {
    match command {
        Command::List(args) => list(desk, "/api/v1/tasks", args, rows).await,
        Command::Show { id } => {
            let caller = desk.caller(Access::Read).await?;
            let id = ids::task(&caller, &id).await?;
            let answer = caller.get(&format!("/api/v1/tasks/{}", escaped(&id))).await?;
            desk.output.object(&answer, told)
        }
        Command::Events { id } => {
            let caller = desk.caller(Access::Read).await?;
            let id = ids::task(&caller, &id).await?;
            let answer = caller.get(&format!("/api/v1/tasks/{}/events", escaped(&id))).await?;
            desk.output.list(&answer, timeline)
        }
        Command::Wait { id, timeout } => {
            let caller = desk.caller(Access::Read).await?;
            let id = ids::task(&caller, &id).await?;
            wait::and_show(desk, &caller, &id, timeout).await
        }
        Command::Cancel(chosen) => bulk::run(desk, chosen, &Change::new("cancel")).await,
        Command::Retry(chosen) => bulk::run(desk, chosen, &Change::new("retry")).await,
        Command::Delete(chosen) => bulk::run(desk, chosen, &Change::new("delete")).await,
        Command::Snooze { chosen, span, until } => {
            let mut change = Change::new("snooze");
            if let Some(span) = span {
                change.set("for", json!(span.as_secs_f64()));
            }
            if let Some(until) = until {
                change.set("until", json!(until));
            }
            bulk::run(desk, chosen, &change).await
        }
    }
}

/// Lists tasks of a route, one page or all of them.
pub(super) async fn list<F: clap::Args + Query>(
    desk: &Desk,
    route: &str,
    args: ListArgs<F>,
    rows: fn(&[Value], Style) -> Table,
) -> Done {
    let caller = desk.caller(Access::Read).await?;
    let began = Instant::now();
    let mut cursor = args.cursor.clone();
    let mut all: Option<Vec<Value>> = None;
    loop {
        let from = cursor.as_deref().map(|cursor| format!("&cursor={}", escaped(cursor)));
        let (limit, filters) = (args.limit, args.filters.query());
        let path = format!("{route}?limit={limit}{filters}{}", from.unwrap_or_default());
        let answer = caller.get(&path).await?;
        let page: List = answer.read()?;
        if !args.all {
            // A store looks through so many tasks at a time; a page on which none of them is wanted is no
            // answer yet.
            let is_early = began.elapsed() < LOOK_MAX;
            if page.data.is_empty() && page.next_cursor.is_some() && is_early {
                cursor = page.next_cursor;
                continue;
            }
            return desk.output.list(&answer, rows);
        }
        match desk.output.format {
            Format::Jsonl => {
                page.data.iter().try_for_each(|item| desk.output.line(&one_line(item.get())))?;
            }
            Format::Json | Format::Table => {
                all.get_or_insert_default().extend(values(&page)?);
            }
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    let all = all.unwrap_or_default();
    match desk.output.format {
        Format::Jsonl => Ok(()),
        Format::Json => desk.output.line(&json!({"data": all, "next_cursor": null}).to_string()),
        Format::Table => desk.output.table(&rows(&all, desk.output.style())),
    }
}

/// Tasks as a table.
fn rows(tasks: &[Value], style: Style) -> Table {
    let headings = &["id", "type", "queue", "priority", "state", "attempts", "created"];
    let mut table = Table::new(headings, "no tasks");
    for task in tasks {
        table.row(vec![
            cell(&task["id"]),
            cell(&task["type"]),
            cell(&task["queue"]),
            cell(&task["priority"]),
            style.state(&cell(&task["state"])),
            cell(&task["attempts"]),
            age(&task["created_at"]),
        ]);
    }
    table
}

/// A task in words: what is set, one line each.
pub(super) fn told(task: &Value, style: Style) -> String {
    let Some(fields) = task.as_object() else { return task.to_string() };
    let mut lines = Vec::new();
    for (name, value) in fields {
        let is_empty = value.is_null()
            || value.as_array().is_some_and(Vec::is_empty)
            || value.as_object().is_some_and(serde_json::Map::is_empty);
        if is_empty {
            continue;
        }
        // What a command printed is most often text, if not JSON.
        if let Some((name, text)) = decoded(name, value) {
            lines.push(format!("{}  {}", style.dim(&format!("{name:>15}")), plain(&text)));
            continue;
        }
        let text = match (name.as_str(), value) {
            ("state", value) => style.state(&cell(value)),
            ("timeout", value) => short(value.as_f64().unwrap_or_default()),
            (name, Value::String(text)) if name.ends_with("_at") => {
                format!("{} {}", plain(text), style.dim(&format!("({})", age(value))))
            }
            (_, Value::String(text)) => plain(text),
            (_, other) => other.to_string(),
        };
        lines.push(format!("{}  {text}", style.dim(&format!("{name:>15}"))));
    }
    lines.join("\n")
}

/// The text behind a field in base64, with the name that it has as JSON; nothing when it is no text.
fn decoded<'a>(name: &'a str, value: &Value) -> Option<(&'a str, String)> {
    let bytes = BASE64.decode(value.as_str()?).ok();
    let name = name.strip_suffix("_base64")?;
    Some((name, String::from_utf8(bytes?).ok()?.trim_end().to_owned()))
}

fn timeline(events: &[Value], style: Style) -> Table {
    let headings = &["at", "event", "attempt", "worker", "by", "error"];
    let mut table = Table::new(headings, "nothing is known");
    for event in events {
        let times = event["times"].as_u64().filter(|times| *times > 1);
        let times = times.map(|times| format!(" ×{times}")).unwrap_or_default();
        table.row(vec![
            cell(&event["at"]),
            format!("{}{times}", style.state(&cell(&event["event"]))),
            cell(&event["attempt"]),
            cell(&event["worker_id"]),
            cell(&event["by"]),
            cell(&event["error"]),
        ]);
    }
    table
}
