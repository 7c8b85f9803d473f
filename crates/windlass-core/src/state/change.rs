//! What an operator may do to a task in each state.

use super::table::State;

/// What a cancel comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelVerdict {
    /// It is cancelled at once.
    AtOnce,
    /// It runs: the request is kept and decides when the run ends.
    Request,
    /// It is finished; there is nothing to cancel.
    Finished,
}

/// What a rerun comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RerunVerdict {
    /// It starts over: attempts and crashes from zero.
    StartOver,
    /// It runs now instead of later, counters unchanged.
    RunNow,
    /// It waits or runs already.
    Refused,
}

/// Judges a cancel.
pub const fn cancel(state: State) -> CancelVerdict {
    match state {
        State::Scheduled | State::Pending | State::Retrying => CancelVerdict::AtOnce,
        State::Running => CancelVerdict::Request,
        State::Completed | State::DeadLetter | State::Cancelled => CancelVerdict::Finished,
    }
}

/// Judges a rerun.
pub const fn rerun(state: State) -> RerunVerdict {
    match state {
        State::Completed | State::DeadLetter | State::Cancelled => RerunVerdict::StartOver,
        State::Scheduled | State::Retrying => RerunVerdict::RunNow,
        State::Pending | State::Running => RerunVerdict::Refused,
    }
}

/// True when a task in this state may be moved to another time.
pub const fn reschedule(state: State) -> bool {
    matches!(state, State::Scheduled | State::Pending | State::Retrying)
}

/// True when a task in this state may be deleted.
pub const fn delete(state: State) -> bool {
    !matches!(state, State::Running)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{Cause, is_allowed};

    #[test]
    fn every_verdict_agrees_with_the_table() {
        for state in State::ALL {
            let allowed = |to, by| is_allowed(Some(state), to, by);
            let cancelled = allowed(Some(State::Cancelled), Cause::Cancel);
            assert_eq!(cancel(state) == CancelVerdict::AtOnce, cancelled, "{state}");
            let rerun_allowed = allowed(Some(State::Pending), Cause::Rerun);
            assert_eq!(rerun(state) != RerunVerdict::Refused, rerun_allowed, "{state}");
            assert_eq!(reschedule(state), allowed(Some(State::Scheduled), Cause::Reschedule));
            assert_eq!(delete(state), allowed(None, Cause::Delete), "{state}");
        }
    }
}
