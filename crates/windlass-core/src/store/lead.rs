//! Parameters and answers of `lead` and of the leader's duties.

use std::fmt;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::worker::WorkerId;

/// A period of leadership; the fencing token of upkeep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(pub u64);

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A step in the contest for leadership.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bid {
    /// Lead, if nobody does.
    Seek {
        /// Who.
        holder: WorkerId,
        /// For how long.
        term_length: Duration,
    },
    /// Go on leading.
    Renew {
        /// Since which term.
        term: Term,
        /// For how much longer, from now.
        term_length: Duration,
    },
    /// Stop leading, so that another may at once.
    Resign {
        /// Since which term.
        term: Term,
    },
}

/// How the contest stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leadership {
    /// The caller leads in this term.
    Leading(Term),
    /// The caller does not lead; someone else may.
    Following {
        /// Who leads.
        leader: Option<WorkerId>,
        /// No bid can succeed sooner, unless the leader resigns. Zero: the next bid may succeed.
        bid_after: Duration,
    },
}

/// A piece of upkeep, done in the name of a term.
///
/// A term below the highest that the store has seen is refused with
/// [`crate::ErrorKind::LeaseLost`] and [`crate::Reason::StaleTerm`], and nothing is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Duty {
    /// In whose name.
    pub term: Term,
    /// How many tasks or records at most.
    pub limit: usize,
}

/// What a piece of upkeep came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DutyReport {
    /// How many tasks or records were dealt with.
    pub done: u64,
    /// There is more to do at once.
    pub has_more: bool,
    /// When there will be more to do, if known.
    pub next_due: Option<Timestamp>,
    /// What could not be read: it was left where it is, or set aside among the dead letters.
    pub skipped_bad: u64,
    /// What was found half missing, or counted wrong, and was put right.
    pub repaired: u64,
}
