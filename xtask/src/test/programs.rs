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

use super::Summary;
use crate::artifact::{self, Artifact};
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
const LONGEST: Duration = Duration::from_secs(30 * 60);
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

/// What the tests need.
pub(super) struct Built {
    /// Those that take long first.
    pub(super) programs: Vec<Program>,
    /// The product.
    pub(super) product: PathBuf,
}

/// Builds the tests of all crates, and with them the product.
pub(super) fn build() -> Result<Built> {
    let mut child = shell::cargo()
        .args(["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let stdout = child.stdout.take().ok_or("cargo test has no output")?;
    let (mut programs, mut product) = (Vec::new(), None);
    for line in BufReader::new(stdout).lines() {
        let Some(artifact) = artifact::parse(&line?) else { continue };
        programs.extend(program(&artifact));
        product = product.or_else(|| artifact.product());
    }
    if !child.wait()?.success() {
        return Err("the tests cannot be built".into());
    }
    let place = |program: &Program| SLOW.iter().position(|name| *name == program.name);
    programs.sort_by_key(|program| place(program).unwrap_or(SLOW.len()));
    Ok(Built { programs, product: product.ok_or("cargo built no windlass")? })
}

/// The program of tests that cargo speaks of, if it is one.
fn program(artifact: &Artifact) -> Option<Program> {
    let folder = artifact.manifest_path.parent()?.to_path_buf();
    let path = artifact.executable.clone().filter(|_| artifact.profile.test)?;
    Some(Program { name: artifact.target.name.clone(), folder, path })
}

/// Runs them all, and adds up what they say.
pub(super) fn run(programs: Vec<Program>) -> Result<Summary> {
    let left = Mutex::new(VecDeque::from(programs));
    let lane = || {
        let mut summary = Summary::default();
        loop {
            let next = left.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(program) = next else { return summary };
            match program.run() {
                Ok(its) => summary += its,
                Err(error) => {
                    let told = format!("{}: {}", program.name, shell::chain(error.as_ref()));
                    println!("{told}");
                    summary.complaints.push(told);
                }
            }
        }
    };
    thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES).map(|_| scope.spawn(lane)).collect();
        let mut summary = Summary::default();
        for lane in lanes {
            summary += lane.join().map_err(|_| "a lane of the tests panicked")?;
        }
        Ok(summary)
    })
}

impl Program {
    /// Runs it to its end, and answers what it says of its tests.
    fn run(&self) -> Result<Summary> {
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
        let heading = format!("{folder}, {}: {ending}, after {seconds} s", self.name);
        println!("{heading}\n{text}");
        Ok(Summary::of(&heading, &text, status.is_some_and(|status| status.success())))
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
    use crate::artifact::tests::BUILT;

    #[test]
    fn a_program_is_found_in_what_cargo_says() {
        let found = program(&artifact::parse(BUILT).unwrap()).unwrap();
        assert_eq!((found.name.as_str(), found.folder.to_str()), ("windlass", Some("/w/some")));
        assert_eq!(found.path.to_str(), Some("/w/windlass-1"));
    }

    #[test]
    fn what_is_no_test_program_is_left_out() {
        assert!(artifact::parse(r#"{"reason":"build-finished","success":true}"#).is_none());
        for (word, other) in [("\"test\":true", "\"test\":false"), ("\"/w/windlass-1\"", "null")] {
            assert!(program(&artifact::parse(&BUILT.replace(word, other)).unwrap()).is_none());
        }
    }

    fn shell_program(path: &str) -> Program {
        Program { name: String::from("x"), folder: PathBuf::from("/"), path: PathBuf::from(path) }
    }

    #[test]
    fn a_program_that_fails_or_is_not_there_is_complained_of_by_name() {
        let summary = run(vec![shell_program("/bin/true")]).unwrap();
        assert_eq!(summary, Summary::default());
        for path in ["/bin/false", "/no/such/program"] {
            let summary = run(vec![shell_program("/bin/true"), shell_program(path)]).unwrap();
            let [complaint] = &summary.complaints[..] else { panic!("{summary:?}") };
            assert!(complaint.contains("x: "), "{complaint}");
        }
    }
}
