//! `windlass migrate`: the schema of a store.

use clap::Subcommand;
use serde_json::json;
use windlass::SchemaStatus;

use super::Desk;
use crate::caller::{Access, client};
use crate::exit::{Done, Failure};
use crate::table::Table;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Make the store, or bring its schema up to date. (Whoever opens a store does so too.)
    #[command(after_help = "Example:\n  windlass migrate up --store sqlite:windlass.db")]
    Up,
    /// Show which migrations were applied. Changes nothing.
    #[command(after_help = "Example:\n  windlass migrate status")]
    Status,
    /// Print what `up` would do, for review or for a DBA. Changes nothing.
    #[command(after_help = "\
Example:
  windlass migrate sql --store postgres://… > schema.sql
  psql -d shop -f schema.sql

For PostgreSQL: one transaction with the missing migrations of the schema in the URL, to be run as its owner.
For SQLite: every migration, to read.")]
    Sql,
}

pub(crate) async fn run(command: Command, desk: &Desk) -> Done {
    if desk.settings.server.is_some() {
        return Err(Failure::usage("migrate works on a store itself: give --store"));
    }
    let url = &desk.settings.config.store;
    match command {
        Command::Up => {
            drop(client(&desk.settings, Access::Write).await?);
            show(desk, &windlass::schema_status(url).await?)
        }
        Command::Status => show(desk, &windlass::schema_status(url).await?),
        Command::Sql => desk.output.line(windlass::schema_script(url).await?.trim_end()),
    }
}

fn show(desk: &Desk, status: &SchemaStatus) -> Done {
    let known = status.migrations;
    let list: Vec<_> = known
        .iter()
        .enumerate()
        .map(|(at, step)| json!({"name": step.name, "applied": at < status.applied}))
        .collect();
    let report = json!({
        "applied": status.applied,
        "known": known.len(),
        "migrations": list,
    });
    desk.output.value(&report, |_| {
        let mut table = Table::new(&["migration", "applied"], "this store has no schema");
        for (at, step) in known.iter().enumerate() {
            let word = if at < status.applied { "yes" } else { "no" };
            table.row(vec![step.name.to_owned(), word.to_owned()]);
        }
        table.render()
    })
}
