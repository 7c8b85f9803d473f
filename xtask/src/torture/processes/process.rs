//! The processes under attack: started, disturbed and ended here, each deed written down before it
//! is done.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use windlass_testkit::audit::{Fact, ProcessId};

use super::ground::Ground;
use super::load::QUEUES;
use super::{HEARTBEAT, LEADER_RENEWAL, LEASE, SWEEP};
use crate::Result;
use crate::artifact;
use crate::torture::guard::{self, Killed};

use super::journal::Journal;

/// What a process is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Server and worker in one.
    Dev,
    Serve,
    Worker,
    /// A worker that reaches its tasks over HTTP.
    PullWorker,
}

impl Role {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Dev => "dev",
            Self::Serve => "serve",
            Self::Worker => "worker",
            Self::PullWorker => "pull-worker",
        }
    }

    const fn command(self) -> &'static str {
        match self {
            Self::Dev => "dev",
            Self::Serve => "serve",
            Self::Worker | Self::PullWorker => "worker",
        }
    }

    pub(super) const fn is_server(self) -> bool {
        matches!(self, Self::Dev | Self::Serve)
    }

    fn arguments(self, command: &str, port: u16) -> Vec<String> {
        let mut words: Vec<String> = vec![self.command().into()];
        if self.is_server() {
            words.extend(["--port".into(), port.to_string()]);
        }
        if self != Self::Serve {
            words.extend(["--exec", command].map(Into::into));
        }
        if matches!(self, Self::Worker | Self::PullWorker) {
            words.extend(["--concurrency", "10"].map(Into::into));
            for (queue, weight) in QUEUES {
                words.extend(["--queue".into(), format!("{queue}={weight}")]);
            }
        }
        words
    }
}

/// What all processes have in common.
pub(super) struct Yard {
    pub(super) binary: PathBuf,
    pub(super) folder: PathBuf,
    /// The store of all of them.
    pub(super) ground: Box<dyn Ground>,
    pub(super) journal: Arc<Journal>,
    pub(super) serial: AtomicU32,
    /// Where its server listens; 0 is any port, another one at each start.
    pub(super) port: u16,
}

impl Yard {
    pub(super) fn start(&self, role: Role) -> Result<Process> {
        let id = ProcessId(self.serial.fetch_add(1, Ordering::Relaxed));
        // By way of /proc: a build may replace the file of this program meanwhile.
        let command = format!(
            "exec /proc/{}/exe torture handler --folder '{}' --process {}",
            std::process::id(),
            self.folder.display(),
            id.0
        );
        let words = self.folder.join(format!("{}-{}.log", role.as_str(), id.0));
        let log = File::create(&words)?;
        let seconds = |time: Duration| format!("{}ms", time.as_millis());
        self.journal.say(Fact::ProcessUp { process: id, role: role.as_str().into() })?;
        let child = guard::tethered(&self.binary.to_string_lossy())
            .args(role.arguments(&command, self.port))
            .args(self.place(role))
            .current_dir(&self.folder)
            .env("WINDLASS_WORKER_LEASE", seconds(LEASE))
            .env("WINDLASS_WORKER_HEARTBEAT", seconds(HEARTBEAT))
            .env("WINDLASS_UPKEEP_SWEEP", seconds(SWEEP))
            .env("WINDLASS_UPKEEP_LEADER_TERM", seconds(LEASE))
            .env("WINDLASS_UPKEEP_LEADER_RENEWAL", seconds(LEADER_RENEWAL))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let journal = Arc::clone(&self.journal);
        Ok(Process { role, id, child: Killed(child), journal, words, is_down: false })
    }

    /// Where a process finds the tasks.
    fn place(&self, role: Role) -> Vec<String> {
        if role == Role::PullWorker {
            return vec!["--server".into(), format!("http://127.0.0.1:{}", self.port)];
        }
        let brokers = self.ground.brokers().into_iter();
        let brokers = brokers.flat_map(|broker| ["--broker".into(), broker]);
        ["--store".into(), self.ground.url()].into_iter().chain(brokers).collect()
    }
}

/// One incarnation; killed when dropped.
pub(super) struct Process {
    pub(super) role: Role,
    id: ProcessId,
    child: Killed,
    journal: Arc<Journal>,
    /// What it says on its terminal.
    words: PathBuf,
    is_down: bool,
}

impl Process {
    pub(super) fn kill(&mut self) -> Result {
        self.journal.say(Fact::ProcessKilled { process: self.id })?;
        self.signal(Signal::SIGKILL)?;
        self.child().wait()?;
        self.look().map(drop)
    }

    pub(super) fn pause(&self) -> Result {
        self.journal.say(Fact::ProcessStopped { process: self.id })?;
        self.signal(Signal::SIGSTOP)
    }

    pub(super) fn resume(&self) -> Result {
        self.signal(Signal::SIGCONT)?;
        self.journal.say(Fact::ProcessResumed { process: self.id })
    }

    /// Asks it to end; [`Process::look`] tells when it has.
    pub(super) fn terminate(&self) -> Result {
        self.journal.say(Fact::ProcessTerminated { process: self.id })?;
        self.signal(Signal::SIGTERM)
    }

    /// Whether it has ended, which is written down once.
    pub(super) fn look(&mut self) -> Result<bool> {
        if !self.is_down
            && let Some(status) = self.child().try_wait()?
        {
            self.is_down = true;
            self.journal.say(Fact::ProcessDown { process: self.id, code: status.code() })?;
        }
        Ok(self.is_down)
    }

    /// Where it listens, once it has said so.
    pub(super) fn port(&self) -> Option<u16> {
        port_in(&std::fs::read_to_string(&self.words).ok()?)
    }

    /// Whether it has said anything.
    pub(super) fn has_spoken(&self) -> bool {
        std::fs::metadata(&self.words).is_ok_and(|words| words.len() > 0)
    }

    /// The last that it said.
    pub(super) fn last_words(&self) -> String {
        let text = std::fs::read_to_string(&self.words).unwrap_or_default();
        let lines: Vec<_> = text.lines().rev().take(5).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    fn child(&mut self) -> &mut Child {
        &mut self.child.0
    }

    fn signal(&self, signal: Signal) -> Result {
        let pid = Pid::from_raw(i32::try_from(self.child.0.id())?);
        // It may have ended by itself a moment ago; not yet waited for, its pid is still its own.
        if !self.is_down {
            kill(pid, signal)?;
        }
        Ok(())
    }
}

fn port_in(text: &str) -> Option<u16> {
    let (_, rest) = text.split_once("http://127.0.0.1:")?;
    let end = rest.find(|c: char| !c.is_ascii_digit())?;
    rest[..end].parse().ok()
}

/// Builds the program under attack and answers where it is.
pub(super) fn build(profile: super::Profile) -> Result<PathBuf> {
    let mut cargo = crate::shell::cargo();
    cargo.args(["build", "--quiet", "--package", "windlass-cli", "--message-format", "json"]);
    if profile == super::Profile::Release {
        cargo.arg("--release");
    }
    let messages = crate::shell::output(cargo.stderr(Stdio::inherit()))?;
    messages
        .lines()
        .find_map(|line| artifact::parse(line)?.product())
        .ok_or_else(|| "cargo built no windlass".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_read_once_it_is_whole() {
        assert_eq!(port_in("listening on http://127.0.0.1:8080\n"), Some(8080));
        assert_eq!(port_in("listening on http://127.0.0.1:80"), None);
        assert_eq!(port_in("nothing"), None);
    }
}
