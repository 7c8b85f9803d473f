//! What the load says that it sent and what was acknowledged to it, line by line.
//!
//! The load writes with [`Entry::line`] and [`announce`], the parent reads with [`Ledger::take`].
//! A line is written *before* a call is made and *after* it was answered, never in between.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::str::FromStr;

use windlass_core::{Epoch, State, TaskId};

use crate::Result;

/// One word of what happened to one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    SentInsert,
    AckedInsert,
    AckedClaim,
    SentApply,
    AckedApply,
    /// A worker that the load registers.
    Worker,
    /// The load had to stop.
    Failed,
}

impl Word {
    const ALL: [Self; 7] = [
        Self::SentInsert,
        Self::AckedInsert,
        Self::AckedClaim,
        Self::SentApply,
        Self::AckedApply,
        Self::Worker,
        Self::Failed,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Self::SentInsert => "sent-insert",
            Self::AckedInsert => "acked-insert",
            Self::AckedClaim => "acked-claim",
            Self::SentApply => "sent-apply",
            Self::AckedApply => "acked-apply",
            Self::Worker => "worker",
            Self::Failed => "failed",
        }
    }
}

/// A task and what was or will be made of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) id: TaskId,
    pub(super) epoch: Epoch,
    pub(super) state: State,
}

/// A line: a word and what it is about.
pub(super) fn line<'a>(word: Word, items: impl IntoIterator<Item = &'a str>) -> String {
    let mut line = String::from(word.as_str());
    for item in items {
        line.push(' ');
        line.push_str(item);
    }
    line.push('\n');
    line
}

/// A line about runs.
pub(super) fn line_of_runs<'a>(word: Word, runs: impl IntoIterator<Item = &'a Run>) -> String {
    let mut line = String::from(word.as_str());
    for Run { id, epoch, state } in runs {
        write!(line, " {id}/{epoch}/{state}").expect("a String takes all");
    }
    line.push('\n');
    line
}

/// Everything that the load said.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) sent_inserts: HashSet<TaskId>,
    pub(super) acked_inserts: HashSet<TaskId>,
    /// The load claims each task at most once.
    pub(super) acked_claims: HashMap<TaskId, Epoch>,
    pub(super) sent_applies: HashMap<TaskId, Run>,
    pub(super) acked_applies: HashMap<TaskId, Run>,
    pub(super) workers: Vec<String>,
    pub(super) failures: Vec<String>,
}

impl Ledger {
    /// Takes in one whole line.
    pub(super) fn take(&mut self, line: &str) -> Result {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let word = Word::ALL
            .into_iter()
            .find(|known| known.as_str() == word)
            .ok_or_else(|| format!("the load says {line:?}"))?;
        let items = rest.split_whitespace();
        match word {
            Word::SentInsert => self.sent_inserts.extend(items.map(TaskId::new)),
            Word::AckedInsert => self.acked_inserts.extend(items.map(TaskId::new)),
            Word::AckedClaim => {
                for item in items {
                    let run = parse_run(item)?;
                    self.acked_claims.insert(run.id, run.epoch);
                }
            }
            Word::SentApply => take_runs(&mut self.sent_applies, items)?,
            Word::AckedApply => take_runs(&mut self.acked_applies, items)?,
            Word::Worker => self.workers.extend(items.map(ToOwned::to_owned)),
            Word::Failed => self.failures.push(rest.to_owned()),
        }
        Ok(())
    }
}

fn take_runs<'a>(runs: &mut HashMap<TaskId, Run>, items: impl Iterator<Item = &'a str>) -> Result {
    for item in items {
        let run = parse_run(item)?;
        runs.insert(run.id.clone(), run);
    }
    Ok(())
}

fn parse_run(item: &str) -> Result<Run> {
    let mut parts = item.split('/');
    let (Some(id), Some(epoch), Some(state), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(format!("not a run: {item:?}").into());
    };
    Ok(Run { id: TaskId::new(id), epoch: Epoch::from_str(epoch)?, state: State::from_str(state)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let run = Run { id: TaskId::new("a"), epoch: Epoch(u128::MAX), state: State::DeadLetter };
        let mut ledger = Ledger::default();
        ledger.take(line(Word::SentInsert, ["a", "b"]).trim_end()).unwrap();
        ledger.take(line_of_runs(Word::AckedApply, [&run]).trim_end()).unwrap();
        assert_eq!(ledger.sent_inserts.len(), 2);
        assert_eq!(ledger.acked_applies[&run.id], run);
    }

    #[test]
    fn an_unknown_line_is_an_error() {
        assert!(Ledger::default().take("hello world").is_err());
        assert!(Ledger::default().take("acked-apply a/b").is_err());
    }
}
