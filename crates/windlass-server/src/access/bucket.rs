//! The rate of a token: a bucket that fills at so many requests a second and holds as many.

use std::time::Duration;

use tokio::time::Instant;

/// How many requests may come now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bucket {
    left: f64,
    at: Instant,
}

impl Bucket {
    /// A full one.
    pub(crate) fn full(rate: u32, now: Instant) -> Self {
        Self { left: f64::from(rate), at: now }
    }

    /// Takes one request out; or says after how long there will be one.
    pub(crate) fn take(&mut self, rate: u32, now: Instant) -> Result<(), Duration> {
        let rate = f64::from(rate.max(1));
        let gained = now.saturating_duration_since(self.at).as_secs_f64() * rate;
        self.left = (self.left + gained).min(rate);
        self.at = now;
        if self.left < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - self.left) / rate));
        }
        self.left -= 1.0;
        Ok(())
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
