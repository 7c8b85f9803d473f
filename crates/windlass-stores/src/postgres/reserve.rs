//! Reserve in PostgreSQL: numbers are drawn in blocks, so that most ids cost no trip.

use std::time::{Duration, Instant};

use windlass_core::store::Reservation;
use windlass_core::{Clock as _, Result, SystemClock, TaskId};

use super::Shared;
use super::id::Id;
use super::sql;

/// Blocks asked for within this time of each other grow.
const BLOCK_PACE: Duration = Duration::from_millis(500);
/// Numbers are given out for so long: a generation is not long closed when the last of them come in.
const BLOCK_AGE_MAX: Duration = Duration::from_secs(60);

/// Numbers that were reserved and not given out yet.
#[derive(Debug, Default)]
pub(super) struct Block {
    next: i64,
    left: i64,
    size: i64,
    asked_at: Option<Instant>,
}

impl Shared {
    pub(super) async fn reserve(&self, wanted: &[Reservation]) -> Result<Vec<TaskId>> {
        let count: usize = wanted.iter().map(|wish| wish.count).sum();
        let mut left = i64::try_from(count).unwrap_or(i64::MAX);
        let stamp = match self.options.told_time() {
            Some(told) => told,
            None => SystemClock.now().as_millis(),
        };
        let mut ids = Vec::with_capacity(count);
        while left > 0 {
            let (first, taken) = {
                let mut block = self.block.lock();
                if block.asked_at.is_some_and(|at| at.elapsed() >= BLOCK_AGE_MAX) {
                    block.left = 0;
                }
                let taken = left.min(block.left);
                let first = block.next;
                block.next += taken;
                block.left -= taken;
                (first, taken)
            };
            ids.extend((first..first + taken).map(|seq| Id { seq, stamp }.task_id()));
            left -= taken;
            if left > 0 {
                self.refill(left).await?;
            }
        }
        Ok(ids)
    }

    /// Gets more numbers: as many as are wanted now, and more when they are wanted often.
    async fn refill(&self, wanted: i64) -> Result<()> {
        let ahead = {
            let mut block = self.block.lock();
            let is_busy = block.asked_at.is_some_and(|at| at.elapsed() < BLOCK_PACE);
            let most = self.options.ids_at_once_max;
            block.size = if is_busy { (block.size * 2 + wanted).min(most) } else { 0 };
            block.asked_at = Some(Instant::now());
            wanted.max(block.size)
        };
        let session = self.submits.session().await?;
        let row = session.one(sql::RESERVE, &[&ahead]).await?;
        let first: i64 = row.map_or(0, |row| row.get(0));
        let mut block = self.block.lock();
        // Two callers at once: what the other has left is given up, which harms nobody.
        (block.next, block.left) = (first, ahead);
        Ok(())
    }
}
