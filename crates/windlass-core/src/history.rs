//! The timeline of a task: what the record remembers of the unhappy path, and how the whole story
//! is told from it.
//!
//! The happy path (submit, one claim, completion) is told by the record's own times and costs no
//! extra write. Only what went otherwise is appended.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::limits::HISTORY_ENTRIES_MAX;
use crate::state::State;
use crate::task::{Epoch, TaskRecord};
use crate::worker::WorkerId;

/// What can stand in a timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Happening {
    /// It entered the store.
    Submitted,
    /// A worker was given it.
    Claimed,
    /// A run succeeded.
    Completed,
    /// A run failed.
    Failed,
    /// A run took longer than allowed.
    TimedOut,
    /// The handler said that no retry can help.
    Discarded,
    /// Its deadline came before a run, or during one.
    DeadlinePassed,
    /// The handler asked to be run later.
    Snoozed,
    /// A likely cause of crashes had to wait for another one to end.
    PutOff,
    /// A worker gave it back unfinished.
    Released,
    /// Its worker was lost.
    Crashed,
    /// Someone asked for its cancellation while it ran.
    CancelRequested,
    /// It was cancelled.
    Cancelled,
    /// It will not run again by itself.
    DeadLetter,
    /// Someone asked to run it again, or now.
    Rerun,
    /// Someone moved it to another time.
    Rescheduled,
}

/// What a transition wants remembered; the store adds who, when and which run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// What happened.
    pub what: Happening,
    /// What the handler said of it.
    pub error: Option<String>,
}

/// One line of a timeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// What happened.
    pub what: Happening,
    /// When; the first time, where it happened often in a row.
    pub at: Timestamp,
    /// The run it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Run>,
    /// What the handler said of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Who asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Further times that it happened in a row, and the last of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again: Option<Again>,
}

/// The run that a timeline entry belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Its number against the retry budget.
    pub attempt: u32,
    /// Its fencing token.
    pub epoch: Epoch,
    /// Who ran it.
    pub worker: WorkerId,
    /// When it was claimed.
    pub claimed_at: Timestamp,
}

/// Repetitions folded into one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Again {
    /// How many more.
    pub count: u32,
    /// When last.
    pub last_at: Timestamp,
}

/// The unhappy part of a task's life, oldest first.
///
/// Bounded: snoozes, releases and waits in a row fold into one entry with a count, and beyond
/// [`HISTORY_ENTRIES_MAX`] the entries in the middle give way, since a record must not grow without
/// end while how a life began and how it goes now are what people look for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct History(Vec<Entry>);

impl History {
    /// Reads what [`History::encode`] wrote; nothing stored is an empty history.
    pub fn decode(stored: Option<&[u8]>) -> Result<Self> {
        stored.map_or_else(
            || Ok(Self::default()),
            |bytes| {
                serde_json::from_slice(bytes)
                    .map_err(|cause| Error::corrupt("read a task's history").because(cause))
            },
        )
    }

    /// The form that stores keep; nothing for an empty history.
    pub fn encode(&self) -> Option<Vec<u8>> {
        if self.0.is_empty() {
            return None;
        }
        Some(serde_json::to_vec(&self.0).expect("entries hold nothing that JSON cannot carry"))
    }

    /// The entries, oldest first.
    pub fn entries(&self) -> &[Entry] {
        &self.0
    }

    /// Appends an entry, within bounds.
    pub fn push(&mut self, entry: Entry) {
        if let Some(last) = self.0.last_mut()
            && is_repetition(last, &entry)
        {
            let count = last.again.map_or(0, |again| again.count).saturating_add(1);
            last.again = Some(Again { count, last_at: entry.at });
            last.run = entry.run;
            return;
        }
        if self.0.len() >= HISTORY_ENTRIES_MAX {
            self.0.remove(HISTORY_ENTRIES_MAX / 2);
        }
        self.0.push(entry);
    }

