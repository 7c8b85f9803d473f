//! `windlass health`: asks whether a server, or a store, is ready. For health checks of containers.

use serde_json::Value;

use super::Globals;
use crate::caller::{Access, Caller};
use crate::exit::Done;
use crate::output::Output;
use crate::settings::{Server, Settings};
use crate::table::plain;

const EXAMPLES: &str = "\
Examples:
  windlass health                                  the server on this machine, at the set port
  windlass health --server http://10.0.0.5:8080
  windlass health --store sqlite:windlass.db       the store itself

Exits with 0 when it is ready, 69 when it is not or cannot be reached.";

/// Whom to ask: a server, unless a store is named.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {}

pub(crate) async fn run(_args: Args, globals: &Globals) -> Done {
    let settings = Settings::gather(globals, Vec::new())?;
    let caller = match (&globals.store, &settings.server) {
        (None, None) => {
            let server = &settings.config.server;
            let address = std::net::SocketAddr::new(server.bind, server.port);
            let scheme = if server.tls_cert.is_empty() { "http" } else { "https" };
            Caller::of_server(Server::new(format!("{scheme}://{address}"), None, globals))?
        }
        _ => Caller::connect(&settings, Access::Read).await?,
    };
    let answer = caller.get("/readyz").await?;
    Output::of(globals).object(&answer, |ready, style| {
        let store = &ready["store"];
        let word = |value: &Value| plain(value.as_str().unwrap_or_default());
        let (name, durability) = (word(&store["name"]), word(&store["durability"]));
        let mut lines = vec![format!("{}: {name}, {durability}", style.bold("ready"))];
        for warning in ready["warnings"].as_array().into_iter().flatten() {
            let (subject, text) = (word(&warning["subject"]), word(&warning["text"]));
            lines.push(format!("{}  {subject}: {text}", style.bold("warning")));
        }
        lines.join("\n")
    })
}
