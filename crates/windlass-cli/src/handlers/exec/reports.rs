//! What a command reports while it runs: lines on its file descriptor 3.
//!
//! | line | meaning |
//! |---|---|
//! | `progress FRACTION [NOTE]` | how far the run has come, from 0 to 1 |
//! | `result JSON` | the result, in place of the standard output |
//! | `snooze DURATION` | after this, not after 10 s, the task runs again if the command exits with 75 |
//!
//! The last line of a sort counts. The worker ignores any other line, and logs the first such line of a run.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, Command};
use std::time::Duration;

use bytes::Bytes;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use parking_lot::Mutex;
use serde::de::IgnoredAny;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use windlass::Context;
use windlass::core::duration;
use windlass::core::limits::clip;

/// The descriptor, as commands know it.
pub(super) const DESCRIPTOR: u32 = 3;
/// Names the descriptor to commands.
pub(super) const VARIABLE: &str = "WINDLASS_CONTROL_FD";
/// What stands before the result in its line, with room to spare.
const PREFIX_BYTES_MAX: usize = 64;
/// Longest note.
const NOTE_BYTES_MAX: usize = 128;
/// How much is read at once.
const CHUNK: usize = 16 * 1024;
/// How much of a malformed line is logged.
const SHOWN_BYTES_MAX: usize = 200;

/// While a pipe can be inherited no other command is started, which would hold it open.
static INHERITING: Mutex<()> = Mutex::new(());

/// What a line says.
#[derive(Debug, Clone, PartialEq)]
enum Report {
    Progress { fraction: f64, note: String },
    Result(Bytes),
    Snooze(Duration),
}

/// Everything that a command has reported and that counts at its end.
#[derive(Debug)]
pub(super) struct Reports {
    pub(super) result: Option<Bytes>,
    pub(super) snooze: Option<Duration>,
    /// A result was longer than may be kept.
    pub(super) is_result_too_long: bool,
    lines: Lines,
    has_warned: bool,
}

/// Lines of bounded length. Of a longer one only the beginning is kept.
#[derive(Debug)]
struct Lines {
    line: Vec<u8>,
    line_bytes_max: usize,
    is_too_long: bool,
}

/// A line, whole or cut.
struct Line<'a> {
    text: &'a [u8],
    is_cut: bool,
}

/// Starts `sh -c` with a pipe as its descriptor 3; answers the end to read from.
///
/// The descriptor is inherited under another number, since nothing safe renumbers it between fork and exec. So the
/// shell itself opens it as 3.
pub(super) fn spawn(shell: &mut Command, command: &str) -> io::Result<(Child, Receiver)> {
    let (reader, writer) = io::pipe()?;
    let (receiver, writer) = (Receiver::from_owned_fd(reader.into())?, OwnedFd::from(writer));
    let number = writer.as_raw_fd();
    shell.args(["-c", &format!("exec {DESCRIPTOR}>/proc/self/fd/{number}; {command}")]);
    let inheriting = INHERITING.lock();
    fcntl(&writer, FcntlArg::F_SETFD(FdFlag::empty()))?;
    let child = shell.spawn();
    drop(writer);
    drop(inheriting);
    Ok((child?, receiver))
}

impl Reports {
    pub(super) fn new(result_bytes_max: usize) -> Self {
        let line_bytes_max = result_bytes_max.saturating_add(PREFIX_BYTES_MAX);
        let lines = Lines { line: Vec::new(), line_bytes_max, is_too_long: false };
        let (result, snooze) = (None, None);
        Self { result, snooze, is_result_too_long: false, lines, has_warned: false }
    }

    /// Reads lines until nobody can write any more. Calls `has_result` with the first result.
    pub(super) async fn read(
        &mut self,
        mut pipe: Receiver,
        result_bytes_max: usize,
        cx: &Context<()>,
        mut has_result: impl FnMut(),
    ) {
        let mut chunk = vec![0; CHUNK];
        // A pipe that cannot be read has nothing more to say.
        while let Ok(count @ 1..) = pipe.read(&mut chunk).await {
            let mut rest = &chunk[..count];
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                self.lines.add(&rest[..end]);
                self.take_line(result_bytes_max, cx, &mut has_result).await;
                rest = &rest[end + 1..];
            }
            self.lines.add(rest);
        }
        if !self.lines.line.is_empty() {
            self.take_line(result_bytes_max, cx, &mut has_result).await;
        }
    }

    async fn take_line(
        &mut self,
        result_bytes_max: usize,
        cx: &Context<()>,
        has_result: &mut impl FnMut(),
    ) {
        let report = parse(&self.lines.whole(), result_bytes_max);
        match report {
            Ok(Report::Progress { fraction, note }) => cx.progress(fraction, &note).await,
            Ok(Report::Result(result)) => {
                self.result = Some(result);
                has_result();
            }
            Ok(Report::Snooze(delay)) => self.snooze = Some(delay),
            Err(Malformed::ResultTooLong) => self.is_result_too_long = true,
            Err(Malformed::Unknown) if !self.has_warned => {
                self.has_warned = true;
                let line = String::from_utf8_lossy(&self.lines.line);
                let (task, line) = (cx.task_id(), clip(&line, SHOWN_BYTES_MAX));
                tracing::warn!(%task, line, "a line on descriptor 3 is malformed and ignored");
            }
            Err(Malformed::Unknown) => {}
        }
        self.lines.clear();
    }
}

