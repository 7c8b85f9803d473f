//! A command and everything that it has started: asked to end, and then killed.
//!
//! The engine ends a run by dropping it, which cannot wait. So a [`Running`] that is dropped asks its
//! group to end at once and leaves the rest to a reaper in the background, which holds the run: its end
//! is reported, and its slot is free, when the group is gone. [`settled`] waits for all reapers. A reaper
//! that is itself dropped, as at the end of the runtime, kills.
//!
//! The shell leads the group. It is not reaped before everybody else of the group is gone: as long as it
//! is a zombie, its id cannot become another's, and a signal reaches nobody else.

use std::fs;
use std::process::{Child, ExitStatus};
use std::sync::LazyLock;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{Pid, getpgid};
use tokio::runtime::Handle;
use tokio::signal::unix::{Signal as ChildExits, SignalKind, signal};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use windlass::RunHold;

/// How often a group is asked whether it is gone: nothing reports the end of processes that are not our children.
const LOOK: Duration = Duration::from_millis(10);
/// How long a killed process may take to be gone before that is logged; the kernel holds it, as in a call to a disk.
const DEATH: Duration = Duration::from_secs(5);

static REAPERS: LazyLock<TaskTracker> = LazyLock::new(TaskTracker::new);

/// Ends when every command that was asked to end has done so, or was killed; to be awaited after a worker has
/// ended, before its process does.
pub(crate) async fn settled() {
    REAPERS.close();
    REAPERS.wait().await;
}

/// A command whose run goes on. Dropped, it is asked to end.
pub(super) struct Running(Option<Group>);

impl Running {
    /// Takes charge of a child that leads a process group of its own.
    pub(super) fn new(child: Child, grace: Duration, hold: RunHold) -> Result<Self, String> {
        let id = i32::try_from(child.id()).map_err(|_| "the command has no process id")?;
        let failed = |error| format!("listen for the end of commands: {error}");
        let exits = signal(SignalKind::child()).map_err(failed)?;
        let id = Pid::from_raw(id);
        let (asked_at, kill_by, is_reaped) = (None, None, false);
        Ok(Self(Some(Group { child, id, exits, grace, hold, asked_at, kill_by, is_reaped })))
    }

    /// The shell, for its pipes.
    pub(super) fn child(&mut self) -> &mut Child {
        &mut self.group().child
    }

    /// Waits until the shell has exited; it stays a zombie.
    pub(super) async fn exited(&mut self) {
        self.group().exited().await;
    }

    /// Ends the whole group, and answers the exit status of the shell; if this is dropped meanwhile, a reaper
    /// goes on.
    pub(super) async fn end(mut self) -> std::io::Result<ExitStatus> {
        let status = self.group().end().await;
        self.0 = None;
        status
    }

    fn group(&mut self) -> &mut Group {
        self.0.as_mut().expect("taken only when it ends")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(mut group) = self.0.take() else { return };
        group.ask();
        if Handle::try_current().is_ok() {
            REAPERS.spawn(async move { _ = group.end().await });
        }
    }
}

/// The shell and its descendants, except for those that have made a group of their own.
struct Group {
    child: Child,
    /// Of the shell and of the group.
    id: Pid,
    /// Whenever a child of this process has exited.
    exits: ChildExits,
    grace: Duration,
    /// Dropped last of all: then the run's end is reported.
    hold: RunHold,
    asked_at: Option<Instant>,
    /// Set when the lease is lost, or about to be.
    kill_by: Option<Instant>,
    is_reaped: bool,
}

impl Group {
    /// Asks all of them to end.
    fn ask(&mut self) -> Instant {
        *self.asked_at.get_or_insert_with(|| {
            let _ = killpg(self.id, Signal::SIGTERM);
            Instant::now()
        })
    }

    /// Asks all of them to end, waits, and kills who is left. Nobody is left when this ends.
    async fn end(&mut self) -> std::io::Result<ExitStatus> {
        let mut is_killed = false;
        let mut slow_at = None;
        while !self.is_gone() {
            let now = Instant::now();
            if !is_killed && now >= self.kill_at() {
                if self.hold.lease_end().is_none() {
                    tracing::warn!(group = %self.id, "a command did not end when asked to; it is killed");
                }
                let _ = killpg(self.id, Signal::SIGKILL);
                (is_killed, slow_at) = (true, Some(now + DEATH));
            }
            if slow_at.take_if(|at| now >= *at).is_some() {
                tracing::error!(group = %self.id, "a command is killed and not gone; its slot stays taken");
            }
            tokio::time::sleep(LOOK).await;
        }
        self.is_reaped = true;
        self.child.wait()
    }

    /// When who has not ended is killed: after the grace, but half-way to the instant at which another worker may
    /// run the task.
    fn kill_at(&mut self) -> Instant {
        let by_grace = self.ask() + self.grace;
        let lease_end = self.hold.lease_end();
        let by_lease = lease_end.map(|end| {
            let half_way = |now: Instant| now + end.saturating_duration_since(now) / 2;
            *self.kill_by.get_or_insert_with(|| half_way(Instant::now()))
        });
        by_lease.map_or(by_grace, |by_lease| by_lease.min(by_grace))
    }

    async fn exited(&mut self) {
        while !self.has_exited() && self.exits.recv().await.is_some() {}
    }

    /// True when the shell is a zombie. Its status stays to be read.
    fn has_exited(&self) -> bool {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        !matches!(waitid(Id::Pid(self.id), flags), Ok(WaitStatus::StillAlive))
    }

    /// True when the shell is a zombie and nobody else of the group runs.
    fn is_gone(&self) -> bool {
        self.has_exited() && !self.others().any(is_running)
    }

    /// Those of the group besides the shell.
    fn others(&self) -> impl Iterator<Item = Pid> {
        let (group, leader) = (self.id, self.id);
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let processes = processes.map(Pid::from_raw).filter(move |process| *process != leader);
        processes.filter(move |process| getpgid(Some(*process)) == Ok(group))
    }
}

/// True for a process that is no zombie. As process 1 of a container we inherit orphans: a zombie of ours is reaped.
fn is_running(process: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let is_running = stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']));
    if !is_running {
        let _ = waitpid(process, Some(WaitPidFlag::WNOHANG));
    }
    is_running
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.is_reaped {
            let _ = killpg(self.id, Signal::SIGKILL);
            let _ = self.child.try_wait();
        }
    }
}
