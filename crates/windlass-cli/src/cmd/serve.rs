//! `windlass serve`: the HTTP API and upkeep, without a worker.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use windlass::core::config::{Config, Layer};
use windlass_server::{App, Listener};

use super::Globals;
use crate::caller::{Access, client};
use crate::exit::{Code, Done, Failure};
use crate::output::tell;
use crate::service;
use crate::settings::Settings;
use crate::signals::until_signalled;

const EXAMPLES: &str = "\
Examples:
  windlass serve
  windlass serve --store sqlite:/var/lib/windlass/tasks.db --port 9000
  windlass worker --store sqlite:/var/lib/windlass/tasks.db      (beside it, as many as you like)
  windlass serve --bind 0.0.0.0          (for others on the network, after `windlass token create`)";

/// A server that was killed a moment ago may still be letting go of its port.
const PORT_PATIENCE: Duration = Duration::from_secs(1);

/// Where to listen.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) address: Address,
}

/// Where a server listens.
#[derive(clap::Args)]
pub(super) struct Address {
    /// The port; 0 takes any that is free.
    #[arg(long)]
    port: Option<u16>,
    /// The address. Elsewhere than on loopback there must be an access token in the store (`windlass token
    /// create`), and every request needs one.
    #[arg(long)]
    bind: Option<IpAddr>,
    /// Serves on any address, and under any name, without a token in the store: whoever reaches the port may
    /// do everything.
    #[arg(long)]
    insecure: bool,
}

impl Address {
    /// The flags as settings.
    pub(super) fn layers(&self) -> Vec<Layer> {
        let port =
            self.port.map(|port| Layer::of_one("flag --port", "server.port", i64::from(port)));
        let bind =
            self.bind.map(|bind| Layer::of_one("flag --bind", "server.bind", bind.to_string()));
        port.into_iter().chain(bind).collect()
    }

    /// Takes the port before anything else is touched.
    pub(super) async fn listen(&self, config: &Config) -> Done<Listener> {
        let listener =
            bind(SocketAddr::new(config.server.bind, config.server.port), "--port").await?;
        Ok(if self.insecure { listener.insecure() } else { listener })
    }
}

pub(crate) async fn run(args: Args, globals: &Globals) -> Done {
    refuse_server(globals)?;
    let settings = Settings::gather(globals, args.address.layers())?;
    let stop = CancellationToken::new();
    let work = async {
        let listener = args.address.listen(&settings.config).await?;
        let client = client(&settings, Access::Write).await?;
        let app = App::new(client.clone());
        listener.check(&app).await?;
        let upkeep = client.upkeep().start();
        tell!("windlass serves http://{} on {}", listener.address(), settings.store_shown());
        service::ready();
        let served = listener.serve(app, stop.clone().cancelled_owned()).await;
        upkeep.stop().await?;
        Ok(served?)
    };
    until_signalled(stop.clone(), work).await
}

/// Takes a port; `flag` is the one that names another.
pub(super) async fn bind(address: SocketAddr, flag: &str) -> Done<Listener> {
    allow_open_files();
    let patient_until = Instant::now() + PORT_PATIENCE;
    loop {
        let error = match Listener::bind(address).await {
            Ok(listener) => return Ok(listener),
            Err(error) => error,
        };
        let mut failure = Failure::from(error);
        if failure.code == Code::Usage {
            return Err(failure);
        }
        if Instant::now() >= patient_until {
            failure.code = Code::Error;
            failure.text.push_str(&format!("; `{flag} 0` takes any port that is free"));
            return Err(failure);
        }
        tokio::time::sleep(PORT_PATIENCE / 10).await;
    }
}

/// Each connection is an open file, and many systems allow 1,024 unless more is asked for.
fn allow_open_files() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, most)| setrlimit(Resource::RLIMIT_NOFILE, most, most));
    if let Err(error) = raised {
        tracing::warn!(%error, "could not raise the number of open files");
    }
}

/// These commands are the server, or beside it: they talk to a store.
pub(super) fn refuse_server(globals: &Globals) -> Done {
    match globals.server {
        None => Ok(()),
        Some(_) => Err(Failure::usage("this command works on a store itself: give --store")),
    }
}
