//! Which queues a leader visits: those that were written in lately, those where something is due, and a few of the others
//! in turn. So what an idle queue costs does not grow with the number of queues.
//!
//! ```text
//! writer                     redis                        leader
//! announce(q) ─────────────► touched: q = 7
//! write in q  ─────────────► q's keys                     touched since 6? q ◄── each pass
//!   … for HOLDS                                           visits q at each pass until QUIET after that,
//!                                                         and has learnt by then what is due there, and when
//! ```
//!
//! A leader that begins, or whose connection was made again, visits all queues: an announcement may be lost with its
//! reader or its server. The turns find what else was missed.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use windlass_core::store::{Duty, Term};
use windlass_core::{QueueName, Result, Timestamp};

use super::Shared;
use super::activity::HOLDS;
use crate::redis::fleet::{Begun, Touched};

/// How long after an announcement was read its queue is visited at each pass: longer than a writer relies on it.
pub(super) const QUIET: Duration = HOLDS.saturating_mul(2);

/// How long no write must have been announced in a queue that is forgotten: much longer than a call can take.
const STILL: Duration = Duration::from_secs(600);

/// What a leader visits queues for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sweep {
    Promote,
    Prune,
    Tend,
}

const SWEEPS: usize = 3;

impl Sweep {
    /// How many queues have their turn at each pass.
    const fn turns(self) -> usize {
        match self {
            Self::Promote => 16,
            Self::Prune | Self::Tend => 64,
        }
    }
}

/// The plan of the leader in this process, while there is one.
#[derive(Default)]
pub(super) struct SweepPlan(Mutex<Option<Plan>>);

struct Plan {
    term: Term,
    connection: u64,
    /// The number up to which announcements were read.
    read_up_to: u64,
    queues: BTreeMap<QueueName, Planned>,
    /// Whose turn was last, for each sweep.
    turn: [Option<QueueName>; SWEEPS],
}

/// What is planned for a queue.
struct Planned {
    announced: Instant,
    /// The same by the store's clock.
    announced_at: Timestamp,
    /// Visited after the last announcement has ceased to hold, for each sweep.
    is_settled: [bool; SWEEPS],
    /// When there is something to do, as far as the last visit knows.
    due: [Option<Timestamp>; SWEEPS],
}

impl Planned {
    fn new(announced: Instant, announced_at: Timestamp) -> Self {
        Self { announced, announced_at, is_settled: [false; SWEEPS], due: [None; SWEEPS] }
    }
}

impl Plan {
    fn announce(&mut self, queue: QueueName, at: Instant, now: Timestamp) {
        let planned = self.queues.entry(queue).or_insert_with(|| Planned::new(at, now));
        (planned.announced, planned.announced_at) = (at, now);
        planned.is_settled = [false; SWEEPS];
    }

    fn choose(&mut self, sweep: Sweep, now: Timestamp) -> Vec<QueueName> {
        let at = sweep as usize;
        let is_wanted = |planned: &Planned| {
            !planned.is_settled[at] || planned.due[at].is_some_and(|due| due <= now)
        };
        let wanted = self.queues.iter().filter(|(_, planned)| is_wanted(planned));
        let mut chosen: Vec<_> = wanted.map(|(queue, _)| queue.clone()).collect();
        let after = self.turn[at].take().map_or(Bound::Unbounded, Bound::Excluded);
        let ahead = self.queues.range::<QueueName, _>((after.as_ref(), Bound::Unbounded));
        let in_turn: Vec<_> = ahead.map(|(queue, _)| queue).take(sweep.turns()).cloned().collect();
        // The last ones had their turn: the next pass begins with the first.
        self.turn[at] = (in_turn.len() == sweep.turns()).then(|| in_turn.last().cloned()).flatten();
        chosen.extend(in_turn);
        chosen.sort();
        chosen.dedup();
        chosen
    }
}

/// A pass through the queues that are to be visited.
pub(super) struct Pass {
    pub(super) queues: Vec<QueueName>,
    now: Timestamp,
    sweep: Sweep,
    /// There are more workers to forget.
    pub(super) has_more_workers: bool,
}

