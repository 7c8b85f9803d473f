//! `windlass queue`: looks at queues and steers them.

use clap::Subcommand;
use serde_json::Value;
use windlass_server::Method;

use super::Desk;
use super::bulk::{Sweep, tasks};
use crate::caller::{Access, escaped};
use crate::confirm::confirm;
use crate::exit::Done;
use crate::output::Style;
use crate::table::{Table, cell, count, plain, short};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// List all queues with what is in them.
    #[command(after_help = "Examples:\n  windlass queue list\n  windlass queue list -o jsonl")]
    List,
    /// Show one queue.
    #[command(after_help = "Example:\n  windlass queue show mail")]
    Show {
        /// The queue.
        queue: String,
    },
    /// Give out nothing more of a queue; submits are still taken.
    #[command(after_help = "Example:\n  windlass queue pause mail")]
    Pause {
        /// The queue.
        queue: String,
        /// Makes the queue when it is not there.
        #[arg(long)]
        create: bool,
    },
    /// Go on with a paused queue.
    #[command(after_help = "Example:\n  windlass queue resume mail")]
    Resume {
        /// The queue.
        queue: String,
    },
    /// Delete everything that waits in a queue: pending, scheduled and retrying tasks.
    #[command(after_help = "Example:\n  windlass queue purge mail --yes")]
    Purge {
        /// The queue.
        queue: String,
        /// Does not ask.
        #[arg(short, long)]
        yes: bool,
    },
}

pub(crate) async fn run(command: Command, desk: &Desk) -> Done {
    match command {
        Command::List => {
            let answer = desk.caller(Access::Read).await?.get("/api/v1/queues").await?;
            desk.output.list(&answer, rows)
        }
        Command::Show { queue } => {
            let answer = desk.caller(Access::Read).await?.get(&route(&queue, "")).await?;
            desk.output
                .object(&answer, |queue, style| rows(std::slice::from_ref(queue), style).render())
        }
        Command::Pause { queue, create } => {
            let order = if create { "/pause?create=true" } else { "/pause" };
            steer(desk, &queue, order, "is paused").await
        }
        Command::Resume { queue } => steer(desk, &queue, "/resume", "goes on").await,
        Command::Purge { queue, yes } => {
            let caller = desk.caller(Access::Write).await?;
            let depth = caller.get(&route(&queue, "")).await?.value()?["depth"].take();
            let waiting = ["pending", "scheduled", "retrying"].map(|state| depth[state].as_u64());
            let total = waiting.into_iter().flatten().sum();
            let question = format!("Delete {} that wait in queue {}?", tasks(total), plain(&queue));
            if !confirm(&question, yes).await? {
                return Ok(());
            }
            let sweep = Sweep::InUrl { method: Method::POST, path: route(&queue, "/purge") };
            sweep.run(desk, &caller, Some(total)).await
        }
    }
}

async fn steer(desk: &Desk, queue: &str, order: &str, now: &str) -> Done {
    let answer = desk.caller(Access::Write).await?.post(&route(queue, order)).await?;
    desk.output.object(&answer, |_, _| format!("queue {} {now}", plain(queue)))
}

fn route(queue: &str, rest: &str) -> String {
    format!("/api/v1/queues/{}{rest}", escaped(queue))
}

fn rows(queues: &[Value], style: Style) -> Table {
    let headings =
        &["queue", "pending", "running", "retry", "sched", "done", "dead", "oldest", "state"];
    let mut table = Table::new(headings, "no queues yet");
    for queue in queues {
        let depth = |state: &str| count(&queue["depth"][state]);
        table.row(vec![
            cell(&queue["name"]),
            depth("pending"),
            depth("running"),
            depth("retrying"),
            depth("scheduled"),
            depth("completed"),
            depth("dead_letter"),
            queue["oldest_age"].as_f64().map_or_else(|| String::from("-"), short),
            if queue["paused"] == true { style.state("paused") } else { String::from("runs") },
        ]);
    }
    table
}
