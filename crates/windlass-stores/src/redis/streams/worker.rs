//! What is kept of a worker, and reading it.

use windlass_core::store::{RunOrder, WorkerCard, WorkerRecord};
use windlass_core::{Timestamp, WorkerId};

/// A worker as `register.lua` writes it.
#[derive(Debug, Clone)]
pub(super) struct Known {
    started_at: Timestamp,
    beat_at: Timestamp,
    pub(super) lease_until: Timestamp,
    pub(super) gone_at: Option<Timestamp>,
    order: RunOrder,
    card: WorkerCard,
}

impl Known {
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (times, rest) = bytes.split_first_chunk::<24>()?;
        let time = |at: usize| {
            let number = times[at..at + 6].iter().fold(0, |sum, byte| sum << 8 | i64::from(*byte));
            Timestamp::from_millis(number)
        };
        let (order, card) = rest.split_first()?;
        Some(Self {
            started_at: time(0),
            beat_at: time(6),
            lease_until: time(12),
            gone_at: Some(time(18)).filter(|at| at.as_millis() > 0),
            order: read_order(*order),
            card: serde_json::from_slice(card).unwrap_or_default(),
        })
    }

    pub(super) fn into_record(self, id: WorkerId, running_count: u64) -> WorkerRecord {
        WorkerRecord {
            id,
            card: self.card,
            order: self.order,
            started_at: self.started_at,
            beat_at: self.beat_at,
            lease_until: self.lease_until,
            is_gone: self.gone_at.is_some(),
            running_count,
        }
    }
}

pub(super) const fn write_order(order: RunOrder) -> &'static str {
    match order {
        RunOrder::Run => "r",
        RunOrder::Pause => "p",
        RunOrder::Drain => "d",
    }
}

/// An order that cannot be read counts as "run": a worker must not stop for a reason nobody gave.
pub(super) fn read_order(stored: u8) -> RunOrder {
    match stored {
        b'p' => RunOrder::Pause,
        b'd' => RunOrder::Drain,
        _ => RunOrder::Run,
    }
}
