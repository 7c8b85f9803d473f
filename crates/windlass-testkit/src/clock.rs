//! A wall clock that follows tokio's time, which tests pause and move.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use windlass_core::{Clock, ManualClock, Timestamp};

/// Starts in the morning of 2026-01-01 and then goes as tokio's clock goes. With paused time a store
/// and a worker that share it move together, by `tokio::time::sleep` and nothing else.
#[derive(Debug)]
pub struct TokioClock {
    base: Timestamp,
    started: Instant,
    /// How far it was set ahead by hand, in ms.
    jumped_ms: AtomicI64,
}

impl TokioClock {
    /// A clock that begins now.
    pub fn new() -> Self {
        let base = ManualClock::default().now();
        Self { base, started: Instant::now(), jumped_ms: AtomicI64::new(0) }
    }

    /// Sets the clock ahead, as an operator or a time server does: tokio's time stays as it is.
    pub fn jump(&self, by: Duration) {
        let millis = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        self.jumped_ms.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        let passed = i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX);
        let jumped = self.jumped_ms.load(Ordering::SeqCst);
        Timestamp::from_millis(self.base.as_millis() + passed + jumped)
    }
}
