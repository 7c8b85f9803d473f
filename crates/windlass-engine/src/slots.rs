//! The slots of a worker: how many tasks run at once, and how many more may be fetched ahead.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How far back finished runs count as slots that will soon be free.
const RECENT: Duration = Duration::from_millis(100);
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
    suspects: usize,
    /// A suspect has ended since this was last asked.
    has_suspect_ended: bool,
    /// When runs ended lately, in order.
    ended: VecDeque<Instant>,
}

/// A taken slot, free again when dropped.
pub(crate) struct Slot {
    slots: Slots,
    is_suspect: bool,
}

impl Slots {
    pub(crate) fn new(total: usize) -> Self {
        Self(Arc::new(Inner { total, state: Mutex::default(), freed: Notify::new() }))
    }

    /// Takes a slot, if one is free.
    pub(crate) fn take(&self, is_suspect: bool) -> Option<Slot> {
        let mut state = self.0.state.lock();
        if state.taken >= self.0.total {
            return None;
        }
        state.taken += 1;
        state.suspects += usize::from(is_suspect);
        Some(Slot { slots: self.clone(), is_suspect })
    }

    /// How many more tasks may be claimed when so many are here already and not started: the free
    /// slots and those that will be free by the time they come, within bounds.
    pub(crate) fn room(&self, waiting: usize) -> usize {
        let mut state = self.0.state.lock();
        state.forget_before(Instant::now().checked_sub(RECENT));
        let wanted = self.0.total - state.taken + state.ended.len();
        let most = (self.0.total * 4).min(AHEAD_MAX.max(self.0.total));
        wanted.min(most).saturating_sub(waiting)
    }

    /// How many more suspects may be claimed: one at a time.
    pub(crate) fn room_for_suspects(&self) -> usize {
        1_usize.saturating_sub(self.0.state.lock().suspects)
    }

    /// True once after a suspect has ended: another that was left in the store may be claimed.
    pub(crate) fn take_suspect_ended(&self) -> bool {
        std::mem::take(&mut self.0.state.lock().has_suspect_ended)
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

impl State {
    fn forget_before(&mut self, instant: Option<Instant>) {
        while let (Some(first), Some(instant)) = (self.ended.front(), instant) {
            if *first >= instant {
                break;
            }
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
        state.suspects -= usize::from(self.is_suspect);
        state.has_suspect_ended |= self.is_suspect;
        let now = Instant::now();
        state.ended.push_back(now);
        state.forget_before(now.checked_sub(RECENT));
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
        let taken = (slots.take(false), slots.take(false));
        assert!(taken.0.is_some() && taken.1.is_some() && slots.take(false).is_none());
        assert_eq!(slots.room(0), 0);
        drop(taken.0);
        assert_eq!(slots.room(0), 2, "one is free, and one ended lately");
        assert_eq!(slots.room(1), 1);
        tokio::time::advance(Duration::from_millis(101)).await;
        assert_eq!(slots.room(0), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_fetched_ahead_is_bounded() {
        let slots = Slots::new(2);
        for _ in 0..10_000 {
            drop(slots.take(false));
        }
        assert_eq!(slots.room(0), 8);
    }

    #[tokio::test]
    async fn one_suspect_at_a_time() {
        let slots = Slots::new(4);
        assert_eq!(slots.room_for_suspects(), 1);
        let suspect = slots.take(true);
        assert_eq!(slots.room_for_suspects(), 0);
        drop(suspect);
        assert_eq!(slots.room_for_suspects(), 1);
    }
}
