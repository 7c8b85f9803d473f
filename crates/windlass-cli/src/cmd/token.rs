//! `windlass token`: makes, lists and revokes access tokens.

use clap::Subcommand;
use serde_json::{Map, Value};

use super::Desk;
use crate::caller::{Access, escaped};
use crate::exit::Done;
use crate::output::Style;
use crate::table::{Table, age, cell, plain};

const ROUTE: &str = "/api/v1/tokens";

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Make a token. It is shown once, and nobody can find it out later.
    #[command(after_help = "\
Examples:
  windlass token create --name ann --scope admin
  windlass token create --name mailer --scope work --queue 'mail*'
  windlass token create --name shop --scope submit,read --rate 100

With the first token a server on loopback asks for one, too.")]
    Create {
        /// What people call it; stands in timelines and in the audit.
        #[arg(long)]
        name: String,
        /// What it allows: read, submit, work, operate, or admin (everything); several with commas.
        #[arg(long, required = true, value_delimiter = ',', value_name = "SCOPE")]
        scope: Vec<String>,
        /// Only for these queues; * stands for anything. Can be given several times.
        #[arg(long, value_name = "GLOB")]
        queue: Vec<String>,
        /// How many requests a second it may send to one server.
        #[arg(long, value_name = "N")]
        rate: Option<u32>,
    },
    /// List all tokens, without their secrets.
    #[command(after_help = "Example:\n  windlass token list")]
    List,
    /// Revoke a token: within 5 s no server takes it any more.
    #[command(after_help = "\
Examples:
  windlass token revoke 3f9a0c11d2e4
  windlass token revoke 3f9a0c11d2e4 --purge

A revoked token stays on record, and servers go on asking for one. Without any on record, a server on
loopback asks for none.")]
    Revoke {
        /// The token's id: the middle part of wl_<id>_<secret>.
        id: String,
        /// Also forgets that there was one.
        #[arg(long)]
        purge: bool,
    },
}

pub(crate) async fn run(command: Command, desk: &Desk) -> Done {
    match command {
        Command::Create { name, scope, queue, rate } => {
            let mut wish = Map::new();
            wish.insert("name".into(), name.into());
            wish.insert("scopes".into(), scope.into());
            if !queue.is_empty() {
                wish.insert("queues".into(), queue.into());
            }
            wish.insert("rate".into(), rate.into());
            let answer = desk.caller(Access::Write).await?.send(ROUTE, &wish).await?;
            desk.output.object(&answer, |token, style| {
                let text = token["token"].as_str().unwrap_or_default();
                format!("{}\n\nkeep it: it is not shown again", style.bold(text))
            })
        }
        Command::List => {
            let answer = desk.caller(Access::Read).await?.get(ROUTE).await?;
            desk.output.list(&answer, rows)
        }
        Command::Revoke { id, purge } => {
            let query = if purge { "?purge=true" } else { "" };
            let route = format!("{ROUTE}/{}{query}", escaped(&id));
            let answer = desk.caller(Access::Write).await?.delete(&route).await?;
            desk.output.object(&answer, |_, _| format!("token {} is revoked", plain(&id)))
        }
    }
}

fn rows(tokens: &[Value], style: Style) -> Table {
    let headings = &["id", "name", "scopes", "queues", "rate", "made", "state"];
    let mut table = Table::new(headings, "no tokens");
    let words = |value: &Value| {
        let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
        items.iter().map(cell).collect::<Vec<_>>().join(",")
    };
    for token in tokens {
        let queues = words(&token["queues"]);
        let is_good = token["revoked_at"].is_null();
        table.row(vec![
            cell(&token["id"]),
            cell(&token["name"]),
            words(&token["scopes"]),
            if queues.is_empty() { String::from("all") } else { queues },
            cell(&token["rate"]),
            age(&token["created_at"]),
            if is_good { String::from("good") } else { style.dim("revoked") },
        ]);
    }
    table
}
