//! What goes into a command and comes out of it, never more in memory than may be kept.

use std::io::{self, Seek, Write};
use std::process::Stdio;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{ChildStderr, ChildStdout};

use super::group::Running;

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
}

impl Output {
    pub(super) fn new(printed_max: usize, complained_max: usize) -> Self {
        Self { printed: Vec::new(), printed_max, complained: Vec::new(), complained_max }
    }

    /// All of stdout.
    pub(super) fn printed(self) -> Bytes {
        self.printed.into()
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
/// be kept.
pub(super) async fn listen(running: &mut Running, output: &mut Output) -> io::Result<bool> {
    let Output { printed, printed_max, complained, complained_max } = output;
    let child = running.child();
    let stdout = child.stdout.take().map(ChildStdout::from_std).transpose()?;
    let stderr = child.stderr.take().map(ChildStderr::from_std).transpose()?;
    let gather = async {
        let gather_printed = each(stdout, |chunk| {
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
        tokio::try_join!(gather_printed, gather_complained)
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
