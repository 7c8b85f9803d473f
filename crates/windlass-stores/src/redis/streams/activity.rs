//! Announces that this process is about to write in a queue, so that the leader looks there.
//!
//! An announcement holds for [`HOLDS`]: a queue that is busy is announced every few seconds by each process that
//! writes in it, one that is idle never.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use windlass_core::{QueueName, Result, Timestamp};

use super::Shared;

/// How long a process may write in a queue after it has announced that.
pub(super) const HOLDS: Duration = Duration::from_secs(2);
/// How long a queue that was announced is surely still on record.
const LATELY: Duration = Duration::from_secs(3_600);
/// With more queues than these, those whose announcement is over are forgotten.
const KNOWN_MAX: usize = 1_000;

/// What this process has announced.
#[derive(Default)]
pub(super) struct Activity {
    announced: Mutex<HashMap<QueueName, Announcement>>,
}

struct Announcement {
    at: Instant,
    /// The same by the wall clock, which goes on while the machine sleeps, or by the clock of a test.
    wall: Timestamp,
    /// The connection over which it went: a server that was restarted may not know of it.
    connection: u64,
}

impl Announcement {
    fn holds(&self, wall: Timestamp, connection: u64) -> bool {
        self.connection == connection && self.is_younger_than(HOLDS, wall)
    }

    fn is_younger_than(&self, age: Duration, wall: Timestamp) -> bool {
        // A wall clock that was set back tells nothing.
        self.at.elapsed() < age && wall >= self.wall && wall.since(self.wall) < age
    }
}

impl Activity {
    /// Those of the queues that have to be announced, once each.
    fn due<'a>(
        &self,
        queues: impl IntoIterator<Item = &'a QueueName>,
        wall: Timestamp,
        connection: u64,
    ) -> Vec<QueueName> {
        let announced = self.announced.lock();
        let mut due: Vec<QueueName> = Vec::new();
        for queue in queues {
            let is_known = announced.get(queue).is_some_and(|it| it.holds(wall, connection));
            if !is_known && !due.contains(queue) {
                due.push(queue.clone());
            }
        }
        due
    }

    /// True when all of these were announced not long ago: then they are on record, which forgets no queue that was
    /// announced within a day.
    fn were_announced_lately(&self, queues: &[QueueName], wall: Timestamp) -> bool {
        let announced = self.announced.lock();
        queues
            .iter()
            .all(|queue| announced.get(queue).is_some_and(|it| it.is_younger_than(LATELY, wall)))
    }

    fn note(&self, queues: Vec<QueueName>, at: (Instant, Timestamp), connection: u64) {
        let mut announced = self.announced.lock();
        if announced.len() > KNOWN_MAX {
            announced.retain(|_, it| it.holds(at.1, connection));
        }
        for queue in queues {
            announced.insert(queue, Announcement { at: at.0, wall: at.1, connection });
        }
    }
}

impl Shared {
    /// Announces writes in these queues, before them; puts queues on record that are new, or were forgotten.
    pub(super) async fn announce_writes<'a>(
        &self,
        queues: impl IntoIterator<Item = &'a QueueName>,
    ) -> Result<()> {
        self.touch_queues(queues, false).await
    }

    /// Announces changes of tasks in these queues, before them.
    pub(super) async fn announce_changes<'a>(
        &self,
        queues: impl IntoIterator<Item = &'a QueueName>,
    ) -> Result<()> {
        // A queue that has tasks is on record.
        self.touch_queues(queues, true).await
    }

    async fn touch_queues<'a>(
        &self,
        queues: impl IntoIterator<Item = &'a QueueName>,
        is_on_record: bool,
    ) -> Result<()> {
        let link = &self.fleet.link;
        let wall = self.options().wall_clock();
        let due = self.activity.due(queues, wall, link.connection_number());
        if due.is_empty() {
            return Ok(());
        }
        let at = (Instant::now(), wall);
        match self.fleet.touch(&due).await {
            Ok(()) => {
                self.names.add(due.iter().cloned());
                self.activity.note(due, at, link.connection_number());
                Ok(())
            }
            Err(error) if is_on_record || self.activity.were_announced_lately(&due, wall) => {
                // The leader comes to every queue now and then.
                tracing::debug!(error = error.chain(), "could not announce a write");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}
