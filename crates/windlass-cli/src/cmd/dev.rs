//! `windlass dev`: server, page and worker in one process on an embedded file.

use tokio_util::sync::CancellationToken;
use windlass::core::config::LogFormat;
use windlass::{Upkeep, Worker};
use windlass_server::{App, Listener};

use super::Globals;
use super::serve::{Address, log_start, refuse_server};
use super::worker::{ExecArgs, UntypedArgs, Webhooks, concurrency};
use crate::caller::{Access, client};
use crate::exit::Done;
use crate::handlers::{self, Webhook};
use crate::output::tell;
use crate::settings::Settings;
use crate::signals::until_signalled;

const EXAMPLES: &str = "\
Examples:
  windlass dev                  on sqlite:windlass.db, at http://127.0.0.1:8080
  windlass dev --demo           with a lively mix of sample tasks
  windlass dev --port 0 --exec './handle.sh'
  windlass dev --no-worker      beside workers of your own";

/// How to start.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    address: Address,
    /// Feeds it a lively mix of sample tasks.
    #[arg(long)]
    demo: bool,
    #[command(flatten)]
    exec: ExecArgs,
    #[command(flatten)]
    webhooks: Webhooks,
    #[command(flatten)]
    untyped: UntypedArgs,
    /// Runs no tasks: only the server, and upkeep.
    #[arg(long, conflicts_with_all = ["exec", "demo", "without_default"])]
    no_worker: bool,
}

/// The worker beside the server, or upkeep alone.
enum Companion {
    Worker(Worker),
    Upkeep(Upkeep),
}

impl Companion {
    async fn stop(self) -> windlass::Result<()> {
        match self {
            Self::Worker(worker) => worker.stop().await,
            Self::Upkeep(upkeep) => upkeep.stop().await,
        }
    }
}

pub(crate) async fn run(args: Args, globals: &Globals) -> Done {
    refuse_server(globals)?;
    let flags = args.address.layers().into_iter().chain(args.webhooks.layers());
    let settings = Settings::gather(globals, flags.collect())?;
    let webhook = Webhook::new(&settings.config.webhook)?;
    let listener = args.address.listen(&settings.config).await?;
    let client = client(&settings, Access::Write).await?;
    let app = App::new(client.clone());
    listener.check(&app).await?;
    let companion = if args.no_worker {
        Companion::Upkeep(client.upkeep().start())
    } else {
        let untyped = args.untyped.untyped();
        let worker = handlers::register(client.worker(), args.exec.into_exec(), webhook, untyped)
            .all_queues()
            .name("dev")
            .concurrency(concurrency(&settings));
        Companion::Worker(worker.start().await?)
    };
    match settings.config.log.format {
        LogFormat::Text => greet(&settings, &listener),
        LogFormat::Json => log_start(&settings, &listener),
    }
    let stop = CancellationToken::new();
    if args.demo {
        tokio::spawn(handlers::demo(client.clone(), stop.clone().cancelled_owned()));
    }
    let work = async {
        let served = listener.serve(app, stop.clone().cancelled_owned()).await;
        // Also when the server could not go on: the worker ends in good order.
        let worked = companion.stop().await;
        handlers::settled().await;
        worked?;
        Ok(served?)
    };
    until_signalled(stop.clone(), work).await
}

/// The URL, and three things to try.
fn greet(settings: &Settings, listener: &Listener) {
    let (url, store) = (listener.url(), settings.store_shown());
    // By the name under which it was started: after `cargo run` there is no `windlass` on the path.
    let windlass = std::env::args().next().unwrap_or_else(|| String::from("windlass"));
    let api = format!("{url}/api/v1/tasks");
    tell!(
        "\
windlass runs at {url} on {store}

three things to try, in another terminal:
  {windlass} enqueue echo '{{\"hello\":\"world\"}}' --wait --server {url}
  curl {api} -H 'content-type: application/json' -d '{{\"type\":\"fail\",\"payload\":{{\"times\":2}}}}'
  {windlass} task list --server {url}

Ctrl-C ends it; what is not finished goes on at the next start."
    );
}
