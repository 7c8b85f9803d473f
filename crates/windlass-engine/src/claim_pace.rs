//! How a worker claims from queues that also hold tasks of kinds that it does not handle. Pure.
//!
//! A store gives out the tasks of a queue in their order, whatever their kind. A worker releases the foreign ones for
//! those who handle them, where they stood. So it would meet them again at once, ahead of the workers that they are for:
//!
//! ```text
//! queue: B B A B A …        this worker handles A
//! claim 5                   runs A A, releases B B B; the queue is closed for 10 ms
//! opens: claim room + 3     looks past the three; finds only B: closed for 20 ms, then 40 ms
//! opens: claim …            finds no B for 2 s: the queue is as any other
//! ```
//!
//! The pauses are in proportion to what was released, so that a worker without tasks in a long queue costs the
//! others little: some 250 released tasks per second at most, and 25 claims per second. Rejected: claims of one task
//! while only foreign ones are found. Own tasks would wait until others have worked off all that stands before them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;
use windlass_core::dice::Dice;
use windlass_core::{Claimed, QueueName};

use crate::quotas::Queues;

/// The shortest pauses: after a claim that also brought tasks of the worker's own kinds, and after one that did not.
const MIXED_PAUSE_MIN: Duration = Duration::from_millis(10);
const FOREIGN_PAUSE_MIN: Duration = Duration::from_millis(20);
/// The longest pauses while few tasks are released. What a queue has for this worker starts after that at the latest.
const MIXED_PAUSE_MAX: Duration = Duration::from_millis(250);
const FOREIGN_PAUSE_MAX: Duration = Duration::from_millis(40);
/// The pause that each released task is worth while nothing else is found; a sixteenth of it otherwise.
const PAUSE_PER_TASK: Duration = Duration::from_millis(4);
const MIXED_DIVISOR: u32 = 16;
/// How many bytes of payloads are worth a second.
const BYTES_PER_SECOND: usize = 4 * 1024 * 1024;
/// The longest pause of all.
const PAUSE_MAX: Duration = Duration::from_secs(4);
/// Most tasks that a claim looks past.
const SKIP_MAX: usize = 1_000;
/// A queue without foreign tasks for so long is claimed from as any other.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(2);

/// The queues in which a worker has met tasks of foreign kinds lately. Empty for most workers.
#[derive(Debug, Default)]
pub struct ClaimPaces(HashMap<QueueName, Pace>);

#[derive(Debug)]
struct Pace {
    /// How many tasks at the head of the queue are foreign.
    skip: usize,
    pause: Duration,
    /// Without another foreign task until then the queue is as any other.
    forget_at: Instant,
    /// No claim from the queue before.
    opens_at: Instant,
    /// The worker has heard that the queue is open.
    is_announced: bool,
}

/// What to claim next.
#[derive(Debug, PartialEq, Eq)]
pub struct ClaimTurn<'a> {
    /// From which queues; from none at all when every queue is closed.
    pub queues: Cow<'a, Queues>,
    /// How many tasks, with those that the claim looks past.
    pub limit: usize,
    /// It goes past foreign tasks: other queues, which are open too, have to be asked after it.
    pub is_alone: bool,
}

/// What a claim has brought from one queue.
#[derive(Debug, Clone, Copy, Default)]
struct Found {
    own: usize,
    foreign: usize,
    foreign_bytes: usize,
}

