//! `windlass worker`: runs built-in tasks, or a command per task, from a store or a server.

mod pull;

use std::net::{IpAddr, SocketAddr};

use tokio_util::sync::CancellationToken;
use windlass::core::config::Layer;
use windlass::{Priority, WorkerBuilder};
use windlass_server::{App, Bounds, Listener};

use super::Globals;
use super::serve::{bind, hosts};
use crate::caller::{Access, client};
use crate::exit::Done;
use crate::handlers::{self, Exec, Untyped, Webhook};
use crate::output::tell;
use crate::service;
use crate::settings::Settings;
use crate::signals::until_signalled;

const EXAMPLES: &str = "\
Examples:
  windlass worker                                      the queue default, built-in types only
  windlass worker --queue mail=3 --queue default       three of mail for one of default
  windlass worker --queue urgent --queue bulk --strict bulk only while urgent is empty
  windlass worker --queue reports --exec './report.sh' a command per task
  windlass worker --server http://host:8080 --exec './handle.sh'  the same, from a server
  windlass worker --metrics-port 9100                  with metrics for Prometheus

Built-in types: echo, noop (dummy), sleep {ms}, fail {message, times}, http.webhook (webhook) {url, method, headers,
body, body_base64, secret}, and default, which tasks without a type have. Tasks of other types are left to other live
workers of the queue. If no live worker handles a type, its tasks wait, and their error says so.

A command gets the payload on its standard input and WINDLASS_TASK_ID, WINDLASS_EPOCH,
WINDLASS_ATTEMPT, WINDLASS_TYPE and WINDLASS_QUEUE in its environment, and TRACEPARENT if the task is
part of a trace. Other variables of windlass, OTEL_EXPORTER_OTLP*, PGPASSWORD and the like are hidden from
it unless --exec-env names them. It ends with 0 for completed (its standard output is the result), 65 for discard, 75
to be run again in 10 s; anything else has failed (the end of its standard error is the error) and is
retried. While it runs it may write lines to file descriptor 3 (WINDLASS_CONTROL_FD): `progress 0.4 page 4`,
`result JSON` in place of its standard output, `snooze 5m` in place of 10 s.

With --server, or WINDLASS_URL and WINDLASS_TOKEN, tasks come over HTTP from a `windlass serve`: there it runs
commands only. It finishes and reports what it runs while the server restarts.";

/// Which tasks to run, and how.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A queue to serve, with its weight (1 without); may be given several times. `default` without.
    #[arg(long = "queue", value_name = "QUEUE[=WEIGHT]", value_parser = weighted)]
    queues: Vec<(String, u32)>,
    /// Serves only tasks of these priorities.
    #[arg(long = "priority", value_name = "PRIORITY", value_delimiter = ',')]
    priorities: Vec<Priority>,
    /// Tasks at once; 10 per core without.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    concurrency: Option<u32>,
    /// Serves the queues in the order given: the next only while those before are empty.
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    exec: ExecArgs,
    /// A name to know it by in `windlass workers list`.
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    metrics: MetricsAddress,
    #[command(flatten)]
    webhooks: Webhooks,
    #[command(flatten)]
    untyped: UntypedArgs,
}

/// How the worker treats tasks without a type.
#[derive(clap::Args)]
pub(super) struct UntypedArgs {
    /// Leaves tasks that were submitted without a type, which are of the type default, to other workers.
    #[arg(long, conflicts_with = "exec")]
    without_default: bool,
}

impl UntypedArgs {
    pub(super) fn untyped(&self) -> Untyped {
        if self.without_default { Untyped::Left } else { Untyped::Completed }
    }
}

/// A command in place of the built-in types.
#[derive(Default, clap::Args)]
pub(super) struct ExecArgs {
    /// Runs this command, by `sh -c`, for every task.
    #[arg(long, value_name = "COMMAND", value_parser = parse_command)]
    exec: Option<String>,
    /// Hands this variable on to the command although it is among those that are hidden from it; may be given
    /// several times.
    #[arg(long = "exec-env", value_name = "NAME", requires = "exec")]
    exec_variables: Vec<String>,
}

/// Refuses an empty command, which would complete every task: most likely a variable is not set.
fn parse_command(text: &str) -> Result<String, &'static str> {
    match text.trim().is_empty() {
        true => Err("the command is empty"),
        false => Ok(text.to_owned()),
    }
}

impl ExecArgs {
    pub(super) fn into_exec(self) -> Option<Exec> {
        let Self { exec, exec_variables: variables } = self;
        exec.map(|command| Exec { command, variables })
    }
}

/// The queue that is served where none is named.
const DEFAULT_QUEUE: &str = "default";

/// Connections at a time to a worker's metrics.
const SCRAPERS_MAX: usize = 64;

/// Where a worker tells its metrics.
#[derive(clap::Args)]
struct MetricsAddress {
    /// Tells metrics (/metrics) and whether it is ready (/readyz) on this port; 0 takes any that is free.
    #[arg(long, value_name = "PORT")]
    metrics_port: Option<u16>,
    /// The address for that. Elsewhere than on loopback there must be an access token in the store, and
    /// metrics need one.
    #[arg(long, value_name = "ADDRESS")]
    metrics_bind: Option<IpAddr>,
    /// A name under which the metrics are reached; may be given several times. While there is no token, other
    /// names than these and localhost are refused; "*" is any.
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
    /// Tells metrics on any address without a token in the store. By name they are reached only as localhost, or
    /// with --host.
    #[arg(long)]
    insecure: bool,
}

