//! `windlass audit`: who changed what.

use serde_json::Value;

use super::Desk;
use crate::caller::{Access, escaped};
use crate::exit::Done;
use crate::output::Style;
use crate::table::{Table, cell, count};

const EXAMPLES: &str = "\
Examples:
  windlass audit
  windlass audit --since 2026-01-31T00:00:00Z --limit 500 -o jsonl";

/// Which part of the audit.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// From this time on.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// How many at most, 1 to 500.
    #[arg(long, default_value_t = 50)]
    limit: u16,
    /// Where the last answer ended.
    #[arg(long)]
    cursor: Option<String>,
}

pub(crate) async fn run(args: Args, desk: &Desk) -> Done {
    let mut route = format!("/api/v1/audit?limit={}", args.limit);
    for (name, value) in [("since", args.since), ("cursor", args.cursor)] {
        if let Some(value) = value {
            route.push_str(&format!("&{name}={}", escaped(&value)));
        }
    }
    let answer = desk.caller(Access::Read).await?.get(&route).await?;
    desk.output.list(&answer, rows)
}

fn rows(entries: &[Value], _style: Style) -> Table {
    let mut table = Table::new(&["at", "by", "action", "tasks", "what"], "nothing yet");
    for entry in entries {
        let first = &entry["tasks"][0];
        let what = if entry["subject"].is_null() { first } else { &entry["subject"] };
        table.row(vec![
            cell(&entry["at"]),
            cell(&entry["by"]),
            cell(&entry["action"]),
            count(&entry["count"]),
            cell(what),
        ]);
    }
    table
}
