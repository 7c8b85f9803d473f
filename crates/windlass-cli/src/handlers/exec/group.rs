//! A command and everything that it has started: told to end, and then made to.
//!
//! The engine ends a run by dropping it, which cannot wait. So a [`Running`] that is dropped tells its
//! group to end at once and leaves the rest to a reaper in the background; [`settled`] waits for those.
//! A reaper that is itself dropped, as at the end of the runtime, kills.

use std::sync::LazyLock;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use tokio::process::Child;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

/// How often a group is asked whether it is gone: nobody tells us of children that are not ours.
const LOOK: Duration = Duration::from_millis(10);
/// How long who was killed may take to be gone; longer only while the kernel holds it.
const DEATH: Duration = Duration::from_secs(1);

static REAPERS: LazyLock<TaskTracker> = LazyLock::new(TaskTracker::new);

/// Ends when every command that was told to end has done so, or was killed for not doing so; to be
/// awaited after a worker has ended, before its process does.
pub(crate) async fn settled() {
    REAPERS.close();
    REAPERS.wait().await;
}

/// A command whose run goes on. Dropped, it is told to end.
pub(super) struct Running(Option<Group>);

impl Running {
    /// Takes charge of a child that leads a process group of its own.
    pub(super) fn new(child: Child, grace: Duration) -> Result<Self, String> {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        let id = Pid::from_raw(id.ok_or("the command has no process id")?);
        Ok(Self(Some(Group { child, id, grace, is_told: false })))
    }

    pub(super) fn child(&mut self) -> &mut Child {
        &mut self.0.as_mut().expect("taken only when it ends").child
    }

    /// Ends the whole group; if this is dropped meanwhile, a reaper goes on.
    pub(super) async fn end(&mut self) {
        if let Some(group) = &mut self.0 {
            group.end().await;
        }
        self.0 = None;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(mut group) = self.0.take() else { return };
        // What a command leaves behind in its group ends with its run too.
        if group.is_gone() {
            return;
        }
        group.tell();
        if Handle::try_current().is_ok() {
            REAPERS.spawn(async move { group.end().await });
        }
    }
}

/// The shell and its descendants, except for those that have made a group of their own.
struct Group {
    child: Child,
    id: Pid,
    grace: Duration,
    is_told: bool,
}

impl Group {
    /// Tells all of them to end.
    fn tell(&mut self) {
        if !self.is_told {
            self.is_told = true;
            let _ = killpg(self.id, Signal::SIGTERM);
        }
    }

    /// Tells all of them to end, waits, and kills who is left.
    async fn end(&mut self) {
        self.tell();
        let grace = self.grace;
        if tokio::time::timeout(grace, self.gone()).await.is_err() {
            tracing::warn!(group = %self.id, "a command did not end when told to; it is killed");
            let _ = killpg(self.id, Signal::SIGKILL);
            let _ = tokio::time::timeout(DEATH, self.gone()).await;
        }
    }

    async fn gone(&mut self) {
        let _ = self.child.wait().await;
        while !self.is_gone() {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// True when nobody of the group is left. As long as somebody is, its id cannot become another's.
    fn is_gone(&mut self) -> bool {
        if matches!(self.child.try_wait(), Ok(None)) {
            return false;
        }
        // As process 1 of a container we inherit orphans, which stay in the group until waited for.
        // Only after the shell itself: its status is for tokio.
        let group = Pid::from_raw(-self.id.as_raw());
        while let Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) =
            waitpid(group, Some(WaitPidFlag::WNOHANG))
        {}
        killpg(self.id, None) == Err(Errno::ESRCH)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.is_gone() {
            let _ = killpg(self.id, Signal::SIGKILL);
        }
    }
}
