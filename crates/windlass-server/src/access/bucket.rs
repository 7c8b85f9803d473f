//! The rate of a token: a bucket that fills at so many a second and holds so many.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::caller::Caller;

/// How many may come now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bucket {
    left: f64,
    at: Instant,
}

impl Bucket {
    /// A full one.
    pub(crate) fn full(capacity: u32, now: Instant) -> Self {
        Self { left: f64::from(capacity), at: now }
    }

    /// Takes one request out of a bucket that holds one second's worth; or says after how long there will be one.
    pub(crate) fn take(&mut self, rate: u32, now: Instant) -> Result<(), Duration> {
        let rate = f64::from(rate.max(1));
        self.take_of(rate, rate, now)
    }

    fn take_of(&mut self, capacity: f64, rate: f64, now: Instant) -> Result<(), Duration> {
        let gained = now.saturating_duration_since(self.at).as_secs_f64() * rate;
        self.left = (self.left + gained).min(capacity);
        self.at = now;
        if self.left < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - self.left) / rate));
        }
        self.left -= 1.0;
        Ok(())
    }
}

/// What each caller may do so many times a minute. Those without a token are one caller.
pub(crate) struct Allowance {
    per_minute: u32,
    /// By the token's id. There are no more of these than tokens.
    buckets: Mutex<HashMap<String, Bucket>>,
}

impl Allowance {
    pub(crate) fn new(per_minute: u32) -> Self {
        Self { per_minute: per_minute.max(1), buckets: Mutex::default() }
    }

    /// Takes one; or says after how long there will be one.
    pub(crate) fn take(&self, caller: &Caller) -> Result<(), Duration> {
        let (mut buckets, now) = (self.buckets.lock(), Instant::now());
        let full = || Bucket::full(self.per_minute, now);
        let bucket = buckets.entry(caller.token_id().to_owned()).or_insert_with(full);
        let capacity = f64::from(self.per_minute);
        bucket.take_of(capacity, capacity / 60.0, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_of_one_second_passes_and_then_the_rate() {
        let start = Instant::now();
        let mut bucket = Bucket::full(2, start);
        assert_eq!(bucket.take(2, start), Ok(()));
        assert_eq!(bucket.take(2, start), Ok(()));
        assert_eq!(bucket.take(2, start), Err(Duration::from_millis(500)));
        let later = start + Duration::from_millis(500);
        assert_eq!(bucket.take(2, later), Ok(()));
        assert!(bucket.take(2, later).is_err());
        let much_later = start + Duration::from_secs(3_600);
        assert_eq!(bucket.take(2, much_later), Ok(()));
        assert_eq!(bucket.take(2, much_later), Ok(()));
        assert!(bucket.take(2, much_later).is_err(), "it holds one second's worth");
    }
}
