//! `windlass config`: the settings, where each comes from, and a file to begin with.

use clap::Subcommand;
use serde_json::{Map, json};
use windlass::core::config::{sample, settings};

use super::Desk;
use crate::exit::Done;
use crate::output::Output;
use crate::settings::without_password;
use crate::table::Table;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Show every setting: its value, where that comes from, its variable, and what it does.
    #[command(after_help = "\
Examples:
  windlass config show
  WINDLASS_WORKER_LEASE=30s windlass config show -o json

Order: flag > WINDLASS_* environment > ./windlass.toml (or --config) > user config
($XDG_CONFIG_HOME/windlass/windlass.toml) > default.")]
    Show,
    /// Print a file of settings to begin with: all of them with their defaults, commented out.
    #[command(after_help = "Example:\n  windlass config sample > windlass.toml")]
    Sample,
}

pub(crate) fn run(command: Command, desk: &Desk) -> Done {
    match command {
        Command::Show => show(desk),
        Command::Sample => Output::plain().line(sample().trim_end()),
    }
}

fn show(desk: &Desk) -> Done {
    let values = &desk.settings.layered.values;
    let mut shown = Map::new();
    for setting in settings() {
        // Those of another shape of backoff have no value.
        let Some((value, origin)) = values.get(&setting.name) else { continue };
        let value = json!(value);
        let value = match value.as_str() {
            Some(text) if setting.name == "store" || setting.name == "broker" => {
                let urls: Vec<_> = text.split(',').map(without_password).collect();
                json!(urls.join(","))
            }
            _ => value,
        };
        let entry = json!({
            "value": value,
            "from": origin,
            "variable": setting.variable,
            "description": setting.description,
        });
        shown.insert(setting.name, entry);
    }
    desk.output.value(&json!(shown), |style| {
        let mut table = Table::new(&["setting", "value", "from", "variable"], "no settings");
        let text = |value: &serde_json::Value| match value.as_str() {
            Some(text) => text.to_owned(),
            None => value.to_string(),
        };
        for (name, setting) in &shown {
            let cells = ["value", "from", "variable"].map(|field| text(&setting[field]));
            table.row([name.clone()].into_iter().chain(cells).collect());
        }
        let mut lines = Vec::new();
        let mut descriptions = shown.values().map(|setting| text(&setting["description"]));
        for (at, line) in table.render().lines().enumerate() {
            lines.push(line.to_owned());
            if at > 0 {
                let description = descriptions.next().unwrap_or_default();
                lines.push(style.dim(&format!("    {description}")));
            }
        }
        lines.join("\n")
    })
}
