//! The log: one fact per line, written by whoever saw it, each line with a single appending write.
//!
//! A fact about a call stands in the log *before* the call is made (`…-sent`) or *after* it was
//! answered (`…-acknowledged`), never in between. So a call without an answer is one that may or may
//! not have happened, and a process that dies takes no fact with it that would accuse the innocent.

use std::fmt;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use windlass_core::{Epoch, Error, Result, TaskId, Timestamp};

/// An instant of the machine's wall clock, which SQLite stores go by too, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub u64);

impl Moment {
    /// Now.
    pub fn now() -> Self {
        let passed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX))
    }

    /// As stores write instants: whole milliseconds, rounded down.
    pub fn timestamp(self) -> Timestamp {
        Timestamp::from_millis(i64::try_from(self.0 / 1_000_000).unwrap_or(i64::MAX))
    }
}

/// Stands for bytes that are too long for a line.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Digest(String);

impl Digest {
    /// Of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(blake3::hash(bytes).to_hex()[..32].to_owned())
    }
}

/// One incarnation of a process; never used again for the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessId(pub u32);

/// How a run ended, by the handler's own account.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "each says what it means")]
pub enum Outcome {
    Completed { result: Digest },
    Failed,
    Discarded,
    Snoozed,
}

/// Something that was seen. A key names a submit and everything that repeats it; each key has a
/// payload of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named by what they hold")]
pub enum Fact {
    /// A submit is about to be sent.
    SubmitSent { key: String, payload: Digest, delay_ms: u64, max_retries: u32 },
    /// It was answered with a task, new or existing.
    SubmitAcknowledged { key: String, id: TaskId },
    /// It was answered with a definite no.
    SubmitRefused { key: String },
    /// A cancel is about to be sent.
    CancelSent { id: TaskId },
    /// It was answered: cancelled at once, or asked of a task that runs.
    CancelAcknowledged { id: TaskId, is_running: bool },
    /// A removal is about to be sent.
    DeleteSent { id: TaskId },
    /// It was answered: removed.
    DeleteAcknowledged { id: TaskId },
    /// A handler has started.
    RunStarted { id: TaskId, epoch: Epoch, attempt: u32, process: ProcessId, payload: Digest },
    /// A handler is about to end.
    RunEnded { id: TaskId, epoch: Epoch, outcome: Outcome },
    /// A process was started; its role is for people.
    ProcessUp { process: ProcessId, role: String },
    /// It is about to be killed.
    ProcessKilled { process: ProcessId },
    /// It is about to be paused.
    ProcessStopped { process: ProcessId },
    /// It has been resumed.
    ProcessResumed { process: ProcessId },
    /// It is about to be asked to end.
    ProcessTerminated { process: ProcessId },
    /// It has ended; no code when a signal ended it.
    ProcessDown { process: ProcessId, code: Option<i32> },
    /// The server of the store is about to be stopped.
    StoreStopped,
    /// It answers again.
    StoreBack,
    /// Its connections are about to be cut, or something like it; what was done is for people.
    StoreAnnoyed { how: String },
    /// From here on nobody disturbs anything.
    FaultsOver,
    /// Nothing waits and nothing runs.
    Drained,
}

/// A fact and when it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// When.
    pub at: Moment,
    /// What.
    pub fact: Fact,
}

impl Line {
    /// A fact of this moment.
    pub fn now(fact: Fact) -> Self {
        Self { at: Moment::now(), fact }
    }
}

/// Everything that was seen, in the order of time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Log {
    lines: Vec<Line>,
}

impl Log {
    /// Takes lines from wherever they were written.
    pub fn new(mut lines: Vec<Line>) -> Self {
        lines.sort_by_key(|line| line.at);
        Self { lines }
    }

