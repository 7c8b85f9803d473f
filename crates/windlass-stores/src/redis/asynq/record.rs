//! What windlass knows of a task and asynq has no place for: the field `wl` of its hash, and the fields beside
//! it that scripts write. A task that needs none of it has none of it.

use bytes::Bytes;
use prost::Message;
use windlass_core::history::History;
use windlass_core::task::Extras;
use windlass_core::{Timestamp, WorkerId};

/// Crashes that a task survives which does not say otherwise; those of Go never do.
pub(super) const MAX_CRASHES: u32 = 3;

/// The field `wl`. Scripts add fields 1 and 3 behind it.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Own {
    /// When it was submitted; 0 while the task itself tells.
    #[prost(int64, tag = "1")]
    pub(super) created_ms: i64,
    /// When it was last changed otherwise than by a claim, success or promote.
    #[prost(int64, tag = "2")]
    pub(super) updated_ms: i64,
    /// When it was last due later, exactly: scores are whole seconds.
    #[prost(int64, tag = "3")]
    pub(super) run_at_ms: i64,
    #[prost(uint32, optional, tag = "4")]
    pub(super) max_crashes: Option<u32>,
    /// Where whole seconds do not tell it.
    #[prost(uint64, tag = "5")]
    pub(super) timeout_ms: u64,
    /// Where whole seconds do not tell it.
    #[prost(uint64, tag = "6")]
    pub(super) retention_ms: u64,
    /// [`Extras`] without what the message has.
    #[prost(bytes = "bytes", tag = "7")]
    pub(super) extras: Bytes,
    #[prost(string, optional, tag = "8")]
    pub(super) idempotency_key: Option<String>,
    #[prost(bytes = "bytes", tag = "9")]
    pub(super) history: Bytes,
    /// Attempts that the message's count of failures does not tell.
    #[prost(sint32, tag = "10")]
    pub(super) attempts_more: i32,
    /// The last claim whose end was reported.
    #[prost(uint64, tag = "11")]
    pub(super) applied: u64,
    /// When its handler began, of the run whose end was reported last.
    #[prost(int64, tag = "12")]
    pub(super) started_ms: i64,
    #[prost(int64, tag = "13")]
    pub(super) finished_ms: i64,
    /// How long its unique lock is held, -1 until it is finished.
    #[prost(sint64, optional, tag = "14")]
    pub(super) hold_ms: Option<i64>,
    /// The walk that has moved it: it must not meet it again.
    #[prost(uint64, tag = "15")]
    pub(super) walk: u64,
}

impl Own {
    pub(super) fn read(stored: &[u8]) -> Option<Self> {
        Self::decode(stored).ok()
    }

    pub(super) fn history(&self) -> History {
        let stored = (!self.history.is_empty()).then_some(&self.history[..]);
        History::decode(stored).unwrap_or_default()
    }

    pub(super) fn set_history(&mut self, history: &History) {
        self.history = history.encode().unwrap_or_default().into();
    }

    pub(super) fn extras(&self) -> Extras {
        serde_json::from_slice(&self.extras).unwrap_or_default()
    }
}

/// Who was given a task last by windlass, and the lease that was written then or by a later beat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClaimMark {
    /// The number of the claim: the fence.
    pub(super) number: u64,
    /// The score that was written.
    pub(super) lease: Option<i64>,
    pub(super) claimed_at: Timestamp,
    /// Since when the task was pending then, in ns as it was written; `-` when nobody knew.
    pub(super) since: String,
    pub(super) worker: WorkerId,
}

impl ClaimMark {
    /// Reads `wl_f`, `wl_l` and `wl_w`.
    pub(super) fn read(number: &[u8], lease: &[u8], held: &[u8]) -> Option<Self> {
        let text = |bytes| std::str::from_utf8(bytes).ok();
        let mut parts = text(held)?.splitn(3, ' ');
        let claimed_at = Timestamp::from_millis(parts.next()?.parse().ok()?);
        let since = parts.next()?.to_owned();
        Some(Self {
            number: text(number)?.parse().ok()?,
            lease: text(lease).and_then(|text| text.parse().ok()),
            claimed_at,
            since,
            worker: WorkerId::new(parts.next()?),
        })
    }

    /// Since when the task was pending then, if that is known.
    pub(super) fn pending_since_ms(&self) -> Option<i64> {
        // The last six digits are less than a millisecond.
        self.since.parse::<i64>().ok().map(|ns| ns / 1_000_000)
    }
}

/// A success as `apply.lua` writes it: `<claim> <finished> <took or -> <retention>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) number: u64,
    pub(super) finished_at: Timestamp,
    pub(super) took_ms: Option<i64>,
    pub(super) retention_ms: u64,
}

impl Done {
    pub(super) fn read(stored: &[u8]) -> Option<Self> {
        let mut parts = std::str::from_utf8(stored).ok()?.split(' ');
        Some(Self {
            number: parts.next()?.parse().ok()?,
            finished_at: Timestamp::from_millis(parts.next()?.parse().ok()?),
            took_ms: parts.next()?.parse().ok(),
            retention_ms: parts.next()?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_scripts_add_behind_a_record_is_read() {
        let mut stored = Own { max_crashes: Some(0), ..Own::default() }.encode_to_vec();
        stored.extend([8, 5, 24, 9]);
        let own = Own::read(&stored).unwrap();
        assert_eq!((own.created_ms, own.run_at_ms, own.max_crashes), (5, 9, Some(0)));
    }

    #[test]
    fn a_plain_task_needs_no_record() {
        assert_eq!(Own::default().encode_to_vec(), b"");
    }

    #[test]
    fn marks_read_back_as_scripts_write_them() {
        let mark = ClaimMark::read(b"7", b"1767254430", b"1767254400123 - a b").unwrap();
        assert_eq!((mark.number, mark.lease), (7, Some(1_767_254_430)));
        assert_eq!((mark.since.as_str(), mark.worker.as_str()), ("-", "a b"));
        let done = Done::read(b"7 1767254400123 - 500").unwrap();
        assert_eq!((done.number, done.took_ms, done.retention_ms), (7, None, 500));
        assert_eq!(Done::read(b""), None);
    }
}
