//! Processes that die: a small installation on one store, under load, is killed, paused and stopped at
//! random, its server too if it has one, and an independent auditor judges what is left.
//!
//! [`load`] submits over HTTP and writes down what it sent and was told; [`handler`] is what runs for
//! each task and writes down that it ran; [`faults`] disturbs the [`process`]es and the store on which
//! they stand ([`ground`], one of [`grounds`]), and writes down when.
//! Then everybody is left in peace until nothing is left to do, the processes are stopped in order,
//! and `windlass_testkit::audit` compares these journals with the store.

mod faults;
mod ground;
mod grounds;
mod handler;
mod http;
mod journal;
mod load;
mod process;

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde_json::json;
use windlass_core::config::Config;
use windlass_core::dice::Dice;
use windlass_core::store::{Filter, ListParams};
use windlass_core::{State, Store, TaskRecord};
use windlass_testkit::audit::{self, Dump, Fact, Findings, Setting};

use self::faults::{Deeds, Fleet, Plan};
use self::ground::Lay;
pub(crate) use self::handler::{HandlerArgs, run_handler};
use self::http::Port;
use self::journal::Journal;
use self::load::{Load, Mix, Runs};
use self::process::{Role, Yard};
use crate::Result;
use crate::torture::guard;

/// Short, so that a torture sees many leases end.
const LEASE: Duration = Duration::from_secs(3);
const HEARTBEAT: Duration = Duration::from_secs(1);
const SWEEP: Duration = Duration::from_secs(1);
const LEADER_RENEWAL: Duration = Duration::from_secs(1);
/// How often whoever waits here looks up.
const TICK: Duration = Duration::from_millis(10);
/// How long a process may take to end in order: its shutdown timeout and a little.
const STOP_WITHIN: Duration = Duration::from_secs(30);
/// After a crash and in peace: the lease, a sweep and 5 s; with the defaults that is 25 s.
const RECOVERY_MAX: Duration = Duration::from_secs(3 + 1 + 5);
/// After the faults: a lost task is back after lease, sweep and 5 s; then it may run for up to 6 s
/// and fail and wait for its retries, or be put off by its handler.
const DRAIN_BASE: Duration = Duration::from_secs(3 + 1 + 5 + 12 + 10);
/// And this for each task that is left, on a machine that also does other things.
const DRAIN_PER_TASK: Duration = Duration::from_millis(150);
/// And this for each that has crashed before: it may be the cause, so it has to wait for others of
/// its sort, which are the longest of all since these are hit most often.
const DRAIN_PER_SUSPECT: Duration = Duration::from_secs(4);
/// A machine with more to do than this shows nothing.
const LOAD_PER_CORE_MAX: f64 = 8.0;
/// More than ever wait.
const LEFT_MAX: usize = 100_000;
/// Violations in a verdict; the rest is in the evidence.
const VIOLATIONS_SHOWN: usize = 20;

/// How hard to try.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many kills per topology at most; in a fleet there are pauses and orderly stops besides.
    #[arg(long)]
    kills: Option<u32>,
    /// How long the faults of a topology last at most.
    #[arg(long)]
    seconds: Option<f64>,
    /// Repeats the mix and the moments of an earlier run (the scheduler's part stays chance).
    #[arg(long)]
    seed: Option<u64>,
    /// Which processes there are.
    #[arg(long, value_enum)]
    topology: Option<Topology>,
    /// Attacks a debug build.
    #[arg(long)]
    debug: bool,
    /// Attacks this program and builds none.
    #[arg(long, conflicts_with = "debug")]
    binary: Option<PathBuf>,
}

