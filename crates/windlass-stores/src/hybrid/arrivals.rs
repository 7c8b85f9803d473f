//! References that came to workers here while they waited: a claim that begins with one need not ask the broker.
//!
//! They lie in the worker's list of moved references at the broker, for whichever claim of the worker comes next.
//! If none comes in a moment, since the worker has been paused or has no room any more, they are given back; if
//! nobody is left to do that, they lie there until the end of the worker's heartbeat.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use windlass_core::WorkerId;

use super::broker::Broker;
use crate::postgres::outbox::Reference;

/// How long what has come may wait for a claim.
const GIVE_BACK_AFTER: Duration = Duration::from_millis(100);

/// Shared by all handles of a broker.
#[derive(Default)]
pub(super) struct Arrivals(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    references: HashMap<WorkerId, Vec<(Instant, Reference)>>,
    /// Someone will look after what has come.
    is_looked_after: bool,
}

impl Arrivals {
    /// Notes what has come to a worker; true if nobody looks after it yet.
    fn add(&self, worker: &WorkerId, reference: Reference) -> bool {
        let mut waiting = self.0.lock();
        let its = waiting.references.entry(worker.clone()).or_default();
        its.push((Instant::now(), reference));
        !std::mem::replace(&mut waiting.is_looked_after, true)
    }

    /// Takes what has come to a worker.
    pub(super) fn take(&self, worker: &WorkerId) -> Vec<Reference> {
        let taken = self.0.lock().references.remove(worker).unwrap_or_default();
        taken.into_iter().map(|(_, reference)| reference).collect()
    }

    /// Forgets what a take has brought.
    pub(super) fn forget(&self, worker: &WorkerId, reference: &Reference) {
        if let Some(its) = self.0.lock().references.get_mut(worker) {
            its.retain(|(_, one)| one != reference);
        }
    }

    /// Forgets what has waited too long, and answers for whom. Nothing, when there is nothing left to look after.
    fn expire(&self) -> Option<Vec<WorkerId>> {
        let mut waiting = self.0.lock();
        let is_old = |(since, _): &(Instant, Reference)| since.elapsed() >= GIVE_BACK_AFTER;
        let old = waiting.references.extract_if(|_, its| its.iter().any(is_old));
        let old: Vec<_> = old.map(|(worker, _)| worker).collect();
        waiting.is_looked_after = !old.is_empty() || !waiting.references.is_empty();
        waiting.is_looked_after.then_some(old)
    }
}

/// Keeps what has come to a worker for its next claim.
pub(super) fn keep(broker: &Arc<Broker>, worker: &WorkerId, reference: Reference) {
    if !broker.arrivals().add(worker, reference) {
        return;
    }
    let broker = Arc::clone(broker);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(GIVE_BACK_AFTER).await;
            let Some(workers) = broker.arrivals().expire() else { return };
            for worker in workers {
                broker.give_back_moved(&worker).await;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_has_come_is_for_the_next_claim_or_given_back_in_a_moment() {
        let (arrivals, worker, other) =
            (Arrivals::default(), WorkerId::new("w"), WorkerId::new("v"));
        let reference = |lo| Reference { queue: 1, lane: 2, position: lo, lo, hi: lo };
        assert!(arrivals.add(&worker, reference(1)), "somebody has to look after it");
        assert!(!arrivals.add(&worker, reference(2)));
        assert!(arrivals.take(&other).is_empty());
        assert_eq!(arrivals.take(&worker), [reference(1), reference(2)]);
        assert!(arrivals.take(&worker).is_empty(), "once");
        arrivals.add(&worker, reference(1));
        arrivals.forget(&worker, &reference(1));
        assert!(arrivals.take(&worker).is_empty(), "a take has brought it");
        assert!(!arrivals.add(&worker, reference(3)), "it is still looked after");
        assert_eq!(arrivals.expire(), Some(vec![]), "not yet");
        tokio::time::advance(GIVE_BACK_AFTER).await;
        assert_eq!(arrivals.expire(), Some(vec![worker.clone()]));
        assert_eq!(arrivals.expire(), None);
        assert!(arrivals.add(&worker, reference(4)));
    }
}
