//! How a worker claims from queues that also hold tasks of kinds that it does not handle. Pure.
//!
//! A store returns the tasks of a queue in order, regardless of their kind. A worker releases foreign tasks to their old
//! positions. Without a pause its next claim would take the same tasks again, before the workers that handle them:
//!
//! ```text
//! queue: B B A B A …        this worker handles A
//! claim 5                   runs A A, releases B B B; the queue is closed for 10 ms
//! opens: claim room + 3     skips the three; finds only B: closed for 20 ms, then 40 ms
//! opens: claim …            finds no B for 2 s: the queue is no longer paced
//! ```
//!
//! The pauses grow with the number of released tasks. A worker without tasks in a long queue therefore releases about 250
//! tasks per second at most, with 25 claims per second. Rejected: claims of one task while the worker finds only foreign
//! tasks. Its own tasks would wait until other workers have run every task before them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;
use windlass_core::dice::Dice;
use windlass_core::{Claimed, QueueName};

use crate::quotas::Queues;

/// The shortest pauses: after a claim with own and foreign tasks, and after a claim with foreign tasks only.
const MIXED_PAUSE_MIN: Duration = Duration::from_millis(10);
const FOREIGN_PAUSE_MIN: Duration = Duration::from_millis(20);
/// The longest pauses while few tasks are released. They bound the start delay of the worker's own tasks.
const MIXED_PAUSE_MAX: Duration = Duration::from_millis(250);
const FOREIGN_PAUSE_MAX: Duration = Duration::from_millis(40);
/// The pause per released task while the worker finds only foreign tasks; a sixteenth of it otherwise.
const PAUSE_PER_TASK: Duration = Duration::from_millis(4);
const MIXED_DIVISOR: u32 = 16;
/// Bytes of released payloads per second of pause.
const BYTES_PER_SECOND: usize = 4 * 1024 * 1024;
/// The longest pause of all.
const PAUSE_MAX: Duration = Duration::from_secs(4);
/// Most foreign tasks that a claim skips.
const SKIP_MAX: usize = 1_000;
/// After this time without a foreign task the queue is no longer paced.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(2);

/// The queues in which a worker has recently claimed tasks of foreign kinds. Empty for most workers.
#[derive(Debug, Default)]
pub struct ClaimPaces(HashMap<QueueName, Pace>);

#[derive(Debug)]
struct Pace {
    /// How many foreign tasks the next claim skips.
    skip: usize,
    pause: Duration,
    /// The queue is no longer paced after this instant, unless the worker claims another foreign task.
    forget_at: Instant,
    /// No claim from the queue before.
    opens_at: Instant,
    /// The processor has been woken since the queue opened.
    is_announced: bool,
}

/// The queues and the size of the next claim.
#[derive(Debug, PartialEq, Eq)]
pub struct ClaimTurn<'a> {
    /// The queues to claim from; empty while every queue is closed.
    pub queues: Cow<'a, Queues>,
    /// The number of tasks, including the foreign ones that the claim skips.
    pub limit: usize,
    /// The claim skips foreign tasks of one queue. Other queues are open too: claim from them next.
    pub is_alone: bool,
}

/// The tasks of one queue in a claim.
#[derive(Debug, Clone, Copy, Default)]
struct Found {
    own: usize,
    foreign: usize,
    foreign_bytes: usize,
}

impl ClaimPaces {
    /// Plans the next claim for `limit` free slots. A queue with foreign tasks at its head gets a claim of its own, which
    /// skips them.
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

    /// Splits claimed tasks into own and foreign ones, and adjusts the pace of their queues.
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

    /// True while claims from this queue are paced. The worker then polls the queue instead of waiting for wake-ups.
    pub fn is_paced(&self, queue: &QueueName) -> bool {
        self.0.contains_key(queue)
    }

    /// When the next queue opens that has not been announced.
    pub fn next_opening(&self) -> Option<Instant> {
        self.0.values().filter(|pace| !pace.is_announced).map(|pace| pace.opens_at).min()
    }

    /// Announces all open queues, and forgets queues without recent foreign tasks. The caller restarts its wait
    /// afterwards: a wait in progress does not cover the forgotten queues.
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
        // Jitter: two workers in step would claim each other's tasks again and again.
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

    /// A claim is sent. The next one follows after the pause, or as soon as this one returned only own tasks.
    fn take(&mut self, now: Instant) -> usize {
        self.close(now, self.pause.clamp(FOREIGN_PAUSE_MIN, FOREIGN_PAUSE_MAX));
        std::mem::take(&mut self.skip)
    }

    fn close(&mut self, now: Instant, pause: Duration) {
        self.opens_at = now + pause;
        self.is_announced = false;
    }
}

/// The pause after a claim with foreign tasks.
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
