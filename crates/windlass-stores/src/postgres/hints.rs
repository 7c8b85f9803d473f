//! From where on to look for pending tasks, while dead rows are in the way.
//!
//! A claim walks its lane from the front, where the ranges that were claimed before it are dead rows.
//! Vacuum clears them, unless somebody's long transaction keeps them alive: then each claim would
//! walk over all that was claimed since. So, in that case only, a claim begins where the last one
//! ended. What comes back to an earlier place is found by a walk from the front, which is made
//! whenever a claim finds too little, and now and then: four times a second, or less often when such a
//! walk has become dear.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How often to look for long transactions.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// From one walk from the front to the next: at least this, and so long that these walks take no more
/// than a twentieth of the time, but never longer than what comes back may be kept waiting.
const FRONT_EVERY_MIN: Duration = Duration::from_millis(250);
const FRONT_EVERY_MAX: Duration = Duration::from_secs(5);
const FRONT_PAUSE: u32 = 20;

#[derive(Default)]
pub(super) struct Hints {
    are_used: AtomicBool,
    known: Mutex<Known>,
}

struct Known {
    /// By lane: the position where the last claim ended.
    positions: HashMap<(String, i16), i64>,
    front_at: Instant,
    /// How long the last walk from the front took.
    front_took: Duration,
    looked_at: Instant,
}

impl Default for Known {
    fn default() -> Self {
        let now = Instant::now();
        Self {
            positions: HashMap::new(),
            front_at: now,
            front_took: Duration::ZERO,
            looked_at: now,
        }
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
        let pause = (known.front_took * FRONT_PAUSE).clamp(FRONT_EVERY_MIN, FRONT_EVERY_MAX);
        if known.front_at.elapsed() >= pause {
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

    /// Notes how long a walk from the front took.
    pub(super) fn walked_from_front(&self, took: Duration) {
        if self.are_used.load(Ordering::Relaxed) {
            self.known.lock().front_took = took;
        }
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
