//! What became of references that workers took, until their broker knows.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use windlass_core::WorkerId;

/// What became of a reference that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Settled {
    /// Its tasks run.
    Claimed,
    /// All of them have ended.
    Finished,
    /// It leads nowhere.
    Gone,
    /// It is for another claim.
    Waits,
    /// Its queue is paused.
    Paused,
}

impl Settled {
    /// The word for it in scripts.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Claimed => "claimed",
            Self::Finished => "finished",
            Self::Gone => "gone",
            Self::Waits => "waits",
            Self::Paused => "paused",
        }
    }

    /// Others wait for it.
    pub(super) const fn is_urgent(self) -> bool {
        matches!(self, Self::Waits | Self::Paused)
    }
}

/// What a broker is still to be told, by worker.
#[derive(Default)]
pub(super) struct Untold(Mutex<HashMap<WorkerId, Story>>);

/// What became of references, as their broker writes them, and since when that is untold.
struct Story {
    since: Instant,
    all: Vec<(Settled, String)>,
}

impl Untold {
    /// Notes what became of references; true if all before was told.
    pub(super) fn note(
        &self,
        worker: &WorkerId,
        settled: impl IntoIterator<Item = (Settled, String)>,
    ) -> bool {
        let mut untold = self.0.lock();
        let story = untold
            .entry(worker.clone())
            .or_insert_with(|| Story { since: Instant::now(), all: Vec::new() });
        let is_first = story.all.is_empty();
        story.all.extend(settled);
        is_first
    }

    /// Takes what is to be told.
    pub(super) fn take(&self, worker: &WorkerId) -> Vec<(Settled, String)> {
        self.0.lock().remove(worker).map(|story| story.all).unwrap_or_default()
    }

    /// True when something has been untold for so long.
    pub(super) fn is_older(&self, worker: &WorkerId, age: Duration) -> bool {
        self.0.lock().get(worker).is_some_and(|story| story.since.elapsed() >= age)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_told_once_to_the_broker_of_its_worker() {
        let (untold, worker) = (Untold::default(), WorkerId::new("w"));
        assert!(untold.note(&worker, [(Settled::Claimed, "1".to_owned())]));
        assert!(!untold.note(&worker, [(Settled::Gone, "2".to_owned())]));
        assert!(untold.take(&WorkerId::new("v")).is_empty());
        assert!(untold.is_older(&worker, Duration::ZERO));
        assert!(!untold.is_older(&worker, Duration::from_secs(3_600)));
        let told = untold.take(&worker);
        assert_eq!(told, [(Settled::Claimed, "1".to_owned()), (Settled::Gone, "2".to_owned())]);
        assert!(untold.take(&worker).is_empty() && !untold.is_older(&worker, Duration::ZERO));
        assert!(untold.note(&worker, told), "kept for the next try");
    }
}
