//! `windlass bench`: measures a store from outside, through the contract that the engine uses.

mod backlog;
mod compare;
mod disk;
mod drain;
mod enqueue;
mod flow;
mod http;
mod latency;
mod report;
mod scene;
mod soak;
mod store;

use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use tempfile::TempDir;
use windlass::core::config::Config;
use windlass::core::{Error, ErrorKind, Result, Store};
use windlass::{Client, Opening};

use self::report::{Report, Surroundings};
use super::Globals;
use crate::exit::Done;
use crate::output::Output;

const EXAMPLES: &str = "\
Examples:
  windlass bench                                   the embedded store, every batch size
  windlass bench --batch 500 -o json               one batch size, one line of JSON
  windlass bench --mode enqueue --producers 64     64 producers, one task per call
  windlass bench --mode drain --concurrency 200    a worker empties a backlog
  windlass bench --mode drain --compare-statistics 10    what keeping statistics costs
  windlass bench --mode flow                       producers and a worker at the same time
  windlass bench --mode latency                    from the submit to the start of the handler
  windlass bench --mode backlog                    what a claim costs with 1,000,000 tasks waiting
  windlass bench --mode soak --producers 2         ten minutes of full load, told minute by minute
  windlass bench --store memory:                   another store";

/// What to measure. Without --store it is a fresh SQLite file on the disk of the current folder,
/// removed afterwards; the store is never taken from the environment or a file of settings, since a
/// measurement is no guest for a store at work.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// What to measure.
    #[arg(long, value_enum, default_value_t = Mode::Store)]
    mode: Mode,
    /// Another store for the long backlog (mode `backlog` with --store): another file, schema or
    /// database of the same sort.
    #[arg(long, value_name = "URL", requires = "store")]
    second_store: Option<String>,
    /// Durability of the fresh SQLite file.
    #[arg(long, value_enum, default_value_t = FileDurability::Durable)]
    durability: FileDurability,
    /// How many tasks at most; fewer where the time is over first.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    tasks: u64,
    /// Size of each payload.
    #[arg(long, default_value_t = 100, value_name = "BYTES")]
    payload_bytes: usize,
    /// Tasks per call. By default: 1, 10, 100, 500 and 1000 in turn (mode `store`), 1 (`enqueue` and
    /// `flow`), 500 (`backlog` and `soak`).
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batch: Option<u32>,
    /// Tasks that the worker runs at once (modes `drain`, `flow` and `soak`).
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    concurrency: u32,
    /// Callers at the same time (modes `enqueue`, `http`, `flow` and `soak`).
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    producers: u32,
    /// Tasks that wait in the long backlog (mode `backlog`).
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1_000..))]
    backlog: u64,
    /// Tasks that run beside the long backlog all the time, and 10 beside the short one (mode
    /// `backlog`).
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=100_000))]
    running: u32,
    /// How long to load the store (mode `soak`).
    #[arg(long, default_value_t = 600.0, value_name = "SECONDS")]
    soak_seconds: f64,
    /// Counts no statistics in the client and the worker that are measured.
    #[arg(long)]
    no_statistics: bool,
    /// Empties so many pairs of backlogs, with statistics and without in turn, and tells how the rates compare
    /// (mode `drain`).
    #[arg(long, value_name = "PAIRS", conflicts_with = "no_statistics", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    compare_statistics: Option<u32>,
    /// Longest time for one step of a measurement.
    #[arg(long, default_value_t = 3.0, value_name = "SECONDS")]
    step_seconds: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Insert, claim, apply, and claim with apply in one trip, one caller.
    Store,
    /// Many callers insert at once.
    Enqueue,
    /// Many connections submit to the HTTP API, one task at a time.
    Http,
    /// A worker empties a backlog with handlers that do nothing.
    Drain,
    /// Producers submit while a worker runs what they submit.
    Flow,
    /// One task every 10 ms: from the submit to the start of its handler.
    Latency,
    /// Claim and apply with few and with many tasks waiting, or running.
    Backlog,
    /// Full load for minutes, in ten slices; leaves its tasks in the store.
    Soak,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FileDurability {
    /// Nothing acknowledged is lost, also in a power cut.
    Durable,
    /// The last moments may be lost in a power cut.
    Fast,
}

/// How much to measure, read from the arguments.
struct Effort {
    tasks: u64,
    payload_bytes: usize,
    step: Duration,
    /// The store stays when we go, so what was put into it has to be removed.
    is_store_kept: bool,
    /// Of the clients and workers that are measured.
    config: Config,
}

impl Effort {
    /// A client of a store as it is measured.
    fn client(&self, store: Arc<dyn Store>) -> Client {
        Client::with_config(store, self.config.clone())
    }
}

