//! Claims of one worker that are under way at the same time. What lies in its list of taken references
//! belongs to one of them, unless there is only one.

use std::collections::HashMap;

use parking_lot::Mutex;
use windlass_core::WorkerId;

#[derive(Default)]
pub(super) struct Turns {
    under_way: Mutex<HashMap<WorkerId, usize>>,
}

/// A claim under way.
pub(super) struct Turn<'t> {
    turns: &'t Turns,
    worker: WorkerId,
    /// No other claim of the worker was under way when it began.
    pub(super) is_alone: bool,
}

impl Turns {
    /// Begins a claim; it ends when the answer is dropped.
    pub(super) fn begin(&self, worker: &WorkerId) -> Turn<'_> {
        let mut under_way = self.under_way.lock();
        let count = under_way.entry(worker.clone()).or_default();
        *count += 1;
        Turn { turns: self, worker: worker.clone(), is_alone: *count == 1 }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut under_way = self.turns.under_way.lock();
        if let Some(count) = under_way.get_mut(&self.worker) {
            *count -= 1;
            if *count == 0 {
                under_way.remove(&self.worker);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_of_several_claims_is_alone() {
        let (turns, worker) = (Turns::default(), WorkerId::new("w"));
        let first = turns.begin(&worker);
        assert!(first.is_alone && !turns.begin(&worker).is_alone);
        assert!(turns.begin(&WorkerId::new("v")).is_alone, "others have their own");
        drop(first);
        assert!(turns.begin(&worker).is_alone);
    }
}