    /// Appends what the end of a run leaves to remember: its note, and the terminal state it led
    /// to where the note does not say so itself. Success leaves nothing; the record tells of it.
    pub fn end_run(&mut self, end: EndOfRun) {
        let EndOfRun { at, run, note, state } = end;
        let told = note.as_ref().map(|note| note.what);
        if let Some(Note { what, error }) = note {
            self.push(Entry { error, ..plain(what, at, run.clone()) });
        }
        match state {
            State::Cancelled if told != Some(Happening::Cancelled) => {
                self.push(plain(Happening::Cancelled, at, run));
            }
            State::DeadLetter => self.push(plain(Happening::DeadLetter, at, run)),
            _ => {}
        }
    }

    /// Appends what someone asked for.
    pub fn asked(&mut self, what: Happening, at: Timestamp, by: Option<String>) {
        self.push(Entry { by, ..plain(what, at, None) });
    }

    /// Appends the completion that a rerun is about to wipe from the record itself.
    pub fn keep_completion(&mut self, at: Timestamp, run: Option<Run>) {
        self.push(plain(Happening::Completed, at, run));
    }

    /// Since when a task waits for this reason alone: it was snoozed for it, and at most released in between.
    pub fn waits_since(&self, reason: &str) -> Option<Timestamp> {
        let entries = self.0.iter().rev();
        let waiting = entries.take_while(|entry| match entry.what {
            Happening::Snoozed => entry.error.as_deref() == Some(reason),
            what => what == Happening::Released,
        });
        waiting.filter(|entry| entry.what == Happening::Snoozed).last().map(|entry| entry.at)
    }

    /// The last thing that a handler said of a failure.
    pub fn last_error(&self) -> Option<&str> {
        let errors = self.0.iter().rev().filter(|entry| entry.what != Happening::Snoozed);
        errors.filter_map(|entry| entry.error.as_deref()).next()
    }

    /// Why the task waits, if something other than its handler or its retries makes it wait.
    pub fn wait_reason(&self) -> Option<&str> {
        let last = self.0.last().filter(|entry| entry.what == Happening::Snoozed);
        last.and_then(|entry| entry.error.as_deref())
    }
}

/// The end of a run, as a timeline sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndOfRun {
    /// When.
    pub at: Timestamp,
    /// Which run.
    pub run: Option<Run>,
    /// What to remember of it.
    pub note: Option<Note>,
    /// The state that the task took.
    pub state: State,
}

/// The whole story of a task, oldest first.
pub fn timeline(record: &TaskRecord) -> Vec<Entry> {
    let mut story = vec![plain(Happening::Submitted, record.created_at, None)];
    let mut epoch_told = None;
    for entry in record.history.entries() {
        if let Some(run) = &entry.run
            && epoch_told != Some(run.epoch)
        {
            epoch_told = Some(run.epoch);
            tell_claim(&mut story, run);
        }
        story.push(entry.clone());
    }
    let run = last_run(record);
    if let Some(run) = &run
        && matches!(record.state, State::Running | State::Completed)
        && epoch_told != Some(run.epoch)
    {
        tell_claim(&mut story, run);
    }
    if let (State::Completed, Some(at)) = (record.state, record.finished_at) {
        story.push(plain(Happening::Completed, at, run));
    }
    story
}

/// Adds a claim, before what was asked of the run that it began: a request bears no run of its own,
/// so that it is met before anything that tells of the claim.
fn tell_claim(story: &mut Vec<Entry>, run: &Run) {
    let is_request = |entry: &&Entry| entry.what == Happening::CancelRequested;
    let requests = story.iter().rev().take_while(is_request).count();
    let claim = plain(Happening::Claimed, run.claimed_at, Some(run.clone()));
    story.insert(story.len() - requests, claim);
}

