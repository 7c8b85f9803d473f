//! All cells of a stretch of time, by queue and kind; their number is bounded.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::cell::Cell;
use crate::metric::OTHER;
use crate::name::{Kind, QueueName};

/// Pairs of queue and kind that are told apart; those met later share one cell, named [`OTHER`]. Submitters
/// choose these names.
pub const CELLS_MAX: usize = 200;

/// Cells by queue and kind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sheet {
    queues: BTreeMap<QueueName, BTreeMap<Kind, Cell>>,
    count: usize,
}

impl Sheet {
    /// The cell of a queue and kind, or the one that all others share.
    pub fn cell(&mut self, queue: &QueueName, kind: &Kind) -> &mut Cell {
        let kinds = self.queues.get(queue.as_str());
        let is_known = kinds.is_some_and(|kinds| kinds.contains_key(kind.as_str()));
        if is_known {
            return self.make(queue.clone(), kind.clone());
        }
        if self.count >= CELLS_MAX || is_shared(queue, kind) {
            // Beyond the bound, so that there is always room for it.
            return self.make(QueueName::stored(OTHER), Kind::stored(OTHER));
        }
        self.count += 1;
        self.make(queue.clone(), kind.clone())
    }

    fn make(&mut self, queue: QueueName, kind: Kind) -> &mut Cell {
        self.queues.entry(queue).or_default().entry(kind).or_default()
    }

    /// Counts everything that another has counted.
    pub fn merge(&mut self, other: &Self) {
        for (queue, kind, cell) in other.cells() {
            self.cell(queue, kind).merge(cell);
        }
    }

    /// Every cell with its queue and kind.
    pub fn cells(&self) -> impl Iterator<Item = (&QueueName, &Kind, &Cell)> {
        self.queues
            .iter()
            .flat_map(|(queue, kinds)| kinds.iter().map(move |(kind, cell)| (queue, kind, cell)))
    }

    /// True when nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }
}

impl Serialize for Sheet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.queues.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Sheet {
    /// Within the bound, whatever is sent: a document may have been written by anyone.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let queues = BTreeMap::<QueueName, BTreeMap<Kind, Cell>>::deserialize(deserializer)?;
        let mut read = Self { queues, count: 0 };
        read.count = read.cells().filter(|(queue, kind, _)| !is_shared(queue, kind)).count();
        if read.count <= CELLS_MAX {
            return Ok(read);
        }
        let mut bounded = Self::default();
        bounded.merge(&read);
        Ok(bounded)
    }
}

fn is_shared(queue: &QueueName, kind: &Kind) -> bool {
    queue.as_str() == OTHER && kind.as_str() == OTHER
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(queue: &str, kind: usize) -> (QueueName, Kind) {
        (QueueName::stored(queue), Kind::stored(&format!("kind-{kind}")))
    }

    fn sheet(queue: &str, kinds: std::ops::Range<usize>) -> Sheet {
        let mut sheet = Sheet::default();
        for kind in kinds {
            let (queue, kind) = names(queue, kind);
            sheet.cell(&queue, &kind).submitted += 1;
        }
        sheet
    }

    fn total(sheet: &Sheet) -> u64 {
        sheet.cells().map(|(_, _, cell)| cell.submitted).sum()
    }

    #[test]
    fn names_beyond_the_bound_share_a_cell_and_none_is_lost() {
        let mut sheet = sheet("a", 0..CELLS_MAX + 50);
        assert_eq!((sheet.cells().count(), total(&sheet)), (CELLS_MAX + 1, 250));
        let (queue, kind) = names("a", 7);
        sheet.cell(&queue, &kind).submitted += 1;
        assert_eq!(sheet.cell(&queue, &kind).submitted, 2, "known ones stay");
        assert_eq!(sheet.cell(&QueueName::stored(OTHER), &Kind::stored(OTHER)).submitted, 50);
    }

    #[test]
    fn sheets_that_are_full_can_be_merged_and_read_back_within_the_bound() {
        let mut sum = sheet("a", 0..CELLS_MAX + 1);
        sum.merge(&sheet("b", 0..CELLS_MAX + 1));
        sum.merge(&sheet("a", 0..CELLS_MAX + 1));
        assert_eq!((sum.cells().count(), total(&sum)), (CELLS_MAX + 1, 603));
        let text = serde_json::to_string(&sum).unwrap();
        let back: Sheet = serde_json::from_str(&text).unwrap();
        assert_eq!((back.cells().count(), total(&back)), (CELLS_MAX + 1, 603));
    }

    #[test]
    fn a_document_with_too_many_names_is_cut_to_the_bound() {
        let kinds: BTreeMap<String, Cell> = (0..5_000)
            .map(|at| (format!("k{at}"), Cell { completed: 1, ..Cell::default() }))
            .collect();
        let text = serde_json::to_string(&BTreeMap::from([("q", kinds)])).unwrap();
        let sheet: Sheet = serde_json::from_str(&text).unwrap();
        assert_eq!(sheet.cells().count(), CELLS_MAX + 1);
        assert_eq!(sheet.cells().map(|(_, _, cell)| cell.completed).sum::<u64>(), 5_000);
    }
}
