//! Whether this process has been in touch with its store without a break.
//!
//! Who has been away cannot know whether the others were: after an outage, or a jump of the machine's or the
//! store's clock, every worker looks silent. So others are declared lost only after one's own contact has lasted a
//! whole lease.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use windlass_core::{Clock, Timestamp};

/// A difference between the two clocks that is more than their usual drift.
const JUMP: Duration = Duration::from_secs(1);

pub(crate) struct Contact {
    wall: Arc<dyn Clock>,
    /// Longest time between two answers that is no break.
    gap_max: Duration,
    state: Mutex<State>,
}

struct State {
    since: Instant,
    last: Instant,
    last_wall: Timestamp,
    /// What the store's clock has shown last.
    store_time: Option<StoreTime>,
}

/// What the store's clock has shown in an answer.
struct StoreTime {
    /// The moment before the question was sent.
    asked: Instant,
    shown: Timestamp,
}

impl Contact {
    pub(crate) fn new(wall: Arc<dyn Clock>, gap_max: Duration) -> Self {
        let (now, last_wall) = (Instant::now(), wall.now());
        let state = State { since: now, last: now, last_wall, store_time: None };
        Self { wall, gap_max, state: Mutex::new(state) }
    }

    /// The store has answered.
    pub(crate) fn answered(&self) {
        let (now, wall) = (Instant::now(), self.wall.now());
        let mut state = self.state.lock();
        if self.is_broken(&state, now, wall) {
            state.since = now;
        }
        (state.last, state.last_wall) = (now, wall);
    }

    /// The store has answered a question of that moment, and its clock has shown this. By a step ahead of that clock
    /// all leases are over at once.
    pub(crate) fn answered_at(&self, asked: Instant, shown: Timestamp) {
        self.answered();
        let now = Instant::now();
        let mut state = self.state.lock();
        // Between the two readings no more than this can have passed, however late either answer was.
        let has_jumped = |last: &StoreTime| shown.since(last.shown) > (now - last.asked) + JUMP;
        if state.store_time.as_ref().is_none_or(has_jumped) {
            state.since = now;
        }
        state.store_time = Some(StoreTime { asked, shown });
    }

    /// How long the contact has lasted without a break; nothing before the store has shown its time.
    pub(crate) fn unbroken_for(&self) -> Duration {
        let (now, wall) = (Instant::now(), self.wall.now());
        let state = self.state.lock();
        let is_broken = state.store_time.is_none() || self.is_broken(&state, now, wall);
        if is_broken { Duration::ZERO } else { now - state.since }
    }

    /// How long ago the last answer was.
    pub(crate) fn silent_for(&self) -> Duration {
        self.state.lock().last.elapsed()
    }

    fn is_broken(&self, state: &State, now: Instant, wall: Timestamp) -> bool {
        let passed = now.saturating_duration_since(state.last);
        let passed_by_wall = wall.as_millis() - state.last_wall.as_millis();
        let passed_ms = i64::try_from(passed.as_millis()).unwrap_or(i64::MAX);
        let jump_ms = passed_by_wall.saturating_sub(passed_ms).unsigned_abs();
        passed > self.gap_max || Duration::from_millis(jump_ms) > JUMP
    }
}

#[cfg(test)]
mod tests {
    use windlass_core::ManualClock;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    async fn pass(clock: &ManualClock, time: Duration) {
        clock.advance(time);
        tokio::time::advance(time).await;
    }

    #[tokio::test(start_paused = true)]
    async fn contact_lasts_while_answers_come_in_time() {
        let clock = Arc::new(ManualClock::default());
        let contact = Contact::new(clock.clone(), SECOND * 5);
        contact.answered_at(Instant::now(), clock.now());
        for _ in 0..4 {
            pass(&clock, SECOND * 5).await;
            contact.answered();
        }
        assert_eq!(contact.unbroken_for(), SECOND * 20);
    }

    #[tokio::test(start_paused = true)]
    async fn a_longer_gap_begins_it_anew() {
        let clock = Arc::new(ManualClock::default());
        let contact = Contact::new(clock.clone(), SECOND * 5);
        contact.answered_at(Instant::now(), clock.now());
        pass(&clock, SECOND * 6).await;
        assert_eq!(contact.unbroken_for(), Duration::ZERO);
        contact.answered();
        pass(&clock, SECOND * 3).await;
        assert_eq!(contact.unbroken_for(), SECOND * 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_jump_of_the_wall_clock_begins_it_anew() {
        let clock = Arc::new(ManualClock::default());
        let contact = Contact::new(clock.clone(), SECOND * 5);
        contact.answered_at(Instant::now(), clock.now());
        pass(&clock, SECOND * 4).await;
        clock.advance(SECOND * 3_600);
        contact.answered();
        assert_eq!(contact.unbroken_for(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_ahead_of_the_stores_clock_begins_it_anew() {
        let (wall, store) = (Arc::new(ManualClock::default()), ManualClock::default());
        let contact = Contact::new(wall.clone(), SECOND * 5);
        assert_eq!(contact.unbroken_for(), Duration::ZERO, "the store's time is not known");
        for _ in 0..3 {
            contact.answered_at(Instant::now(), store.now());
            pass(&wall, SECOND * 4).await;
            store.advance(SECOND * 4);
        }
        assert_eq!(contact.unbroken_for(), SECOND * 12);
        store.advance(SECOND * 2);
        contact.answered_at(Instant::now(), store.now());
        assert_eq!(contact.unbroken_for(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn answers_that_are_late_are_no_step_of_the_stores_clock() {
        let (wall, store) = (Arc::new(ManualClock::default()), ManualClock::default());
        let contact = Contact::new(wall.clone(), SECOND * 5);
        for _ in 0..3 {
            // The store reads its clock at once; its answer takes 4 s, then none.
            let (asked, shown) = (Instant::now(), store.now());
            pass(&wall, SECOND * 4).await;
            store.advance(SECOND * 4);
            contact.answered_at(asked, shown);
            contact.answered_at(Instant::now(), store.now());
        }
        assert_eq!(contact.unbroken_for(), SECOND * 8);
    }
}
