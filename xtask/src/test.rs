//! `cargo xtask test`: everything that must pass, with one honest total at the end.

mod busy_cores;
mod programs;
mod summary;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::thread;

use self::busy_cores::BusyCores;
use self::programs::Built;
use self::summary::{Summary, Tally};
use crate::torture::power_cut;
use crate::{Result, setup, shell};

/// Tries of the power-cut torture that every test run pays for; `torture power-cut` does more.
const POWER_CUT_TRIES: u32 = 3;
/// And on PostgreSQL, where each takes longer.
const POWER_CUT_TRIES_POSTGRES: u32 = 1;
/// Kills per topology of the process torture that every test run pays for; `torture sqlite` does more.
const SQLITE_KILLS: u32 = 4;
/// Longest that their faults last; the drain after them takes about ten seconds more.
const SQLITE_SECONDS: u32 = 20;
/// Stores with a server of their own: how long faults last on each, and its server is away once.
/// `torture postgres`, `redis` and `hybrid` do more.
const SERVER_STORES: [&str; 3] = ["postgres", "redis", "hybrid"];
const SERVER_SECONDS: u32 = 20;
const SERVER_OUTAGE_SECONDS: u32 = 4;

/// Which tests.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Keep every core busy meanwhile: tests must pass on a machine that does other work too.
    #[arg(long)]
    busy: bool,
    /// Run everything this many times; stop at the first run that fails.
    #[arg(long, default_value_t = 1)]
    times: u32,
    /// Handed to `cargo test`, e.g. `-- a_name` or `-- -p windlass-core -- --nocapture`.
    #[arg(last = true)]
    cargo: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result {
    let _busy = args.busy.then(BusyCores::start);
    for _ in 0..args.times {
        run_once(args)?;
    }
    Ok(())
}

fn run_once(args: &Args) -> Result {
    // A machine where nothing can be installed may still run almost everything; what then cannot
    // run says so itself.
    if let Err(error) = setup::run(setup::Voice::Quiet) {
        println!("setup: {}", shell::chain(error.as_ref()));
    }
    let (mut summary, tortured) = if args.cargo.is_empty() {
        let Built { programs, product } = programs::build()?;
        // Beside the tests: they wait more than they work.
        let (tested, tortured) = thread::scope(|scope| {
            let tortures = scope.spawn(|| run_tortures(&product));
            let tested = programs::run(programs);
            (tested, tortures.join().unwrap_or_else(|_| panicked()))
        });
        let mut summary = tested?;
        summary += run_cargo_test(&[String::from("--doc")])?;
        (summary, tortured)
    } else {
        (run_cargo_test(&args.cargo)?, skip_tortures())
    };
    let is_any_run = summary.tally.passed + summary.tally.failed > 0;
    summary += tortured;
    for complaint in &summary.complaints {
        println!("FAILED: {complaint}\n");
    }
    let Tally { passed, failed, skipped } = summary.tally;
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    if failed > 0 {
        return Err("tests failed".into());
    }
    if !summary.complaints.is_empty() {
        return Err("a test program failed outside of any test".into());
    }
    if !is_any_run {
        return Err("no test ran".into());
    }
    Ok(())
}

/// When a torture's own code failed.
fn panicked() -> Summary {
    Summary::of_one("tortures", "the thread that runs them panicked", false)
}

/// Runs the tests that cargo finds by these words, output passed through, and adds up their closing
/// lines.
fn run_cargo_test(args: &[String]) -> Result<Summary> {
    let mut child = shell::cargo()
        .args(["test", "--workspace", "--no-fail-fast"])
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let stdout = child.stdout.take().ok_or("cargo test has no output")?;
    let mut text = String::new();
    for line in BufReader::new(stdout).split(b'\n') {
        // Tests may print anything; what is no text still has to come through.
        let line = String::from_utf8_lossy(&line?).into_owned();
        println!("{line}");
        text.push_str(&line);
        text.push('\n');
    }
    let is_satisfied = child.wait()?.success();
    Ok(Summary::of(&format!("cargo test {}", args.join(" ")), &text, is_satisfied))
}

fn skip_tortures() -> Summary {
    println!("NOT RUN: tortures, because only a part of the tests was asked for");
    Summary::of_skipped()
}

fn run_tortures(product: &Path) -> Summary {
    let mut summary = run_power_cuts();
    summary += run_processes(product);
    summary += run_events(product);
    summary += run_fleet(product);
    summary
}

/// A dozen processes, whose connections and tasks are counted; `cargo xtask fleet` has two hundred.
fn run_fleet(product: &Path) -> Summary {
    let product = product.display().to_string();
    let few = ["--processes", "12", "--idle", "3", "--burst", "5", "--untimed"];
    let words: Vec<_> = few.into_iter().chain(["--binary", &product]).collect();
    run_chore("fleet", &words)
}

/// Few clients for a few seconds; `cargo xtask events` has a thousand.
fn run_events(product: &Path) -> Summary {
    let product = product.display().to_string();
    let few =
        ["--seconds", "4", "--rate", "200", "--all", "3", "--filtered", "30", "--silent", "3"];
    let words: Vec<_> = few.into_iter().chain(["--untimed", "--binary", &product]).collect();
    run_chore("events", &words)
}

fn run_power_cuts() -> Summary {
    if let Some(why) = power_cut::obstacle() {
        println!("NOT RUN: power-cut, because {why}");
        return Summary::of_skipped();
    }
    let tries = [POWER_CUT_TRIES, POWER_CUT_TRIES_POSTGRES].map(|tries| tries.to_string());
    let mut summary = run_torture(&["power-cut", "--tries", &tries[0]]);
    summary += run_torture(&["power-cut", "--store", "postgres", "--tries", &tries[1]]);
    summary
}

/// Two at a time: they wait more than they work.
fn run_processes(product: &Path) -> Summary {
    let product = product.display().to_string();
    thread::scope(|scope| {
        let embedded = scope.spawn(|| run_sqlite(&product));
        let mut summary = Summary::default();
        for store in SERVER_STORES {
            summary += run_on_server(&product, store);
        }
        summary += embedded.join().unwrap_or_else(|_| panicked());
        summary
    })
}

fn run_sqlite(product: &str) -> Summary {
    let (kills, seconds) = (SQLITE_KILLS.to_string(), SQLITE_SECONDS.to_string());
    let words = ["sqlite", "--kills", &kills, "--seconds", &seconds, "--binary", product];
    let mut summary = run_torture(&words);
    summary += run_torture(&[&words[..], &["--topology", "pull"]].concat());
    summary
}

fn run_on_server(product: &str, store: &str) -> Summary {
    let (seconds, outage) = (SERVER_SECONDS.to_string(), SERVER_OUTAGE_SECONDS.to_string());
    run_torture(&[store, "--seconds", &seconds, "--outage", &outage, "--binary", product])
}

/// Runs a torture in a process of its own: it leaves the mounts and signals of this one alone.
fn run_torture(words: &[&str]) -> Summary {
    run_chore("torture", words)
}

fn run_chore(chore: &str, words: &[&str]) -> Summary {
    // In one piece, since tests print meanwhile.
    let told = shell::output(shell::this_program().arg(chore).args(words));
    let is_passed = told.is_ok();
    let told = told.unwrap_or_else(|error| shell::chain(error.as_ref()));
    let heading = format!("{chore} {}", words.join(" "));
    println!("{heading}: {}", told.trim());
    Summary::of_one(&heading, told.trim(), is_passed)
}
