//! Parameters and answer of `change`.

use super::read::Filter;
use crate::clock::When;
use crate::state::State;
use crate::task::TaskId;

/// What an operator wants done.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangeParams {
    /// To which tasks.
    pub target: Target,
    /// What.
    pub action: Action,
    /// Only to tasks in one of these states; to all that the action allows when empty.
    pub only_in: Vec<State>,
    /// Who wants it; kept in timelines and audit.
    pub by: Option<String>,
}

/// Which tasks a change is for.
#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    /// These, each answered.
    Tasks(Vec<TaskId>),
    /// All that match, in pieces, counted.
    Matching {
        /// What they have in common.
        filter: Filter,
        /// How many matching tasks to deal with at most in this call.
        limit: usize,
        /// Where the last piece ended.
        cursor: Option<String>,
    },
}

/// What can be done to a task from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Call it off.
    Cancel,
    /// Run it again, or now.
    Rerun,
    /// Move it to another time; one that is not in the future is due at once.
    Reschedule(When),
    /// Remove it.
    Delete,
}

impl Action {
    /// The word for it in the API and in audit documents.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Rerun => "retry",
            Self::Reschedule(_) => "snooze",
            Self::Delete => "delete",
        }
    }
}

/// What a change came to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChangeReply {
    /// For [`Target::Tasks`]: what became of each, in the order given.
    pub outcomes: Vec<Changed>,
    /// How many were changed.
    pub changed_count: u64,
    /// Of those: how many only have the request noted, since they run.
    pub requested_count: u64,
    /// For [`Target::Matching`]: where to go on; absent at the end.
    pub next_cursor: Option<String>,
}

/// What a change did to one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changed {
    /// It is done; the task is in this state now, or gone.
    Done(Option<State>),
    /// It runs; the cancel request is kept and decides when the run ends.
    Requested,
    /// Its state forbids it.
    Conflict(State),
    /// A program that is none of windlass's has it, whatever its state says; it was left alone.
    HeldElsewhere(State),
    /// There is no such task (any more).
    NotFound,
}
