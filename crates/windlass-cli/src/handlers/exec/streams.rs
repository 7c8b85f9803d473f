//! What goes into a command and comes out of it, never more in memory than may be kept.

use std::io::{self, Seek, Write};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::unix::pipe::Receiver;
use tokio::process::{ChildStderr, ChildStdout};
use windlass::Context;

use super::group::Running;
use super::reports::Reports;

/// How long after the shell's end its pipes may stay open. What the shell wrote is there by then; who
/// still holds them is a process that it has left behind.
const MOMENT: Duration = Duration::from_millis(500);
/// How much is read at once: as much as a pipe holds.
const CHUNK: usize = 64 * 1024;

/// What a command has written.
pub(super) struct Output {
    printed: Vec<u8>,
    printed_max: usize,
    complained: Vec<u8>,
    complained_max: usize,
    pub(super) reports: Reports,
}

impl Output {
    pub(super) fn new(printed_max: usize, complained_max: usize) -> Self {
        let (printed, complained) = (Vec::new(), Vec::new());
        Self {
            printed,
            printed_max,
            complained,
            complained_max,
            reports: Reports::new(printed_max),
        }
    }

    /// The result: what was reported as such, else all of stdout.
    pub(super) fn result(self) -> Bytes {
        self.reports.result.unwrap_or_else(|| self.printed.into())
    }

    /// The end of stderr.
    pub(super) fn complained(&self) -> &[u8] {
        let surplus = self.complained.len().saturating_sub(self.complained_max);
        &self.complained[surplus..]
    }
}

/// The payload as a file without a name, to be read from its beginning. Not a pipe: a command whose
/// worker was killed would find the end of its input too early, and go on with half a payload.
pub(super) fn input(payload: &[u8]) -> io::Result<Stdio> {
    let mut file = tempfile::tempfile()?;
    file.write_all(payload)?;
    file.rewind()?;
    Ok(file.into())
}

/// Gathers the output of a command until the shell has exited; false as soon as it has printed more than may
/// be kept and has not reported another result.
pub(super) async fn listen(
    running: &mut Running,
    output: &mut Output,
    pipe: Receiver,
    cx: &Context<()>,
) -> io::Result<bool> {
    let Output { printed, printed_max, complained, complained_max, reports } = output;
    let has_result = AtomicBool::new(false);
    let child = running.child();
    let stdout = child.stdout.take().map(ChildStdout::from_std).transpose()?;
    let stderr = child.stderr.take().map(ChildStderr::from_std).transpose()?;
    let gather = async {
        let gather_printed = each(stdout, |chunk| {
            // With a result of its own, what it prints is for people.
            if has_result.load(Ordering::Relaxed) {
                printed.clear();
                return true;
            }
            printed.extend_from_slice(chunk);
            printed.len() <= *printed_max
        });
        let gather_complained = each(stderr, |chunk| {
            complained.extend_from_slice(chunk);
            if complained.len() > 2 * *complained_max {
                complained.drain(..complained.len() - *complained_max);
            }
            true
        });
        let gather_reports = async {
            let note_result = || has_result.store(true, Ordering::Relaxed);
            reports.read(pipe, *printed_max, cx, note_result).await;
            Ok(())
        };
        tokio::try_join!(gather_printed, gather_complained, gather_reports)
    };
    tokio::pin!(gather);
    let mut is_gathered = false;
    loop {
        tokio::select! {
            () = running.exited() => break,
            all = &mut gather, if !is_gathered => match all {
                Ok(_) => is_gathered = true,
                Err(TooMuch) => return Ok(false),
            },
        }
    }
    let is_too_much =
        !is_gathered && matches!(tokio::time::timeout(MOMENT, gather).await, Ok(Err(TooMuch)));
    Ok(!is_too_much)
}

struct TooMuch;

/// Reads a pipe to its end, as long as the chunks are taken.
async fn each(
    pipe: Option<impl AsyncRead + Unpin>,
    mut take: impl FnMut(&[u8]) -> bool,
) -> Result<(), TooMuch> {
    let Some(mut pipe) = pipe else { return Ok(()) };
    let mut chunk = vec![0; CHUNK];
    // A pipe that cannot be read has nothing more to say.
    while let Ok(count @ 1..) = pipe.read(&mut chunk).await {
        if !take(&chunk[..count]) {
            return Err(TooMuch);
        }
    }
    Ok(())
}
