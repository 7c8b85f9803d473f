//! What this server remembers of one worker.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use windlass_core::store::{Orders, WakeMark, WorkerCard, WorkerRecord};
use windlass_core::{Claimed, Ending, Lease, TaskId, TaskRecord, Timestamp};
use windlass_engine::ClaimPaces;

use super::Control;

/// A worker that was silent for so long is forgotten here; the store knows it anyway.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);

pub(super) struct Known {
    pub(super) card: WorkerCard,
    control: Control,
    /// When the last beat that was accepted was sent.
    beaten: Instant,
    /// Orders after this one are not known here; nothing when none was heard here.
    mark: Option<WakeMark>,
    /// When it last named what it holds.
    heard: Instant,
    runs: HashMap<TaskId, Run>,
    /// It may hold what another server gave it.
    may_hold_more: bool,
    /// The pace of claims from queues that also hold tasks of other types.
    pub(super) paces: ClaimPaces,
}

/// A run of a remote worker.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    /// Without its payload.
    pub(super) task: Claimed,
    /// When it was handed out, if that was here.
    pub(super) since: Option<Instant>,
    /// Its worker was asked to stop it, since it is over its time.
    pub(super) is_overdue: bool,
}

impl Run {
    /// A run that another server handed out, as its record tells; nothing when it does not run.
    pub(super) fn of(record: TaskRecord) -> Option<Self> {
        let task = Claimed {
            epoch: record.epoch?,
            claimed_at: record.claimed_at?,
            id: record.id,
            kind: record.kind,
            queue: record.queue,
            priority: record.priority,
            payload: Bytes::new(),
            attempts: record.attempts,
            crashes: record.crashes,
            spec: record.spec,
            is_cancel_requested: record.is_cancel_requested,
            created_at: record.created_at,
            // Of interest to whoever claims, and that was another.
            pending_at: record.claimed_at?,
        };
        Some(Self { task, since: None, is_overdue: false })
    }

    /// The ending that a worker's report means. A worker that was asked to stop a run over its time may report the run
    /// as cancelled. Nobody has cancelled the task: it is retried as after any timeout.
    pub(super) fn ending(&self, reported: Ending) -> Ending {
        match reported {
            Ending::Cancelled if self.is_overdue => self.overdue_ending(),
            Ending::TimedOut => self.overdue_ending(),
            reported => reported,
        }
    }

    /// The end of a run that is over its time: the deadline, if that came before the timeout.
    pub(super) fn overdue_ending(&self) -> Ending {
        let timeout = self.task.claimed_at.after(self.task.spec.timeout);
        match self.task.spec.extras.deadline {
            Some(deadline) if deadline <= timeout => Ending::DeadlinePassed { has_started: true },
            Some(_) | None => Ending::TimedOut,
        }
    }

    /// When it must have ended.
    pub(super) fn due(&self) -> Timestamp {
        let timeout = self.task.claimed_at.after(self.task.spec.timeout);
        self.task.spec.extras.deadline.map_or(timeout, |deadline| deadline.min(timeout))
    }
}

impl Known {
    /// A worker that is new.
    pub(super) fn new(card: WorkerCard) -> Self {
        let now = Instant::now();
        Self {
            control: Control { order: card.doing, lease_until: Timestamp::default() },
            card,
            beaten: now,
            mark: None,
            heard: now,
            runs: HashMap::new(),
            may_hold_more: false,
            paces: ClaimPaces::default(),
        }
    }

    /// A worker whose id was made up for a client that has none. Its first beat is due when it comes back.
    pub(super) fn issued(card: WorkerCard) -> Self {
        Self { beaten: long_ago(), ..Self::new(card) }
    }

    /// A worker that has spoken to others so far. Its last beat is old enough to be followed by one.
    pub(super) fn elsewhere(record: &WorkerRecord) -> Self {
        let beaten = long_ago();
        let control = Control { order: record.order, lease_until: record.lease_until };
        let may_hold_more = record.running_count > 0;
        Self { control, beaten, may_hold_more, ..Self::new(record.card.clone()) }
    }

