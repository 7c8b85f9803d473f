//! The syncer: reports how runs ended, in batches, and fetches the next tasks in the same trip.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use windlass_core::limits::clip;
use windlass_core::state::finish;
use windlass_core::store::{Applied, ApplyParams, ApplyReply, Refusal};
use windlass_core::{Claimed, Ending, Error, Transition};

use crate::outage::warn_unless_outage;
use crate::station::Station;
use crate::unrecorded::UnrecordedEndings;

/// Most endings in one trip.
const BATCH_MAX: usize = 1_000;
/// Bytes of results at which a trip is full.
const REPORT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A run that has ended.
pub(crate) struct Ended {
    pub(crate) task: Claimed,
    pub(crate) ending: Ending,
    pub(crate) took: Option<Duration>,
}

/// A run that has ended, and what that makes of its task.
pub(crate) struct Judged {
    task: Claimed,
    took: Option<Duration>,
    transition: Transition,
    /// Told as a failure if the store does not take it.
    may_fail: bool,
}

impl Judged {
    pub(crate) fn task(&self) -> &Claimed {
        &self.task
    }

    /// Gives up an ending whose queue cannot be used: its task runs again when the worker has left.
    pub(crate) fn let_go(self, station: &Station) {
        let (task, queue) = (&self.task.id, &self.task.queue);
        tracing::error!(%task, %queue, "the end of a run is let go: its queue cannot be used");
        station.leases.remove(&self.transition.lease);
    }
}

/// Starts the role; it ends when everyone who could send an ending is gone and all are reported.
pub(crate) fn start(
    station: Arc<Station>,
    mut ended: mpsc::UnboundedReceiver<Ended>,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        let (mut batch, mut unrecorded) = (Vec::new(), UnrecordedEndings::default());
        loop {
            let received = tokio::select! {
                count = ended.recv_many(&mut batch, BATCH_MAX) => Some(count),
                () = unrecorded.due() => None,
            };
            match received {
                Some(0) => break,
                Some(_) => {
                    let judged = batch.drain(..).map(|ended| judge(&station, ended));
                    let left = report_all(&station, judged).await;
                    if !left.is_empty() {
                        unrecorded.keep(&station, left);
                    }
                }
                None => {
                    let left = report_all(&station, unrecorded.take().into_iter()).await;
                    unrecorded.keep(&station, left);
                }
            }
        }
        // The worker stops: this is their last chance.
        let left = report_all(&station, unrecorded.take().into_iter()).await;
        left.into_iter().for_each(|judged| judged.let_go(&station));
    })
}

/// Reports endings; answers those that could not be recorded.
async fn report_all(station: &Station, judged: impl Iterator<Item = Judged>) -> Vec<Judged> {
    let (mut judged, mut left) = (judged.peekable(), Vec::new());
    while judged.peek().is_some() {
        left.extend(report(station, next_report(&mut judged)).await);
    }
    left
}

/// The next endings, as many as one trip may carry: at least one, and of results at most so many bytes and one
/// result more.
fn next_report(judged: &mut impl Iterator<Item = Judged>) -> Vec<Judged> {
    let (mut report, mut bytes) = (Vec::with_capacity(judged.size_hint().0), 0);
    while bytes < REPORT_BYTES_MAX
        && let Some(next) = judged.next()
    {
        bytes += next.transition.next.result.as_ref().map_or(0, |result| result.len());
        report.push(next);
    }
    report
}

pub(crate) fn judge(station: &Station, ended: Ended) -> Judged {
    let Ended { task, ending, took } = ended;
    let backoff = &station.client.config().task.retry;
    // What has not run, or was given up, must not fail for it.
    let may_fail = took.is_some() && ending != Ending::Released;
    let transition = finish(&task, ending, backoff, &mut station.dice.lock());
    let transition = match took {
        Some(took) => transition.took(took),
        None => transition,
    };
    Judged { task, took, transition, may_fail }
}

