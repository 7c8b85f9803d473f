//! The syncer: reports how runs ended, in batches, and fetches the next tasks in the same trip.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use windlass_core::state::finish;
use windlass_core::store::{Applied, ApplyParams, ApplyReply, Refusal};
use windlass_core::{Claimed, Ending, Error, State, Transition};

use crate::station::Station;

/// Most endings in one trip.
const BATCH_MAX: usize = 1_000;

/// A run that has ended.
pub(crate) struct Ended {
    pub(crate) task: Claimed,
    pub(crate) ending: Ending,
    pub(crate) took: Option<Duration>,
}

/// Starts the role; it ends when everyone who could send an ending is gone and all are reported.
pub(crate) fn start(
    station: Arc<Station>,
    mut ended: mpsc::UnboundedReceiver<Ended>,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut batch = Vec::new();
        while ended.recv_many(&mut batch, BATCH_MAX).await > 0 {
            let transitions = batch.drain(..).map(|ended| judge(&station, ended)).collect();
            report(&station, transitions).await;
        }
    })
}

pub(crate) fn judge(station: &Station, ended: Ended) -> Transition {
    let backoff = &station.client.config().task.retry;
    let transition = finish(&ended.task, ended.ending, backoff, &mut station.dice.lock());
    match ended.took {
        Some(took) => transition.took(took),
        None => transition,
    }
}

/// Reports until the store has answered; while it is away, endings wait here.
pub(crate) async fn report(station: &Station, transitions: Vec<Transition>) {
    let mut has_failed = false;
    loop {
        let (then_claim, asked) = station.next_claim().unzip();
        let params = ApplyParams {
            worker: station.identity.id(),
            transitions: transitions.clone(),
            then_claim,
        };
        match station.store.apply(params).await {
            Ok(reply) => {
                station.contact.answered();
                settle(station, &transitions, &reply, has_failed);
                if let (Some(asked), Some(Ok(claim))) = (asked, reply.claim) {
                    station.receive(asked, claim);
                }
                return;
            }
            Err(error) if error.is_unavailable() && is_hopeless(station) => {
                let count = transitions.len();
                tracing::error!(
                    count,
                    error = error.chain(),
                    "endings are let go: no lease is left"
                );
                transitions.iter().for_each(|transition| station.leases.remove(&transition.lease));
                return;
            }
            Err(error) if error.is_unavailable() => {
                has_failed = true;
                station.doubt();
                tracing::warn!(error = error.chain(), "endings wait for the store");
                let pause = 0.1 + 0.4 * station.dice.lock().unit();
                tokio::time::sleep(Duration::from_secs_f64(pause)).await;
            }
            Err(error) => return give_up(station, transitions, &error).await,
        }
    }
}

/// True when a stopping worker has been without the store for so long that its leases are over; one
/// that goes on keeps its endings, since they may still be accepted after an outage.
fn is_hopeless(station: &Station) -> bool {
    station.stopping.is_cancelled() && station.identity.fit_id().is_none()
}

/// Lets go of the leases that were answered.
fn settle(station: &Station, transitions: &[Transition], reply: &ApplyReply, is_repeat: bool) {
    for (transition, applied) in transitions.iter().zip(&reply.outcomes) {
        station.leases.remove(&transition.lease);
        let task = &transition.lease.task;
        match applied {
            Applied::Applied(State::DeadLetter) => tracing::warn!(%task, "dead letter"),
            Applied::Applied(_) | Applied::Already => {}
            // Our own first try may have come through, and its record may be gone since.
            Applied::Refused(Refusal::Gone) if is_repeat => {}
            Applied::Refused(why) => tracing::warn!(%task, ?why, "the end of a run was refused"),
        }
    }
}

/// A batch that the store will not take, ever: each alone, so that one bad ending hurts only itself.
async fn give_up(station: &Station, transitions: Vec<Transition>, error: &Error) {
    if let [transition] = &transitions[..] {
        let task = &transition.lease.task;
        tracing::error!(%task, error = error.chain(), "the end of a run cannot be stored");
        station.leases.remove(&transition.lease);
        return;
    }
    for transition in transitions {
        Box::pin(report(station, vec![transition])).await;
    }
}
