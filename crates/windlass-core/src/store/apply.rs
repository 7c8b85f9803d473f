//! Parameters and answer of `apply`.

use super::claim::{Claim, ClaimParams};
use crate::error::Error;
use crate::state::{State, Transition};
use crate::worker::WorkerId;

/// How runs ended.
#[derive(Debug, Clone, PartialEq)]
pub struct ApplyParams {
    /// Who reports.
    pub worker: WorkerId,
    /// The endings, decided by [`crate::state::finish`].
    pub transitions: Vec<Transition>,
    /// What to claim in the same trip.
    pub then_claim: Option<ClaimParams>,
}

/// What became of the reports, in the order given, and the next claim.
#[derive(Debug, Clone)]
pub struct ApplyReply {
    /// One for each transition.
    pub outcomes: Vec<Applied>,
    /// The answer to `then_claim`; its failure does not undo the transitions.
    pub claim: Option<Result<Claim, Error>>,
}

/// What became of one report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// It was accepted, and the task is in this state now.
    Applied(State),
    /// This lease was applied before; nothing changed.
    Already,
    /// It was not accepted.
    Refused(Refusal),
    /// It could not be recorded now, since its queue cannot be used. Nothing has changed, and the lease is still
    /// valid: report it again later.
    Unrecorded,
}

/// Why a report was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The task exists, but not under this lease any more.
    LeaseLost,
    /// There is no such task (any more).
    Gone,
}
