//! `windlass worker --server`: a command for each task that a server leases.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use windlass::Client;
use windlass::core::QueueName;

use super::{Args, DEFAULT_QUEUE};
use crate::exit::{Done, Failure};
use crate::handlers;
use crate::http_store::{HttpStore, LeaseTerms, PullWorker, SLOTS_MAX};
use crate::service;
use crate::settings::{Server, Settings, without_password};
use crate::signals::until_signalled;

pub(super) async fn run(mut args: Args, settings: Settings, server: Server) -> Done {
    let url = without_password(&server.url);
    check_flags(&args, &settings, &url)?;
    let exec = std::mem::take(&mut args.exec).into_exec().ok_or_else(|| {
        let why = "the built-in types run on a store itself, which --store names";
        Failure::usage(format!("a worker of the server {url} needs --exec COMMAND: {why}"))
    })?;
    let slots = args.concurrency(&settings).min(SLOTS_MAX as usize);
    let stop = CancellationToken::new();
    let work = async {
        let worker = PullWorker {
            name: args.name.clone().unwrap_or_default(),
            slots: u32::try_from(slots).unwrap_or(SLOTS_MAX),
            queues: queues(&args)?,
            is_strict: args.strict,
        };
        let mut config = settings.config.clone();
        let store = HttpStore::open(server, worker, config.limits, stop.clone()).await?;
        let LeaseTerms { heartbeat, lease } = store.terms();
        (config.worker.heartbeat, config.worker.lease) = (heartbeat, lease);
        // The server counts the runs that it leases.
        config.statistics.enabled = false;
        let client = Client::with_config(Arc::new(store), config);
        let builder = handlers::register_exec(client.worker(), exec);
        let worker = args.set_up(builder, slots).start().await?;
        tracing::info!(server = url, queues = args.queues_shown(), "working");
        service::ready();
        let worked = worker.run_until(stop.clone().cancelled_owned()).await;
        handlers::settled().await;
        Ok(worked?)
    };
    until_signalled(stop.clone(), work).await
}

/// Refuses what only a worker on a store can do.
fn check_flags(args: &Args, settings: &Settings, url: &str) -> Done {
    let concurrency = args.concurrency.unwrap_or_default();
    if concurrency > SLOTS_MAX {
        return Err(Failure::usage(format!("--concurrency is at most {SLOTS_MAX} at a server")));
    }
    let flag = match (args.priorities.is_empty(), settings.config.metrics.port) {
        (false, _) => "--priority",
        (true, Some(_)) => "--metrics-port",
        (true, None) => return Ok(()),
    };
    Err(Failure::usage(format!("{flag} works on a store itself, not at the server {url}")))
}

fn queues(args: &Args) -> Done<Vec<(QueueName, u32)>> {
    if args.queues.is_empty() {
        return Ok(vec![(QueueName::new(DEFAULT_QUEUE)?, 1)]);
    }
    let queue = |(name, weight): &(String, u32)| Ok((QueueName::new(name)?, *weight));
    args.queues.iter().map(queue).collect()
}
