//! `windlass dlq`: dead letters, the tasks that will not run again by themselves.

use clap::Subcommand;
use serde_json::{Value, json};
use windlass_server::Method;

use super::bulk::Sweep;
use super::filters::{Filters, Query};
use super::task::{self, ListArgs};
use super::{Desk, ids};
use crate::caller::Access;
use crate::confirm::confirm;
use crate::exit::{Done, Failure};
use crate::output::Style;
use crate::table::{Table, age, cell};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// List dead letters, newest first.
    #[command(
        after_help = "Examples:\n  windlass dlq list\n  windlass dlq list --type email.send --all -o jsonl"
    )]
    List(ListArgs<Filters>),
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
            let ways = [id.is_some(), !filters.is_empty(), all];
            if ways.into_iter().filter(|is_used| *is_used).count() != 1 {
                return Err(Failure::usage("name one dead letter, or filters, or --all"));
            }
            let caller = desk.caller(Access::Write).await?;
            let request = match id {
                Some(id) => json!({"task_id": ids::task(&caller, &id).await?}),
                None if all => json!({"retry_all": true}),
                None => json!({"filter": filters}),
            };
            let sweep = Sweep::InBody { route: "/api/v1/dlq/retry".into(), request };
            sweep.run(desk, &caller, None).await
        }
        Command::Purge { filters, yes } => {
            if !confirm("Delete dead letters for good?", yes).await? {
                return Ok(());
            }
            let path = match filters.query().strip_prefix('&') {
                Some(query) => format!("/api/v1/dlq?{query}"),
                None => String::from("/api/v1/dlq"),
            };
            let sweep = Sweep::InUrl { method: Method::DELETE, path };
            sweep.run(desk, &desk.caller(Access::Write).await?, None).await
        }
    }
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
