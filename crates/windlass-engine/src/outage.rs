//! Outages of the store: one line in the log when one begins and one when it ends, however many calls fail meanwhile.
//!
//! Every call passes through [`crate::metrics::Watched`], which reports its result here. The roles log their own
//! failures with [`warn_unless_outage!`]: at DEBUG while the store does not answer, since that is said already.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use windlass_core::{Error, Result};

use crate::hush::Hush;

/// Calls whose success proves that the store answers. Others may be answered from memory, or by a broker.
const PROOFS: [&str; 6] = ["apply", "beat", "get", "insert", "inspect", "lead"];

/// Events may take another way than tasks, by a broker for example.
const LIVE_ONLY: &str = "publish";

/// Logs an error of the store, given as the first argument: as a warning, or at DEBUG when the store does not answer.
macro_rules! warn_unless_outage {
    ($error:expr, $($event:tt)+) => {{
        let error: &windlass_core::Error = &$error;
        match error.is_outage() {
            true => tracing::debug!(error = error.chain(), $($event)+),
            false => tracing::warn!(error = error.chain(), $($event)+),
        }
    }};
}
pub(crate) use warn_unless_outage;

/// Whether the store answers, as far as calls of this process show.
#[derive(Default)]
pub(crate) struct Outage {
    /// Spares successful calls the lock.
    is_on: AtomicBool,
    current: Mutex<Option<Current>>,
    hush: Hush,
}

struct Current {
    since: Instant,
    failed_calls: u64,
    /// Its beginning was logged, so its end is, too.
    is_logged: bool,
}

impl Outage {
    /// Notes the result of a call that began at this moment.
    pub(crate) fn note<T>(&self, store: &str, op: &str, began: Instant, result: &Result<T>) {
        match result {
            Err(error) if error.is_outage() && op != LIVE_ONLY => self.failed(store, op, error),
            Ok(_) if self.is_on.load(Ordering::Relaxed) && PROOFS.contains(&op) => {
                self.answered(store, began);
            }
            Ok(_) | Err(_) => {}
        }
    }

    fn failed(&self, store: &str, op: &str, error: &Error) {
        let mut current = self.current.lock();
        if let Some(current) = &mut *current {
            current.failed_calls += 1;
            return;
        }
        // Of a connection that breaks again and again, a line now and then is enough.
        let is_logged = self.hush.allows("outage");
        *current = Some(Current { since: Instant::now(), failed_calls: 1, is_logged });
        self.is_on.store(true, Ordering::Relaxed);
        if is_logged {
            tracing::warn!(store, op, error = error.chain(), "the store does not answer");
        }
    }

    fn answered(&self, store: &str, began: Instant) {
        let mut current = self.current.lock();
        // A call from before the outage proves nothing: its answer may have been on its way.
        let Some(ended) = current.take_if(|current| began > current.since) else { return };
        self.is_on.store(false, Ordering::Relaxed);
        if ended.is_logged {
            let (outage_s, failed_calls) = (seconds(ended.since.elapsed()), ended.failed_calls);
            tracing::info!(store, outage_s, failed_calls, "the store answers again");
        }
    }
}

/// Seconds with three decimals, as the API has them.
fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1_000.0).round() / 1_000.0
}

#[cfg(test)]
mod tests {
    use windlass_core::ErrorKind;

    use super::*;

    fn away() -> Result<()> {
        Err(Error::new(ErrorKind::Unavailable, "claim from postgres"))
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_lasts_until_a_call_that_began_later_is_answered() {
        let outage = Outage::default();
        let before = Instant::now();
        tokio::time::advance(Duration::from_secs(1)).await;
        outage.note("postgres", "claim", before, &away());
        outage.note("postgres", "beat", before, &away());
        let failed = |outage: &Outage| outage.current.lock().as_ref().map(|it| it.failed_calls);
        assert_eq!(failed(&outage), Some(2));
        tokio::time::advance(Duration::from_secs(1)).await;
        outage.note("postgres", "beat", before, &Ok(()));
        outage.note("postgres", "reserve", Instant::now(), &Ok(()));
        let refused: Result<()> = Err(Error::invalid("payload"));
        outage.note("postgres", "beat", Instant::now(), &refused);
        assert_eq!(failed(&outage), Some(2), "none of these proves anything");
        outage.note("postgres", "beat", Instant::now(), &Ok(()));
        assert_eq!(failed(&outage), None);
        assert!(!outage.is_on.load(Ordering::Relaxed));
    }
}