/// Reports until the store has answered; while it is away, endings wait here. Answers those that could not be
/// recorded, since their queue cannot be used.
pub(crate) async fn report(station: &Station, judged: Vec<Judged>) -> Vec<Judged> {
    let mut has_failed = false;
    loop {
        let (then_claim, asked) = station.next_claim().unzip();
        let params = ApplyParams {
            worker: station.identity.id(),
            transitions: judged.iter().map(|judged| judged.transition.clone()).collect(),
            then_claim,
        };
        let answer = match &asked {
            Some(_) => station.answered(station.store.apply(params)).await,
            None => station.store.apply(params).await,
        };
        if asked.is_some() && !matches!(&answer, Ok(ApplyReply { claim: Some(Ok(_)), .. })) {
            // Whatever the error says: the claim may have leased tasks.
            station.doubt();
        }
        match answer {
            Ok(reply) => {
                station.contact.answered();
                go_on(station);
                let unrecorded = settle(station, judged, &reply, has_failed);
                match (asked, reply.claim) {
                    (Some(asked), Some(Ok(claim))) => station.receive(asked, claim),
                    (_, Some(Err(error))) if station.hush.allows("claim") => {
                        warn_unless_outage!(error, "claim failed");
                    }
                    _ => {}
                }
                return unrecorded;
            }
            Err(error) if error.is_unavailable() && is_hopeless(station) => {
                let count = judged.len();
                tracing::error!(
                    count,
                    error = error.chain(),
                    "endings are let go: no lease is left"
                );
                judged.iter().for_each(|judged| station.leases.remove(&judged.transition.lease));
                go_on(station);
                return Vec::new();
            }
            Err(error) if error.is_unavailable() => {
                has_failed = true;
                station.is_stuck.store(true, Ordering::Relaxed);
                if station.hush.allows("endings") {
                    warn_unless_outage!(error, "endings wait for the store");
                }
                let pause = 0.1 + 0.4 * station.dice.lock().unit();
                tokio::time::sleep(Duration::from_secs_f64(pause)).await;
            }
            Err(error) => {
                go_on(station);
                return take_apart(station, judged, &error).await;
            }
        }
    }
}

/// No ending waits for the store any more: claiming goes on.
fn go_on(station: &Station) {
    if station.is_stuck.swap(false, Ordering::Relaxed) {
        tracing::debug!("endings are recorded again");
        station.intake.refresh();
    }
}

/// True when a stopping worker has been without the store for so long that its leases are over; one
/// that goes on keeps its endings, since they may still be accepted after an outage.
fn is_hopeless(station: &Station) -> bool {
    station.stopping.is_cancelled() && station.identity.fit_id().is_none()
}

/// Lets go of the leases that were answered; answers the endings that could not be recorded.
fn settle(
    station: &Station,
    judged: Vec<Judged>,
    reply: &ApplyReply,
    is_repeat: bool,
) -> Vec<Judged> {
    let (mut unheard, mut unrecorded) = (Vec::new(), Vec::new());
    for (judged, applied) in judged.into_iter().zip(&reply.outcomes) {
        if *applied == Applied::Unrecorded {
            // Its lease is still held, and named as such.
            unrecorded.push(judged);
            continue;
        }
        let transition = judged.transition;
        station.leases.remove(&transition.lease);
        let task = &transition.lease.task;
        match applied {
            Applied::Applied(_) => {}
            // Stored by our own first try, whose answer was lost, or by the handler in its transaction.
            Applied::Already => unheard.push(transition),
            // Our own first try may have come through, and its record may be gone since.
            Applied::Refused(Refusal::Gone) if is_repeat => unheard.push(transition),
            Applied::Refused(why) => {
                tracing::warn!(task_id = %task, ?why, "the end of a run was refused");
            }
            Applied::Unrecorded => {}
        }
    }
    let unheard: Vec<_> = unheard.iter().collect();
    station.client.metrics().ended_unheard(&unheard);
    station.client.live().ended_unheard(&station.identity.id(), &unheard);
    unrecorded
}

/// A batch that the store will not take, ever: each alone, so that one bad ending hurts only itself.
async fn take_apart(station: &Station, judged: Vec<Judged>, error: &Error) -> Vec<Judged> {
    let mut unrecorded = Vec::new();
    let is_alone = judged.len() == 1;
    for judged in judged {
        let next = if is_alone { fail_instead(station, judged, error) } else { Some(judged) };
        if let Some(next) = next {
            unrecorded.extend(Box::pin(report(station, vec![next])).await);
        }
    }
    unrecorded
}

/// An ending that the store will not take becomes a failure, which it may take: left alone, the task
/// would come back and run again for ever. Nothing when that was tried, or must not be.
fn fail_instead(station: &Station, judged: Judged, error: &Error) -> Option<Judged> {
    let Judged { task, took, transition, may_fail } = judged;
    tracing::error!(task = %task.id, error = error.chain(), "the end of a run cannot be stored");
    if !may_fail || error.is_lease_lost() {
        station.leases.remove(&transition.lease);
        return None;
    }
    let text = format!("the end of the run cannot be stored: {}", error.chain());
    let error = clip(&text, station.client.config().limits.error_bytes_max).to_owned();
    let failed = Ended { task, ending: Ending::Failed { error, retry_after: None }, took };
    Some(Judged { may_fail: false, ..judge(station, failed) })
}
