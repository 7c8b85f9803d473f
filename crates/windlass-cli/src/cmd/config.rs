//! `windlass config`: the settings, and where each comes from.

use clap::Subcommand;
use serde_json::{Map, json};

use super::Desk;
use crate::exit::Done;
use crate::settings::without_password;
use crate::table::Table;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Show every setting, its value and where that comes from.
    #[command(after_help = "\
Examples:
  windlass config show
  WINDLASS_WORKER_LEASE=30s windlass config show -o json

Order: flag > WINDLASS_* environment > ./windlass.toml (or --config) > user config
($XDG_CONFIG_HOME/windlass/windlass.toml) > default.")]
    Show,
}

pub(crate) fn run(command: Command, desk: &Desk) -> Done {
    let Command::Show = command;
    let settings = desk.settings.layered.values.iter().map(|(name, (value, origin))| {
        let value = json!(value);
        let value = match value.as_str() {
            Some(text) if name == "store" || name == "broker" => {
                let urls: Vec<_> = text.split(',').map(without_password).collect();
                json!(urls.join(","))
            }
            _ => value,
        };
        (name.clone(), json!({"value": value, "from": origin}))
    });
    let settings: Map<_, _> = settings.collect();
    desk.output.value(&json!(settings), |_| {
        let mut table = Table::new(&["setting", "value", "from"], "no settings");
        for (name, setting) in &settings {
            let value = match setting["value"].as_str() {
                Some(text) => text.to_owned(),
                None => setting["value"].to_string(),
            };
            let from = setting["from"].as_str().unwrap_or_default().to_owned();
            table.row(vec![name.clone(), value, from]);
        }
        table.render()
    })
}
