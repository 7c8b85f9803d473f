//! The states and the table of transitions, as data.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Where a task is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Waits for its time.
    Scheduled = 0,
    /// Waits for a worker.
    Pending = 1,
    /// A worker holds its lease.
    Running = 2,
    /// Failed, and waits for its next run.
    Retrying = 3,
    /// Succeeded.
    Completed = 4,
    /// Will not run again by itself.
    DeadLetter = 5,
    /// Called off.
    Cancelled = 6,
}

impl State {
    /// Every state.
    pub const ALL: [Self; 7] = [
        Self::Scheduled,
        Self::Pending,
        Self::Running,
        Self::Retrying,
        Self::Completed,
        Self::DeadLetter,
        Self::Cancelled,
    ];

    /// The states that only a rerun, delete or prune leaves.
    pub const TERMINAL: [Self; 3] = [Self::Completed, Self::DeadLetter, Self::Cancelled];

    /// The states of tasks that wait.
    pub const WAITING: [Self; 3] = [Self::Scheduled, Self::Pending, Self::Retrying];

    /// The name in API, events and stores.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Retrying => "retrying",
            Self::Completed => "completed",
            Self::DeadLetter => "dead_letter",
            Self::Cancelled => "cancelled",
        }
    }

    /// The number that stores keep.
    pub const fn as_number(self) -> u8 {
        self as u8
    }

    /// The state of a stored number.
    pub fn from_number(number: i64) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|state| i64::from(state.as_number()) == number)
            .ok_or_else(|| Error::corrupt(format!("state number {number}")))
    }

    /// True for [`State::TERMINAL`].
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::DeadLetter | Self::Cancelled)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for State {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|state| state.as_str()).collect();
            Error::invalid(format!("state {text:?}: use one of {}", names.join(", ")))
        })
    }
}

/// What moves a task from one state to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// A client submits it.
    Submit,
    /// Its time has come.
    Promote,
    /// A worker takes it.
    Claim,
    /// Its worker reports how the run ended.
    Apply,
    /// Its worker gave it back, or does not know of it.
    Release,
    /// Its worker is lost.
    Expire,
    /// Someone calls it off.
    Cancel,
    /// Someone runs it again, or now.
    Rerun,
    /// Someone moves it to another time.
    Reschedule,
    /// Someone removes it.
    Delete,
    /// Its retention is over.
    Prune,
}

impl Cause {
    /// The word in tables and diagrams.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Submit => "submit",
            Self::Promote => "promote",
            Self::Claim => "claim",
            Self::Apply => "apply",
            Self::Release => "release",
            Self::Expire => "expire",
            Self::Cancel => "cancel",
            Self::Rerun => "rerun",
            Self::Reschedule => "reschedule",
            Self::Delete => "delete",
            Self::Prune => "prune",
        }
    }
}

/// One allowed transition; `None` is the outside: not there yet, or gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Where from.
    pub from: Option<State>,
    /// Where to.
    pub to: Option<State>,
    /// By what.
    pub by: Cause,
    /// When this row applies.
    pub note: &'static str,
}

const fn row(from: Option<State>, to: Option<State>, by: Cause, note: &'static str) -> Row {
    Row { from, to, by, note }
}

const SCHEDULED: Option<State> = Some(State::Scheduled);
const PENDING: Option<State> = Some(State::Pending);
const RUNNING: Option<State> = Some(State::Running);
const RETRYING: Option<State> = Some(State::Retrying);
const COMPLETED: Option<State> = Some(State::Completed);
const DEAD: Option<State> = Some(State::DeadLetter);
const CANCELLED: Option<State> = Some(State::Cancelled);

