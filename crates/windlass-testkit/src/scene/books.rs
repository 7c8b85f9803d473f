//! The books that must balance after anything: counters equal states.

use std::collections::BTreeMap;

use windlass_core::store::{Filter, Leadership, QueueRecord};
use windlass_core::{QueueName, State, TaskRecord, Timestamp};

use super::upkeep::TERM;
use super::{HOUR, Scene};

/// What a queue's counters should say.
#[derive(Debug, Default, PartialEq)]
struct Count {
    by_state: BTreeMap<State, u64>,
    pending: [u64; 4],
}

impl Scene {
    /// The record of a queue, if it is known.
    pub async fn queue(&self, name: &str) -> Option<QueueRecord> {
        let queues = self.store.queues().await.unwrap();
        queues.into_iter().find(|queue| queue.name.as_str() == name)
    }

    /// How many tasks a queue's counters have in a state.
    pub async fn count(&self, name: &str, state: State) -> u64 {
        let queue = self.queue(name).await;
        queue.map_or(0, |queue| queue.counts.get(state))
    }

    /// Requires the counters of every queue to equal what a full list shows.
    pub async fn books_balance(&self, when: &str) {
        let tasks = self.list(Filter::default()).await;
        let mut expected: BTreeMap<QueueName, Count> = BTreeMap::new();
        for task in &tasks {
            let count = expected.entry(task.queue.clone()).or_default();
            *count.by_state.entry(task.state).or_default() += 1;
            if task.state == State::Pending {
                count.pending[usize::from(task.priority.as_number())] += 1;
            }
        }
        let queues = self.store.queues().await.unwrap();
        for name in expected.keys() {
            let known = queues.iter().any(|queue| queue.name == *name);
            assert!(known, "{when}: queue {name} has tasks but is not known");
        }
        for queue in queues {
            let found = expected.remove(&queue.name).unwrap_or_default();
            let by_state: BTreeMap<_, _> = State::ALL
                .into_iter()
                .map(|state| (state, queue.counts.get(state)))
                .filter(|(_, count)| *count > 0)
                .collect();
            let counted = Count { by_state, pending: queue.pending };
            let name = &queue.name;
            assert_eq!(counted, found, "{when}: counters of {name} against a list");
            let oldest = queue.oldest_pending_at;
            check_oldest(when, oldest, found.pending.iter().sum(), &tasks);
        }
    }

    /// Like [`Scene::books_balance`], after what reads hide already is removed.
    pub async fn books_balance_after_prune(&self) {
        // The last leader of the test may be anyone; wait until nobody leads.
        self.advance(TERM * 2);
        if matches!(self.seek("leader").await, Leadership::Following { .. }) {
            self.advance(HOUR * 24 * 365);
        }
        self.prune().await;
        assert_eq!(self.tend().await.repaired, 0, "nobody has broken anything");
        self.books_balance("in the end").await;
    }
}

fn check_oldest(when: &str, oldest: Option<Timestamp>, pending: u64, tasks: &[TaskRecord]) {
    assert_eq!(
        oldest.is_some(),
        pending > 0,
        "{when}: {pending} tasks are pending, the oldest since {oldest:?}"
    );
    let last = tasks.iter().map(|task| task.updated_at).max();
    assert!(
        oldest <= last,
        "{when}: pending since {oldest:?}, after the last change of any task {last:?}"
    );
}