impl Lines {
    fn add(&mut self, part: &[u8]) {
        let room = self.line_bytes_max - self.line.len();
        self.is_too_long |= part.len() > room;
        self.line.extend_from_slice(&part[..part.len().min(room)]);
    }

    fn whole(&self) -> Line<'_> {
        Line { text: &self.line, is_cut: self.is_too_long }
    }

    fn clear(&mut self) {
        self.line.clear();
        self.is_too_long = false;
    }
}

/// Why a line does not count.
#[derive(Debug, PartialEq, Eq)]
enum Malformed {
    Unknown,
    ResultTooLong,
}

fn parse(line: &Line<'_>, result_bytes_max: usize) -> Result<Report, Malformed> {
    let text = line.text.trim_ascii();
    let word_end = text.iter().position(u8::is_ascii_whitespace).unwrap_or(text.len());
    let (word, rest) = text.split_at(word_end);
    let rest = rest.trim_ascii();
    match word {
        b"result" if line.is_cut || rest.len() > result_bytes_max => Err(Malformed::ResultTooLong),
        _ if line.is_cut => Err(Malformed::Unknown),
        b"progress" => progress(rest).ok_or(Malformed::Unknown),
        b"result" => match serde_json::from_slice::<IgnoredAny>(rest) {
            Ok(_) => Ok(Report::Result(Bytes::copy_from_slice(rest))),
            Err(_) => Err(Malformed::Unknown),
        },
        b"snooze" => {
            let delay = std::str::from_utf8(rest).ok().and_then(|text| duration::parse(text).ok());
            delay.map(Report::Snooze).ok_or(Malformed::Unknown)
        }
        _ => Err(Malformed::Unknown),
    }
}

fn progress(text: &[u8]) -> Option<Report> {
    let text = String::from_utf8_lossy(text);
    let (fraction, note) = text.split_once(char::is_whitespace).unwrap_or((&text, ""));
    let fraction = fraction.parse().ok().filter(|fraction| (0.0..=1.0).contains(fraction))?;
    Some(Report::Progress { fraction, note: clip(note.trim(), NOTE_BYTES_MAX).to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESULT_BYTES_MAX: usize = 20;

    fn check(line: &str, expected: Result<Report, Malformed>) {
        let line = Line { text: line.as_bytes(), is_cut: false };
        assert_eq!(parse(&line, RESULT_BYTES_MAX), expected);
    }

    fn progress(fraction: f64, note: &str) -> Result<Report, Malformed> {
        Ok(Report::Progress { fraction, note: note.into() })
    }

    #[test]
    fn each_sort_of_line_is_read() {
        check("progress 0.4 page 4 of 10", progress(0.4, "page 4 of 10"));
        check("  progress\t1\r", progress(1.0, ""));
        check(&format!("progress 0 {}", "é".repeat(100)), progress(0.0, &"é".repeat(64)));
        check("result {\"a\": 1.50}", Ok(Report::Result("{\"a\": 1.50}".into())));
        check("result null", Ok(Report::Result("null".into())));
        check("snooze 5m", Ok(Report::Snooze(Duration::from_secs(300))));
        check("snooze 0.5", Ok(Report::Snooze(Duration::from_millis(500))));
    }

    #[test]
    fn anything_else_is_malformed() {
        for line in [
            "",
            "progress",
            "progress 1.1",
            "progress NaN",
            "progress half",
            "result",
            "result {",
            "result 1 2",
            "snooze",
            "snooze -5s",
            "snooze soon",
            "results 1",
            "hello",
        ] {
            check(line, Err(Malformed::Unknown));
        }
    }

    #[test]
    fn a_result_over_its_size_is_not_ignored() {
        check(
            &format!("result \"{}\"", "x".repeat(18)),
            Ok(Report::Result(format!("\"{}\"", "x".repeat(18)).into())),
        );
        check(&format!("result \"{}\"", "x".repeat(19)), Err(Malformed::ResultTooLong));
        let cut = Line { text: b"result \"xx", is_cut: true };
        assert_eq!(parse(&cut, RESULT_BYTES_MAX), Err(Malformed::ResultTooLong));
        let cut = Line { text: b"progress 0.5", is_cut: true };
        assert_eq!(parse(&cut, RESULT_BYTES_MAX), Err(Malformed::Unknown));
    }

    #[test]
    fn lines_are_bounded() {
        let mut lines = Lines { line: Vec::new(), line_bytes_max: 4, is_too_long: false };
        lines.add(b"ab");
        lines.add(b"cde");
        assert!(lines.is_too_long && lines.line == b"abcd");
        lines.add(b"f");
        assert_eq!(lines.line, b"abcd");
        lines.clear();
        lines.add(b"wxyz");
        assert!(!lines.whole().is_cut);
    }
}
