//! The store's clock, as far as it is known here: by its time all that is stored is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use windlass_core::{Clock, Timestamp};

pub(crate) struct StoreClock {
    wall: Arc<dyn Clock>,
    /// How far it is ahead of the clock on the wall.
    ahead_ms: AtomicI64,
}

impl StoreClock {
    pub(crate) fn new(wall: Arc<dyn Clock>) -> Self {
        Self { wall, ahead_ms: AtomicI64::new(0) }
    }

    /// Notes what the store's clock shows.
    pub(crate) fn hear(&self, now: Timestamp) {
        let ahead = now.as_millis().saturating_sub(self.wall.now().as_millis());
        self.ahead_ms.store(ahead, Ordering::Relaxed);
    }

    pub(crate) fn now(&self) -> Timestamp {
        let ahead = self.ahead_ms.load(Ordering::Relaxed);
        Timestamp::from_millis(self.wall.now().as_millis().saturating_add(ahead))
    }
}
