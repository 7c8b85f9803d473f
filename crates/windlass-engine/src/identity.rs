//! Under which id this worker holds its leases, and until when by its own clocks.
//!
//! A worker stops by itself before anyone else may take its tasks: at the instant before its last
//! accepted beat was *sent*, plus the lease less an eighth, by the monotonic or the wall clock,
//! whichever comes first.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use windlass_core::dice::Dice;
use windlass_core::{Clock, Timestamp, WorkerId};

pub(crate) struct Identity {
    wall: Arc<dyn Clock>,
    state: Mutex<Incarnation>,
    /// Tells that the worker has become able to claim, or no longer is.
    fit: watch::Sender<bool>,
}

struct Incarnation {
    id: WorkerId,
    fence: Option<Fence>,
}

/// The last instant at which leases are surely still held, less what it takes to end runs.
#[derive(Debug, Clone, Copy)]
struct Fence {
    instant: Instant,
    wall: Timestamp,
    /// From the fence until others may take the tasks.
    slack: Duration,
}

/// The moment before a beat is sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    instant: Instant,
    wall: Timestamp,
}

impl Identity {
    pub(crate) fn new(wall: Arc<dyn Clock>) -> Self {
        let state = Mutex::new(Incarnation { id: fresh_id(), fence: None });
        Self { wall, state, fit: watch::Sender::new(false) }
    }

    /// The present id.
    pub(crate) fn id(&self) -> WorkerId {
        self.state.lock().id.clone()
    }

    /// The present id, if leases under it are surely valid.
    pub(crate) fn fit_id(&self) -> Option<WorkerId> {
        let state = self.state.lock();
        state.fence.filter(|fence| !self.is_past(fence)).map(|_| state.id.clone())
    }

    /// To be called just before a beat is sent.
    pub(crate) fn sending(&self) -> Sent {
        Sent { instant: Instant::now(), wall: self.wall.now() }
    }

    /// The beat was accepted.
    pub(crate) fn renewed(&self, sent: Sent, lease: Duration) {
        let slack = lease / 8;
        let good_for = lease - slack;
        let (instant, wall) = (sent.instant + good_for, sent.wall.after(good_for));
        let fence = Fence { instant, wall, slack };
        self.state.lock().fence = Some(fence);
        self.fit.send_if_modified(|is_fit| !std::mem::replace(is_fit, true));
    }

    /// When the worker must stop by itself, unless renewed before.
    pub(crate) fn fence_at(&self) -> Option<Instant> {
        self.state.lock().fence.map(|fence| fence.instant)
    }

    /// Once, when the time is over: the instant from which on others may take the tasks.
    pub(crate) fn lapse(&self) -> Option<Instant> {
        let mut state = self.state.lock();
        let fence = state.fence.take_if(|fence| self.is_past(fence))?;
        self.fit.send_replace(false);
        let by_wall = fence.wall.after(fence.slack).since(self.wall.now());
        Some((fence.instant + fence.slack).min(Instant::now() + by_wall))
    }

    /// The store has declared this worker lost: it goes on under another id.
    pub(crate) fn lose(&self) -> WorkerId {
        let mut state = self.state.lock();
        *state = Incarnation { id: fresh_id(), fence: None };
        self.fit.send_replace(false);
        state.id.clone()
    }

    /// Changes when the worker becomes able to claim, or no longer is.
    pub(crate) fn watch(&self) -> watch::Receiver<bool> {
        self.fit.subscribe()
    }

    fn is_past(&self, fence: &Fence) -> bool {
        Instant::now() >= fence.instant || self.wall.now() >= fence.wall
    }
}

/// An id that nobody has or had.
pub(crate) fn fresh_id() -> WorkerId {
    let mut dice = Dice::thrown();
    let part = |dice: &mut Dice| (dice.unit() * f64::from(u32::MAX)) as u32;
    WorkerId::new(format!("{:08x}{:08x}{:08x}", part(&mut dice), part(&mut dice), part(&mut dice)))
}
