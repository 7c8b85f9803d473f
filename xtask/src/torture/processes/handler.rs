//! The command that `--exec` runs for each task: says that it has begun, does what its payload asks
//! for, says how it ends.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;
use windlass_core::TaskId;
use windlass_testkit::audit::{Digest, Fact, Outcome, ProcessId};

use super::journal::Journal;
use crate::Result;

/// `--exec` reads these: no retry can help, and failed.
const EXIT_DISCARD: i32 = 65;
const EXIT_FAILED: i32 = 1;
/// And this: not now, but in a while.
const EXIT_SNOOZE: i32 = 75;
pub(super) const SNOOZE: Duration = Duration::from_secs(10);

/// What the worker process is told to hand on.
#[derive(clap::Args)]
pub(crate) struct HandlerArgs {
    /// Where facts are written.
    #[arg(long)]
    folder: PathBuf,
    /// The worker's incarnation.
    #[arg(long)]
    process: u32,
}

/// What a task asks of its handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    Complete,
    FailOnce,
    FailAlways,
    Discard,
    SnoozeOnce,
}

impl Wish {
    const ALL: [Self; 5] =
        [Self::Complete, Self::FailOnce, Self::FailAlways, Self::Discard, Self::SnoozeOnce];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::FailOnce => "fail-once",
            Self::FailAlways => "fail-always",
            Self::Discard => "discard",
            Self::SnoozeOnce => "snooze-once",
        }
    }
}

/// A payload with everything that JSON readers like to mend: a number beyond 2^53, a NUL, half a
/// surrogate pair, spaces. The wish and the key that makes it the only one of its kind are in it too.
pub(super) fn payload(key: &str, wish: Wish, takes: Duration, padding: usize) -> String {
    let (wish, ms, padding) = (wish.as_str(), takes.as_millis(), "x".repeat(padding));
    format!(
        r#"{{ "key":"{key}","wish":"{wish}" , "ms":{ms},"n":9007199254740993,"odd":"\u0000\ud800","padding":"{padding}"}}"#
    )
}

/// Runs one task.
pub(crate) fn run_handler(args: &HandlerArgs) -> Result {
    let mut bytes = Vec::new();
    std::io::stdin().read_to_end(&mut bytes)?;
    let journal = Journal::open(&args.folder, "runs")?;
    let (id, epoch) = (TaskId::new(variable("TASK_ID")?), variable("EPOCH")?.parse()?);
    let attempt = variable("ATTEMPT")?.parse()?;
    journal.say(Fact::RunStarted {
        id: id.clone(),
        epoch,
        attempt,
        process: ProcessId(args.process),
        payload: Digest::of(&bytes),
    })?;
    let (wish, takes) = read_payload(&bytes)?;
    std::thread::sleep(takes);
    let is_failing = match wish {
        Wish::Complete | Wish::Discard | Wish::SnoozeOnce => false,
        Wish::FailOnce => attempt == 1,
        Wish::FailAlways => true,
    };
    // No answer of another run is the same.
    let result = json!({ "id": id, "epoch": epoch }).to_string();
    let (outcome, code) = if wish == Wish::Discard {
        (Outcome::Discarded, EXIT_DISCARD)
    } else if wish == Wish::SnoozeOnce && is_first(args, &id) {
        (Outcome::Snoozed, EXIT_SNOOZE)
    } else if is_failing {
        (Outcome::Failed, EXIT_FAILED)
    } else {
        // A worker that was killed reads it no more.
        let _ = std::io::stdout().write_all(result.as_bytes());
        (Outcome::Completed { result: Digest::of(result.as_bytes()) }, 0)
    };
    journal.say(Fact::RunEnded { id, epoch, outcome })?;
    std::process::exit(code);
}

/// Whether nobody has asked this of the task before. A snooze spends no attempt, so that these do not
/// tell.
fn is_first(args: &HandlerArgs, id: &TaskId) -> bool {
    let mark = args.folder.join(format!("snoozed-{id}"));
    std::fs::OpenOptions::new().write(true).create_new(true).open(mark).is_ok()
}

fn variable(name: &str) -> Result<String> {
    Ok(std::env::var(format!("WINDLASS_{name}")).map_err(|cause| format!("{name}: {cause}"))?)
}

/// Found by their names rather than parsed: half a surrogate pair is no text for any JSON reader.
fn read_payload(bytes: &[u8]) -> Result<(Wish, Duration)> {
    let text = String::from_utf8(bytes.to_vec())?;
    let after = |name: &str| text.split_once(name).map(|(_, rest)| rest);
    let wish = after(r#""wish":""#).and_then(|rest| rest.split('"').next());
    let wish = Wish::ALL.into_iter().find(|known| Some(known.as_str()) == wish);
    let ms = after(r#""ms":"#).and_then(|rest| rest.split(',').next()?.parse().ok());
    let (Some(wish), Some(ms)) = (wish, ms) else {
        return Err(format!("no wish in {text:?}").into());
    };
    Ok((wish, Duration::from_millis(ms)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_is_read_from_its_payload() {
        for wish in Wish::ALL {
            let takes = Duration::from_millis(12);
            let text = payload("a-key", wish, takes, 5);
            assert_eq!(read_payload(text.as_bytes()).unwrap(), (wish, takes));
        }
        assert!(read_payload(b"{}").is_err());
    }
}
