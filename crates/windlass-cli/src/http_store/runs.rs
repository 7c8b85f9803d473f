//! The runs that the server thinks this worker has: from the lease until the answer to their result.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;
use windlass::core::store::{Applied, ProgressReport};
use windlass::core::{Epoch, Lease, Transition};
use windlass::{Claimed, TaskId, Timestamp};

use super::wire::{HeldRun, ProgressPart};

/// Before a deadline the worker's clock and the server's may disagree for so long.
const DEADLINE_SKEW: Duration = Duration::from_secs(2);

/// By task: of two leases of one task only the later can be valid.
#[derive(Debug, Default)]
pub(super) struct Runs(HashMap<TaskId, HeldLease>);

#[derive(Debug)]
struct HeldLease {
    epoch: Epoch,
    /// The moment before it was asked for.
    asked: Instant,
    timeout: Duration,
    deadline: Option<Timestamp>,
}

impl HeldLease {
    /// True when the run is over its time, or is about to be. The engine ends such a run by itself, as timed out, which a
    /// cancel would hide.
    fn is_overdue(&self, now: Timestamp) -> bool {
        let deadline = self.deadline.map(|deadline| deadline.before(DEADLINE_SKEW));
        self.asked.elapsed() >= self.timeout || deadline.is_some_and(|deadline| deadline <= now)
    }
}

impl Runs {
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    pub(super) fn add(&mut self, task: &Claimed, asked: Instant) {
        let (timeout, deadline) = (task.spec.timeout, task.spec.extras.deadline);
        let lease = HeldLease { epoch: task.epoch, asked, timeout, deadline };
        self.0.insert(task.id.clone(), lease);
    }

    /// The server has answered these results; one that it could not record is still held.
    pub(super) fn settle(&mut self, transitions: &[Transition], outcomes: &[Applied]) {
        for (Transition { lease, .. }, outcome) in transitions.iter().zip(outcomes) {
            if *outcome != Applied::Unrecorded {
                self.remove(lease);
            }
        }
    }

    /// What a heartbeat names.
    pub(super) fn held(&self, progress: &[ProgressReport]) -> Vec<HeldRun> {
        let progress: HashMap<_, _> =
            progress.iter().map(|report| (&report.lease, report)).collect();
        let run = |(task, held): (&TaskId, &HeldLease)| {
            let lease = Lease { task: task.clone(), epoch: held.epoch };
            let progress = progress.get(&lease).map(|report| ProgressPart::of(report));
            HeldRun { id: lease.task, epoch: lease.epoch, progress }
        };
        self.0.iter().map(run).collect()
    }

    /// Of the runs that a heartbeat has named: those that somebody has cancelled. The server tells also those that are
    /// over their time.
    pub(super) fn cancelled(
        &self,
        tasks: &[TaskId],
        named: &[HeldRun],
        now: Timestamp,
    ) -> Vec<Lease> {
        let is_cancel = |lease: &Lease| {
            let held = self.0.get(&lease.task).filter(|held| held.epoch == lease.epoch);
            held.is_some_and(|held| !held.is_overdue(now))
        };
        leases(tasks, named).filter(is_cancel).collect()
    }

    /// Of the runs that a heartbeat has named: these are not held any more. A later lease of the same task is.
    pub(super) fn lose(&mut self, tasks: &[TaskId], named: &[HeldRun]) -> Vec<Lease> {
        let lost: Vec<_> = leases(tasks, named).collect();
        for lease in &lost {
            self.remove(lease);
        }
        lost
    }

    fn remove(&mut self, lease: &Lease) {
        if self.0.get(&lease.task).is_some_and(|held| held.epoch == lease.epoch) {
            self.0.remove(&lease.task);
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// The leases under which a heartbeat has named these tasks.
fn leases(tasks: &[TaskId], named: &[HeldRun]) -> impl Iterator<Item = Lease> {
    let is_meant = |run: &&HeldRun| tasks.contains(&run.id);
    named.iter().filter(is_meant).map(|run| Lease { task: run.id.clone(), epoch: run.epoch })
}

#[cfg(test)]
mod tests {
    use windlass::core::dice::Dice;
    use windlass::core::state::finish;
    use windlass::core::{Kind, QueueName, Spec};
    use windlass::{Backoff, Ending, Priority};

    use super::*;

    fn claimed(epoch: u128, timeout: Duration, deadline: Option<Timestamp>) -> Claimed {
        let extras = windlass::core::task::Extras { deadline, ..Default::default() };
        Claimed {
            id: TaskId::new("task"),
            epoch: Epoch(epoch),
            kind: Kind::new("kind").unwrap(),
            queue: QueueName::new("queue").unwrap(),
            priority: Priority::Normal,
            payload: Default::default(),
            attempts: 1,
            crashes: 0,
            spec: Spec { max_retries: 3, max_crashes: 3, timeout, retention: timeout, extras },
            is_cancel_requested: false,
            created_at: Timestamp::default(),
            pending_at: Timestamp::default(),
            claimed_at: Timestamp::default(),
        }
    }

    const HOUR: Duration = Duration::from_secs(3_600);

    fn holding(task: &Claimed) -> Runs {
        let mut runs = Runs::default();
        runs.add(task, Instant::now());
        runs
    }

    #[tokio::test]
    async fn a_lease_that_came_after_the_heartbeat_is_not_lost_by_its_answer() {
        let mut runs = holding(&claimed(1, HOUR, None));
        let named = runs.held(&[]);
        runs.add(&claimed(2, HOUR, None), Instant::now());
        let task = TaskId::new("task");
        let lost = runs.lose(std::slice::from_ref(&task), &named);
        assert_eq!(lost, [Lease { task: task.clone(), epoch: Epoch(1) }]);
        assert!(runs.cancelled(&[task], &named, Timestamp::default()).is_empty());
        assert_eq!(runs.held(&[])[0].epoch, Epoch(2));
    }

    #[tokio::test]
    async fn a_run_over_its_time_is_not_cancelled_but_times_out() {
        let now = Timestamp::from_millis(1_000_000);
        let check = |timeout, deadline, count| {
            let runs = holding(&claimed(1, timeout, deadline));
            let cancelled = runs.cancelled(&[TaskId::new("task")], &runs.held(&[]), now);
            assert_eq!(cancelled.len(), count, "{timeout:?} {deadline:?}");
        };
        check(HOUR, None, 1);
        check(HOUR, Some(now.after(HOUR)), 1);
        check(HOUR, Some(now), 0);
        check(Duration::ZERO, None, 0);
    }

    #[tokio::test]
    async fn a_run_is_held_until_its_result_is_answered() {
        let task = claimed(1, HOUR, None);
        let ended =
            || vec![finish(&task, Ending::Released, &Backoff::default(), &mut Dice::seeded(1))];
        let mut runs = holding(&task);
        runs.settle(&ended(), &[Applied::Unrecorded]);
        assert_eq!(runs.count(), 1);
        runs.settle(&ended(), &[Applied::Already]);
        assert_eq!(runs.count(), 0);
        runs.add(&claimed(2, HOUR, None), Instant::now());
        runs.settle(&ended(), &[Applied::Already]);
        assert_eq!(runs.count(), 1, "a later lease of the same task");
    }
}
