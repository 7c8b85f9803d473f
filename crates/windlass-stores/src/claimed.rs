//! What a claim has leased, as stores pass it on before they add their mark.

use windlass_core::Claimed;
use windlass_core::store::{Claim, WakeMark};

/// Tasks that a claim has leased.
#[derive(Debug, Default)]
pub(crate) struct ClaimedTasks {
    pub(crate) tasks: Vec<Claimed>,
    /// Part of the claim had no answer: more may be leased.
    pub(crate) is_cut_short: bool,
}

impl ClaimedTasks {
    pub(crate) fn into_claim(self, mark: WakeMark) -> Claim {
        let Self { tasks, is_cut_short } = self;
        Claim { tasks, mark, is_cut_short }
    }
}
