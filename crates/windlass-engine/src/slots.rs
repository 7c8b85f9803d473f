//! The slots of a worker: how many tasks run at once, and how many more may be fetched ahead.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::suspects::Pass;

/// How far back finished runs count as slots that will soon be free: this many times as long as a claim
/// takes, within bounds. What is fetched ahead keeps the slots busy meanwhile; more would only have urgent
/// tasks wait for it.
const RECENT_CLAIMS: u32 = 4;
const RECENT_MIN: Duration = Duration::from_millis(20);
const RECENT_MAX: Duration = Duration::from_millis(400);
/// Most tasks fetched ahead, whatever the number of slots.
const AHEAD_MAX: usize = 1_000;

#[derive(Clone)]
pub(crate) struct Slots(Arc<Inner>);

struct Inner {
    total: usize,
    state: Mutex<State>,
    freed: Notify,
}

#[derive(Default)]
struct State {
    taken: usize,
    /// When runs ended lately, in order.
    ended: VecDeque<Instant>,
    /// How long claims take, the last ones above all.
    claim: Duration,
}

/// A taken slot, free again when dropped.
pub(crate) struct Slot {
    slots: Slots,
    pass: Option<Pass>,
}

impl Slots {
    pub(crate) fn new(total: usize) -> Self {
        Self(Arc::new(Inner { total, state: Mutex::default(), freed: Notify::new() }))
    }

    /// Takes a slot, if one is free.
    pub(crate) fn take(&self) -> Option<Slot> {
        let mut state = self.0.state.lock();
        if state.taken >= self.0.total {
            return None;
        }
        state.taken += 1;
        Some(Slot { slots: self.clone(), pass: None })
    }

    /// How many more tasks to claim when so many are here already, or on their way, and not started: for
    /// the free slots and those that will be free by the time they come, within bounds. None while every
    /// free slot has its task and half of the rest is here: many small claims cost more than one.
    pub(crate) fn room(&self, waiting: usize) -> usize {
        let mut state = self.0.state.lock();
        state.forget_old(Instant::now());
        let free = self.0.total - state.taken;
        let most = (self.0.total * 4).min(AHEAD_MAX.max(self.0.total));
        let wanted = (free + state.ended.len()).min(most);
        if free <= waiting && wanted <= waiting * 2 {
            return 0;
        }
        wanted.saturating_sub(waiting)
    }

    /// Learns how long a claim took.
    pub(crate) fn note_claim(&self, took: Duration) {
        let mut state = self.0.state.lock();
        state.claim = (state.claim * 7 + took) / 8;
    }

    pub(crate) fn total(&self) -> usize {
        self.0.total
    }

    pub(crate) fn taken(&self) -> usize {
        self.0.state.lock().taken
    }

    /// Ends when a slot has become free.
    pub(crate) async fn freed(&self) {
        self.0.freed.notified().await;
    }
}

impl Slot {
    /// The run in this slot is that of a suspect: the pass is free when the slot is.
    pub(crate) fn with(self, pass: Option<Pass>) -> Self {
        let mut slot = self;
        slot.pass = pass;
        slot
    }
}

impl State {
    fn forget_old(&mut self, now: Instant) {
        let recent = (self.claim * RECENT_CLAIMS).clamp(RECENT_MIN, RECENT_MAX);
        while self.ended.front().is_some_and(|first| now - *first > recent) {
            self.ended.pop_front();
        }
        // More than can be fetched ahead is of no use.
        let excess = self.ended.len().saturating_sub(AHEAD_MAX);
        self.ended.drain(..excess);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.slots.0.state.lock();
        state.taken -= 1;
        let now = Instant::now();
        state.ended.push_back(now);
        state.forget_old(now);
        drop(state);
        self.slots.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn room_is_the_free_slots_and_what_ended_lately() {
        let slots = Slots::new(2);
        assert_eq!(slots.room(0), 2);
        let taken = (slots.take(), slots.take());
        assert!(taken.0.is_some() && taken.1.is_some() && slots.take().is_none());
        assert_eq!(slots.room(0), 0);
        drop(taken.0);
        assert_eq!(slots.room(0), 2, "one is free, and one ended lately");
        assert_eq!(slots.room(1), 0, "the free one has its task");
        tokio::time::advance(Duration::from_millis(21)).await;
        assert_eq!(slots.room(0), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_longer_claims_take_the_more_is_fetched_ahead() {
        let slots = Slots::new(1);
        for _ in 0..40 {
            slots.note_claim(Duration::from_millis(50));
        }
        drop(slots.take());
        tokio::time::advance(Duration::from_millis(190)).await;
        assert_eq!(slots.room(0), 2);
        tokio::time::advance(Duration::from_millis(11)).await;
        assert_eq!(slots.room(0), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_fetched_ahead_is_bounded() {
        let slots = Slots::new(2);
        for _ in 0..10_000 {
            drop(slots.take());
        }
        assert_eq!(slots.room(0), 8);
    }

    #[tokio::test(start_paused = true)]
    async fn few_more_are_claimed_only_where_a_slot_would_be_idle() {
        let slots = Slots::new(4);
        assert_eq!((slots.room(3), slots.room(4)), (1, 0));
        for _ in 0..16 {
            drop(slots.take());
        }
        assert_eq!((slots.room(3), slots.room(7)), (13, 9), "less than half is here");
        assert_eq!((slots.room(8), slots.room(15)), (0, 0));
        let _taken = [slots.take(), slots.take(), slots.take()];
        assert_eq!((slots.room(7), slots.room(8)), (9, 0));
    }
}