/// Every transition there is.
pub const TABLE: &[Row] = &[
    row(None, PENDING, Cause::Submit, "its time is not in the future"),
    row(None, SCHEDULED, Cause::Submit, "its time is in the future"),
    row(SCHEDULED, PENDING, Cause::Promote, "time reached, never early"),
    row(RETRYING, PENDING, Cause::Promote, "time reached, never early"),
    row(PENDING, RUNNING, Cause::Claim, "new epoch, attempt + 1"),
    row(RUNNING, COMPLETED, Cause::Apply, "succeeded"),
    row(RUNNING, RETRYING, Cause::Apply, "failed or timed out, retries left"),
    row(RUNNING, DEAD, Cause::Apply, "last attempt failed, discarded, or past its deadline"),
    row(RUNNING, SCHEDULED, Cause::Apply, "snoozed or put off, attempt given back"),
    row(RUNNING, PENDING, Cause::Apply, "released, attempt given back"),
    row(RUNNING, CANCELLED, Cause::Apply, "cancelled, or ended otherwise than well under a cancel"),
    row(RUNNING, PENDING, Cause::Release, "the worker left or never got it, attempt given back"),
    row(RUNNING, CANCELLED, Cause::Release, "the same under a cancel"),
    row(RUNNING, PENDING, Cause::Expire, "worker lost, crash + 1, attempt given back"),
    row(RUNNING, DEAD, Cause::Expire, "worker lost, past max_crashes"),
    row(RUNNING, CANCELLED, Cause::Expire, "worker lost under a cancel"),
    row(SCHEDULED, CANCELLED, Cause::Cancel, "at once"),
    row(PENDING, CANCELLED, Cause::Cancel, "at once"),
    row(RETRYING, CANCELLED, Cause::Cancel, "at once"),
    row(SCHEDULED, PENDING, Cause::Rerun, "now, counters unchanged"),
    row(RETRYING, PENDING, Cause::Rerun, "now, counters unchanged"),
    row(COMPLETED, PENDING, Cause::Rerun, "attempts and crashes start again"),
    row(DEAD, PENDING, Cause::Rerun, "attempts and crashes start again"),
    row(CANCELLED, PENDING, Cause::Rerun, "attempts and crashes start again"),
    row(SCHEDULED, SCHEDULED, Cause::Reschedule, ""),
    row(PENDING, SCHEDULED, Cause::Reschedule, ""),
    row(RETRYING, SCHEDULED, Cause::Reschedule, ""),
    row(SCHEDULED, None, Cause::Delete, "keys released, on record"),
    row(PENDING, None, Cause::Delete, "keys released, on record"),
    row(RETRYING, None, Cause::Delete, "keys released, on record"),
    row(COMPLETED, None, Cause::Delete, "keys released, on record"),
    row(DEAD, None, Cause::Delete, "keys released, on record"),
    row(CANCELLED, None, Cause::Delete, "keys released, on record"),
    row(COMPLETED, None, Cause::Prune, "retention over"),
    row(CANCELLED, None, Cause::Prune, "retention over"),
];

/// True when [`TABLE`] has such a row.
pub fn is_allowed(from: Option<State>, to: Option<State>, by: Cause) -> bool {
    TABLE.iter().any(|row| row.from == from && row.to == to && row.by == by)
}

/// The table as a Mermaid state diagram with a Markdown table beneath it, for the docs.
pub fn diagram() -> String {
    let mermaid = |state: Option<State>| state.map_or("[*]", State::as_str);
    let mut edges: Vec<(Option<State>, Option<State>, Vec<&str>)> = Vec::new();
    for row in TABLE {
        match edges.iter_mut().find(|edge| (edge.0, edge.1) == (row.from, row.to)) {
            Some(edge) => edge.2.push(row.by.as_str()),
            None => edges.push((row.from, row.to, vec![row.by.as_str()])),
        }
    }
    let mut page = String::from("```mermaid\nstateDiagram-v2\n");
    for (from, to, causes) in &edges {
        let (from, to, causes) = (mermaid(*from), mermaid(*to), causes.join(", "));
        page.push_str(&format!("    {from} --> {to}: {causes}\n"));
    }
    page.push_str("```\n\n| from | to | by | when |\n|---|---|---|---|\n");
    let cell = |state: Option<State>, outside| {
        state.map_or(String::from(outside), |state| format!("`{state}`"))
    };
    for row in TABLE {
        let (from, to) = (cell(row.from, "–"), cell(row.to, "gone"));
        page.push_str(&format!("| {from} | {to} | {} | {} |\n", row.by.as_str(), row.note));
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_row_stands_twice() {
        for (index, row) in TABLE.iter().enumerate() {
            let again = TABLE[index + 1..]
                .iter()
                .any(|other| (other.from, other.to, other.by) == (row.from, row.to, row.by));
            assert!(!again, "{row:?}");
        }
    }

    #[test]
    fn terminal_states_are_left_only_by_rerun_delete_and_prune() {
        for row in TABLE.iter().filter(|row| row.from.is_some_and(State::is_terminal)) {
            assert!(matches!(row.by, Cause::Rerun | Cause::Delete | Cause::Prune), "{row:?}");
        }
    }

    #[test]
    fn numbers_and_names_lead_back_to_their_state() {
        for state in State::ALL {
            assert_eq!(State::from_number(i64::from(state.as_number())).unwrap(), state);
            assert_eq!(state.as_str().parse::<State>().unwrap(), state);
        }
        assert!(State::from_number(7).is_err());
    }

    /// Set `WINDLASS_BLESS=1` to write the page anew.
    #[test]
    fn the_page_in_docs_shows_this_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/life-cycle.md");
        let head = include_str!("life-cycle.head.md");
        let page = format!("{head}\n{}", diagram());
        if std::env::var_os("WINDLASS_BLESS").is_some() {
            std::fs::write(path, &page).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(
            committed, page,
            "run the test with WINDLASS_BLESS=1 and commit docs/life-cycle.md"
        );
    }
}
