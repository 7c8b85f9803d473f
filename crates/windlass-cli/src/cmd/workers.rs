//! `windlass workers`: who runs tasks.

use clap::Subcommand;
use serde_json::Value;

use super::task::told;
use super::{Desk, ids};
use crate::caller::{Access, escaped};
use crate::exit::Done;
use crate::output::Style;
use crate::table::{Table, cell, plain, short};

/// Most types of a worker that a row names.
const TYPES_SHOWN: usize = 3;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// List workers: what they serve, how busy they are, when they were last heard of.
    #[command(after_help = "Examples:\n  windlass workers list\n  windlass workers list -o jsonl")]
    List,
    /// Show one worker and what it runs.
    #[command(after_help = "Example:\n  windlass workers show 5f0c…")]
    Show {
        /// The worker's id, or six characters of its beginning or end that fit no other.
        id: String,
    },
    /// Have a worker take nothing new until it is told to go on; what it runs goes on.
    #[command(after_help = "Example:\n  windlass workers pause 5f0c…")]
    Pause {
        /// The worker's id, or six characters of its beginning or end that fit no other.
        id: String,
    },
    /// Have a paused worker take tasks again.
    #[command(after_help = "Example:\n  windlass workers resume 5f0c…")]
    Resume {
        /// The worker's id, or six characters of its beginning or end that fit no other.
        id: String,
    },
    /// Have a worker finish what it runs, and end.
    #[command(after_help = "Example:\n  windlass workers drain 5f0c…")]
    Drain {
        /// The worker's id, or six characters of its beginning or end that fit no other.
        id: String,
    },
}

pub(crate) async fn run(command: Command, desk: &Desk) -> Done {
    match command {
        Command::List => {
            let caller = desk.caller(Access::Read).await?;
            desk.output.list(&caller.get("/api/v1/workers").await?, rows)
        }
        Command::Show { id } => {
            let caller = desk.caller(Access::Read).await?;
            let id = ids::worker(&caller, &id).await?;
            desk.output.object(&caller.get(&route(&id, "")).await?, told)
        }
        Command::Pause { id } => steer(desk, &id, "/pause", "will take nothing new").await,
        Command::Resume { id } => steer(desk, &id, "/resume", "goes on").await,
        Command::Drain { id } => steer(desk, &id, "/drain", "will finish what it runs").await,
    }
}

async fn steer(desk: &Desk, id: &str, order: &str, now: &str) -> Done {
    let caller = desk.caller(Access::Write).await?;
    let id = &ids::worker(&caller, id).await?;
    let answer = caller.post(&route(id, order)).await?;
    desk.output.object(&answer, |_, _| format!("worker {} {now}", plain(id)))
}

fn route(id: &str, rest: &str) -> String {
    format!("/api/v1/workers/{}{rest}", escaped(id))
}

/// What a worker does, and what it was told to do where it has not heard of that yet.
fn standing(worker: &Value) -> String {
    let (state, order) = (cell(&worker["state"]), cell(&worker["order"]));
    if state == order || state == "gone" { state } else { format!("{state}, told to {order}") }
}

/// The types that a worker handles: a few by name, more as their number.
fn types(worker: &Value) -> String {
    let names = worker["types"].as_array().filter(|names| names.len() <= TYPES_SHOWN);
    match (names, worker["type_count"].as_u64()) {
        (_, None) => String::from("all"),
        (Some(names), Some(_)) => names.iter().map(cell).collect::<Vec<_>>().join(", "),
        (None, Some(count)) => count.to_string(),
    }
}

fn rows(workers: &[Value], style: Style) -> Table {
    let headings = &["id", "name", "host", "pid", "state", "busy", "queues", "types", "heard of"];
    let mut table = Table::new(headings, "no workers");
    for worker in workers {
        let age = worker["heartbeat_age"].as_f64().map(|age| format!("{} ago", short(age)));
        let queues = worker["queues"].as_array().map(Vec::as_slice).unwrap_or_default();
        let queues: Vec<_> = queues.iter().map(cell).collect();
        table.row(vec![
            cell(&worker["id"]),
            cell(&worker["name"]),
            cell(&worker["host"]),
            cell(&worker["pid"]),
            style.state(&standing(worker)),
            format!("{}/{}", cell(&worker["slots_used"]), cell(&worker["slots"])),
            cell(&Value::from(queues.join(", "))),
            types(worker),
            age.unwrap_or_default(),
        ]);
    }
    table
}
