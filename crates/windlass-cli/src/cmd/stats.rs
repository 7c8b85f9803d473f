//! `windlass stats`: how many tasks, queues and workers there are, and what was done lately.

mod chart;
mod watch;

use clap::ValueEnum;
use serde_json::Value;

use self::chart::{frequency, spread};
use super::Desk;
use crate::caller::{Access, Caller, escaped};
use crate::exit::Done;
use crate::output::Style;
use crate::table::{Table, cell, count, plain};

const EXAMPLES: &str = "\
Examples:
  windlass stats                                   counts, and the last hour by queue and type
  windlass stats --window 7d                       the last week
  windlass stats --queue mail --window 24h         one queue, all day
  windlass stats --watch                           drawn anew every 2 s; Ctrl-C ends it
  windlass stats -o json --server http://127.0.0.1:8080";

/// What to count. What workers did is counted some seconds later.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// How far back to look.
    #[arg(long, value_enum, default_value_t = Window::Hour)]
    window: Window,
    /// Only this queue: what was done there in the window.
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Only this type.
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Shows it again every 2 s: on a terminal a picture of the last hour, elsewhere the object of `-o json`
    /// on a line of its own each time.
    #[arg(long)]
    watch: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Window {
    /// The last hour.
    #[value(name = "1h")]
    Hour,
    /// The last day.
    #[value(name = "24h")]
    Day,
    /// The last week.
    #[value(name = "7d")]
    Week,
}

impl Window {
    const fn name(self) -> &'static str {
        match self {
            Self::Hour => "1h",
            Self::Day => "24h",
            Self::Week => "7d",
        }
    }

    const fn minutes(self) -> u32 {
        match self {
            Self::Hour => 60,
            Self::Day => 24 * 60,
            Self::Week => 7 * 24 * 60,
        }
    }
}

pub(crate) async fn run(args: Args, desk: &Desk) -> Done {
    let caller = desk.caller(Access::Read).await?;
    if args.watch {
        return watch::run(&args, &caller, desk.output).await;
    }
    if args.is_of_some() {
        let answer = caller.get(&args.series(args.window.minutes())).await?;
        return desk.output.object(&answer, |series, style| args.told_of_some(series, style));
    }
    let answer = caller.get(STATS).await?;
    desk.output.object(&answer, |stats, style| {
        let window = &stats["windows"][args.window.name()];
        format!("{}\n\n{}", told(stats, style), told_window(window, args.window, style))
    })
}

const STATS: &str = "/api/v1/stats";

impl Args {
    fn is_of_some(&self) -> bool {
        self.queue.is_some() || self.kind.is_some()
    }

    /// The request for the series of what is meant.
    fn series(&self, minutes: u32) -> String {
        let mut path = format!("/api/v1/stats/timeseries?minutes={minutes}");
        for (name, value) in [("queue", &self.queue), ("type", &self.kind)] {
            if let Some(value) = value {
                path.push_str(&format!("&{name}={}", escaped(value)));
            }
        }
        path
    }

    /// What is meant, in words.
    fn subject(&self) -> String {
        let part = |word, name: &Option<String>| {
            name.as_ref().map(|name| format!("{word} {}", plain(name)))
        };
        let parts = [part("queue", &self.queue), part("type", &self.kind)];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        if parts.is_empty() { String::from("all queues") } else { parts.join(", ") }
    }

    fn told_of_some(&self, series: &Value, style: Style) -> String {
        let mut table = tallies();
        table.row(row(self.subject(), &series["total"]));
        format!("{}\n{}", style.bold(&format!("last {}", self.window.name())), table.render())
    }
}

/// What there is, one thing a line.
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

/// What was done in a window: in all, by queue and by type.
fn told_window(window: &Value, length: Window, style: Style) -> String {
    let mut table = tallies();
    table.row(row(String::from("all"), &window["total"]));
    for (list, name) in [("queues", "queue"), ("types", "type")] {
        for tally in window[list].as_array().into_iter().flatten() {
            table.row(row(format!("{name} {}", cell(&tally[name])), tally));
        }
    }
    format!("{}\n{}", style.bold(&format!("last {}", length.name())), table.render())
}

/// A table that is 79 columns wide as long as its numbers are.
fn tallies() -> Table {
    let headings =
        &["of", "submitted", "completed", "failed", "per min", "wait 50/95/99", "run 50/95/99"];
    Table::new(headings, "nothing yet")
}

fn row(name: String, tally: &Value) -> Vec<String> {
    vec![
        name,
        count(&tally["submitted"]),
        count(&tally["completed"]),
        count(&tally["failed"]),
        frequency(&tally["completed_per_minute"]),
        spread(&tally["wait"]),
        spread(&tally["run_time"]),
    ]
}

/// Both answers that a picture is drawn of.
async fn both(args: &Args, caller: &Caller) -> Done<(Value, Value)> {
    let stats = caller.get(STATS).await?.value()?;
    let series = caller.get(&args.series(Window::Hour.minutes())).await?.value()?;
    Ok((stats, series))
}
