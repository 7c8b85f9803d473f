//! `windlass stats`: how many tasks, queues and workers there are.

use serde_json::Value;

use super::Desk;
use crate::caller::Access;
use crate::exit::Done;
use crate::output::Style;
use crate::table::{count, plain};

/// What to count.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  windlass stats\n  windlass stats -o json --server http://127.0.0.1:8080"
)]
pub(crate) struct Args {}

pub(crate) async fn run(_args: Args, desk: &Desk) -> Done {
    let answer = desk.caller(Access::Read).await?.get("/api/v1/stats").await?;
    desk.output.object(&answer, told)
}

fn told(stats: &Value, style: Style) -> String {
    let mut lines = vec![style.bold("tasks")];
    if let Some(states) = stats["tasks"]["by_state"].as_object() {
        for (state, number) in states {
            let pad = " ".repeat(12_usize.saturating_sub(state.len()));
            lines.push(format!("  {}{pad} {:>12}", style.state(state), count(number)));
        }
    }
    let workers = &stats["workers"];
    lines.push(format!("{}  {}", style.bold("queues "), count(&stats["queues"]["total"])));
    lines.push(format!(
        "{}  {}, {} of {} slots busy",
        style.bold("workers"),
        count(&workers["live"]),
        count(&workers["slots_used"]),
        count(&workers["slots"]),
    ));
    let store = &stats["store"];
    let name = plain(store["name"].as_str().unwrap_or_default());
    let durability = store["durability"].as_str().unwrap_or_default();
    lines.push(format!("{}  {name}, {durability}", style.bold("store  ")));
    lines.join("\n")
}
