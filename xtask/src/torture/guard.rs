//! What keeps a torture from leaving anything behind: children that end with their owner, and
//! interrupts that let owners end.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};

use crate::{Result, shell};

/// Set by SIGINT and SIGTERM, so that guards get to run.
static IS_INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Turns SIGINT and SIGTERM into a flag. Must run before any thread is started: each inherits what
/// is blocked.
pub(crate) fn listen_for_interrupts() -> Result {
    let signals = interrupts();
    signals.thread_block()?;
    thread::spawn(move || {
        if signals.wait().is_ok() {
            IS_INTERRUPTED.store(true, Ordering::SeqCst);
        }
    });
    Ok(())
}

/// An error once somebody has asked this process to end.
pub(crate) fn check_interrupted() -> Result {
    if IS_INTERRUPTED.load(Ordering::SeqCst) {
        return Err("interrupted".into());
    }
    Ok(())
}

fn interrupts() -> SigSet {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    signals
}

/// A child that does not outlive its owner.
pub(crate) struct Killed(pub(crate) Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to kill.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The hidden command behind [`tethered`].
#[derive(clap::Args)]
pub(crate) struct TetheredArgs {
    /// The process that it must not outlive.
    #[arg(long)]
    parent: i32,
    /// The program and its arguments.
    #[arg(last = true, required = true)]
    words: Vec<String>,
}

/// A command that the kernel kills when the thread that starts it ends, even by `kill -9`. By way of
/// this program, which asks for that and then becomes the other one: asking between fork and exec
/// would take unsafe code.
pub(crate) fn tethered(program: &str) -> Command {
    let mut command = shell::this_program();
    command.args([
        "torture",
        "tethered",
        "--parent",
        &std::process::id().to_string(),
        "--",
        program,
    ]);
    // Ctrl-C in a terminal is for the owner, who then ends its children in its own way.
    command.process_group(0);
    command
}

/// Becomes the command; returns only when that fails.
pub(crate) fn run_tethered(args: &TetheredArgs) -> Result {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    if nix::unistd::getppid().as_raw() != args.parent {
        return Err("the owner is gone already".into());
    }
    // What the owner blocks is inherited, also beyond this, and a server must hear SIGTERM.
    interrupts().thread_unblock()?;
    let (program, rest) = args.words.split_first().ok_or("no program")?;
    Err(Command::new(program).args(rest).exec().into())
}
