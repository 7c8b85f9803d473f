//! `cargo xtask attack`: hostile clients against the real binary, on loopback and for some seconds each. One JSON line
//! for each attack says what became of the honest requests beside it, and of the server's memory.

mod client;
mod hostile;
mod http2;
mod kept;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde_json::{Value, json};

use crate::Result;
use crate::ground::{Ground, Store, address};
use crate::torture::guard::{self, Killed};
use crate::torture::processes::build_debug;
use client::Client;
use kept::Kept;

/// How many honest requests are made beside an attack.
const HONEST: usize = 20;
/// How often an honest request is made before it has failed, and the pause between.
const TRIES: usize = 10;
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// What the server may hold in memory: both budgets of 256 MiB, and as much as one of them for what a store makes of it.
const MEMORY_MIB_MAX: u64 = 768;

/// An attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Attack {
    /// Bodies that announce 32 MiB, or no length, and come in small pieces.
    SlowBodies,
    /// Heads that come byte by byte.
    SlowHeads,
    /// Large responses that nobody reads, over HTTP/1.
    SlowReaders,
    /// The same over HTTP/2, a hundred on each connection.
    SlowStreams,
    /// Lists of thousands of queues that nobody reads.
    SlowLists,
    /// Leases of 16 MB that nobody reads.
    SlowWorkers,
    /// Live events that nobody reads, as a stream and over WebSockets.
    SlowListeners,
    /// Many batches of 31 MiB at once.
    LargeBatches,
    /// Names that no queue may have, and very many new ones.
    HostileNames,
    /// JSON that is deep, double, half, or has far too much of something.
    HostileJson,
    /// A web page whose name leads to the server.
    Rebinding,
    /// Leases that never send the id they were given.
    LeasesWithoutId,
    /// Thousands that wait for the end of a task.
    Waits,
    /// Requests of HTTP/2 that are called off at once.
    Resets,
}

/// Which attacks, and how.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Which of them; all if none is named.
    #[arg(value_enum)]
    attacks: Vec<Attack>,
    /// On which store.
    #[arg(long, value_enum, default_value = "sqlite")]
    store: Store,
    /// Seconds for which each goes on, at least.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=120))]
    seconds: u64,
    /// Attacks this program and builds none.
    #[arg(long)]
    binary: Option<PathBuf>,
}

/// A server under attack.
pub(crate) struct Target {
    client: Client,
    /// The path of a task of nearly a megabyte.
    large: String,
    /// The path of a task that never ends.
    endless: String,
    time: Duration,
}

pub(crate) fn run(args: &Args) -> Result {
    let binary = match &args.binary {
        Some(binary) => binary.clone(),
        None => build_debug()?,
    };
    let attacks = match args.attacks.as_slice() {
        [] => Attack::value_variants(),
        named => named,
    };
    let runtime = tokio::runtime::Runtime::new()?;
    let mut failed = Vec::new();
    for attack in attacks {
        let folder = tempfile::tempdir()?;
        let ground = Ground::lay(args.store, folder.path());
        let verdict = runtime.block_on(one(*attack, &binary, &ground, folder.path(), args))?;
        println!("{verdict}");
        if verdict["ok"] != true {
            failed.push(format!("{attack:?}"));
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("see above: {}", failed.join(", ")).into()) }
}

async fn one(
    attack: Attack,
    binary: &Path,
    ground: &Ground,
    folder: &Path,
    args: &Args,
) -> Result<Value> {
    let log = folder.join("log");
    let mut command = guard::tethered(&binary.to_string_lossy());
    command.args(["serve", "--port", "0", "--insecure"]).args(ground.words()).current_dir(folder);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log)?);
    let server = Killed(command.spawn()?);
    let url = address(&log)?;
    let address = url.trim_start_matches("http://").parse()?;
    let client = Client { address };
    let payload = "x".repeat(900_000);
    let large = client.submit(&json!({ "payload": payload, "queue": "large" })).await?;
    let endless = client.submit(&json!({ "queue": "endless" })).await?;
    let time = Duration::from_secs(args.seconds);
    let target = Target { client, large, endless, time };
    let pid = find_serving(server.0.id());
    let kept = Kept::lease(client).await?;
    let beats_failed = AtomicUsize::new(0);
    let (seen, honest) = tokio::select! {
        both = async { tokio::join!(hostile::run(attack, &target), honest(&target)) } => both,
        never = kept.beat(&beats_failed) => match never {},
    };
    let seen = seen?;
    let (memory_mib, is_kept) = (peak_mib(pid), kept.complete().await?);
    let name = attack.to_possible_value().map(|value| value.get_name().to_owned());
    let is_alive = client.get("/healthz").await.is_ok_and(|answer| answer.status == 200);
    let is_harmless = is_alive && honest.failed == 0 && is_kept && memory_mib <= MEMORY_MIB_MAX;
    Ok(json!({
        "attack": name,
        "store": format!("{:?}", args.store).to_lowercase(),
        "ok": is_harmless && seen.is_fine,
        "honest": honest.count,
        "honest_failed": honest.failed,
        "honest_retried": honest.retried,
        "honest_worst_ms": honest.worst_ms,
        "heartbeats_failed": beats_failed.into_inner(),
        "lease_kept": is_kept,
        "memory_peak_mib": memory_mib,
        "seen": seen.figures,
    }))
}

/// What became of the honest requests.
struct Honest {
    count: usize,
    failed: usize,
    retried: usize,
    worst_ms: u128,
}

/// Submits of 20 KB, reads, and looks at whether the server lives, one after the other. As honest clients do, it tries
/// again when it is told to.
async fn honest(target: &Target) -> Honest {
    let mut seen = Honest { count: 0, failed: 0, retried: 0, worst_ms: 0 };
    let pause = target.time / u32::try_from(HONEST).unwrap_or(1);
    for _ in 0..HONEST {
        tokio::time::sleep(pause).await;
        let (began, mut tries) = (Instant::now(), 0);
        while tries < TRIES && !is_served(target).await {
            tries += 1;
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        seen.count += 1;
        seen.failed += usize::from(tries == TRIES);
        seen.retried += tries;
        seen.worst_ms = seen.worst_ms.max(began.elapsed().as_millis());
    }
    seen
}

async fn is_served(target: &Target) -> bool {
    let body = json!({ "payload": "y".repeat(20_000) });
    target.client.submit(&body).await.is_ok()
        && target.client.get(&target.large).await.is_ok_and(|answer| answer.status == 200)
        && target.client.get("/healthz").await.is_ok_and(|answer| answer.status == 200)
}

/// The process that serves: the one that was started ties another to its own life.
fn find_serving(started: u32) -> u32 {
    let children = fs::read_to_string(format!("/proc/{started}/task/{started}/children"));
    let child = children.ok().and_then(|ids| ids.split_whitespace().next()?.parse().ok());
    child.unwrap_or(started)
}

/// The most memory that a process has had.
fn peak_mib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or_default() / 1_024
}