    pub(super) fn control(&self) -> Control {
        self.control
    }

    /// From when on orders are not known here.
    pub(super) fn mark(&self) -> Option<WakeMark> {
        self.mark
    }

    /// A beat was accepted. From now on the order is obeyed, since tasks are handed out by it.
    pub(super) fn beaten(&mut self, sent: Instant, orders: &Orders, lease_until: Timestamp) {
        self.beaten = sent;
        self.mark = Some(orders.mark);
        self.card.doing = orders.order;
        self.control = Control { order: orders.order, lease_until };
    }

    /// True when its last beat is so old that another should follow. Who holds tasks has to name them
    /// now and then: else a task whose answer was lost on its way would be kept alive for ever.
    pub(super) fn should_beat(&self, heartbeat: Duration, lease: Duration) -> bool {
        let is_idle = self.runs.is_empty() && !self.may_hold_more;
        self.beaten.elapsed() >= heartbeat && (is_idle || self.heard.elapsed() < lease)
    }

    /// Takes over what a worker says of itself. While it holds tasks, the queues that it has served still count: who
    /// may not see these may not speak for it.
    pub(super) fn introduce(&mut self, card: WorkerCard, slots: Option<u32>) {
        let before = std::mem::replace(&mut self.card, card);
        let card = &mut self.card;
        if card.kinds != before.kinds {
            // Other workers must see the new kinds immediately.
            self.beaten = long_ago();
        }
        (card.slots_used, card.doing) = (before.slots_used, before.doing);
        card.slots = slots.unwrap_or(before.slots);
        if card.name.is_empty() {
            card.name = before.name;
        }
        if card.version.is_empty() {
            card.version = before.version;
        }
        let is_idle = self.runs.is_empty() && !self.may_hold_more;
        let had =
            before.queues.into_iter().zip(before.weights.into_iter().chain(std::iter::repeat(1)));
        for (queue, weight) in had.filter(|_| !is_idle) {
            if !card.queues.contains(&queue) {
                card.queues.push(queue);
                card.weights.push(weight);
                // Another server should know at once.
                self.beaten = long_ago();
            }
        }
    }

    pub(super) fn is_forgettable(&self) -> bool {
        self.beaten.elapsed() > FORGOTTEN_AFTER
    }

    pub(super) fn hand_out(&mut self, tasks: &[Claimed]) {
        let since = Some(Instant::now());
        for task in tasks {
            let task = Claimed { payload: Bytes::new(), ..task.clone() };
            self.runs.insert(task.id.clone(), Run { task, since, is_overdue: false });
        }
        self.count_runs();
    }

    pub(super) fn take_run(&mut self, lease: &Lease) -> Option<Run> {
        self.run(lease)?;
        let run = self.runs.remove(&lease.task);
        self.count_runs();
        run
    }

    /// Remembers a run again that was taken.
    pub(super) fn put_back(&mut self, run: Run) {
        self.runs.insert(run.task.id.clone(), run);
        self.count_runs();
    }

    /// What the next beat tells of its slots follows from leases and results.
    fn count_runs(&mut self) {
        self.card.slots_used = u32::try_from(self.runs.len()).unwrap_or(u32::MAX);
    }

    pub(super) fn run(&self, lease: &Lease) -> Option<&Run> {
        self.runs.get(&lease.task).filter(|run| run.task.epoch == lease.epoch)
    }

    /// The worker has named everything that it holds, and these are the runs among it that are sound.
    /// What it was given just now may still be on its way to it.
    pub(super) fn named(&mut self, runs: Vec<Run>, on_its_way: Duration) {
        self.heard = Instant::now();
        self.may_hold_more = false;
        let is_young = |run: &Run| run.since.is_some_and(|since| since.elapsed() < on_its_way);
        self.runs.retain(|_, run| is_young(run));
        self.runs.extend(runs.into_iter().map(|run| (run.task.id.clone(), run)));
        self.count_runs();
    }
}

/// A time after which a beat is due.
fn long_ago() -> Instant {
    Instant::now().checked_sub(Duration::from_secs(60)).unwrap_or_else(Instant::now)
}
