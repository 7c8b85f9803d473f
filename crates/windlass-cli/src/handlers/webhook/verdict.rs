//! What an answer makes of a run.

use std::time::{Duration, SystemTime};

use hyper::StatusCode;
use windlass::{Failure, discard, retry_after};

/// How much of an answer that is no success becomes part of the error.
pub(super) const COMPLAINT_BYTES_MAX: usize = 1024;
/// What a target may ask for before the next try.
const RETRY_AFTER: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(24 * 60 * 60);

/// What a status means.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Done; the body is the result.
    Completed,
    /// The target has taken it on, and reports the end itself.
    Open,
    /// Not done.
    Failed(Failure),
}

/// Judges by the status alone, but for the time after which a target wants to be asked again.
pub(super) fn judge(
    status: StatusCode,
    asks_for: Option<&str>,
    now: SystemTime,
    complaint: &str,
) -> Verdict {
    match status {
        StatusCode::ACCEPTED => Verdict::Open,
        _ if status.is_success() => Verdict::Completed,
        StatusCode::GONE | StatusCode::UNPROCESSABLE_ENTITY => Verdict::Failed(discard(complaint)),
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            let delay = asks_for.and_then(|text| delay(text, now));
            Verdict::Failed(match delay {
                Some(delay) => retry_after(delay, complaint),
                None => Failure::from(complaint),
            })
        }
        _ => Verdict::Failed(Failure::from(complaint)),
    }
}

/// Reads `Retry-After`: seconds, or the time at which to come back.
fn delay(text: &str, now: SystemTime) -> Option<Duration> {
    let text = text.trim();
    let delay = if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // So many digits that they are no number are long enough.
        text.parse().map_or(*RETRY_AFTER.end(), Duration::from_secs)
    } else {
        let at = httpdate::parse_http_date(text).ok()?;
        at.duration_since(now).unwrap_or_default()
    };
    Some(delay.clamp(*RETRY_AFTER.start(), *RETRY_AFTER.end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(status: u16, asks_for: Option<&str>, expected: &str) {
        // 1994-11-06T08:49:37Z.
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let judged = judge(StatusCode::from_u16(status).unwrap(), asks_for, now, "why");
        let judged = match judged {
            Verdict::Failed(failure) => format!("{failure:?}"),
            Verdict::Completed | Verdict::Open => format!("{judged:?}"),
        };
        assert_eq!(judged, expected, "{status} {asks_for:?}");
    }

    #[test]
    fn the_status_decides() {
        for status in [200, 201, 203, 204, 206, 299] {
            check(status, None, "Completed");
        }
        check(202, None, "Open");
        check(410, None, "discarded: why");
        check(422, None, "discarded: why");
        for status in [300, 301, 302, 307, 308, 400, 401, 404, 418, 429, 500, 502, 503, 504, 599] {
            check(status, None, "failed: why");
        }
        check(500, Some("5"), "failed: why");
    }

    #[test]
    fn a_target_says_when_to_come_back() {
        for status in [429, 503] {
            check(status, Some("7"), "failed, again after 7s: why");
            check(status, Some(" 120 "), "failed, again after 120s: why");
            check(status, Some("Sun, 06 Nov 1994 08:50:37 GMT"), "failed, again after 60s: why");
            check(status, Some("Sunday, 06-Nov-94 08:50:37 GMT"), "failed, again after 60s: why");
            check(status, Some("0"), "failed, again after 1s: why");
            check(status, Some("Sun, 06 Nov 1994 08:00:00 GMT"), "failed, again after 1s: why");
            check(status, Some("99999999"), "failed, again after 86400s: why");
            check(status, Some("99999999999999999999999"), "failed, again after 86400s: why");
            check(status, Some("Fri, 31 Dec 9999 23:59:59 GMT"), "failed, again after 86400s: why");
            for nonsense in ["", "soon", "-5", "1.5", "0x10"] {
                check(status, Some(nonsense), "failed: why");
            }
        }
    }
}
