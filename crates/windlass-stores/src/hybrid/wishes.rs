//! What the workers of this process want, as they last asked for it.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use windlass_core::store::ClaimParams;
use windlass_core::{Priority, QueueName, WorkerId};

use crate::redis::ears::BLOCK_MAX;

/// How long a wish holds. Who waits asks again after each silence; who does not is lost, or goes on under another id.
const HOLDS_FOR: Duration = Duration::from_secs(30);

#[derive(Default)]
pub(super) struct Wishes {
    asked: Mutex<HashMap<WorkerId, Asked>>,
    /// When a reference of a queue was last put back: a move would bring it again at once.
    put_back: Mutex<HashMap<QueueName, Instant>>,
}

struct Asked {
    at: Instant,
    /// In the order of claiming.
    lists: Vec<(QueueName, Priority)>,
}

/// The lists of a broker that are wanted here, all by one worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) worker: WorkerId,
    /// In the order of claiming, at least one.
    pub(super) lists: Vec<List>,
}

/// A list of references. (Suspects stand in a list of their own; the bell rings for them.)
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct List {
    pub(super) queue: QueueName,
    pub(super) number: i32,
    pub(super) lane: i16,
}

impl Wishes {
    /// Notes what a worker asks for.
    pub(super) fn note(&self, params: &ClaimParams) {
        let mut lists = Vec::with_capacity(params.quotas.len() * Priority::DESCENDING.len());
        for quota in &params.quotas {
            for priority in quota.priorities.descending() {
                let one = (quota.queue.clone(), priority);
                if !lists.contains(&one) {
                    lists.push(one);
                }
            }
        }
        let mut asked = self.asked.lock();
        asked.insert(params.worker.clone(), Asked { at: Instant::now(), lists });
        asked.retain(|_, one| one.at.elapsed() < HOLDS_FOR);
    }

    /// Notes that a reference of a queue was put back, since it is paused or someone holds the row.
    pub(super) fn note_put_back(&self, queue: &QueueName) {
        self.put_back.lock().insert(queue.clone(), Instant::now());
    }

    /// Forgets a worker that is gone.
    pub(super) fn forget(&self, worker: &WorkerId) {
        self.asked.lock().remove(worker);
    }

    /// What is wanted of the lists for which `is_its` says so, if one worker wants them and may have them at once.
    pub(super) fn of_one_worker(
        &self,
        numbers: &HashMap<QueueName, i32>,
        is_its: impl Fn(Priority) -> bool,
    ) -> Option<Wish> {
        let asked = self.asked.lock();
        let has_its = |one: &Asked| {
            one.at.elapsed() < HOLDS_FOR && one.lists.iter().any(|(_, one)| is_its(*one))
        };
        let mut wishes = asked.iter().filter(|(_, one)| has_its(one));
        let (Some((worker, wish)), None) = (wishes.next(), wishes.next()) else { return None };
        let put_back = self.put_back.lock();
        let is_free = |queue: &QueueName| {
            put_back.get(queue).is_none_or(|at: &Instant| at.elapsed() >= BLOCK_MAX)
        };
        let list = |(queue, priority): &(QueueName, Priority)| {
            let number = *numbers.get(queue).filter(|_| is_free(queue))?;
            let lane = i16::from(priority.as_number()) * 2;
            Some(List { queue: queue.clone(), number, lane })
        };
        let lists: Vec<_> =
            wish.lists.iter().filter(|(_, priority)| is_its(*priority)).filter_map(list).collect();
        (!lists.is_empty()).then(|| Wish { worker: worker.clone(), lists })
    }
}

#[cfg(test)]
mod tests {
    use windlass_core::store::{PrioritySet, Quota};

    use super::*;

    fn queue(name: &str) -> QueueName {
        QueueName::stored(name)
    }

    fn claim(worker: &str, queues: &[(&str, &[Priority])]) -> ClaimParams {
        let quota = |(name, priorities): &(&str, &[Priority])| Quota {
            priorities: PrioritySet::of(priorities),
            ..Quota::of(queue(name), 9)
        };
        let quotas = queues.iter().map(quota).collect();
        ClaimParams { worker: WorkerId::new(worker), quotas, limit: 9, suspects_at_most: 1 }
    }

    #[tokio::test(start_paused = true)]
    async fn a_wish_names_lists_in_the_order_of_claiming_if_one_worker_wants_them() {
        let numbers = HashMap::from([(queue("a"), 1), (queue("b"), 2)]);
        let (high, low) = (Priority::High, Priority::Low);
        let wishes = Wishes::default();
        let lanes = |is_its: fn(Priority) -> bool| {
            let wish = wishes.of_one_worker(&numbers, is_its);
            wish.map(|wish| wish.lists.iter().map(|one| (one.number, one.lane)).collect::<Vec<_>>())
        };
        assert_eq!(lanes(|_| true), None);
        wishes
            .note(&claim("w", &[("b", &[low, high]), ("a", &[low]), ("b", &[low]), ("c", &[low])]));
        assert_eq!(lanes(|_| true), Some(vec![(2, 4), (2, 0), (1, 0)]));
        assert_eq!(lanes(|one| one == Priority::High), Some(vec![(2, 4)]));
        assert_eq!(lanes(|one| one == Priority::Normal), None);
        wishes.note_put_back(&queue("b"));
        assert_eq!(
            lanes(|_| true),
            Some(vec![(1, 0)]),
            "what was put back would come again at once"
        );
        wishes.note(&claim("v", &[("a", &[low])]));
        assert_eq!(lanes(|_| true), None, "nobody knows for whom it is");
        wishes.forget(&WorkerId::new("w"));
        assert_eq!(lanes(|_| true), Some(vec![(1, 0)]));
        tokio::time::advance(HOLDS_FOR).await;
        assert_eq!(lanes(|_| true), None, "it is lost, or has another id");
        wishes.note(&claim("w", &[("a", &[low])]));
        assert_eq!(lanes(|_| true), Some(vec![(1, 0)]));
    }
}
