//! Announces that this process is about to write in a queue, so that the leader looks there.
//!
//! An announcement holds for [`HOLDS`]: a queue that is busy is announced every few seconds by each process that
//! writes in it, one that is idle never.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use windlass_core::{QueueName, Result};

use super::Shared;

/// How long a process may write in a queue after it has announced that.
pub(super) const HOLDS: Duration = Duration::from_secs(2);
/// With more queues than these, those whose announcement is over are forgotten.
const KNOWN_MAX: usize = 1_000;

/// What this process has announced.
#[derive(Default)]
pub(super) struct Activity {
    announced: Mutex<HashMap<QueueName, Announcement>>,
}

struct Announcement {
    at: Instant,
    /// The connection over which it went: a server that was restarted may not know of it.
    connection: u64,
}

impl Announcement {
    fn holds(&self, now: Instant, connection: u64) -> bool {
        self.connection == connection && now.duration_since(self.at) < HOLDS
    }
}

impl Activity {
    /// Those of the queues that have to be announced, once each.
    fn due<'a>(
        &self,
        queues: impl IntoIterator<Item = &'a QueueName>,
        connection: u64,
    ) -> Vec<QueueName> {
        let (now, announced) = (Instant::now(), self.announced.lock());
        let mut due: Vec<QueueName> = Vec::new();
        for queue in queues {
            let is_known = announced.get(queue).is_some_and(|it| it.holds(now, connection));
            if !is_known && !due.contains(queue) {
                due.push(queue.clone());
            }
        }
        due
    }

    fn note(&self, queues: Vec<QueueName>, at: Instant, connection: u64) {
        let mut announced = self.announced.lock();
        if announced.len() > KNOWN_MAX {
            announced.retain(|_, it| it.holds(at, connection));
        }
        for queue in queues {
            announced.insert(queue, Announcement { at, connection });
        }
    }
}

impl Shared {
    /// Announces writes in these queues, before them; puts queues on record that are new.
    pub(super) async fn announce_writes<'a>(
        &self,
        queues: impl IntoIterator<Item = &'a QueueName>,
    ) -> Result<()> {
        let link = &self.fleet.link;
        let due = self.activity.due(queues, link.connection_number());
        if due.is_empty() {
            return Ok(());
        }
        let at = Instant::now();
        match self.fleet.touch(&due).await {
            Ok(()) => {
                self.names.add(due.iter().cloned());
                self.activity.note(due, at, link.connection_number());
                Ok(())
            }
            Err(error) if due.iter().all(|queue| self.names.has(queue)) => {
                // The leader comes to every queue now and then.
                tracing::debug!(error = error.chain(), "could not announce a write");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}