/// The present or last run of a record.
pub fn last_run(record: &TaskRecord) -> Option<Run> {
    Some(Run {
        attempt: record.attempts,
        epoch: record.epoch?,
        worker: record.worker.clone()?,
        claimed_at: record.claimed_at?,
    })
}

fn plain(what: Happening, at: Timestamp, run: Option<Run>) -> Entry {
    Entry { what, at, run, error: None, by: None, again: None }
}

fn is_repetition(last: &Entry, next: &Entry) -> bool {
    let folds = matches!(next.what, Happening::Snoozed | Happening::PutOff | Happening::Released);
    folds && last.what == next.what && last.error == next.error && last.by == next.by
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(what: Happening, at: i64) -> Entry {
        plain(what, Timestamp::from_millis(at), None)
    }

    #[test]
    fn a_cancel_asked_of_a_run_is_told_after_the_claim_of_that_run() {
        let mut story = vec![entry(Happening::Submitted, 1), entry(Happening::CancelRequested, 3)];
        let run = Run {
            attempt: 1,
            epoch: Epoch(1),
            worker: WorkerId::new("w"),
            claimed_at: Timestamp::from_millis(2),
        };
        tell_claim(&mut story, &run);
        let told: Vec<_> = story.iter().map(|entry| entry.what).collect();
        assert_eq!(told, [Happening::Submitted, Happening::Claimed, Happening::CancelRequested]);
    }

    #[test]
    fn snoozes_in_a_row_fold_into_one_entry() {
        let mut history = History::default();
        for at in 0..1_000_000 {
            history.push(entry(Happening::Snoozed, at));
        }
        assert_eq!(history.entries().len(), 1);
        let again = history.entries()[0].again.unwrap();
        assert_eq!((again.count, again.last_at.as_millis()), (999_999, 999_999));
    }

    #[test]
    fn a_task_waits_since_it_was_first_snoozed_for_the_reason() {
        let snoozed = |reason: Option<&str>, at| Entry {
            error: reason.map(str::to_owned),
            ..entry(Happening::Snoozed, at)
        };
        let mut history = History::default();
        history.push(snoozed(Some("why"), 1));
        assert_eq!(history.waits_since("why").map(Timestamp::as_millis), Some(1));
        history.push(snoozed(None, 2));
        assert_eq!(history.waits_since("why"), None, "its handler asked for that");
        for at in [3, 4] {
            history.push(snoozed(Some("why"), at));
        }
        assert_eq!((history.wait_reason(), history.last_error()), (Some("why"), None));
        history.push(entry(Happening::Released, 5));
        history.push(snoozed(Some("why"), 6));
        assert_eq!(history.waits_since("why").map(Timestamp::as_millis), Some(3));
        assert_eq!(history.waits_since("another"), None);
        history.push(entry(Happening::Rerun, 7));
        assert_eq!(history.waits_since("why"), None);
    }

    #[test]
    fn a_long_history_keeps_its_beginning_and_its_end() {
        let mut history = History::default();
        for at in 0..5_000 {
            history.push(entry(Happening::Failed, at));
        }
        assert_eq!(history.entries().len(), HISTORY_ENTRIES_MAX);
        assert_eq!(history.entries()[0].at.as_millis(), 0);
        assert_eq!(history.entries().last().unwrap().at.as_millis(), 4_999);
    }

    #[test]
    fn a_history_reads_back_as_it_was_written() {
        let mut history = History::default();
        assert_eq!(history.encode(), None);
        history.push(Entry {
            error: Some("lone \u{fffd} and \0".into()),
            run: Some(Run {
                attempt: 2,
                epoch: Epoch(u128::MAX),
                worker: WorkerId::new("w"),
                claimed_at: Timestamp::from_millis(1),
            }),
            ..entry(Happening::Failed, 5)
        });
        let stored = history.encode().unwrap();
        assert_eq!(History::decode(Some(&stored)).unwrap(), history);
        assert!(History::decode(Some(b"{")).is_err());
    }
}
