//! `windlass dlq`: dead letters, the tasks that will not run again by themselves.

use clap::Subcommand;
use serde_json::{Value, json};

use super::Desk;
use super::bulk::repeat;
use super::filters::Filters;
use super::task::{self, ListArgs};
use crate::caller::{Access, Caller};
use crate::confirm::confirm;
use crate::exit::{Done, Failure};
use crate::output::Style;
use crate::table::{Table, age, cell, grouped};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// List dead letters, newest first.
    #[command(
        after_help = "Examples:\n  windlass dlq list\n  windlass dlq list --type email.send --all -o jsonl"
    )]
    List(ListArgs),
    /// Run dead letters again.
    #[command(after_help = "\
Examples:
  windlass dlq retry 0190c8f0-…
  windlass dlq retry --queue mail
  windlass dlq retry --all")]
    Retry {
        /// The dead letter; or use filters.
        id: Option<String>,
        #[command(flatten)]
        filters: Filters,
        /// All of them.
        #[arg(long)]
        all: bool,
    },
    /// Delete dead letters for good.
    #[command(
        after_help = "Examples:\n  windlass dlq purge --yes\n  windlass dlq purge --queue mail --yes"
    )]
    Purge {
        #[command(flatten)]
        filters: Filters,
        /// Does not ask.
        #[arg(short, long)]
        yes: bool,
    },
}

pub(crate) async fn run(command: Command, desk: &Desk) -> Done {
    match command {
        Command::List(args) => task::list(desk, "/api/v1/dlq", args, rows).await,
        Command::Retry { id, filters, all } => {
            let request = match (id, filters.is_empty(), all) {
                (Some(id), true, false) => json!({"task_id": id}),
                (None, false, false) => json!({"filter": filters}),
                (None, true, true) => json!({"retry_all": true}),
                _ => return Err(Failure::usage("name one dead letter, or filters, or --all")),
            };
            let caller = desk.caller(Access::Write).await?;
            repeat(desk, &caller, "/api/v1/dlq/retry", request).await
        }
        Command::Purge { filters, yes } => {
            confirm("Delete dead letters for good?", yes).await?;
            purge(desk, &desk.caller(Access::Write).await?, &filters).await
        }
    }
}

async fn purge(desk: &Desk, caller: &Caller, filters: &Filters) -> Done {
    let mut changed = 0;
    let mut from = String::new();
    loop {
        let path = format!("/api/v1/dlq?{}{from}", filters.query().trim_start_matches('&'));
        let answer = caller.delete(path.trim_end_matches('?')).await?;
        changed += task::number(&answer, "changed")?;
        let reply: Value = answer.read()?;
        let Some(cursor) = reply["next_cursor"].as_str() else { break };
        from = format!("&cursor={}", crate::caller::escaped(cursor));
    }
    let whole = json!({"changed": changed, "next_cursor": null});
    desk.output.value(&whole, |_| format!("{} dead letters deleted", grouped(changed)))
}

fn rows(letters: &[Value], _style: Style) -> Table {
    let mut table =
        Table::new(&["id", "type", "queue", "attempts", "died", "error"], "no dead letters");
    for letter in letters {
        table.row(vec![
            cell(&letter["id"]),
            cell(&letter["type"]),
            cell(&letter["queue"]),
            cell(&letter["attempts"]),
            age(&letter["completed_at"]),
            cell(&letter["error"]),
        ]);
    }
    table
}
