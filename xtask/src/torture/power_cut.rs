//! The power cut: an ext4 of its own goes dark under a store at full load.
//!
//! One try: make a file system in a file ([`disk`]), put a store on it ([`victim`]), start a process
//! that loads the store ([`load`]) and writes down what it sends and what is acknowledged, outside of that file system
//! ([`ledger`]). At a random moment the file system loses everything that was not flushed, the
//! process is killed, the file system is mounted again, and the [`audit`] compares the store with
//! the ledger. A plain `kill -9` would keep the page cache and prove nothing.

mod audit;
mod disk;
mod ledger;
mod load;
mod victim;

use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde_json::json;
use windlass_core::dice::Dice;

use self::audit::Audit;
use self::disk::Disk;
use self::ledger::{Ledger, Moment, Word};
pub(crate) use self::load::{LoadArgs, run_load};
use self::victim::{StoreKind, Victim};
use crate::torture::guard::{self, Killed};
use crate::{Result, shell};

/// The shortest time between the first answer to the load and the cut; the longest is `--seconds`.
const CUT_AFTER_MIN: Duration = Duration::from_millis(20);
/// Longest wait for the first answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// How often the waiting parent looks whether it should stop.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Back to the start of the terminal's line, and empty it.
const CLEAR_LINE: &str = "\r\x1b[K";

/// How hard to try.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many cuts, each on a fresh file system.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    tries: u32,
    /// How long the load runs at most before a cut.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Which store.
    #[arg(long, value_enum, default_value_t = StoreKind::Sqlite)]
    store: StoreKind,
    /// The store's durability; `fast` may lose and is expected to be caught losing.
    #[arg(long, value_enum, default_value_t = Profile::Durable)]
    profile: Profile,
    /// Repeats the moments and sizes of an earlier run (the scheduler's part stays chance).
    #[arg(long)]
    seed: Option<u64>,
    /// Where to keep ledger and disk image of a try that failed.
    #[arg(long, default_value = "target/torture")]
    evidence: PathBuf,
}

/// The durability asked of the store.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Profile {
    Durable,
    Fast,
}

impl Profile {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Durable => "durable",
            Self::Fast => "fast",
        }
    }
}

/// Why this machine cannot run the torture; `None` when it can.
pub(crate) fn obstacle() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some(String::from("it mounts a file system, which takes root"));
    }
    // Only a real mount tells: containers have a /dev/loop-control that they may not use.
    let rehearsal = Disk::create(disk::BYTES_MIN).and_then(|mut disk| {
        disk.mount()?;
        disk.unmount()
    });
    rehearsal.err().map(|error| {
        format!("a loop device cannot be mounted here: {}", shell::chain(error.as_ref()))
    })
}

pub(crate) fn run(args: &Args) -> Result {
    if let Some(why) = obstacle() {
        return Err(format!("cannot cut power: {why}").into());
    }
    disk::hide_mounts_from_others();
    guard::listen_for_interrupts()?;
    let seed = args.seed.unwrap_or_else(|| u64::from(std::process::id()));
    let mut dice = Dice::seeded(seed);
    let mut total = Audit::default();
    for number in 1..=args.tries {
        let audit = run_try(args, number, &mut dice)?;
        tell_progress(args, number, &audit);
        total.add(audit);
    }
    clear_progress();
    let verdict = match (args.profile, total.wrong.is_empty(), total.lost()) {
        // Each cut came before the first answer: that shows nothing.
        (_, true, 0) if total.acked_inserts == 0 => "fail",
        (_, true, 0) => "pass",
        (Profile::Fast, true, _) => "lossy",
        (Profile::Durable, _, _) | (Profile::Fast, false, _) => "fail",
    };
    println!(
        "{}",
        json!({
            "torture": "power-cut",
            "store": args.store.as_str(),
            "profile": args.profile.as_str(),
            "tries": args.tries,
            "seed": seed,
            "acked_inserts": total.acked_inserts,
            "acked_claims": total.acked_claims,
            "acked_applies": total.acked_applies,
            "lost": total.lost(),
            "lost_inserts": total.lost_inserts,
            "lost_claims": total.lost_claims,
            "lost_applies": total.lost_applies,
            "acked_after_cut": total.late_acks,
            "lost_after_cut": total.late_lost_inserts,
            "wrong": total.wrong.len(),
            "verdict": verdict,
        })
    );
    if verdict == "fail" {
        return Err(
            "acknowledged work was lost, or there was none, or the store was left wrong".into()
        );
    }
    Ok(())
}

