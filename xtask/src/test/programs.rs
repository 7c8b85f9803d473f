//! Test programs: built by cargo in one go, then run two at a time, since most of them wait more than
//! they work. Each one's output is printed in one piece when it ends.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::{Tally, parse_result};
use crate::{Result, shell};

/// Programs that run at the same time.
const LANES: usize = 2;
/// Begun first, the longest before the others: whatever is begun last should be short.
const SLOW: [&str; 8] = [
    "conformance",
    "examples",
    "sequences",
    "worker_processes",
    "handler_zoo",
    "mistakes",
    "redis_outages",
    "postgres_outages",
];
/// A program that runs for so long stands still.
const LONGEST: Duration = Duration::from_secs(20 * 60);
/// How often a program is asked whether it has ended.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// A program of tests.
#[derive(Debug)]
pub(super) struct Program {
    name: String,
    /// Of its package; tests find their files from there.
    folder: PathBuf,
    path: PathBuf,
}

/// What cargo says of a thing that it has built.
#[derive(Deserialize)]
struct Artifact {
    manifest_path: PathBuf,
    target: Target,
    profile: Profile,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Builds the tests of all crates, and answers the programs, those that take long first.
pub(super) fn build() -> Result<Vec<Program>> {
    let mut child = shell::cargo()
        .args(["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let stdout = child.stdout.take().ok_or("cargo test has no output")?;
    let mut programs = Vec::new();
    for line in BufReader::new(stdout).lines() {
        programs.extend(program(&line?));
    }
    if !child.wait()?.success() {
        return Err("the tests cannot be built".into());
    }
    let place = |program: &Program| SLOW.iter().position(|name| *name == program.name);
    programs.sort_by_key(|program| place(program).unwrap_or(SLOW.len()));
    Ok(programs)
}

/// The program in a line of cargo's, if it is about one.
fn program(line: &str) -> Option<Program> {
    let artifact: Artifact = serde_json::from_str(line).ok()?;
    let folder = artifact.manifest_path.parent()?.to_path_buf();
    let path = artifact.executable.filter(|_| artifact.profile.test)?;
    Some(Program { name: artifact.target.name, folder, path })
}

/// Runs them all, and adds up what they say. Also answers whether each of them was satisfied.
pub(super) fn run(programs: Vec<Program>) -> Result<(Tally, bool)> {
    let left = Mutex::new(VecDeque::from(programs));
    let lane = || {
        let (mut tally, mut is_all_fine) = (Tally::default(), true);
        loop {
            let next = left.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(program) = next else { return (tally, is_all_fine) };
            match program.run() {
                Ok((its, is_fine)) => {
                    tally += its;
                    is_all_fine &= is_fine;
                }
                Err(error) => {
                    println!("{}: {}", program.name, shell::chain(error.as_ref()));
                    is_all_fine = false;
                }
            }
        }
    };
    thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES).map(|_| scope.spawn(lane)).collect();
        let (mut tally, mut is_all_fine) = (Tally::default(), true);
        for lane in lanes {
            let (its, is_fine) = lane.join().map_err(|_| "a lane of the tests panicked")?;
            tally += its;
            is_all_fine &= is_fine;
        }
        Ok((tally, is_all_fine))
    })
}

impl Program {
    /// Runs it to its end, and answers what it says of its tests and whether it was satisfied.
    fn run(&self) -> Result<(Tally, bool)> {
        // A file, not a pipe: what a test has left running must not hold up who reads.
        let mut output = tempfile::tempfile()?;
        let began = Instant::now();
        let status = self.wait(&output)?;
        let seconds = began.elapsed().as_secs();
        let ending = match status {
            Some(status) => format!("{status}"),
            None => String::from("stood still and was killed"),
        };
        output.rewind()?;
        let mut text = Vec::new();
        output.read_to_end(&mut text)?;
        // Tests may print anything; what is no text still has to come through.
        let text = String::from_utf8_lossy(&text);
        let folder = self.folder.file_name().unwrap_or_default().to_string_lossy();
        println!("{folder}, {}: {ending}, after {seconds} s\n{text}", self.name);
        let mut tally = Tally::default();
        text.lines().filter_map(parse_result).for_each(|result| tally += result);
        Ok((tally, status.is_some_and(|status| status.success())))
    }

    /// How it ended; nothing when it did not and was killed.
    fn wait(&self, output: &File) -> Result<Option<ExitStatus>> {
        let mut child = Command::new(&self.path)
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output.try_clone()?)
            .spawn()?;
        let began = Instant::now();
        while began.elapsed() < LONGEST {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(status));
            }
            thread::sleep(ASK_EVERY);
        }
        child.kill()?;
        child.wait()?;
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUILT: &str = r#"{"reason":"compiler-artifact","manifest_path":"/w/some/Cargo.toml",
        "target":{"kind":["test"],"name":"tour"},"profile":{"test":true},"executable":"/w/tour-1"}"#;

    #[test]
    fn a_program_is_found_in_what_cargo_says() {
        let found = program(BUILT).unwrap();
        assert_eq!((found.name.as_str(), found.folder.to_str()), ("tour", Some("/w/some")));
        assert_eq!(found.path.to_str(), Some("/w/tour-1"));
    }

    #[test]
    fn what_is_no_test_program_is_left_out() {
        assert!(program(r#"{"reason":"build-finished","success":true}"#).is_none());
        assert!(program(&BUILT.replace("\"test\":true", "\"test\":false")).is_none());
        assert!(program(&BUILT.replace("\"/w/tour-1\"", "null")).is_none());
    }

    fn shell_program(path: &str) -> Program {
        Program { name: String::from("x"), folder: PathBuf::from("/"), path: PathBuf::from(path) }
    }

    #[test]
    fn a_program_that_fails_or_is_not_there_is_not_satisfied() {
        let (tally, is_fine) = run(vec![shell_program("/bin/true")]).unwrap();
        assert!(is_fine && tally == Tally::default());
        for path in ["/bin/false", "/no/such/program"] {
            assert!(!run(vec![shell_program("/bin/true"), shell_program(path)]).unwrap().1);
        }
    }
}
