//! The queues in which something was written lately: a beat asks these for requests to cancel, and no idle ones.

use std::collections::BTreeMap;
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
}

impl Shared {
    /// The queues that may have something to tell; all, when this handle or its connection is new.
    pub(super) async fn recent_queues(&self) -> Result<Vec<QueueName>> {
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
        });
        recent.announced.extend(all.into_iter().chain(touched.queues).map(|queue| (queue, at)));
        recent.read_up_to = recent.read_up_to.max(touched.last);
        Ok(recent.announced.keys().cloned().collect())
    }
}