impl MetricsAddress {
    /// The flags as settings.
    fn layers(&self) -> Vec<Layer> {
        let port = self
            .metrics_port
            .map(|port| Layer::of_one("flag --metrics-port", "metrics.port", i64::from(port)));
        let bind = self
            .metrics_bind
            .map(|bind| Layer::of_one("flag --metrics-bind", "metrics.bind", bind.to_string()));
        port.into_iter().chain(bind).chain(hosts(&self.hosts)).collect()
    }

    /// Takes the port before anything else is touched; nothing where none is wanted.
    async fn listen(&self, settings: &Settings) -> Done<Option<Listener>> {
        let wanted = &settings.config.metrics;
        let Some(port) = wanted.port else { return Ok(None) };
        let address = SocketAddr::new(wanted.bind, port);
        let bounds = Bounds { connections_max: SCRAPERS_MAX, ..Bounds::default() };
        let listener = bind(address, "--metrics-port").await?.bounds(bounds);
        let listener = listener.hosts(&settings.config.server.hosts);
        Ok(Some(if self.insecure { listener.insecure() } else { listener }))
    }
}

/// Where webhooks may go, and what signs them.
#[derive(clap::Args)]
pub(super) struct Webhooks {
    /// Lets http.webhook send to this address, network or host although it is not on the public network; may
    /// be given several times.
    #[arg(long = "webhook-allow", value_name = "CIDR|HOST")]
    allow: Vec<String>,
    /// The folder with the secrets that http.webhook signs with, a file each.
    #[arg(long = "webhook-secrets", value_name = "FOLDER")]
    secrets: Option<String>,
}

impl Webhooks {
    /// The flags as settings.
    pub(super) fn layers(&self) -> Vec<Layer> {
        let allow = (!self.allow.is_empty())
            .then(|| Layer::of_one("flag --webhook-allow", "webhook.allow", self.allow.join(",")));
        let secrets = self.secrets.as_deref();
        let secrets =
            secrets.map(|path| Layer::of_one("flag --webhook-secrets", "webhook.secrets", path));
        allow.into_iter().chain(secrets).collect()
    }
}

pub(crate) async fn run(args: Args, globals: &Globals) -> Done {
    let layers = args.metrics.layers().into_iter().chain(args.webhooks.layers()).collect();
    let settings = Settings::gather(globals, layers)?;
    match settings.server.clone() {
        Some(server) => pull::run(args, settings, server).await,
        None => run_on_store(args, settings).await,
    }
}

async fn run_on_store(mut args: Args, settings: Settings) -> Done {
    let webhook = Webhook::new(&settings.config.webhook)?;
    let listener = args.metrics.listen(&settings).await?;
    let client = client(&settings, Access::Write).await?;
    let untyped = args.untyped.untyped();
    let exec = std::mem::take(&mut args.exec).into_exec();
    let builder = handlers::register(client.worker(), exec, webhook, untyped);
    let worker = args.set_up(builder, args.concurrency(&settings));
    let stop = CancellationToken::new();
    let work = async {
        let app = App::of_worker(client.clone());
        if let Some(listener) = &listener {
            listener.check(&app).await?;
        }
        let worker = worker.start().await?;
        tracing::info!(store = settings.store_shown(), queues = args.queues_shown(), "working");
        if let Some(listener) = &listener {
            tell!("metrics at http://{}/metrics", listener.address());
        }
        service::ready();
        // Told until the last task has ended.
        let over = CancellationToken::new();
        let told = listener
            .map(|listener| tokio::spawn(listener.serve(app, over.clone().cancelled_owned())));
        let worked = worker.run_until(stop.clone().cancelled_owned()).await;
        handlers::settled().await;
        over.cancel();
        if let Some(told) = told {
            // It ends by itself; whatever else it came to, the work is done.
            let _ = told.await;
        }
        Ok(worked?)
    };
    until_signalled(stop.clone(), work).await
}

impl Args {
    fn concurrency(&self, settings: &Settings) -> usize {
        self.concurrency.map_or_else(|| concurrency(settings), |tasks| tasks as usize)
    }

    /// Queues, name and the like, as the flags say.
    fn set_up(&self, mut worker: WorkerBuilder<()>, concurrency: usize) -> WorkerBuilder<()> {
        worker = worker.concurrency(concurrency);
        for (queue, weight) in &self.queues {
            worker = worker.queue(queue, *weight);
        }
        if self.strict {
            worker = worker.strict();
        }
        if !self.priorities.is_empty() {
            worker = worker.priorities(&self.priorities);
        }
        match &self.name {
            Some(name) => worker.name(name),
            None => worker,
        }
    }

    fn queues_shown(&self) -> String {
        let queues: Vec<_> = self.queues.iter().map(|(queue, _)| queue.as_str()).collect();
        if queues.is_empty() { DEFAULT_QUEUE.to_owned() } else { queues.join(", ") }
    }
}

/// How many tasks a worker of the binary runs at once, unless told otherwise.
pub(super) fn concurrency(settings: &Settings) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    cores * settings.config.worker.concurrency_per_core as usize
}

fn weighted(text: &str) -> Result<(String, u32), String> {
    let Some((queue, weight)) = text.split_once('=') else { return Ok((text.to_owned(), 1)) };
    match weight.parse() {
        Ok(weight) if weight > 0 => Ok((queue.to_owned(), weight)),
        _ => Err(format!("the weight {weight:?} must be a whole number above 0")),
    }
}
