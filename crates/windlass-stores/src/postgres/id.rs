//! Task ids: a UUIDv8 of 48 bits of time and the task's number, so that no index of ids is needed.

use uuid::Uuid;
use windlass_core::{Epoch, TaskId};

/// What an id is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Id {
    pub(super) seq: i64,
    /// ms since 1970. Kept beside the number: one task must not have several names, and an id from
    /// a database that was made anew must not name a stranger.
    pub(super) stamp: i64,
}

const STAMP_BITS: u64 = (1 << 48) - 1;
const SEQ_BITS: u64 = (1 << 62) - 1;

impl Id {
    pub(super) fn task_id(self) -> TaskId {
        let (stamp, seq) = (self.stamp.unsigned_abs() & STAMP_BITS, self.seq.unsigned_abs());
        let mut bytes = [0; 16];
        bytes[..6].copy_from_slice(&stamp.to_be_bytes()[2..]);
        bytes[8..].copy_from_slice(&(seq & SEQ_BITS).to_be_bytes());
        let uuid = Uuid::new_v8(bytes);
        TaskId::new(uuid.hyphenated().encode_lower(&mut Uuid::encode_buffer()))
    }

    /// What an id is made of, if it can be one of ours.
    pub(super) fn of(id: &TaskId) -> Option<Self> {
        let bytes = Uuid::try_parse(id.as_str()).ok()?.into_bytes();
        let (mut stamp, mut seq) = ([0; 8], [0; 8]);
        stamp[2..].copy_from_slice(&bytes[..6]);
        seq.copy_from_slice(&bytes[8..]);
        let id_parts = Self {
            seq: i64::try_from(u64::from_be_bytes(seq) & SEQ_BITS).ok()?,
            stamp: i64::try_from(u64::from_be_bytes(stamp)).ok()?,
        };
        // Only the form that `task_id` writes.
        (id_parts.task_id() == *id).then_some(id_parts)
    }
}

pub(super) fn epoch_of(token: i64) -> Epoch {
    Epoch(u128::from(token.unsigned_abs()))
}

/// The token of an epoch, if it can be one of ours.
pub(super) fn token_of(epoch: Epoch) -> Option<i64> {
    i64::try_from(epoch.0).ok()
}

/// Numbers as PostgreSQL writes a multirange; they must be sorted.
pub(super) fn multirange(sorted: &[i64]) -> String {
    use std::fmt::Write as _;
    let mut text = String::from("{");
    for (first, last) in runs(sorted) {
        if text.len() > 1 {
            text.push(',');
        }
        write!(text, "[{first},{last}]").expect("writing to a string cannot fail");
    }
    text.push('}');
    text
}

/// Numbers in a row, each run by its first and last; they must be sorted.
pub(super) fn runs(sorted: &[i64]) -> Vec<(i64, i64)> {
    let mut runs: Vec<(i64, i64)> = Vec::new();
    for number in sorted {
        match runs.last_mut() {
            Some((_, last)) if *last == *number || *last + 1 == *number => *last = *number,
            _ => runs.push((*number, *number)),
        }
    }
    runs
}

/// The numbers of runs that are told by their first and last ones.
pub(super) fn numbers(firsts: &[i64], lasts: &[i64]) -> impl Iterator<Item = i64> {
    firsts.iter().zip(lasts).flat_map(|(first, last)| *first..=*last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_back_as_it_was_written() {
        for id in [Id { seq: 1, stamp: 0 }, Id { seq: (1 << 62) - 1, stamp: (1 << 48) - 1 }] {
            assert_eq!(Id::of(&id.task_id()), Some(id));
        }
    }

    #[test]
    fn another_spelling_of_an_id_is_not_ours() {
        let id = Id { seq: 77, stamp: 1_767_254_400_000 }.task_id();
        assert_eq!(Id::of(&TaskId::new(id.as_str().to_uppercase())), None);
        assert_eq!(Id::of(&TaskId::new(Uuid::now_v7().to_string())), None);
        assert_eq!(Id::of(&TaskId::new("nobody")), None);
    }

    #[test]
    fn numbers_in_a_row_are_one_range() {
        assert_eq!(multirange(&[1, 2, 3, 5, 7, 8]), "{[1,3],[5,5],[7,8]}");
        assert_eq!(multirange(&[]), "{}");
    }
}
