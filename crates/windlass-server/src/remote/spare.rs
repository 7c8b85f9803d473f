//! Spare workers: registered in the store, and known to no client.
//!
//! A client that leases without an id works as one of these, and keeps it only when it gets tasks. So a client that
//! never sends the id it was given does not leave a record in the store each time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::Instant;
use windlass_core::WorkerId;
use windlass_core::store::HeldLeases;

use super::lease::{Ask, register};
use super::{Sign, beat, new_id};
use crate::access::Caller;
use crate::app::Shared;
use crate::problem::{Outcome, Slug};

/// Spare workers of one caller and name.
const SPARE_MAX: usize = 1_000;
/// A spare worker that nobody has used for so long leaves.
const KEPT: Duration = Duration::from_secs(600);

/// The spare workers.
#[derive(Default)]
pub(super) struct Spares {
    idle: Mutex<HashMap<SpareKey, Vec<Idle>>>,
    /// Somebody shows the store that they live.
    is_kept: AtomicBool,
}

/// Whose spare worker it is: the token's id, and the name that the worker goes by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SpareKey {
    token: String,
    name: String,
}

struct Idle {
    worker: WorkerId,
    /// When a client used it last.
    used: Instant,
}

impl Spares {
    fn take(&self, key: &SpareKey) -> Option<Idle> {
        self.idle.lock().get_mut(key)?.pop()
    }

    fn put(&self, key: SpareKey, idle: Idle) {
        let mut all = self.idle.lock();
        let spare = all.entry(key).or_default();
        if spare.len() < SPARE_MAX {
            spare.push(idle);
        }
    }

    fn keys(&self) -> Vec<SpareKey> {
        let mut idle = self.idle.lock();
        idle.retain(|_, spare| !spare.is_empty());
        idle.keys().cloned().collect()
    }
}

/// A worker for a client without an id. It becomes a spare one again when this is dropped, unless it was given away.
pub(super) struct Spare {
    shared: Shared,
    key: Option<SpareKey>,
    pub(super) worker: WorkerId,
}

impl Spare {
    /// From now on it is the client's.
    pub(super) fn give_away(mut self) {
        self.key = None;
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        let Some(key) = self.key.take() else { return };
        let idle = Idle { worker: self.worker.clone(), used: Instant::now() };
        self.shared.remote().spare.put(key, idle);
        keep(&self.shared);
    }
}

/// Finds a worker for a client without an id, or registers one.
pub(super) async fn hire(shared: &Shared, caller: &Caller, ask: &Ask) -> Outcome<Spare> {
    let key = SpareKey { token: caller.token_id().to_owned(), name: ask.card.name.clone() };
    let spare = |worker| Spare { shared: shared.clone(), key: Some(key.clone()), worker };
    while let Some(Idle { worker, .. }) = shared.remote().spare.take(&key) {
        let card = ask.card.clone();
        shared.remote().with(&worker, |known| known.introduce(card, Some(ask.card.slots)));
        if renew(shared, &worker).await? {
            return Ok(spare(worker));
        }
    }
    let worker = new_id();
    register(shared, caller, &worker, ask).await?;
    Ok(spare(worker))
}

/// Shows the store that a spare worker lives, where that is due; false when the store knows better.
async fn renew(shared: &Shared, worker: &WorkerId) -> Outcome<bool> {
    let settings = &shared.client().config().worker;
    let card = shared.remote().with(worker, |known| {
        let is_due = known.should_beat(settings.heartbeat, settings.lease);
        (is_due, known.card.clone())
    });
    let Some((is_due, card)) = card else { return Ok(false) };
    if !is_due {
        return Ok(true);
    }
    // It holds nothing: what the store has as its own is from a claim whose reply was lost.
    let held = HeldLeases { leases: Vec::new(), older_than: settings.heartbeat * 2 };
    let sign = Sign { held: Some(held), ..Sign::default() };
    match beat(shared, worker, card, sign).await {
        Ok(_) => Ok(true),
        Err(problem) if problem.slug() == Slug::LeaseLost => Ok(false),
        Err(problem) => Err(problem),
    }
}

/// Shows the store that spare workers live, as long as there are any.
fn keep(shared: &Shared) {
    let Ok(runtime) = Handle::try_current() else { return };
    if shared.remote().spare.is_kept.swap(true, Ordering::SeqCst) {
        return;
    }
    let (weak, pause) = (shared.downgrade(), shared.client().config().worker.heartbeat);
    runtime.spawn(async move {
        loop {
            tokio::time::sleep(pause).await;
            let Some(shared) = weak.upgrade() else { return };
            let spares = &shared.remote().spare;
            for key in spares.keys() {
                keep_some(&shared, &key).await;
            }
            if spares.keys().is_empty() {
                spares.is_kept.store(false, Ordering::SeqCst);
                // One may have come in between, and have seen that somebody keeps them.
                if spares.keys().is_empty() || spares.is_kept.swap(true, Ordering::SeqCst) {
                    return;
                }
            }
        }
    });
}

/// Renews the spare workers of a key, and ends those that nobody uses.
async fn keep_some(shared: &Shared, key: &SpareKey) {
    let spares = &shared.remote().spare;
    let idle = spares.idle.lock().remove(key).unwrap_or_default();
    for idle in idle {
        if idle.used.elapsed() < KEPT {
            // A store that is away is asked again the next time.
            if renew(shared, &idle.worker).await.unwrap_or(true) {
                spares.put(key.clone(), idle);
            }
            continue;
        }
        shared.remote().forget(&idle.worker);
        if let Err(error) = shared.store().leave(idle.worker).await {
            tracing::debug!(error = error.chain(), "a spare worker is lost instead of leaving");
        }
    }
}