impl SweepPlan {
    /// Up to which number this leader has read announcements; nothing when it has to begin.
    fn read_up_to(&self, term: Term, connection: u64) -> Option<u64> {
        let plan = self.0.lock();
        let plan = plan.as_ref().filter(|it| it.term == term && it.connection == connection)?;
        Some(plan.read_up_to)
    }

    /// Begins with these queues.
    fn begin(&self, duty: Duty, connection: u64, begun: &Begun, last: u64, queues: Vec<QueueName>) {
        let (term, at) = (duty.term, Instant::now());
        let planned = |queue| (queue, Planned::new(at, begun.now));
        let queues = queues.into_iter().map(planned).collect();
        let turn = [const { None }; SWEEPS];
        *self.0.lock() = Some(Plan { term, connection, read_up_to: last, queues, turn });
    }

    fn choose(&self, sweep: Sweep, begun: &Begun, touched: Touched) -> Pass {
        let mut plan = self.0.lock();
        let mut queues = Vec::new();
        if let Some(plan) = plan.as_mut() {
            let at = Instant::now();
            for queue in touched.queues {
                plan.announce(queue, at, begun.now);
            }
            plan.read_up_to = plan.read_up_to.max(touched.last);
            queues = plan.choose(sweep, begun.now);
        }
        Pass { queues, now: begun.now, sweep, has_more_workers: begun.has_more }
    }

    /// Notes that a queue was visited, since when, and when there is something to do again.
    pub(super) fn visited(
        &self,
        pass: &Pass,
        queue: &QueueName,
        since: Instant,
        due: Option<Timestamp>,
    ) {
        let (mut plan, at) = (self.0.lock(), pass.sweep as usize);
        if let Some(planned) = plan.as_mut().and_then(|plan| plan.queues.get_mut(queue)) {
            planned.due[at] = due;
            planned.is_settled[at] = since.duration_since(planned.announced) >= QUIET;
        }
    }

    /// Has a queue visited as if it had been announced.
    pub(super) fn revisit(&self, queue: &QueueName, pass: &Pass) {
        if let Some(plan) = self.0.lock().as_mut() {
            plan.announce(queue.clone(), Instant::now(), pass.now);
        }
    }

    /// The number up to which announcements were read, if no write was announced in a queue for [`STILL`]: then no
    /// write that was announced can be under way.
    pub(super) fn still_up_to(&self, queue: &QueueName, pass: &Pass) -> Option<u64> {
        let plan = self.0.lock();
        let plan = plan.as_ref()?;
        let planned = plan.queues.get(queue)?;
        (pass.now.since(planned.announced_at) >= STILL).then_some(plan.read_up_to)
    }

    /// Visits a queue no more, until it is announced.
    pub(super) fn forget(&self, queue: &QueueName) {
        if let Some(plan) = self.0.lock().as_mut() {
            plan.queues.remove(queue);
        }
    }

    /// When there is something to do in any queue.
    pub(super) fn next_due(&self, pass: &Pass) -> Option<Timestamp> {
        let plan = self.0.lock();
        let queues = plan.as_ref().into_iter().flat_map(|plan| plan.queues.values());
        queues.filter_map(|planned| planned.due[pass.sweep as usize]).min()
    }
}

impl Pass {
    /// The store's clock as it began.
    pub(super) fn now(&self) -> Timestamp {
        self.now
    }
}

impl Shared {
    /// Begins a pass, if the term is not stale.
    pub(super) async fn begin_pass(&self, duty: Duty, sweep: Sweep, what: &str) -> Result<Pass> {
        let fleet = &self.fleet;
        let read = |connection| self.sweeps.read_up_to(duty.term, connection);
        let known = read(fleet.link.connection_number());
        let begun = fleet.begin_duty(duty, what);
        let touched = fleet.touched_since(known.unwrap_or(0));
        let (begun, touched) = futures_util::future::try_join(begun, touched).await?;
        // Asked again: the connection may be another now. A lower number is that of other data.
        let connection = fleet.link.connection_number();
        let is_other_data = known.is_some_and(|number| touched.last < number);
        if is_other_data || read(connection).is_none() {
            let queues = self.all_queues().await?;
            self.sweeps.begin(duty, connection, &begun, touched.last, queues);
        } else {
            self.names.add(touched.queues.iter().cloned());
        }
        Ok(self.sweeps.choose(sweep, &begun, touched))
    }
}
