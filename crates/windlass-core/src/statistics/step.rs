//! The lengths of time that are told apart, and how long each is kept.

use std::time::Duration;

use crate::clock::Timestamp;

/// The class of the documents that processes write themselves: one for each process and minute, named
/// `TIME PROCESS.PART`.
pub const RAW: &str = "statistics";

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// A length of time with documents of its own, named after their time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// One minute.
    Minute,
    /// Ten minutes.
    TenMinutes,
    /// One hour.
    Hour,
}

impl Step {
    /// All of them, the shortest first.
    pub const ALL: [Self; 3] = [Self::Minute, Self::TenMinutes, Self::Hour];

    /// How long it is.
    pub const fn length(self) -> Duration {
        Duration::from_secs(match self {
            Self::Minute => MINUTE,
            Self::TenMinutes => 10 * MINUTE,
            Self::Hour => HOUR,
        })
    }

    /// The class of its documents.
    pub const fn class(self) -> &'static str {
        match self {
            Self::Minute => "statistics.1m",
            Self::TenMinutes => "statistics.10m",
            Self::Hour => "statistics.1h",
        }
    }

    /// What its documents are added up to when they are old.
    pub const fn longer(self) -> Option<Self> {
        match self {
            Self::Minute => Some(Self::TenMinutes),
            Self::TenMinutes => Some(Self::Hour),
            Self::Hour => None,
        }
    }

    /// How long its documents are kept after the end of their time.
    pub const fn kept(self) -> Duration {
        Duration::from_secs(match self {
            Self::Minute => 2 * HOUR,
            Self::TenMinutes => 25 * HOUR,
            Self::Hour => 8 * DAY,
        })
    }

    /// The start of the stretch that an instant is in.
    pub fn start_of(self, instant: Timestamp) -> Timestamp {
        let length = i64::try_from(self.length().as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_millis(instant.as_millis().div_euclid(length).saturating_mul(length))
    }

    /// The shortest that can tell the last so many minutes point by point.
    pub const fn for_series(minutes: u32) -> Self {
        match minutes {
            0..=120 => Self::Minute,
            121..=1_440 => Self::TenMinutes,
            _ => Self::Hour,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_begins_at_a_full_step() {
        let at: Timestamp = "2026-03-04T05:46:07.890Z".parse().unwrap();
        let starts = Step::ALL.map(|step| step.start_of(at).to_string());
        assert_eq!(
            starts,
            ["2026-03-04T05:46:00.000Z", "2026-03-04T05:40:00.000Z", "2026-03-04T05:00:00.000Z"]
        );
        assert_eq!(Step::Minute.start_of(Timestamp::from_millis(-1)).as_millis(), -60_000);
    }

    #[test]
    fn what_a_series_needs_is_kept_long_enough() {
        for minutes in [1, 120, 121, 1_440, 1_441, 10_080] {
            let step = Step::for_series(minutes);
            assert!(step.kept() >= Duration::from_secs(60 * u64::from(minutes)), "{minutes}");
        }
    }
}
