//! From where on to look for pending tasks, while dead rows are in the way.
//!
//! A claim walks its lane from the front, where the ranges that were claimed before it are dead rows.
//! Vacuum clears them, unless somebody's long transaction keeps them alive: then each claim would
//! walk over all that was claimed since. So, in that case only, a claim begins where the last one
//! ended. What comes back to an earlier place is found by a walk from the front, which is made
//! whenever a claim finds too little, and at least four times a second.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How often to look for long transactions.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Longest between two walks from the front.
const FRONT_EVERY: Duration = Duration::from_millis(250);

#[derive(Default)]
pub(super) struct Hints {
    are_used: AtomicBool,
    known: Mutex<Known>,
}

struct Known {
    /// By lane: the position where the last claim ended.
    positions: HashMap<(String, i16), i64>,
    front_at: Instant,
    looked_at: Instant,
}

impl Default for Known {
    fn default() -> Self {
        let now = Instant::now();
        Self { positions: HashMap::new(), front_at: now, looked_at: now }
    }
}

impl Hints {
    /// True once a second.
    pub(super) fn is_time_to_look(&self) -> bool {
        let mut known = self.known.lock();
        let is_time = known.looked_at.elapsed() >= LOOK_EVERY;
        if is_time {
            known.looked_at = Instant::now();
        }
        is_time
    }

    /// Says whether dead rows are in the way.
    pub(super) fn use_them(&self, are_used: bool) {
        self.are_used.store(are_used, Ordering::Relaxed);
        if !are_used {
            self.forget();
        }
    }

    /// Fills in where to begin in each lane; false when that is the front everywhere.
    pub(super) fn fill(&self, names: &[String], lanes: &[i16], hints: &mut [i64]) -> bool {
        if !self.are_used.load(Ordering::Relaxed) {
            return false;
        }
        let mut known = self.known.lock();
        if known.front_at.elapsed() >= FRONT_EVERY {
            known.front_at = Instant::now();
            known.positions.clear();
        }
        let mut are_any = false;
        for ((name, lane), hint) in names.iter().zip(lanes).zip(hints) {
            if let Some(position) = known.positions.get(&(name.clone(), *lane)) {
                *hint = *position;
                are_any = true;
            }
        }
        are_any
    }

    /// Notes that a range at this position was claimed: those before it were, too.
    pub(super) fn note(&self, name: &str, lane: i16, position: i64) {
        if !self.are_used.load(Ordering::Relaxed) {
            return;
        }
        let mut known = self.known.lock();
        let last = known.positions.entry((name.to_owned(), lane)).or_insert(position);
        *last = position.max(*last);
    }

    /// Begins at the front again.
    pub(super) fn forget(&self) {
        let mut known = self.known.lock();
        known.positions.clear();
        known.front_at = Instant::now();
    }
}
