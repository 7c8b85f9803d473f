//! Conversions between [`Timestamp`] and the times of the standard library, and of jiff, chrono and time by feature.
//!
//! A fraction of a millisecond rounds up on the way in, so that nothing runs before the time asked for.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{Timestamp, from_nanos};

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        let nanos = |time: Duration| i128::try_from(time.as_nanos()).unwrap_or(i128::MAX);
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => from_nanos(nanos(after)),
            Err(before) => from_nanos(-nanos(before.duration())),
        }
    }
}

impl From<Timestamp> for SystemTime {
    /// The Unix epoch where the system cannot represent the instant.
    fn from(time: Timestamp) -> Self {
        let distance = Duration::from_millis(time.0.unsigned_abs());
        let moved = match time.0 {
            0.. => UNIX_EPOCH.checked_add(distance),
            ..0 => UNIX_EPOCH.checked_sub(distance),
        };
        moved.unwrap_or(UNIX_EPOCH)
    }
}

#[cfg(feature = "jiff-0_2")]
impl From<jiff::Timestamp> for Timestamp {
    fn from(time: jiff::Timestamp) -> Self {
        from_nanos(time.as_nanosecond())
    }
}

#[cfg(feature = "jiff-0_2")]
impl TryFrom<Timestamp> for jiff::Timestamp {
    type Error = jiff::Error;

    fn try_from(time: Timestamp) -> Result<Self, Self::Error> {
        Self::from_millisecond(time.0)
    }
}

#[cfg(feature = "chrono-0_4")]
impl<Z: chrono::TimeZone> From<chrono::DateTime<Z>> for Timestamp {
    fn from(time: chrono::DateTime<Z>) -> Self {
        let nanos = i128::from(time.timestamp()) * 1_000_000_000;
        from_nanos(nanos + i128::from(time.timestamp_subsec_nanos()))
    }
}

#[cfg(feature = "chrono-0_4")]
impl TryFrom<Timestamp> for chrono::DateTime<chrono::Utc> {
    type Error = crate::Error;

    fn try_from(time: Timestamp) -> crate::Result<Self> {
        let out_of_range = || crate::Error::invalid(format!("chrono has no such time: {time}"));
        Self::from_timestamp_millis(time.0).ok_or_else(out_of_range)
    }
}

#[cfg(feature = "time-0_3")]
impl From<time::OffsetDateTime> for Timestamp {
    fn from(time: time::OffsetDateTime) -> Self {
        from_nanos(time.unix_timestamp_nanos())
    }
}

#[cfg(feature = "time-0_3")]
impl TryFrom<Timestamp> for time::OffsetDateTime {
    type Error = time::error::ComponentRange;

    fn try_from(time: Timestamp) -> Result<Self, Self::Error> {
        Self::from_unix_timestamp_nanos(i128::from(time.0) * 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fraction_of_a_millisecond_rounds_up() {
        for (nanos, millis) in
            [(0, 0), (1, 1), (1_000_000, 1), (1_000_001, 2), (-1, 0), (-1_000_001, -1)]
        {
            assert_eq!(from_nanos(nanos), Timestamp(millis), "{nanos} ns");
        }
        assert_eq!(from_nanos(i128::MAX), Timestamp::MAX);
    }

    #[test]
    fn system_time_keeps_its_milliseconds_both_ways() {
        for millis in [0, 1, 1_767_254_400_123, -1, -1_767_254_400_123] {
            assert_eq!(Timestamp::from(SystemTime::from(Timestamp(millis))), Timestamp(millis));
        }
    }

    #[cfg(feature = "jiff-0_2")]
    #[test]
    fn jiff_keeps_its_milliseconds_both_ways() {
        for millis in [0, 1_767_254_400_123, -1, Timestamp::MAX.0] {
            let time = jiff::Timestamp::try_from(Timestamp(millis)).unwrap();
            assert_eq!(Timestamp::from(time), Timestamp(millis));
        }
        assert!(jiff::Timestamp::try_from(Timestamp(i64::MAX)).is_err());
    }

    #[cfg(feature = "chrono-0_4")]
    #[test]
    fn chrono_keeps_its_milliseconds_both_ways() {
        for millis in [0, 1_767_254_400_123, -1, Timestamp::MAX.0] {
            let time = chrono::DateTime::<chrono::Utc>::try_from(Timestamp(millis)).unwrap();
            assert_eq!(Timestamp::from(time), Timestamp(millis));
        }
        assert!(chrono::DateTime::<chrono::Utc>::try_from(Timestamp(i64::MAX)).is_err());
    }

    #[cfg(feature = "time-0_3")]
    #[test]
    fn time_keeps_its_milliseconds_both_ways() {
        for millis in [0, 1_767_254_400_123, -1, Timestamp::MAX.0] {
            let time = time::OffsetDateTime::try_from(Timestamp(millis)).unwrap();
            assert_eq!(Timestamp::from(time), Timestamp(millis));
        }
        assert!(time::OffsetDateTime::try_from(Timestamp(i64::MAX)).is_err());
    }
}