    /// Reads the texts of several files. What is no whole line is an error: each was one write.
    pub fn read<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        let lines = texts.into_iter().flat_map(str::lines).map(Line::from_str);
        lines.collect::<Result<_>>().map(Self::new)
    }

    /// The lines.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.at.0)?;
        match &self.fact {
            Fact::SubmitSent { key, payload, delay_ms, max_retries } => {
                write!(f, "submit-sent {key} {} {delay_ms} {max_retries}", payload.0)
            }
            Fact::SubmitAcknowledged { key, id } => write!(f, "submit-acknowledged {key} {id}"),
            Fact::SubmitRefused { key } => write!(f, "submit-refused {key}"),
            Fact::CancelSent { id } => write!(f, "cancel-sent {id}"),
            Fact::CancelAcknowledged { id, is_running } => {
                write!(f, "cancel-acknowledged {id} {is_running}")
            }
            Fact::DeleteSent { id } => write!(f, "delete-sent {id}"),
            Fact::DeleteAcknowledged { id } => write!(f, "delete-acknowledged {id}"),
            Fact::RunStarted { id, epoch, attempt, process, payload } => {
                write!(f, "run-started {id} {epoch} {attempt} {} {}", process.0, payload.0)
            }
            Fact::RunEnded { id, epoch, outcome } => match outcome {
                Outcome::Completed { result } => {
                    write!(f, "run-ended {id} {epoch} completed {}", result.0)
                }
                Outcome::Failed => write!(f, "run-ended {id} {epoch} failed"),
                Outcome::Discarded => write!(f, "run-ended {id} {epoch} discarded"),
                Outcome::Snoozed => write!(f, "run-ended {id} {epoch} snoozed"),
            },
            Fact::ProcessUp { process, role } => write!(f, "process-up {} {role}", process.0),
            Fact::ProcessKilled { process } => write!(f, "process-killed {}", process.0),
            Fact::ProcessStopped { process } => write!(f, "process-stopped {}", process.0),
            Fact::ProcessResumed { process } => write!(f, "process-resumed {}", process.0),
            Fact::ProcessTerminated { process } => write!(f, "process-terminated {}", process.0),
            Fact::ProcessDown { process, code: Some(code) } => {
                write!(f, "process-down {} {code}", process.0)
            }
            Fact::ProcessDown { process, code: None } => {
                write!(f, "process-down {} signal", process.0)
            }
            Fact::StoreStopped => f.write_str("store-stopped"),
            Fact::StoreBack => f.write_str("store-back"),
            Fact::StoreAnnoyed { how } => write!(f, "store-annoyed {how}"),
            Fact::FaultsOver => f.write_str("faults-over"),
            Fact::Drained => f.write_str("drained"),
        }
    }
}

impl FromStr for Line {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        parse(text).ok_or_else(|| Error::invalid(format!("not a line of the log: {text:?}")))
    }
}

fn parse(text: &str) -> Option<Line> {
    let words: Vec<_> = text.split(' ').collect();
    let (at, words) = words.split_first()?;
    let process = |text: &str| text.parse().ok().map(ProcessId);
    let fact = match *words {
        ["submit-sent", key, payload, delay_ms, max_retries] => Fact::SubmitSent {
            key: key.into(),
            payload: Digest(payload.into()),
            delay_ms: delay_ms.parse().ok()?,
            max_retries: max_retries.parse().ok()?,
        },
        ["submit-acknowledged", key, id] => {
            Fact::SubmitAcknowledged { key: key.into(), id: TaskId::new(id) }
        }
        ["submit-refused", key] => Fact::SubmitRefused { key: key.into() },
        ["cancel-sent", id] => Fact::CancelSent { id: TaskId::new(id) },
        ["cancel-acknowledged", id, is_running] => {
            Fact::CancelAcknowledged { id: TaskId::new(id), is_running: is_running.parse().ok()? }
        }
        ["delete-sent", id] => Fact::DeleteSent { id: TaskId::new(id) },
        ["delete-acknowledged", id] => Fact::DeleteAcknowledged { id: TaskId::new(id) },
        ["run-started", id, epoch, attempt, by, payload] => Fact::RunStarted {
            id: TaskId::new(id),
            epoch: epoch.parse().ok()?,
            attempt: attempt.parse().ok()?,
            process: process(by)?,
            payload: Digest(payload.into()),
        },
        ["run-ended", id, epoch, ref outcome @ ..] => Fact::RunEnded {
            id: TaskId::new(id),
            epoch: epoch.parse().ok()?,
            outcome: match *outcome {
                ["completed", result] => Outcome::Completed { result: Digest(result.into()) },
                ["failed"] => Outcome::Failed,
                ["discarded"] => Outcome::Discarded,
                ["snoozed"] => Outcome::Snoozed,
                _ => return None,
            },
        },
        ["process-up", it, role] => Fact::ProcessUp { process: process(it)?, role: role.into() },
        ["process-killed", it] => Fact::ProcessKilled { process: process(it)? },
        ["process-stopped", it] => Fact::ProcessStopped { process: process(it)? },
        ["process-resumed", it] => Fact::ProcessResumed { process: process(it)? },
        ["process-terminated", it] => Fact::ProcessTerminated { process: process(it)? },
        ["process-down", it, "signal"] => Fact::ProcessDown { process: process(it)?, code: None },
        ["process-down", it, code] => {
            Fact::ProcessDown { process: process(it)?, code: Some(code.parse().ok()?) }
        }
        ["store-stopped"] => Fact::StoreStopped,
        ["store-back"] => Fact::StoreBack,
        ["store-annoyed", ref how @ ..] => Fact::StoreAnnoyed { how: how.join(" ") },
        ["faults-over"] => Fact::FaultsOver,
        ["drained"] => Fact::Drained,
        _ => return None,
    };
    Some(Line { at: Moment(at.parse().ok()?), fact })
}