impl ClaimPaces {
    /// The queues of the next claim for so many free slots. A queue with foreign tasks at its head goes alone, since its
    /// claim looks past them.
    pub fn turn<'a>(
        &mut self,
        queues: Cow<'a, Queues>,
        limit: usize,
        now: Instant,
    ) -> ClaimTurn<'a> {
        if self.0.is_empty() {
            return ClaimTurn { queues, limit, is_alone: false };
        }
        let alone = queues.weighted.iter().find_map(|(queue, weight)| {
            let pace = self.0.get_mut(queue).filter(|pace| pace.skip > 0)?;
            pace.is_open(now).then(|| ((queue.clone(), *weight), pace.take(now)))
        });
        if let Some((queue, skip)) = alone {
            let queues = Cow::Owned(Queues { weighted: vec![queue], ..*queues });
            return ClaimTurn { queues, limit: limit + skip, is_alone: true };
        }
        let is_open = |queue: &QueueName| self.0.get(queue).is_none_or(|pace| pace.is_open(now));
        if queues.weighted.iter().all(|(queue, _)| is_open(queue)) {
            self.take_all(&queues, now);
            return ClaimTurn { queues, limit, is_alone: false };
        }
        let open = queues.weighted.iter().filter(|(queue, _)| is_open(queue));
        let open = Queues { weighted: open.cloned().collect(), ..*queues };
        self.take_all(&open, now);
        ClaimTurn { queues: Cow::Owned(open), limit, is_alone: false }
    }

    /// Parts what a claim has brought into tasks that the worker handles and foreign ones, and learns from it.
    pub fn part(
        &mut self,
        tasks: Vec<Claimed>,
        handles: impl Fn(&Claimed) -> bool,
        now: Instant,
        dice: &mut Dice,
    ) -> (Vec<Claimed>, Vec<Claimed>) {
        if self.0.is_empty() && tasks.iter().all(&handles) {
            return (tasks, Vec::new());
        }
        let mut found: HashMap<QueueName, Found> = HashMap::new();
        let (own, foreign): (Vec<_>, Vec<_>) = tasks.into_iter().partition(|task| {
            let found = found.entry(task.queue.clone()).or_default();
            let is_own = handles(task);
            if is_own {
                found.own += 1;
            } else {
                found.foreign += 1;
                found.foreign_bytes += task.payload.len();
            }
            is_own
        });
        for (queue, found) in found {
            self.note(queue, found, now, dice);
        }
        (own, foreign)
    }

    /// True while claims from this queue are paced. Nobody has to wait for its wake-ups: its turn comes.
    pub fn is_paced(&self, queue: &QueueName) -> bool {
        self.0.contains_key(queue)
    }

    /// When the next queue opens that the worker has not heard of.
    pub fn next_opening(&self) -> Option<Instant> {
        self.0.values().filter(|pace| !pace.is_announced).map(|pace| pace.opens_at).min()
    }

    /// The worker hears of all queues that are open, and from now on waits again for those that have had no foreign task
    /// for a while. Only here are they forgotten: a wait under way would not know of them.
    pub fn announce(&mut self, now: Instant) {
        self.0.retain(|_, pace| now < pace.forget_at);
        for pace in self.0.values_mut() {
            pace.is_announced |= pace.is_open(now);
        }
    }

    fn note(&mut self, queue: QueueName, found: Found, now: Instant, dice: &mut Dice) {
        if found.foreign == 0 {
            if let Some(pace) = self.0.get_mut(&queue) {
                pace.close(now, Duration::ZERO);
                pace.pause = Duration::ZERO;
            }
            return;
        }
        let pace = self.0.entry(queue).or_insert_with(|| Pace {
            skip: 0,
            pause: Duration::ZERO,
            forget_at: now,
            opens_at: now,
            is_announced: false,
        });
        pace.skip = found.foreign.min(SKIP_MAX);
        pace.pause = pause_after(found, pace.pause);
        // So that workers which have met do not meet again and again.
        pace.close(now, pace.pause.mul_f64(0.75 + 0.5 * dice.unit()));
        pace.forget_at = pace.opens_at + FORGOTTEN_AFTER;
    }

    fn take_all(&mut self, queues: &Queues, now: Instant) {
        for (queue, _) in &queues.weighted {
            if let Some(pace) = self.0.get_mut(queue) {
                pace.take(now);
            }
        }
    }
}

impl Pace {
    fn is_open(&self, now: Instant) -> bool {
        self.opens_at <= now
    }

    /// A claim is sent. Another may follow when this one brings only own tasks, and otherwise after the pause.
    fn take(&mut self, now: Instant) -> usize {
        self.close(now, self.pause.clamp(FOREIGN_PAUSE_MIN, FOREIGN_PAUSE_MAX));
        std::mem::take(&mut self.skip)
    }

    fn close(&mut self, now: Instant, pause: Duration) {
        self.opens_at = now + pause;
        self.is_announced = false;
    }
}

/// The pause after a claim that has brought foreign tasks.
fn pause_after(found: Found, before: Duration) -> Duration {
    let tasks = PAUSE_PER_TASK * u32::try_from(found.foreign).unwrap_or(u32::MAX);
    let bytes = Duration::from_secs_f64(found.foreign_bytes as f64 / BYTES_PER_SECOND as f64);
    let worth = tasks + bytes;
    if found.own > 0 {
        return (worth / MIXED_DIVISOR).clamp(MIXED_PAUSE_MIN, MIXED_PAUSE_MAX);
    }
    let longest = worth.clamp(FOREIGN_PAUSE_MAX, PAUSE_MAX);
    (before * 2).clamp(FOREIGN_PAUSE_MIN, longest)
}

#[cfg(test)]
#[path = "claim_pace_tests.rs"]
mod tests;
