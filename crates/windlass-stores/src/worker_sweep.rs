//! Which workers can be forgotten, where records name their worker by a number: those that are gone for long and that
//! no record names. Every record has to be looked at for that, so it is done seldom and in pieces.

use std::collections::BTreeSet;
use std::time::Duration;

use windlass_core::Timestamp;

/// Most records that one step looks at.
pub(crate) const PIECE: usize = 5_000;
/// Most workers that one sweep looks for.
pub(crate) const WORKERS_MAX: i64 = 100_000;
/// The pause between two sweeps, by the store's clock.
const PAUSE: Duration = Duration::from_secs(6 * 3_600);

/// A sweep through all records.
#[derive(Debug, Default)]
pub(crate) struct WorkerSweep {
    /// When the next one may begin.
    next_at: Timestamp,
    /// Workers that are gone and that no record seen so far names.
    unnamed: BTreeSet<i64>,
    place: Option<Place>,
}

/// Where the sweep goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Which of the store's tables, from 0.
    pub(crate) table: usize,
    /// The key from which on the table was not looked at.
    pub(crate) from: i64,
}

/// What a step has seen.
pub(crate) struct Piece {
    pub(crate) named: Vec<i64>,
    /// Where the table goes on; nothing at its end.
    pub(crate) next: Option<i64>,
}

impl WorkerSweep {
    /// True when it is time to look for workers that are gone.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        self.place.is_none() && self.unnamed.is_empty() && now >= self.next_at
    }

    /// Begins a sweep for these workers; nothing happens when there are none.
    pub(crate) fn begin(&mut self, now: Timestamp, gone: Vec<i64>) {
        if gone.is_empty() {
            return;
        }
        self.next_at = now.after(PAUSE);
        self.unnamed = gone.into_iter().collect();
        self.place = Some(Place { table: 0, from: i64::MIN });
    }

    /// Where to look next; nothing when all tables were looked at.
    pub(crate) fn place(&self) -> Option<Place> {
        self.place
    }

    /// Notes what was found at the last place, in a store with so many tables.
    pub(crate) fn saw(&mut self, piece: Piece, tables: usize) {
        let Some(Place { table, .. }) = self.place else { return };
        for number in piece.named {
            self.unnamed.remove(&number);
        }
        self.place = match piece.next {
            Some(from) => Some(Place { table, from }),
            None => Some(Place { table: table + 1, from: i64::MIN }).filter(|it| it.table < tables),
        };
    }

    /// Some of the workers that no record names, once all were looked at; they are not named again.
    pub(crate) fn take(&mut self, limit: usize) -> Vec<i64> {
        if self.place.is_some() {
            return Vec::new();
        }
        let taken: Vec<_> = self.unnamed.iter().take(limit).copied().collect();
        taken.iter().for_each(|number| _ = self.unnamed.remove(number));
        taken
    }

    /// True when there are more workers to take.
    pub(crate) fn has_more(&self) -> bool {
        self.place.is_none() && !self.unnamed.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    fn piece(named: &[i64], next: Option<i64>) -> Piece {
        Piece { named: named.to_vec(), next }
    }

    #[test]
    fn workers_named_in_no_table_are_taken_in_pieces_at_the_end() {
        let mut sweep = WorkerSweep::default();
        assert!(sweep.is_due(NOW));
        sweep.begin(NOW, vec![1, 2, 3, 4]);
        sweep.saw(piece(&[2], Some(7)), 2);
        assert_eq!(sweep.place(), Some(Place { table: 0, from: 7 }));
        sweep.saw(piece(&[], None), 2);
        assert_eq!(sweep.take(9), Vec::<i64>::new(), "one table is left");
        sweep.saw(piece(&[3, 9], None), 2);
        assert_eq!((sweep.take(1), sweep.has_more()), (vec![1], true));
        assert_eq!((sweep.take(9), sweep.has_more()), (vec![4], false));
        assert!(!sweep.is_due(NOW));
        assert!(sweep.is_due(NOW.after(PAUSE)));
    }

    #[test]
    fn without_a_worker_that_is_gone_no_sweep_begins() {
        let mut sweep = WorkerSweep::default();
        sweep.begin(NOW, Vec::new());
        assert!(sweep.is_due(NOW) && sweep.place().is_none() && !sweep.has_more());
    }
}
