//! `cargo xtask fleet`: hundreds of worker processes on one private store. They start at once, do nothing,
//! meet a burst, are restarted one after another under load, and lose their leader. Prints one JSON verdict.

mod server;
mod tasks;
mod workers;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde_json::{Value, json};
use windlass_core::store::{Bid, Leadership, Term};
use windlass_core::{Store, WorkerId};

use self::server::{Cost, Server};
use self::tasks::Tasks;
use self::workers::Workers;
use crate::Result;
use crate::torture::guard;
use crate::torture::processes::{build_debug, build_release};

/// What is asked of an idle process on PostgreSQL, and what the leader may have besides.
const CONNECTIONS_MAX: f64 = 2.0;
const LEADER_CONNECTIONS_MAX: f64 = 6.0;
/// From the death of a leader to the next; a term is 10 s.
const FAILOVER_MAX: Duration = Duration::from_secs(12);
/// Longest that anything may take that is waited for.
const PATIENCE: Duration = Duration::from_secs(300);
/// How often is looked.
const TICK: Duration = Duration::from_millis(50);
/// From one submit to the next while nothing else happens, and during the restarts.
const QUIET_EVERY: Duration = Duration::from_millis(100);
const TRICKLE_EVERY: Duration = Duration::from_millis(20);
/// Connections beyond those that an idle process keeps are closed after 15 s.
const SETTLE_MAX: Duration = Duration::from_secs(60);

/// Which fleet, and how it is treated.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What the fleet stands on.
    #[arg(long, value_enum, default_value = "postgres")]
    store: FleetStore,
    /// Worker processes.
    #[arg(long, default_value_t = 200)]
    processes: usize,
    /// Tasks that each of them runs at once.
    #[arg(long, default_value_t = 2)]
    concurrency: u32,
    /// Seconds of idleness that are measured.
    #[arg(long, default_value_t = 20)]
    idle: u64,
    /// Tasks of the burst, for each process.
    #[arg(long, default_value_t = 10)]
    burst: usize,
    /// Keeps all cores busy with something else meanwhile.
    #[arg(long)]
    busy: bool,
    /// Judges no times: for machines that are busy otherwise.
    #[arg(long)]
    untimed: bool,
    /// Without optimisations, as the tests do.
    #[arg(long)]
    debug: bool,
    /// Measures this program and builds none.
    #[arg(long, conflicts_with = "debug")]
    binary: Option<PathBuf>,
}

/// What a fleet can stand on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FleetStore {
    Postgres,
    Redis,
    Hybrid,
}

pub(crate) fn run(args: &Args) -> Result {
    guard::listen_for_interrupts()?;
    let binary = match &args.binary {
        Some(binary) => binary.canonicalize()?,
        None if args.debug => build_debug()?,
        None => build_release()?,
    };
    let busy = Arc::new(AtomicBool::new(args.busy));
    if args.busy {
        keep_busy(&busy)?;
    }
    let verdict = tokio::runtime::Runtime::new()?.block_on(measure(args, &binary));
    busy.store(false, Ordering::Relaxed);
    let verdict = verdict?;
    println!("{verdict}");
    if verdict["ok"] == true { Ok(()) } else { Err("the fleet is not as it should be".into()) }
}

