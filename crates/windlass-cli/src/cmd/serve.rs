//! `windlass serve`: the HTTP API and upkeep, without a worker.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use windlass::core::config::{Config, Layer, LogFormat};
use windlass_server::{App, Bounds, Listener, Tls};

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
  windlass serve --bind 0.0.0.0          (for others on the network, after `windlass token create`)
  windlass serve --bind 0.0.0.0 --tls-cert cert.pem --tls-key key.pem";

/// A server that was killed a moment ago may still be letting go of its port.
const PORT_PATIENCE: Duration = Duration::from_secs(1);

/// Open files that are not for connections of clients, but for the store and the like.
const FILES_KEPT: usize = 256;

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
    /// The file with the certificate to speak TLS with, and those between it and its root, in PEM. It is read
    /// anew when it changes, and on SIGHUP.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<String>,
    /// The file with the private key of the certificate, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<String>,
    /// A name under which the server is reached; may be given several times. While there is no token, other
    /// names than these and localhost are refused, since a web page could have its own name lead here; "*" is any.
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
    /// Connections at a time.
    #[arg(long, value_name = "NUMBER")]
    connections_max: Option<u32>,
    /// Serves on any address without a token in the store: whoever reaches the port may do everything. By name it
    /// is reached only as localhost, or with --host.
    #[arg(long)]
    insecure: bool,
}

impl Address {
    /// The flags as settings.
    pub(super) fn layers(&self) -> Vec<Layer> {
        let number = |flag, name, value: Option<u32>| {
            value.map(|value| Layer::of_one(flag, name, i64::from(value)))
        };
        let text =
            |flag, name, value: Option<String>| value.map(|value| Layer::of_one(flag, name, value));
        let layers = [
            number("flag --port", "server.port", self.port.map(u32::from)),
            number("flag --connections-max", "server.connections_max", self.connections_max),
            text("flag --bind", "server.bind", self.bind.map(|bind| bind.to_string())),
            hosts(&self.hosts),
            text("flag --tls-cert", "server.tls_cert", self.tls_cert.clone()),
            text("flag --tls-key", "server.tls_key", self.tls_key.clone()),
        ];
        layers.into_iter().flatten().collect()
    }

    /// Takes the port before anything else is touched.
    pub(super) async fn listen(&self, config: &Config) -> Done<Listener> {
        let tls = tls(config)?;
        let bounds = Bounds { connections_max: connections_max(config), ..Bounds::default() };
        let address = SocketAddr::new(config.server.bind, config.server.port);
        let listener = bind(address, "--port").await?.bounds(bounds).hosts(&config.server.hosts);
        let listener = if self.insecure { listener.insecure() } else { listener };
        Ok(match tls {
            Some(tls) => listener.tls(tls),
            None => listener,
        })
    }
}

/// The names that flags give to a server, as a setting.
pub(super) fn hosts(names: &[String]) -> Option<Layer> {
    (!names.is_empty()).then(|| Layer::of_one("flag --host", "server.hosts", names.join(",")))
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
        match settings.config.log.format {
            LogFormat::Text => {
                tell!("windlass serves {} on {}", listener.url(), settings.store_shown());
            }
            LogFormat::Json => log_start(&settings, &listener),
        }
        service::ready();
        let served = listener.serve(app, stop.clone().cancelled_owned()).await;
        upkeep.stop().await?;
        tracing::info!("server stopped");
        Ok(served?)
    };
    until_signalled(stop.clone(), work).await
}

/// The start of a server as a line of the log.
pub(super) fn log_start(settings: &Settings, listener: &Listener) {
    tracing::info!(url = listener.url(), store = settings.store_shown(), "server started");
}

/// Takes a port; `flag` is the one that names another.
pub(super) async fn bind(address: SocketAddr, flag: &str) -> Done<Listener> {
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

/// The certificate that the settings name. SIGHUP has its files read anew.
fn tls(config: &Config) -> Done<Option<Tls>> {
    let server = &config.server;
    if server.tls_cert.is_empty() {
        return Ok(None);
    }
    let tls = Tls::open(&server.tls_cert, &server.tls_key)?;
    let told = tls.clone();
    let failed = |cause| Failure::new(Code::Error, format!("listen for signals: {cause}"));
    let mut hangups = signal(SignalKind::hangup()).map_err(failed)?;
    tokio::spawn(async move {
        while hangups.recv().await.is_some() {
            match told.reload() {
                Ok(is_new) => tracing::info!(is_new, "the certificate was read anew"),
                Err(error) => tracing::warn!(error = error.chain(), "the old certificate stays"),
            }
        }
    });
    Ok(Some(tls))
}

/// How many connections there may be. Each is an open file, and many systems allow 1,024 unless more is
/// asked for.
fn connections_max(config: &Config) -> usize {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let wanted = config.server.connections_max;
    let files = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(_, most)| {
        setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
        Ok(usize::try_from(most).unwrap_or(usize::MAX))
    });
    let files = match files {
        Ok(files) => files,
        Err(error) => {
            tracing::warn!(%error, "could not raise the number of open files");
            return wanted;
        }
    };
    let possible = files.saturating_sub(FILES_KEPT).max(1);
    if possible < wanted {
        tracing::warn!(
            connections_max = possible,
            wanted,
            open_files_max = files,
            "fewer connections at a time than wanted: the system limits open files"
        );
    }
    wanted.min(possible)
}

/// These commands are the server, or beside it: they talk to a store.
pub(super) fn refuse_server(globals: &Globals) -> Done {
    match globals.server {
        None => Ok(()),
        Some(_) => Err(Failure::usage("this command works on a store itself: give --store")),
    }
}
