//! `cargo xtask test`: everything that must pass, with one honest total at the end.

mod programs;

use std::io::{BufRead, BufReader};
use std::ops::AddAssign;
use std::process::Stdio;
use std::thread;

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
    /// Handed to `cargo test`, e.g. `-- a_name` or `-- -p windlass-core -- --nocapture`.
    #[arg(last = true)]
    cargo: Vec<String>,
}

/// Tests by how they went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Tally {
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

pub(crate) fn run(args: &Args) -> Result {
    // A machine where nothing can be installed may still run almost everything; what then cannot
    // run says so itself.
    if let Err(error) = setup::run(setup::Voice::Quiet) {
        println!("setup: {}", shell::chain(error.as_ref()));
    }
    let (mut tally, is_cargo_satisfied, tortured) = if args.cargo.is_empty() {
        let programs = programs::build()?;
        // Beside the tests: they wait more than they work.
        let (tested, tortured) = thread::scope(|scope| {
            let tortures = scope.spawn(|| run_tortures(args));
            let tested = programs::run(programs);
            (tested, tortures.join().unwrap_or(Tally { failed: 1, ..Tally::default() }))
        });
        let (mut tally, is_satisfied) = tested?;
        let (documented, is_documented) = run_cargo_test(&[String::from("--doc")])?;
        tally += documented;
        (tally, is_satisfied && is_documented, tortured)
    } else {
        let (tally, is_satisfied) = run_cargo_test(&args.cargo)?;
        (tally, is_satisfied, run_tortures(args))
    };
    let is_any_run = tally.passed + tally.failed > 0;
    tally += tortured;
    println!("{} passed, {} failed, {} skipped", tally.passed, tally.failed, tally.skipped);
    if tally.failed > 0 {
        return Err("tests failed".into());
    }
    if !is_cargo_satisfied {
        return Err("a test program failed outside of any test".into());
    }
    if !is_any_run {
        return Err("no test ran".into());
    }
    Ok(())
}

/// Runs the tests that cargo finds by these words, output passed through, and adds up their closing
/// lines. Also answers whether cargo itself was satisfied.
fn run_cargo_test(args: &[String]) -> Result<(Tally, bool)> {
    let mut child = shell::cargo()
        .args(["test", "--workspace", "--no-fail-fast"])
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let stdout = child.stdout.take().ok_or("cargo test has no output")?;
    let mut tally = Tally::default();
    for line in BufReader::new(stdout).split(b'\n') {
        // Tests may print anything; what is no text still has to come through.
        let line = String::from_utf8_lossy(&line?).into_owned();
        println!("{line}");
        if let Some(result) = parse_result(&line) {
            tally += result;
        }
    }
    Ok((tally, child.wait()?.success()))
}

/// Reads `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; …`.
fn parse_result(line: &str) -> Option<Tally> {
    let (_, counts) = line.split_once("test result: ")?;
    let count = |word: &str| {
        counts
            .split(['.', ';'])
            .filter_map(|part| part.trim().split_once(' '))
            .find(|(_, name)| *name == word)
            .and_then(|(number, _)| number.parse().ok())
    };
    Some(Tally { passed: count("passed")?, failed: count("failed")?, skipped: count("ignored")? })
}

fn run_tortures(args: &Args) -> Tally {
    let mut tally = run_power_cut(args);
    tally += run_processes(args);
    tally
}

fn run_power_cut(args: &Args) -> Tally {
    let tries = POWER_CUT_TRIES.to_string();
    let mut tally = run_torture(args, power_cut::obstacle, &["power-cut", "--tries", &tries]);
    let tries = POWER_CUT_TRIES_POSTGRES.to_string();
    let words = ["power-cut", "--store", "postgres", "--tries", &tries];
    tally += run_torture(args, power_cut::obstacle, &words);
    tally
}

/// Two at a time: they wait more than they work.
fn run_processes(args: &Args) -> Tally {
    thread::scope(|scope| {
        let embedded = scope.spawn(|| run_sqlite(args));
        let mut tally = Tally::default();
        for store in SERVER_STORES {
            tally += run_on_server(args, store);
        }
        tally += embedded.join().unwrap_or(Tally { failed: 1, ..Tally::default() });
        tally
    })
}

fn run_sqlite(args: &Args) -> Tally {
    let (kills, seconds) = (SQLITE_KILLS.to_string(), SQLITE_SECONDS.to_string());
    // The debug build is there already, from the tests.
    let words = ["sqlite", "--debug", "--kills", &kills, "--seconds", &seconds];
    run_torture(args, || None, &words)
}

fn run_on_server(args: &Args, store: &str) -> Tally {
    let (seconds, outage) = (SERVER_SECONDS.to_string(), SERVER_OUTAGE_SECONDS.to_string());
    let words = [store, "--debug", "--seconds", &seconds, "--outage", &outage];
    run_torture(args, || None, &words)
}

/// Runs a torture in a process of its own: it leaves the mounts and signals of this one alone.
fn run_torture(args: &Args, obstacle: impl FnOnce() -> Option<String>, words: &[&str]) -> Tally {
    let obstacle = if args.cargo.is_empty() {
        obstacle()
    } else {
        Some(String::from("only a part of the tests was asked for"))
    };
    let name = words.first().copied().unwrap_or_default();
    if let Some(why) = obstacle {
        println!("NOT RUN: {name}, because {why}");
        return Tally { skipped: 1, ..Tally::default() };
    }
    // In one piece, since tests print meanwhile.
    let told = shell::output(shell::this_program().arg("torture").args(words));
    let is_passed = told.is_ok();
    let told = told.unwrap_or_else(|error| shell::chain(error.as_ref()));
    println!("torture {}: {}", words.join(" "), told.trim());
    Tally { passed: u64::from(is_passed), failed: u64::from(!is_passed), ..Tally::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_line_of_a_test_binary_is_read() {
        let line = "test result: FAILED. 12 passed; 3 failed; 4 ignored; 0 measured; 9 filtered out; finished in 0.02s";
        let tally = Tally { passed: 12, failed: 3, skipped: 4 };
        assert_eq!(parse_result(line), Some(tally));
    }

    #[test]
    fn other_lines_count_nothing() {
        assert_eq!(parse_result("test a::b ... ok"), None);
        assert_eq!(parse_result("test result: who knows"), None);
    }
}