pub(crate) async fn run(args: Args, globals: &Globals) -> Done {
    if globals.server.is_some() {
        return Err(Error::invalid("bench measures a store itself: give --store").into());
    }
    let effort = Effort {
        tasks: args.tasks,
        payload_bytes: args.payload_bytes,
        step: seconds(args.step_seconds)?,
        is_store_kept: globals.store.is_some(),
        config: with_statistics(!args.no_statistics),
    };
    let places = Places::find(&args, globals)?;
    let first = places.open(0).await?;
    let surroundings = Surroundings {
        store: first.profile().name,
        durability: first.profile().durability.as_str(),
        place: places.describe(),
        payload_bytes: args.payload_bytes,
        fdatasync: disk::fdatasync_median(places.folder())?,
    };
    let mut report = Report::begin(Output::of(globals), surroundings);
    let batch = args.batch.map(|batch| batch as usize);
    match args.mode {
        Mode::Store => {
            drop(first);
            for size in batch.map_or_else(|| store::BATCHES.to_vec(), |batch| vec![batch]) {
                // A fresh file each time: the history of one size must not weigh on the next.
                store::run(places.open(size).await?, size, &effort, &mut report).await?;
            }
        }
        Mode::Enqueue => {
            let callers = enqueue::Callers { producers: args.producers, batch: batch.unwrap_or(1) };
            enqueue::run(first, callers, &effort, &mut report).await?;
        }
        Mode::Http => http::run(first, args.producers, &effort, &mut report).await?,
        Mode::Drain => {
            let slots = args.concurrency as usize;
            match args.compare_statistics {
                Some(pairs) => compare::run(first, slots, pairs, &effort, &mut report).await?,
                None => {
                    let second = places.open(1).await?;
                    drain::run([first, second], slots, &effort, &mut report).await?;
                }
            }
        }
        Mode::Flow => {
            let callers = enqueue::Callers { producers: args.producers, batch: batch.unwrap_or(1) };
            flow::run(first, callers, args.concurrency as usize, &effort, &mut report).await?;
        }
        Mode::Latency => latency::run(first, &effort, &mut report).await?,
        Mode::Backlog => {
            let lengths = backlog::Lengths {
                long: args.backlog,
                running: args.running as usize,
                batch: batch.unwrap_or(500),
            };
            let second = places.open_second().await?;
            backlog::run([first, second], lengths, &effort, &mut report).await?;
        }
        Mode::Soak => {
            let callers =
                enqueue::Callers { producers: args.producers, batch: batch.unwrap_or(500) };
            let (slots, length) = (args.concurrency as usize, seconds(args.soak_seconds)?);
            soak::run(first, callers, slots, length, &effort, &mut report).await?;
        }
    }
    report.end();
    Ok(())
}

/// The default settings, with statistics on or off.
fn with_statistics(enabled: bool) -> Config {
    let mut config = Config::default();
    config.statistics.enabled = enabled;
    config
}

fn seconds(count: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(count)
        .map_err(|cause| Error::invalid(format!("{count} seconds")).because(cause))
}

async fn open(url: &str, brokers: &[String]) -> Result<Arc<dyn Store>> {
    windlass::open_as(url, Opening { brokers: brokers.to_vec(), ..Opening::default() }).await
}

/// Where the measured stores are.
enum Places {
    /// SQLite files in a folder of our own, which goes when this is dropped.
    Private { folder: TempDir, durability: FileDurability },
    /// What the user named; a second one where that was named too, and the brokers in front of both.
    Given { url: String, second: Option<String>, brokers: Vec<String> },
}

impl Drop for Places {
    /// Tries more than once: an interrupted open may make a file while its folder goes.
    fn drop(&mut self) {
        if let Self::Private { folder, .. } = self {
            for _ in 0..20 {
                if std::fs::remove_dir_all(folder.path()).is_ok() || !folder.path().exists() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

impl Places {
    fn find(args: &Args, globals: &Globals) -> Result<Self> {
        if let Some(store) = &globals.store {
            if args.mode == Mode::Backlog && args.second_store.is_none() {
                let text =
                    "mode backlog compares two stores of one sort: give --second-store as well";
                return Err(Error::invalid(text));
            }
            return Ok(Self::Given {
                url: store.clone(),
                second: args.second_store.clone(),
                brokers: globals.broker.clone(),
            });
        }
        // Not in the system's folder for such things: that is often memory, where flushing is free.
        let folder = tempfile::Builder::new().prefix(".windlass-bench-").tempdir_in(".").map_err(
            |cause| {
                Error::new(ErrorKind::Unavailable, "make a folder in the current one")
                    .because(cause)
            },
        )?;
        Ok(Self::Private { folder, durability: args.durability })
    }

    /// A store; of our own files a different one for each number.
    async fn open(&self, number: usize) -> Result<Arc<dyn Store>> {
        match self {
            Self::Private { folder, durability } => {
                let file = folder.path().join(format!("tasks-{number}.db"));
                let durability = match durability {
                    FileDurability::Durable => "durable",
                    FileDurability::Fast => "fast",
                };
                windlass::open(&format!("sqlite:{}?durability={durability}", file.display())).await
            }
            Self::Given { url, brokers, .. } => open(url, brokers).await,
        }
    }

    async fn open_second(&self) -> Result<Arc<dyn Store>> {
        match self {
            Self::Private { .. } => self.open(1).await,
            Self::Given { url, second, brokers } => {
                open(second.as_deref().unwrap_or(url), brokers).await
            }
        }
    }

    /// Where flushing is measured.
    fn folder(&self) -> &std::path::Path {
        match self {
            Self::Private { folder, .. } => folder.path(),
            // The disk of the file, where the store is one.
            Self::Given { url, .. } => url
                .strip_prefix("sqlite:")
                .and_then(|rest| std::path::Path::new(rest.split('?').next()?).parent())
                .filter(|folder| folder.is_dir())
                .unwrap_or(std::path::Path::new(".")),
        }
    }

    /// Says where, without the URL, which may hold a password.
    fn describe(&self) -> String {
        match self {
            Self::Private { folder, .. } => {
                format!("a fresh file in {}, removed afterwards", folder.path().display())
            }
            Self::Given { .. } => String::from("as given"),
        }
    }
}
