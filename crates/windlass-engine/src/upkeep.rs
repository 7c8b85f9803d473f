//! Looking after a store without working: a process that runs no tasks may lead all the same.
//!
//! A worker has the same roles, started from the same functions. The duties have a file each.

mod duties;
mod forwarder;
mod janitor;
mod recoverer;

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use windlass_core::{Clock, Error, ErrorKind, Result, SystemClock};

pub(crate) use self::duties::Duties;
use crate::client::Client;
use crate::healthchecker::Health;
use crate::identity::fresh_id;
use crate::link::Link;
use crate::{healthchecker, leader};

/// Upkeep that is being set up; made by [`Client::upkeep`].
#[must_use = "upkeep is done once it is started"]
pub struct UpkeepBuilder {
    client: Client,
    wall: Arc<dyn Clock>,
}

/// Upkeep in the background; stop it with [`Upkeep::stop`].
#[must_use = "upkeep that is dropped ends as by `stop`, but nobody waits for it"]
pub struct Upkeep {
    /// Dropped with the handle: the roles end also when nobody waits for that.
    stop: DropGuard,
    roles: [JoinHandle<()>; 2],
    client: Client,
    health: watch::Receiver<Health>,
}

impl Client {
    /// Looks after this client's store without running tasks: makes due tasks pending, takes back
    /// what lost workers held, and removes what is kept no longer. Of all workers and upkeeps of a
    /// store one leads and does this; the others stand by.
    pub fn upkeep(&self) -> UpkeepBuilder {
        UpkeepBuilder { client: self.clone(), wall: Arc::new(SystemClock) }
    }
}

impl UpkeepBuilder {
    /// For tests that drive time by hand: tells the wall time by this clock.
    #[doc(hidden)]
    pub fn driven_by(mut self, clock: Arc<dyn Clock>) -> Self {
        self.wall = clock;
        self
    }

    /// Starts in the background of the present runtime. A store that is away is waited for.
    pub fn start(self) -> Upkeep {
        let client = self.client.clone();
        let link = Link::new(self.client, self.wall, fresh_id());
        let (health, told) = watch::channel(Health::GOOD);
        let stop = CancellationToken::new();
        // Whoever takes back from others must know that it was in touch itself; a worker has its
        // beats for that, here the pings do.
        let healthchecker = healthchecker::start(
            Arc::clone(&link),
            health,
            healthchecker::SERVER_HEARTBEATS_PER_PING,
            stop.clone(),
        );
        let leader = leader::start(link, stop.clone());
        Upkeep { stop: stop.drop_guard(), roles: [leader, healthchecker], client, health: told }
    }
}

impl Upkeep {
    /// How this process stands with its store; changes as that changes.
    pub fn health(&self) -> watch::Receiver<Health> {
        self.health.clone()
    }

    /// Ends after the present steps, and resigns, so that another may lead at once.
    pub async fn stop(self) -> Result<()> {
        drop(self.stop);
        for role in self.roles {
            role.await.map_err(|cause| {
                Error::new(ErrorKind::Unavailable, "the upkeep ended early").because(cause)
            })?;
        }
        self.client.save_statistics().await;
        Ok(())
    }
}