/// How hard to try where the store has a server.
#[derive(clap::Args)]
pub(crate) struct ServerArgs {
    #[command(flatten)]
    args: Args,
    /// How long the store's server is away, once; besides, it is restarted now and then.
    #[arg(long, default_value_t = 60.0)]
    outage: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Topology {
    /// One process that is server and worker.
    Dev,
    /// A server and two workers on one store.
    Fleet,
    /// A server on the store, and two workers that reach it over HTTP.
    Pull,
    /// First `dev`, then `fleet`.
    Both,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Profile {
    Debug,
    Release,
}

/// Builds the program without optimisations, as the tests do.
pub(crate) fn build_debug() -> Result<PathBuf> {
    process::build(Profile::Debug)
}

/// Builds the program as it is released.
pub(crate) fn build_release() -> Result<PathBuf> {
    process::build(Profile::Release)
}

/// One installation to attack.
struct Attack {
    torture: &'static str,
    name: &'static str,
    roles: &'static [Role],
    ground: Lay,
    seed: u64,
    plan: Plan,
}

/// Processes on one SQLite file.
pub(crate) fn run_sqlite(args: &Args) -> Result {
    let at_most = Duration::try_from_secs_f64(args.seconds.unwrap_or(180.0))?;
    let plan = Plan { kills: args.kills.unwrap_or(20), at_most, outage: None };
    run(("sqlite", grounds::sqlite::lay), args, Topology::Both, plan)
}

/// Processes on a private PostgreSQL that waits for the disk.
pub(crate) fn run_postgres(args: &ServerArgs) -> Result {
    run_on_server(("postgres", grounds::postgres::lay), args)
}

/// Processes on a private Redis that waits for the disk.
pub(crate) fn run_redis(args: &ServerArgs) -> Result {
    run_on_server(("redis", grounds::redis::lay), args)
}

/// The same on the keys of Go's asynq.
pub(crate) fn run_asynq(args: &ServerArgs) -> Result {
    run_on_server(("asynq", grounds::asynq::lay), args)
}

/// Processes on a private PostgreSQL that waits for the disk, with two Redis in front that keep nothing.
pub(crate) fn run_hybrid(args: &ServerArgs) -> Result {
    run_on_server(("hybrid", grounds::hybrid::lay), args)
}

fn run_on_server(store: (&'static str, Lay), server: &ServerArgs) -> Result {
    let args = &server.args;
    let at_most = Duration::try_from_secs_f64(args.seconds.unwrap_or(300.0))?;
    let outage = Duration::try_from_secs_f64(server.outage)?;
    let plan = Plan { kills: args.kills.unwrap_or(u32::MAX), at_most, outage: Some(outage) };
    run(store, args, Topology::Fleet, plan)
}

fn run(
    (torture, ground): (&'static str, Lay),
    args: &Args,
    topology: Topology,
    plan: Plan,
) -> Result {
    guard::listen_for_interrupts()?;
    let binary = match &args.binary {
        Some(binary) => binary.canonicalize()?,
        None => process::build(if args.debug { Profile::Debug } else { Profile::Release })?,
    };
    let seed = args.seed.unwrap_or_else(|| u64::from(std::process::id()));
    let dev: (_, &[Role]) = ("dev", &[Role::Dev]);
    let fleet: (_, &[Role]) = ("fleet", &[Role::Serve, Role::Worker, Role::Worker]);
    let pull: (_, &[Role]) = ("pull", &[Role::Serve, Role::PullWorker, Role::PullWorker]);
    let topologies = match args.topology.unwrap_or(topology) {
        Topology::Dev => vec![dev],
        Topology::Fleet => vec![fleet],
        Topology::Pull => vec![pull],
        Topology::Both => vec![dev, fleet],
    };
    let mut is_any_wrong = false;
    for (name, roles) in topologies {
        let attack = Attack { torture, name, roles, ground, seed, plan };
        is_any_wrong |= !attack.run(&binary)?;
    }
    if is_any_wrong {
        return Err("a promise was not kept".into());
    }
    Ok(())
}

impl Attack {
    /// Runs it and prints the verdict; answers whether all is well.
    fn run(&self, binary: &Path) -> Result<bool> {
        let folder = tempfile::Builder::new().prefix("windlass-torture-").tempdir()?;
        match self.judge(binary, folder.path()) {
            Ok(true) => Ok(true),
            // Nothing was judged.
            Err(error) if guard::check_interrupted().is_err() => Err(error),
            // Whatever went wrong, the folder is what there is to find out why.
            outcome => {
                eprintln!("{}: the evidence is kept in {}", self.name, folder.keep().display());
                outcome
            }
        }
    }

    fn judge(&self, binary: &Path, folder: &Path) -> Result<bool> {
        let started = Instant::now();
        let yard = Yard {
            binary: binary.into(),
            folder: folder.into(),
            ground: (self.ground)(folder),
            journal: Arc::new(Journal::open(folder, "processes")?),
            serial: AtomicU32::new(1),
            port: self.port()?,
        };
        let port = Port::default();
        let mut fleet = Fleet::start(&yard, self.roles, port.clone(), Dice::seeded(self.seed))?;
        let mix = Mix { runs: self.runs(), has_priorities: yard.ground.has_priorities() };
        let load = Load::start(folder, &port, self.seed, mix)?;
        fleet.disturb(self.plan)?;
        // A complaint does not spare the rest the audit, which may know the reason.
        let complaint = load.stop().err();
        let runtime = tokio::runtime::Runtime::new()?;
        let store = runtime.block_on(windlass_stores::open(&yard.ground.url()))?;
        let left = runtime.block_on(unfinished(store.as_ref()))?;
        let suspects = left.iter().filter(|record| record.crashes > 0).count();
        let load_per_core = load_per_core();
        let drain_max = (DRAIN_BASE
            + DRAIN_PER_TASK.saturating_mul(u32::try_from(left.len())?)
            + DRAIN_PER_SUSPECT.saturating_mul(u32::try_from(suspects)?))
        .mul_f64(load_per_core);
        yard.journal.say(Fact::FaultsOver)?;
        let drained_by = Instant::now() + drain_max;
        while Instant::now() < drained_by {
            if runtime.block_on(unfinished(store.as_ref()))?.is_empty() {
                yard.journal.say(Fact::Drained)?;
                break;
            }
            fleet.rest(10 * TICK)?;
        }
        let deeds = fleet.stop()?;
        let dump = runtime.block_on(Dump::of(store.as_ref()))?;
        let setting = Setting {
            lease: LEASE,
            backoff: Config::default().task.retry,
            snooze: handler::SNOOZE,
            drain_max,
            recovery_max: RECOVERY_MAX.mul_f64(load_per_core),
        };
        let findings = audit::audit(&journal::read(folder)?, &dump, &setting);
        self.tell(&findings, deeds, &Times { took: started.elapsed(), drain_max, load_per_core });
        match complaint {
            Some(complaint) => Err(complaint),
            None => Ok(is_well(&findings)),
        }
    }

    /// The port of the server: one that stays the same where workers have to find it again.
    fn port(&self) -> Result<u16> {
        if !self.roles.contains(&Role::PullWorker) {
            return Ok(0);
        }
        Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
    }

    /// A late report needs a successor at work, on another worker.
    const fn runs(&self) -> Runs {
        if self.roles.len() > 1 { Runs::SomeOutlastALease } else { Runs::AreShort }
    }

    fn tell(&self, findings: &Findings, deeds: Deeds, times: &Times) {
        let shown = findings.violations.len().min(VIOLATIONS_SHOWN);
        let verdict = json!({
            "torture": self.torture,
            "name": self.name,
            "seed": self.seed,
            "seconds": times.took.as_secs(),
            "kills": deeds.kills,
            "pauses": deeds.pauses,
            "terminations": deeds.terminations,
            "store_restarts": deeds.store_restarts,
            "store_nuisances": deeds.nuisances,
            "store_away_ms_max": u64::try_from(deeds.store_away_max.as_millis()).ok(),
            "load_per_core": (times.load_per_core * 10.0).round() / 10.0,
            "counts": findings.counts,
            "drain_ms_max": u64::try_from(times.drain_max.as_millis()).ok(),
            "violation_count": findings.violations.len(),
            "violations": findings.violations[..shown],
            "ok": is_well(findings),
        });
        println!("{verdict}");
    }
}

struct Times {
    took: Duration,
    drain_max: Duration,
    load_per_core: f64,
}

/// How many processes of this machine want each of its cores, over the last minute; at least 1. Bounds on real time
/// are multiplied by it, since others get the rest of the time.
fn load_per_core() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: f64 = text.split(' ').next().and_then(|one| one.parse().ok()).unwrap_or(1.0);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (load / cores as f64).clamp(1.0, LOAD_PER_CORE_MAX)
}

/// Nothing was violated, and there was something that could have been.
fn is_well(findings: &Findings) -> bool {
    findings.violations.is_empty() && findings.counts.completed > 0
}

/// The tasks that have not come to their end.
async fn unfinished(store: &dyn Store) -> Result<Vec<TaskRecord>> {
    let states = State::ALL.into_iter().filter(|state| !state.is_terminal()).collect();
    let filter = Filter { states, ..Filter::default() };
    let mut params = ListParams { filter, limit: LEFT_MAX, cursor: None };
    let mut left = Vec::new();
    loop {
        let page = store.list(params.clone()).await?;
        left.extend(page.tasks);
        if page.next_cursor.is_none() {
            return Ok(left);
        }
        params.cursor = page.next_cursor;
    }
}
