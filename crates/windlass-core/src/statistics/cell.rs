//! What happened to the tasks of one queue and kind within a stretch of time.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::sketch::Sketch;
use crate::state::State;

/// Counts and durations. What is zero or empty takes no room in the text.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cell {
    /// Tasks that were submitted.
    #[serde(rename = "s", skip_serializing_if = "is_zero")]
    pub submitted: u64,
    /// Runs that ended well.
    #[serde(rename = "c", skip_serializing_if = "is_zero")]
    pub completed: u64,
    /// Runs that did not, whatever came after.
    #[serde(rename = "f", skip_serializing_if = "is_zero")]
    pub failed: u64,
    /// Of those: will be tried again.
    #[serde(rename = "r", skip_serializing_if = "is_zero")]
    pub retried: u64,
    /// Of those: became dead letters.
    #[serde(rename = "d", skip_serializing_if = "is_zero")]
    pub dead: u64,
    /// Runs that were called off.
    #[serde(rename = "x", skip_serializing_if = "is_zero")]
    pub cancelled: u64,
    /// How long tasks were pending before a worker took them.
    #[serde(rename = "w", skip_serializing_if = "Sketch::is_empty")]
    pub wait: Sketch,
    /// How long handlers ran, whatever came of it.
    #[serde(rename = "t", skip_serializing_if = "Sketch::is_empty")]
    pub run: Sketch,
}

impl Cell {
    /// Counts a run by the state that its end has led to.
    pub fn ended(&mut self, state: State, took: Option<Duration>) {
        match state {
            // These runs do not count: their tasks wait again, as before.
            State::Pending | State::Scheduled | State::Running => return,
            State::Completed => self.completed += 1,
            State::Retrying => {
                self.failed += 1;
                self.retried += 1;
            }
            State::DeadLetter => {
                self.failed += 1;
                self.dead += 1;
            }
            State::Cancelled => self.cancelled += 1,
        }
        if let Some(took) = took {
            self.run.add(took);
        }
    }

    /// Counts everything that another has counted.
    pub fn merge(&mut self, other: &Self) {
        for (sum, count) in [
            (&mut self.submitted, other.submitted),
            (&mut self.completed, other.completed),
            (&mut self.failed, other.failed),
            (&mut self.retried, other.retried),
            (&mut self.dead, other.dead),
            (&mut self.cancelled, other.cancelled),
        ] {
            *sum = sum.saturating_add(count);
        }
        self.wait.merge(&other.wait);
        self.run.merge(&other.run);
    }

    /// Tasks that will not run again by themselves: they have left their queue.
    pub const fn finished(&self) -> u64 {
        self.completed.saturating_add(self.dead).saturating_add(self.cancelled)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_is_counted_as_what_it_is() {
        let mut cell = Cell::default();
        for state in State::ALL {
            cell.ended(state, Some(Duration::from_millis(5)));
        }
        let counts = (cell.completed, cell.failed, cell.retried, cell.dead, cell.cancelled);
        assert_eq!(counts, (1, 2, 1, 1, 1));
        assert_eq!(cell.run.count(), 4, "runs that do not count have no time");
        assert_eq!(cell.finished(), 3);
    }

    #[test]
    fn what_is_zero_takes_no_room() {
        let cell = Cell { completed: 3, ..Cell::default() };
        assert_eq!(serde_json::to_string(&cell).unwrap(), r#"{"c":3}"#);
        assert_eq!(serde_json::from_str::<Cell>(r#"{"c":3}"#).unwrap(), cell);
    }

    #[test]
    fn counts_at_the_top_of_their_range_are_cut() {
        let most = Cell { completed: u64::MAX, dead: 1, ..Cell::default() };
        let mut sum = most.clone();
        sum.merge(&most);
        assert_eq!((sum.completed, sum.dead, sum.finished()), (u64::MAX, 2, u64::MAX));
    }
}
