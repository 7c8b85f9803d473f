//! Epochs: the entry of a run in its lane, when it was claimed, and a check of whose it is.
//!
//! An entry id of a stream only grows, so it is the fence. The rest spares the end of a run a look-up:
//! an epoch tells the claim's time by itself, and that it belongs to this task and this worker.
//!
//! From the top: 42 bits of the entry's ms, 1 bit of form, 64 bits, 1 bit spare, 20 bits of check. In
//! the short form the 64 bits are 21 of the entry's number and 43 of the claim's ms. The long form holds
//! the whole number instead: it is needed when millions of entries share one ms, as after a clock that
//! went back. Its claims are looked up.

use windlass_core::{Epoch, Timestamp, WorkerId};

use super::id::{Id, mix};

const NUMBER_BITS: u32 = 21;
const CLAIMED_BITS: u32 = 43;
const CHECK_MASK: u128 = (1 << 20) - 1;

/// The id of an entry in a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Entry {
    pub(super) ms: u64,
    pub(super) number: u64,
}

impl Entry {
    /// Reads `<ms>-<number>`.
    pub(super) fn of(text: &[u8]) -> Option<Self> {
        let (ms, number) = std::str::from_utf8(text).ok()?.split_once('-')?;
        Some(Self { ms: ms.parse().ok()?, number: number.parse().ok()? })
    }

    /// As the server writes it.
    pub(super) fn text(self) -> String {
        format!("{}-{}", self.ms, self.number)
    }
}

/// A run as its epoch names it.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunName<'a> {
    pub(super) id: Id,
    pub(super) entry: Entry,
    pub(super) worker: &'a WorkerId,
    pub(super) claimed_at: Timestamp,
}

impl RunName<'_> {
    pub(super) fn epoch(self) -> Epoch {
        let claimed = self.claimed_at.as_millis().unsigned_abs();
        let is_short = self.entry.number >> NUMBER_BITS == 0 && claimed >> CLAIMED_BITS == 0;
        let middle = match is_short {
            true => self.entry.number << CLAIMED_BITS | claimed,
            false => self.entry.number,
        };
        let form = u128::from(!is_short);
        let top = u128::from(self.entry.ms) << 86 | form << 85 | u128::from(middle) << 21;
        Epoch(top | self.check())
    }

    fn check(self) -> u128 {
        let Entry { ms, number } = self.entry;
        let claimed = self.claimed_at.as_millis();
        let hash = mix(&[
            &self.id.0,
            self.worker.as_str().as_bytes(),
            &ms.to_be_bytes(),
            &number.to_be_bytes(),
            &claimed.to_be_bytes(),
        ]);
        u128::from(hash ^ hash >> 20 ^ hash >> 40) & CHECK_MASK
    }
}

/// The entry that an epoch names, whoever was given it.
pub(super) fn entry_of(epoch: Epoch) -> Option<Entry> {
    let ms = u64::try_from(epoch.0 >> 86).ok()?;
    let middle = u64::try_from(epoch.0 >> 21 & u128::from(u64::MAX)).ok()?;
    Some(Entry { ms, number: if is_long(epoch) { middle } else { middle >> CLAIMED_BITS } })
}

/// The entry and the claim's time, when the epoch tells them and was given to this worker for this task.
pub(super) fn read(epoch: Epoch, id: Id, worker: &WorkerId) -> Option<(Entry, Timestamp)> {
    let (entry, claimed_at) = (entry_of(epoch)?, claimed_at_of(epoch)?);
    (RunName { id, entry, worker, claimed_at }.epoch() == epoch).then_some((entry, claimed_at))
}

/// The time of the claim, which only the short form tells.
pub(super) fn claimed_at_of(epoch: Epoch) -> Option<Timestamp> {
    let claimed = i64::try_from(epoch.0 >> 21 & ((1 << CLAIMED_BITS) - 1)).ok()?;
    (!is_long(epoch)).then(|| Timestamp::from_millis(claimed))
}

fn is_long(epoch: Epoch) -> bool {
    epoch.0 >> 85 & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: Id = Id([7; 16]);

    fn epoch(ms: u64, number: u64, claimed: i64) -> Epoch {
        let worker = WorkerId::new("w");
        let claimed_at = Timestamp::from_millis(claimed);
        RunName { id: ID, entry: Entry { ms, number }, worker: &worker, claimed_at }.epoch()
    }

    #[test]
    fn an_epoch_tells_its_entry_and_claim_to_its_own_worker_only() {
        let made = epoch(1_767_254_400_000, 5, 1_767_254_400_123);
        let told = read(made, ID, &WorkerId::new("w"));
        let entry = Entry { ms: 1_767_254_400_000, number: 5 };
        assert_eq!(told, Some((entry, Timestamp::from_millis(1_767_254_400_123))));
        assert_eq!(read(made, ID, &WorkerId::new("other")), None);
        assert_eq!(read(made, Id([8; 16]), &WorkerId::new("w")), None);
        for wrong in [made.0 - 1, made.0 + 1, 0, u128::MAX] {
            assert_eq!(read(Epoch(wrong), ID, &WorkerId::new("w")), None, "{wrong}");
        }
    }

    #[test]
    fn a_later_entry_has_a_larger_epoch_whatever_its_form() {
        let numbers = [0, 1, (1 << 21) - 1, 1 << 21, 1 << 40, u64::MAX];
        let made: Vec<_> = numbers.iter().map(|number| epoch(9, *number, i64::MAX >> 21)).collect();
        assert!(made.is_sorted_by(|one, other| one < other), "{made:?}");
        assert!(epoch(10, 0, 0) > made[5]);
        assert_eq!(read(made[5], ID, &WorkerId::new("w")), None, "the long form is looked up");
    }
}
