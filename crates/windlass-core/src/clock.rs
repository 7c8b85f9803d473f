//! Time: an instant of the store's clock, a delay that the store turns into one, and the clocks
//! that stores without a server read.

mod conversions;

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Error, Result};

/// An instant with millisecond resolution, counted from the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The present instant by this machine's clock. Stores go by their own: use a delay where a task is to run later,
    /// and `Context::now` in a handler.
    pub fn now() -> Self {
        SystemClock.now()
    }

    /// The latest instant that can be written everywhere, two days before the year 10000; later ones are cut to it.
    pub const MAX: Self = Self(253_402_128_000_000);

    /// The instant this many milliseconds after the Unix epoch.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// This instant moved later by a duration, cut at [`Timestamp::MAX`]; a fraction of a
    /// millisecond counts as a whole one, so that nothing is ever early.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        let millis = i64::try_from(delay.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX);
        Self(self.0.saturating_add(millis).min(Self::MAX.0))
    }

    /// This instant moved earlier by a duration.
    #[must_use]
    pub fn before(self, delay: Duration) -> Self {
        let millis = i64::try_from(delay.as_millis()).unwrap_or(i64::MAX);
        Self(self.0.saturating_sub(millis))
    }

    /// Time passed from `earlier` to this instant; zero when it lies ahead.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC with three decimals.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(instant) => write!(f, "{instant:.3}"),
            Err(_) => write!(f, "{} ms", self.0),
        }
    }
}

impl FromStr for Timestamp {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let instant: jiff::Timestamp = text.parse().map_err(|cause| {
            let what = if is_too_late(text) { "too late a time" } else { "not a time" };
            Error::invalid(format!("{what}: {text:?}")).because(cause)
        })?;
        if !has_usual_offset(text) {
            return Err(Error::invalid(format!("not a time: {text:?} (offsets end at 23:59)")));
        }
        Ok(from_nanos(instant.as_nanosecond()))
    }
}

/// The timestamp of a number of nanoseconds since the Unix epoch; cut at the ends of its range.
fn from_nanos(nanos: i128) -> Timestamp {
    let millis = nanos.div_euclid(1_000_000) + i128::from(nanos.rem_euclid(1_000_000) != 0);
    Timestamp(millis.clamp(i64::MIN.into(), Timestamp::MAX.0.into()) as i64)
}

/// True for a day and an hour that are fine but for the end of all time, which is days before the year 10000.
fn is_too_late(text: &str) -> bool {
    let civil = text.get(..19).and_then(|text| text.parse::<jiff::civil::DateTime>().ok());
    civil.is_some_and(|civil| civil >= jiff::civil::date(9999, 12, 30).at(0, 0, 0, 0))
}

/// True unless the offset is of a day or more: the parser takes some of those, and RFC 3339 has none.
fn has_usual_offset(text: &str) -> bool {
    let time = text.split_once(['T', 't', ' ']).map_or("", |(_, time)| time);
    let offset = time.split_once(['+', '-']).map_or("", |(_, offset)| offset);
    offset.get(..2).is_none_or(|hours| hours <= "23")
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// When something is to happen; the *store* adds a delay to its own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum When {
    /// At once.
    #[default]
    Now,
    /// This long after the store has taken the request.
    After(Duration),
    /// At an instant of the store's clock.
    At(Timestamp),
}

impl When {
    /// The instant on a clock that reads `now`; `None` when it is not in the future.
    pub fn due(self, now: Timestamp) -> Option<Timestamp> {
        let due = match self {
            Self::Now => return None,
            Self::After(delay) => now.after(delay),
            Self::At(instant) => instant.min(Timestamp::MAX),
        };
        (due > now).then_some(due)
    }
}

/// A clock that stores without a server of their own read.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The present instant.
    fn now(&self) -> Timestamp;
}

/// The machine's wall clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        SystemTime::now().into()
    }
}

/// A clock that stands still until it is moved by hand, for tests.
#[derive(Debug)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock that shows `start`.
    pub fn starting_at(start: Timestamp) -> Self {
        Self(AtomicI64::new(start.0))
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        let millis = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        self.0.fetch_add(millis, Ordering::SeqCst);
    }

    /// Sets the clock, also backwards.
    pub fn set(&self, to: Timestamp) {
        self.0.store(to.0, Ordering::SeqCst);
    }
}

impl Default for ManualClock {
    /// Starts in the morning of 2026-01-01.
    fn default() -> Self {
        Self::starting_at(Timestamp(1_767_254_400_000))
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_in_utc_with_three_decimals() {
        assert_eq!(Timestamp(1_767_254_400_000).to_string(), "2026-01-01T08:00:00.000Z");
    }

    #[test]
    fn a_time_reads_back_as_it_was_written() {
        let time = Timestamp(1_767_254_400_123);
        assert_eq!(time.to_string().parse::<Timestamp>().unwrap(), time);
    }

    #[test]
    fn the_latest_instant_can_be_written_and_read() {
        let text = Timestamp::MAX.to_string();
        assert_eq!(text, "9999-12-30T00:00:00.000Z");
        assert_eq!(text.parse::<Timestamp>().unwrap(), Timestamp::MAX);
    }

    #[test]
    fn an_offset_of_a_day_or_more_is_no_time() {
        for offset in ["Z", "+23:59", "-23:59", "+02:00"] {
            assert!(
                format!("2026-01-01T08:00:00{offset}").parse::<Timestamp>().is_ok(),
                "{offset}"
            );
        }
        for offset in ["+24:00", "+25:00", "-25:00", "+25", ""] {
            assert!(
                format!("2026-01-01T08:00:00{offset}").parse::<Timestamp>().is_err(),
                "{offset}"
            );
        }
    }

    #[test]
    fn a_time_at_the_end_of_all_time_is_told_to_be_too_late() {
        let told = |text: &str| text.parse::<Timestamp>().unwrap_err().to_string();
        assert!(told("9999-12-31T23:59:59Z").contains("too late"));
        assert!(told("9999-12-31").contains("not a time"));
        assert!(told("9999-13-31T00:00:00Z").contains("not a time"));
    }

    #[test]
    fn a_fraction_of_a_millisecond_rounds_up() {
        let time: Timestamp = "2026-01-01T08:00:00.0001Z".parse().unwrap();
        assert_eq!(time.as_millis(), 1_767_254_400_001);
        assert_eq!(Timestamp(0).after(Duration::from_nanos(1)), Timestamp(1));
    }

    #[test]
    fn the_longest_delay_does_not_overflow() {
        assert_eq!(Timestamp(5).after(Duration::MAX), Timestamp::MAX);
        assert_eq!(When::After(Duration::MAX).due(Timestamp(5)), Some(Timestamp::MAX));
    }

    #[test]
    fn the_past_is_not_due_later() {
        assert_eq!(When::At(Timestamp(5)).due(Timestamp(5)), None);
        assert_eq!(When::After(Duration::ZERO).due(Timestamp(5)), None);
    }
}
