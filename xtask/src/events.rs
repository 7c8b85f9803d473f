//! `cargo xtask events`: very many clients follow live events of a real server, while a worker in another
//! process runs what is submitted at a steady rate. Prints one JSON verdict for each store.

mod listeners;
mod submits;

use std::collections::HashSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::listeners::{Crowd, Found};
use self::submits::Submits;
use crate::ground::{Ground, Store, address};
use crate::torture::guard::{self, Killed};
use crate::torture::processes::{build_debug, build_release};
use crate::{Result, shell};

/// The queue that most clients want, and its tasks per second.
const QUIET: &str = "quiet";
const QUIET_RATE: u32 = 10;
const BUSY: &str = "busy";
/// What is asked of it.
const SUBMIT_P95_MS_MAX: f64 = 25.0;
const GROWTH_MIB_MAX: f64 = 200.0;
/// How long the last events may take, and how long memory may take to come back.
const LAST_MAX: Duration = Duration::from_secs(20);
const CALM: Duration = Duration::from_secs(20);

/// How many, how long.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// On which stores; on SQLite, PostgreSQL and Redis if none is named.
    #[arg(long, value_enum)]
    store: Vec<Store>,
    /// Seconds of load.
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// Submits per second.
    #[arg(long, default_value_t = 500)]
    rate: u32,
    /// Clients that want everything.
    #[arg(long, default_value_t = 10)]
    all: usize,
    /// Clients that want one queue, with 10 tasks per second.
    #[arg(long, default_value_t = 890)]
    filtered: usize,
    /// Clients that want everything and never read.
    #[arg(long, default_value_t = 100)]
    silent: usize,
    /// Cuts all connections to the store half-way (PostgreSQL and Redis): clients must see a gap, and then events
    /// again.
    #[arg(long)]
    cut: bool,
    /// Judges no times: for machines that are busy otherwise.
    #[arg(long)]
    untimed: bool,
    /// Without optimisations, as the tests do.
    #[arg(long)]
    debug: bool,
    /// Measures this program and builds none.
    #[arg(long)]
    binary: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result {
    if cfg!(debug_assertions) && !args.debug && args.binary.is_none() {
        return run_as_release();
    }
    let binary = match &args.binary {
        Some(binary) => fs::canonicalize(binary)?,
        None if args.debug => build_debug()?,
        None => build_release()?,
    };
    let stores = if args.store.is_empty() { &Store::BASIC[..] } else { &args.store };
    let runtime = tokio::runtime::Runtime::new()?;
    let mut failed = Vec::new();
    for store in stores {
        let verdict = runtime.block_on(measure(*store, &binary, args))?;
        println!("{verdict}");
        if verdict["ok"] != true {
            failed.push(format!("{store:?}"));
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("see above: {}", failed.join(", ")).into()) }
}

/// A thousand clients that are not optimised take the time of the server that is measured.
fn run_as_release() -> Result {
    let words = std::env::args_os().skip(1);
    shell::run(
        shell::cargo().args(["run", "--release", "--quiet", "-p", "xtask", "--"]).args(words),
    )
}

async fn measure(store: Store, binary: &Path, args: &Args) -> Result<Value> {
    let folder = tempfile::tempdir()?;
    let is_cut = args.cut && store != Store::Sqlite;
    let mut ground = Ground::lay(store, folder.path());
    let proxy = if is_cut { ground.behind_proxy().await } else { None };
    let (server, log) = start(binary, folder.path(), &["serve", "--port", "0"], &ground)?;
    let url = address(&log)?;
    let address = url.trim_start_matches("http://").parse()?;
    let queues = ["--queue", QUIET, "--queue", BUSY, "--concurrency", "50"];
    let words: Vec<_> = ["worker"].into_iter().chain(queues).collect();
    let (_worker, _) = start(binary, folder.path(), &words, &ground)?;
    let memory = Memory::of(server.0.id());
    // A first round makes everything that is made once.
    submits::run(address, 50, Duration::from_secs(2)).await?;
    let before = memory.now()?;
    let crowd = Crowd::gather(address, args.all, args.filtered, args.silent).await?;
    let time = Duration::from_secs(u64::from(args.seconds));
    let load = tokio::spawn(submits::run(address, args.rate, time));
    let peak = tokio::spawn(memory.peak(time));
    if let Some(proxy) = &proxy {
        tokio::time::sleep(time / 2).await;
        proxy.cut();
    }
    let submits = load.await??;
    let found = crowd.settle(&submits, LAST_MAX).await;
    let peak = peak.await??.max(memory.now()?);
    drop(crowd);
    tokio::time::sleep(CALM).await;
    let after = memory.now()?;
    Ok(judge(store, args, is_cut, &submits, &found, [before, peak, after]))
}

fn judge(
    store: Store,
    args: &Args,
    is_cut: bool,
    submits: &Submits,
    found: &Found,
    [before, peak, after]: [f64; 3],
) -> Value {
    let submit_ms = submits.percentiles();
    let is_told = match is_cut {
        // What was lost was announced, and then it went on.
        true => found.unannounced == 0 && found.gaps > 0 && found.last_missing == 0,
        false => found.missing == 0 && found.gaps == 0,
    };
    let is_small = peak - before < GROWTH_MIB_MAX && after - before < GROWTH_MIB_MAX / 2.0;
    let is_quick = is_cut || args.untimed || submit_ms[1] < SUBMIT_P95_MS_MAX;
    json!({
        "test": "events",
        "store": format!("{store:?}").to_lowercase(),
        "ok": is_told && found.out_of_order == 0 && found.lost == 0 && is_small && is_quick
            && submits.failed == 0,
        "seconds": args.seconds,
        "clients": { "all": args.all, "filtered": args.filtered, "silent": args.silent },
        "submits": submits.ids.len(),
        "submits_failed": submits.failed,
        "submit_ms": { "p50": submit_ms[0], "p95": submit_ms[1], "p99": submit_ms[2] },
        "events": found.events,
        "missing": found.missing,
        "out_of_order": found.out_of_order,
        "gaps": found.gaps,
        "clients_lost": found.lost,
        "delay_ms": { "p50": found.delay_ms[0], "p95": found.delay_ms[1], "p99": found.delay_ms[2] },
        "cut": is_cut,
        "memory_mib": { "before": before, "peak": peak, "after": after },
    })
}

/// Starts the program on a store; answers where its log is.
fn start(
    binary: &Path,
    folder: &Path,
    words: &[&str],
    ground: &Ground,
) -> Result<(Killed, PathBuf)> {
    let log = folder.join(format!("{}.log", words[0]));
    let mut command = guard::tethered(&binary.to_string_lossy());
    command.args(words).args(ground.words()).current_dir(folder);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log)?);
    Ok((Killed(command.spawn()?), log))
}

/// The memory of a process.
#[derive(Clone, Copy)]
struct Memory(u32);

impl Memory {
    const fn of(process: u32) -> Self {
        Self(process)
    }

    /// What it has in memory now, in MiB.
    fn now(self) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().split(' ').next()).unwrap_or_default();
        Ok((kib.parse::<f64>()? / 102.4).round() / 10.0)
    }

    async fn peak(self, time: Duration) -> Result<f64> {
        let (began, mut peak) = (Instant::now(), 0.0_f64);
        while began.elapsed() < time {
            peak = peak.max(self.now()?);
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        Ok(peak)
    }
}

/// The ids of these tasks.
fn ids<'a>(submits: &'a Submits, queue: &'a str) -> HashSet<&'a str> {
    let mine = submits.ids.iter().filter(move |(_, of)| *of == queue);
    mine.map(|(id, _)| id.as_str()).collect()
}
