//! Durations as people write them: `30s`, `5m`, `1d 12h`, `2w`, `PT30S`, `P1D`, or a number of seconds.

use std::time::Duration;

use jiff::{SignedDuration, Span, SpanRelativeTo};

use crate::error::{Error, Result};
use crate::limits::clip;

/// Longest text that may be a duration.
const TEXT_BYTES_MAX: usize = 128;
/// What is allowed, for errors.
const ALLOWED: &str = "write numbers with ms, s, m, h, d or w, such as \"30s\", \"1h 30m\" or \"7d\", an ISO 8601 \
     duration such as \"PT30S\", or a number of seconds";

/// Reads a duration; a bare number counts seconds. A day has 24 hours, and a week has 7 days. Negative durations are
/// refused.
pub fn parse(text: &str) -> Result<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return from_seconds(seconds);
    }
    let signed = Some(text).filter(|text| text.len() <= TEXT_BYTES_MAX).and_then(signed);
    let signed = signed.ok_or_else(|| not_a_duration(text))?;
    Duration::try_from(signed).map_err(|_| Error::invalid(format!("negative duration: {text}")))
}

/// Months and years have no length of their own: they are refused.
fn signed(text: &str) -> Option<SignedDuration> {
    text.parse().ok().or_else(|| {
        let span: Span = text.parse().ok()?;
        span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()
    })
}

fn not_a_duration(text: &str) -> Error {
    let shown = clip(text, TEXT_BYTES_MAX);
    Error::invalid(format!("{shown:?} is not a duration: {ALLOWED}"))
}

/// Turns a number of seconds into a duration.
pub fn from_seconds(seconds: f64) -> Result<Duration> {
    if seconds < 0.0 {
        return Err(Error::invalid(format!("negative duration: {seconds} s")));
    }
    Duration::try_from_secs_f64(seconds)
        .map_err(|cause| Error::invalid(format!("not a duration: {seconds} s")).because(cause))
}

/// Whole milliseconds, rounded up, cut to what a signed 64-bit column holds.
pub fn as_millis_ceil(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}

/// The duration of a stored number of milliseconds; a negative one counts as zero.
pub fn from_millis(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

/// Serde for one duration, written as text.
pub mod text {
    use std::time::Duration;

    use serde::{Deserializer, Serializer, de};

    /// Writes the friendly form, for example `1m 30s`.
    pub fn serialize<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        match jiff::SignedDuration::try_from(*value) {
            Ok(signed) => serializer.collect_str(&format_args!("{signed:#}")),
            Err(_) => serializer.serialize_f64(value.as_secs_f64()),
        }
    }

    /// Reads text or a number of seconds.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Duration;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a duration such as \"30s\", \"7d\" or a number of seconds")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Duration, E> {
                super::parse(text).map_err(E::custom)
            }
            fn visit_f64<E: de::Error>(self, seconds: f64) -> Result<Duration, E> {
                super::from_seconds(seconds).map_err(E::custom)
            }
            fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<Duration, E> {
                Ok(Duration::from_secs(seconds))
            }
            fn visit_i64<E: de::Error>(self, seconds: i64) -> Result<Duration, E> {
                u64::try_from(seconds)
                    .map(Duration::from_secs)
                    .map_err(|_| E::custom("negative duration"))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, seconds: f64) {
        assert_eq!(parse(text).unwrap(), Duration::from_secs_f64(seconds), "{text}");
    }

    #[test]
    fn every_documented_form_is_read() {
        check("30s", 30.0);
        check("5m", 300.0);
        check("1h 30m", 5_400.0);
        check("250ms", 0.25);
        check("PT30S", 30.0);
        check("30", 30.0);
        check("0.5", 0.5);
        check("1d", 86_400.0);
        check("7d", 604_800.0);
        check("1w", 604_800.0);
        check("P1D", 86_400.0);
        check("P1W", 604_800.0);
        check("P1DT12H", 129_600.0);
        check("1d 12h", 129_600.0);
        check("2 weeks 1 day", 1_296_000.0);
    }

    #[test]
    fn nonsense_and_negative_durations_are_refused() {
        for text in
            ["", "soon", "-5s", "-1d", "-1", "NaN", "inf", "1e300", "5x", "1mo", "P1Y", "1y"]
        {
            assert!(parse(text).is_err(), "{text:?}");
        }
        assert!(parse(&"1s ".repeat(100)).is_err());
    }

    #[test]
    fn a_wrong_duration_is_told_what_is_allowed() {
        let error = parse("5x").unwrap_err().chain();
        assert!(
            error.starts_with("\"5x\" is not a duration: write") && error.contains("7d"),
            "{error}"
        );
    }
}