fn run_try(args: &Args, number: u32, dice: &mut Dice) -> Result<Audit> {
    let longest = Duration::try_from_secs_f64(args.seconds)?.max(CUT_AFTER_MIN);
    let cut_after = CUT_AFTER_MIN + (longest - CUT_AFTER_MIN).mul_f64(dice.unit());
    let mut disk = Disk::create(disk::bytes_for(longest))?;
    disk.mount()?;
    let victim = Victim::on(&disk, args.store, args.profile == Profile::Durable)?;
    let url = victim.url(args.profile.as_str());
    let ledger_path = disk.folder().join("ledger.log");
    let ledger = load_until_cut(&Cut {
        disk: &disk,
        url: &url,
        after: cut_after,
        seed: dice.unit().to_bits(),
        ledger_path: &ledger_path,
    });
    victim.end();
    let ledger = ledger?;
    disk.unmount()?;
    // As the cut left it: the audit will change it.
    disk.copy_image()?;
    disk.mount()?;
    victim.start_again();
    let runtime = tokio::runtime::Runtime::new()?;
    let audit = runtime.block_on(audit::run(&url, &ledger));
    drop(runtime);
    victim.end();
    let is_loss_expected = args.profile == Profile::Fast;
    if !audit.wrong.is_empty() || (audit.lost() > 0 && !is_loss_expected) {
        clear_progress();
        for wrong in audit.wrong.iter().chain(&audit.losses).take(20) {
            eprintln!("try {number}: {wrong}");
        }
        let kept = disk.keep(&shell::repository_root().join(&args.evidence), number)?;
        eprintln!("try {number}: ledger and disk image are in {}", kept.display());
    }
    disk.unmount()?;
    Ok(audit)
}

/// One cut and what it needs.
struct Cut<'a> {
    disk: &'a Disk,
    url: &'a str,
    after: Duration,
    seed: u64,
    ledger_path: &'a Path,
}

/// Runs the load, cuts the power under it, and answers what the load had written down by then.
fn load_until_cut(cut: &Cut<'_>) -> Result<Ledger> {
    let mut child = shell::this_program()
        .args(["torture", "power-cut-load", "--url", cut.url])
        .args(["--seed", &cut.seed.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map(Killed)?;
    let stdout = child.0.stdout.take().ok_or("the load has no output")?;
    let mut log = File::create(cut.ledger_path)?;
    let mut log_of_reader = log.try_clone()?;
    let is_answered = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&is_answered);
    let reader = thread::spawn(move || read_lines(stdout, &mut log_of_reader, &told));
    let mut cut_at = Instant::now() + ANSWER_WITHIN;
    let mut has_begun = false;
    while Instant::now() < cut_at && !reader.is_finished() {
        guard::check_interrupted()?;
        if !has_begun && is_answered.load(Ordering::SeqCst) {
            has_begun = true;
            cut_at = Instant::now() + cut.after;
        }
        thread::sleep(LOOK_EVERY.min(cut_at.saturating_duration_since(Instant::now())));
    }
    let has_ended_early = reader.is_finished();
    let dark_at = Moment::now()?;
    cut.disk.cut_power()?;
    drop(child);
    let lines = reader.join().map_err(|_| "the reader of the ledger panicked")??;
    writeln!(log, "cut {dark_at:?}")?;
    let ledger = Ledger::read(lines.iter().map(String::as_str), dark_at)?;
    guard::check_interrupted()?;
    if has_ended_early {
        let why = ledger.failures.join("; ");
        return Err(format!("the load ended before the cut: {why}").into());
    }
    Ok(ledger)
}

/// Reads the load's lines to the end (which the kill brings), onto the disk that keeps its power.
fn read_lines(
    stdout: ChildStdout,
    log: &mut File,
    is_answered: &AtomicBool,
) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    let mut pipe = BufReader::new(stdout);
    loop {
        let mut line = String::new();
        if pipe.read_line(&mut line)? == 0 {
            return Ok(lines);
        }
        log.write_all(line.as_bytes())?;
        // The kill may have cut the last line in the middle. What was to be sent then was not sent,
        // and what was acknowledged is not held against the store.
        if line.pop() == Some('\n') {
            if line.starts_with(Word::AckedInsert.as_str()) {
                is_answered.store(true, Ordering::SeqCst);
            }
            lines.push(line);
        }
    }
}

/// A line that each try replaces on a terminal, a line per try elsewhere.
fn tell_progress(args: &Args, number: u32, audit: &Audit) {
    let (start, end) = if std::io::stderr().is_terminal() { (CLEAR_LINE, "") } else { ("", "\n") };
    eprint!(
        "{start}try {number} of {}: {} inserts, {} claims, {} applies acknowledged; {} lost{end}",
        args.tries,
        audit.acked_inserts,
        audit.acked_claims,
        audit.acked_applies,
        audit.lost(),
    );
}

fn clear_progress() {
    if std::io::stderr().is_terminal() {
        eprint!("{CLEAR_LINE}");
    }
}
