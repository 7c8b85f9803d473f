//! Task ids: a UUIDv8 of 48 bits of time, 16 bits that lead to the queue, and chance.

use uuid::Uuid;
use windlass_core::{QueueName, TaskId};

/// An id as it is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Id(pub(super) [u8; 16]);

impl Id {
    /// A new id for a task of a queue.
    pub(super) fn new(now_ms: u64, queue: &QueueName) -> Self {
        let mark = queue_mark(queue.as_str());
        let mut bytes = [0; 16];
        bytes[..6].copy_from_slice(&now_ms.to_be_bytes()[2..]);
        bytes[8..].copy_from_slice(&fastrand::u64(..).to_be_bytes());
        bytes[6] = (mark >> 12) as u8;
        bytes[7] = (mark >> 4 & 0xff) as u8;
        bytes[8] = (bytes[8] & 0b11) | ((mark & 0xf) as u8) << 2;
        Self(Uuid::new_v8(bytes).into_bytes())
    }

    /// The id in its text form.
    pub(super) fn task_id(self) -> TaskId {
        let uuid = Uuid::from_bytes(self.0);
        TaskId::new(uuid.hyphenated().encode_lower(&mut Uuid::encode_buffer()))
    }

    /// Reads an id, if it can be one of ours.
    pub(super) fn of(id: &TaskId) -> Option<Self> {
        let found = Self(Uuid::try_parse(id.as_str()).ok()?.into_bytes());
        // Only the form that `task_id` writes: one task must not have several names.
        let is_ours = found.0[6] >> 4 == 8 && found.0[8] >> 6 == 0b10;
        (is_ours && found.task_id() == *id).then_some(found)
    }

    pub(super) fn from_stored(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// True when it leads to this queue.
    pub(super) fn leads_to(self, queue: &QueueName) -> bool {
        self.mark() == queue_mark(queue.as_str())
    }

    /// What leads to its queue; several queues may share it.
    pub(super) fn mark(self) -> u16 {
        let high = u16::from(self.0[6] & 0xf) << 12 | u16::from(self.0[7]) << 4;
        high | u16::from(self.0[8] >> 2 & 0xf)
    }
}

/// The 16 bits by which ids lead to a queue.
pub(super) fn queue_mark(queue: &str) -> u16 {
    let hash = mix(&[queue.as_bytes()]);
    (hash ^ hash >> 16 ^ hash >> 32 ^ hash >> 48) as u16
}

/// FNV-1a over some parts, each ended by a byte that names do not hold. It is written into ids and
/// epochs: it must never change.
pub(super) fn mix(parts: &[&[u8]]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for part in parts {
        for byte in part.iter().chain(&[0xff]) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_leads_to_its_queue_and_reads_back() {
        for name in ["main", "mail", "a", "b.c:d-e"] {
            let queue = QueueName::stored(name);
            let id = Id::new(1_767_254_400_000, &queue);
            assert_eq!(id.mark(), queue_mark(name));
            assert_eq!(Id::of(&id.task_id()), Some(id));
        }
        // Written into every id: a change would make old ones unfindable.
        assert_eq!(queue_mark("main"), 0x7778);
    }

    #[test]
    fn what_is_no_id_of_ours_is_not_read() {
        let id = Id::new(1, &QueueName::stored("main")).task_id();
        for text in
            ["", "nobody", &id.as_str().to_uppercase(), "00000000-0000-7000-8000-000000000000"]
        {
            assert_eq!(Id::of(&TaskId::new(text)), None, "{text}");
        }
    }
}
