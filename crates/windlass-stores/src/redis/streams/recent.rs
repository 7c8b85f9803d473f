//! The queues in which something was written lately: a beat asks these for requests to cancel and for pauses. Of idle
//! queues it asks only those that were paused when they were last asked and that its worker serves.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use parking_lot::Mutex;
use windlass_core::{QueueName, Result};

use super::Shared;
use super::sweeps::QUIET;

/// What this handle has read of announcements.
#[derive(Default)]
pub(super) struct RecentQueues(Mutex<Option<Recent>>);

struct Recent {
    connection: u64,
    /// The number up to which announcements were read.
    read_up_to: u64,
    /// When the last announcement of each queue was read.
    announced: BTreeMap<QueueName, Instant>,
    /// Queues that were paused when they were last asked.
    paused: BTreeSet<QueueName>,
}

impl Recent {
    /// The queues to ask for a worker that serves these, some of them twice.
    fn to_ask(&self, served: &[QueueName]) -> Vec<QueueName> {
        let paused = served.iter().filter(|queue| self.paused.contains(*queue));
        self.announced.keys().chain(paused).cloned().collect()
    }
}

impl RecentQueues {
    fn read_up_to(&self, connection: u64) -> Option<u64> {
        let recent = self.0.lock();
        recent.as_ref().filter(|it| it.connection == connection).map(|it| it.read_up_to)
    }

    /// Notes that a queue had nothing to tell to a beat that began then: it is not asked again until it is announced.
    pub(super) fn had_nothing(&self, queue: &QueueName, began: Instant) {
        let mut recent = self.0.lock();
        let Some(recent) = recent.as_mut() else { return };
        let at = recent.announced.get(queue);
        // A writer may rely on its announcement for a while.
        if at.is_some_and(|at| began.saturating_duration_since(*at) >= QUIET) {
            recent.announced.remove(queue);
        }
    }

    /// Notes whether a queue that was asked is paused.
    pub(super) fn note_paused(&self, queue: &QueueName, is_paused: bool) {
        let mut recent = self.0.lock();
        let Some(recent) = recent.as_mut() else { return };
        match is_paused {
            true => _ = recent.paused.insert(queue.clone()),
            false => _ = recent.paused.remove(queue),
        }
    }
}

impl Shared {
    /// The queues that may have something to tell a worker that serves these; all, when this handle or its connection
    /// is new.
    pub(super) async fn recent_queues(&self, served: &[QueueName]) -> Result<Vec<QueueName>> {
        let link = &self.fleet.link;
        let known = self.recent.read_up_to(link.connection_number());
        let touched = self.fleet.touched_since(known.unwrap_or(0)).await?;
        let connection = link.connection_number();
        let is_other_data = known.is_some_and(|number| touched.last < number);
        let is_new = is_other_data || self.recent.read_up_to(connection).is_none();
        let all = if is_new { self.all_queues().await? } else { Vec::new() };
        self.names.add(touched.queues.iter().cloned());
        let (at, mut recent) = (Instant::now(), self.recent.0.lock());
        if is_new {
            *recent = None;
        }
        let recent = recent.get_or_insert_with(|| Recent {
            connection,
            read_up_to: 0,
            announced: BTreeMap::new(),
            paused: BTreeSet::new(),
        });
        recent.announced.extend(all.into_iter().chain(touched.queues).map(|queue| (queue, at)));
        recent.read_up_to = recent.read_up_to.max(touched.last);
        Ok(recent.to_ask(served))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_paused_queues_are_asked_for_workers_that_serve_them() {
        let (paused, idle) = (QueueName::stored("paused"), QueueName::stored("idle"));
        let announced = Instant::now();
        let recent = RecentQueues(Mutex::new(Some(Recent {
            connection: 1,
            read_up_to: 2,
            announced: [(paused.clone(), announced), (idle.clone(), announced)].into(),
            paused: BTreeSet::new(),
        })));
        let to_ask = |served: &[QueueName]| recent.0.lock().as_ref().unwrap().to_ask(served);
        assert_eq!(to_ask(&[]), [idle.clone(), paused.clone()], "both were announced");
        recent.note_paused(&paused, true);
        recent.note_paused(&idle, false);
        recent.had_nothing(&paused, announced + QUIET);
        recent.had_nothing(&idle, announced + QUIET);
        let served = [idle, paused.clone()];
        assert_eq!(to_ask(&served[..1]), []);
        assert_eq!(to_ask(&served), &served[1..]);
        recent.note_paused(&paused, false);
        assert_eq!(to_ask(&served), []);
    }
}