/// A thread for each core that does nothing useful until it is told to stop.
fn keep_busy(busy: &Arc<AtomicBool>) -> Result {
    for _ in 0..std::thread::available_parallelism()?.get() {
        let busy = Arc::clone(busy);
        std::thread::spawn(move || {
            while busy.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
    }
    Ok(())
}

async fn measure(args: &Args, binary: &Path) -> Result<Value> {
    let folder = tempfile::Builder::new().prefix("windlass-fleet-").tempdir()?;
    let server = Server::start(args.store, args.processes).await?;
    let store = server.open().await?;
    let mut workers = Workers::new(binary, folder.path(), &server, args.concurrency);
    let judged = judge(args, &server, &store, &mut workers).await;
    if judged.as_ref().is_ok_and(|verdict| verdict["ok"] == true) {
        workers.stop_all()?;
    } else {
        drop(workers);
        eprintln!("the logs of the workers are kept in {}", folder.keep().display());
    }
    judged
}

async fn judge(
    args: &Args,
    server: &Server,
    store: &Arc<dyn Store>,
    workers: &mut Workers,
) -> Result<Value> {
    let began = Instant::now();
    for _ in 0..args.processes {
        workers.start()?;
    }
    workers.are_registered(store.as_ref()).await?;
    let start_seconds = began.elapsed();
    say("all have started", began);
    leader(store.as_ref()).await?;

    let most = args.processes as f64 * CONNECTIONS_MAX + LEADER_CONNECTIONS_MAX;
    if args.store != FleetStore::Redis {
        server.settle(most, SETTLE_MAX).await?;
    }
    let before = server.cost().await?;
    tokio::time::sleep(Duration::from_secs(args.idle)).await;
    let idle = server.cost().await?.since(&before);
    let connections = server.connections().await?;
    let statements = server.statements(&idle).await?;
    say("idleness is measured", began);

    // So that the burst waits for nothing on this side: whoever submits here has been idle as well.
    let first = Tasks::submit(store, 1).await?.finish(store.as_ref()).await?;
    let burst_began = Instant::now();
    let burst = Tasks::submit(store, args.processes * args.burst).await?;
    let burst = burst.finish(store.as_ref()).await?;
    let burst_seconds = burst_began.elapsed();
    say("the burst is over", began);

    let quiet = tasks::trickle(Arc::clone(store), QUIET_EVERY);
    let quiet_began = Instant::now();
    tokio::time::sleep(Duration::from_secs(args.idle)).await;
    let quiet = quiet.stop().await?.finish(store.as_ref()).await?;
    let quiet_seconds = quiet_began.elapsed();
    say("single tasks are measured", began);

    let trickle = tasks::trickle(Arc::clone(store), TRICKLE_EVERY);
    let restart_began = Instant::now();
    let bad_exits = workers.restart_all(store.as_ref()).await?;
    let restart_seconds = restart_began.elapsed();
    let trickle = trickle.stop().await?.finish(store.as_ref()).await?;
    say("all were restarted", began);

    let failover = fail_over(store.as_ref(), workers).await?;
    say("another leads", began);
    let after = Tasks::submit(store, args.processes).await?.finish(store.as_ref()).await?;

    let lost = first.lost + burst.lost + quiet.lost + trickle.lost + after.lost;
    let is_frugal = args.store == FleetStore::Redis || connections <= most;
    let is_quick = args.untimed || failover <= FAILOVER_MAX;
    Ok(json!({
        "test": "fleet",
        "store": format!("{:?}", args.store).to_lowercase(),
        "ok": lost == 0 && bad_exits == 0 && is_frugal && is_quick,
        "processes": args.processes,
        "is_busy": args.busy,
        "start_seconds": rounded(start_seconds.as_secs_f64()),
        "idle": {
            "seconds": args.idle,
            "connections": connections,
            "connections_per_process": rounded(connections / args.processes as f64),
            "statements_per_second": rounded(idle.statements / idle.seconds),
            "statements_per_process_and_second":
                rounded(idle.statements / idle.seconds / args.processes as f64),
            "server_cpu_percent": rounded(100.0 * idle.cpu_seconds / idle.seconds),
            "per_second": statements,
        },
        "burst": burst.told(burst_seconds),
        "single_tasks": quiet.told(quiet_seconds),
        "restart": { "bad_exits": bad_exits, "tasks": trickle.told(restart_seconds) },
        "failover_seconds": rounded(failover.as_secs_f64()),
        "after_failover": { "tasks": after.count, "lost": after.lost },
        "lost": lost,
    }))
}

/// Kills the process that leads; answers how long it took until another did.
async fn fail_over(store: &dyn Store, workers: &mut Workers) -> Result<Duration> {
    let old = leader(store).await?;
    let killed_at = Instant::now();
    workers.kill_leader(store, &old).await?;
    let failover = loop {
        let now = leader(store).await?;
        if now != old {
            break killed_at.elapsed();
        }
        tokio::time::sleep(TICK).await;
    };
    workers.start()?;
    Ok(failover)
}

/// Who leads, as soon as somebody does. A resignation of nobody's term only asks.
async fn leader(store: &dyn Store) -> Result<WorkerId> {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        guard::check_interrupted()?;
        match patiently(|| store.lead(Bid::Resign { term: Term(0) })).await? {
            Leadership::Following { leader: Some(leader), .. } => return Ok(leader),
            Leadership::Following { leader: None, .. } | Leadership::Leading(_) => {}
        }
        tokio::time::sleep(TICK).await;
    }
    Err("nobody leads".into())
}

/// Asks until there is an answer: where so many start at once, a server may be too busy to let one more in.
async fn patiently<T, F>(ask: impl Fn() -> F) -> Result<T>
where
    F: Future<Output = windlass_core::Result<T>>,
{
    let end = Instant::now() + PATIENCE;
    loop {
        guard::check_interrupted()?;
        match ask().await {
            Err(error) if error.is_unavailable() && Instant::now() < end => {
                tokio::time::sleep(TICK).await;
            }
            answer => return Ok(answer?),
        }
    }
}

fn say(what: &str, began: Instant) {
    eprintln!("fleet: {what} after {:.1} s", began.elapsed().as_secs_f64());
}

fn rounded(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

impl Cost {
    /// What was spent between two looks.
    fn since(&self, before: &Self) -> Self {
        Self {
            seconds: self.at.duration_since(before.at).as_secs_f64(),
            at: self.at,
            statements: self.statements - before.statements,
            cpu_seconds: self.cpu_seconds - before.cpu_seconds,
            by_name: self
                .by_name
                .iter()
                .map(|(name, count)| {
                    (name.clone(), count - before.by_name.get(name).copied().unwrap_or(0.0))
                })
                .collect(),
        }
    }
}
