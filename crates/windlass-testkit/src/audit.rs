//! The auditor: holds what a store contains after a torture against what was seen from outside.
//!
//! Its evidence is a [`Log`] that independent processes wrote while it went on (who submitted what
//! and was answered how, which run started and ended when, which process was killed when), and a
//! [`Dump`] of the store, read through the `Store` trait after everything has come to rest. It knows
//! the promises of windlass and nothing of how any store keeps them. Decisions only: nothing here
//! touches a clock, a process or a file.
//!
//! One file per kind of promise: [`submits`] (nothing lost, nothing invented, one task per key,
//! the same bytes), [`endings`] (one end, budgets, cancels), [`runs`] (epochs, overlaps, never
//! early), [`processes`] (orderly stops, the drain, counters). Where the log cannot tell, nobody is
//! accused: what is merely odd is counted in [`Counts`].

mod dump;
mod endings;
mod log;
mod processes;
mod runs;
mod story;
mod submits;

use std::time::Duration;

use serde::Serialize;
use windlass_core::TaskId;
use windlass_core::retry::Backoff;

pub use self::dump::{Dump, counter_trouble};
pub use self::log::{Digest, Fact, Line, Log, Moment, Outcome, ProcessId};
use self::story::Story;

/// The numbers of the promises, as the list of invariants has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(into = "u8")]
#[expect(missing_docs, reason = "each name is the promise in short")]
#[repr(u8)]
pub enum Invariant {
    NothingLostNothingInvented = 1,
    OneTerminalState = 2,
    EpochsIncrease = 3,
    OneValidLease = 4,
    BudgetsAreKept = 6,
    NeverEarly = 7,
    CancelledDoesNotStart = 8,
    OneTaskPerKey = 9,
    TimelineIsComplete = 12,
    CountersEqualStates = 13,
    OrderlyStop = 15,
    BytesAreIdentical = 17,
    Liveness = 19,
}

impl From<Invariant> for u8 {
    fn from(invariant: Invariant) -> Self {
        invariant as Self
    }
}

/// A promise that was not kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// Which promise.
    pub invariant: Invariant,
    /// Of which task; none when it is about the whole.
    pub task: Option<TaskId>,
    /// What was seen.
    pub what: String,
}

/// What an audit found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Findings {
    /// What happened how often.
    pub counts: Counts,
    /// The promises that were not kept.
    pub violations: Vec<Violation>,
}

/// What happened how often; a torture in which nothing happened proves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    /// Different tasks that were sent.
    pub keys: usize,
    /// Of these, acknowledged.
    pub acknowledged: usize,
    /// Of these, refused for good.
    pub refused: usize,
    /// Of these, never answered.
    pub ambiguous: usize,
    /// Of the ambiguous ones, those that are there.
    pub ambiguous_kept: usize,
    /// Tasks in the store.
    pub tasks: usize,
    /// Runs that started.
    pub runs: usize,
    /// Runs after the first of a task.
    pub reruns: usize,
    /// Completed tasks.
    pub completed: usize,
    /// Dead letters.
    pub dead_letters: usize,
    /// Cancelled tasks, those whose record was then removed not included.
    pub cancelled: usize,
    /// Acknowledged removals.
    pub deleted: usize,
    /// Runs that the store says were lost with their worker.
    pub crashes: usize,
    /// The longest time in peace after which one of these was noticed.
    pub recovery_ms_max: u64,
    /// Of these, runs of a process that nobody had touched: a machine too slow for the lease, or a
    /// fault; the log cannot tell.
    pub crashes_unexplained: usize,
    /// Runs that the store says took too long.
    pub timeouts: usize,
    /// Runs that the store says were put off by their handlers.
    pub snoozes: usize,
    /// Runs that the store says were given back.
    pub releases: usize,
    /// Pairs of runs of one task at one time, after the earlier one's worker was killed or stopped.
    pub overlaps_excused: usize,
    /// From the last fault to the last end.
    pub drain_ms: Option<u64>,
}

/// What the auditor must know of how the torture was set up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setting {
    /// The lease of the workers.
    pub lease: Duration,
    /// The backoff of tasks that bring none.
    pub backoff: Backoff,
    /// How long a handler that snoozes waits.
    pub snooze: Duration,
    /// How long the drain may take after the last fault.
    pub drain_max: Duration,
    /// How long a run of a dead worker may go unnoticed in peace.
    pub recovery_max: Duration,
}

/// Judges the evidence.
pub fn audit(log: &Log, dump: &Dump, setting: &Setting) -> Findings {
    let story = Story::tell(log);
    let mut findings = Findings::default();
    submits::check(&story, dump, &mut findings);
    endings::check(&story, dump, &mut findings);
    runs::check(&story, dump, setting, &mut findings);
    processes::check(&story, dump, setting, &mut findings);
    findings.violations.sort_by(|a, b| (a.invariant, &a.task).cmp(&(b.invariant, &b.task)));
    findings
}

impl Findings {
    fn accuse(&mut self, invariant: Invariant, task: Option<&TaskId>, what: impl Into<String>) {
        self.violations.push(Violation { invariant, task: task.cloned(), what: what.into() });
    }
}

#[cfg(test)]
mod tests;
