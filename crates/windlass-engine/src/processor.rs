//! The processor: claims tasks for free slots and starts them.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use windlass_core::store::{ClaimParams, IdlePoll, WaitParams, Wake};
use windlass_core::{Claimed, Ending};

use crate::foreign::{self, ForeignOutcome};
use crate::intake::Waiting;
use crate::outage::warn_unless_outage;
use crate::run::run;
use crate::station::{Asked, Station};
use crate::syncer::Ended;

/// A claimed task that could not start for so long is given back for others.
const UNSTARTED_MAX: Duration = Duration::from_secs(1);
/// How long one wait for work lasts before it is begun anew.
const WAIT_AT_MOST: Duration = Duration::from_secs(60);
/// The pause after a claim that failed.
const PAUSE: Duration = Duration::from_millis(200);

/// Starts the role; it ends when the station stops, after giving back what has not started.
pub(crate) fn start(station: Arc<Station>, ended: mpsc::UnboundedSender<Ended>) -> JoinHandle<()> {
    tokio::spawn(Processor { station, ended }.work())
}

struct Processor {
    station: Arc<Station>,
    ended: mpsc::UnboundedSender<Ended>,
}

impl Processor {
    async fn work(self) {
        let station = &self.station;
        let mut fit = station.identity.watch();
        let mut order = station.order.subscribe();
        let mut queues = station.queues.subscribe();
        let (mut claim, mut wake, mut judging) = (None, None, None);
        let mut tick = tokio::time::interval(UNSTARTED_MAX / 4);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while !station.stopping.is_cancelled() {
            self.release_paused();
            self.start_waiting();
            // Under way while tasks that are here start: they must not wait for those that are not.
            if claim.is_none() && station.intake.dry().is_none() {
                claim =
                    station.next_claim().map(|(params, asked)| Box::pin(self.claim(params, asked)));
            }
            if judging.is_none() && station.foreign.is_any() {
                judging = Some(Box::pin(self.end_foreign()));
            }
            // The wait for work goes on over several turns: it is begun once per dry spell.
            if wake.is_none()
                && let Some(since) = station.intake.dry()
            {
                wake = Some(Box::pin(self.wait_for_work(since)));
            }
            tokio::select! {
                () = station.stopping.cancelled() => {}
                () = station.slots.freed() => {}
                () = station.suspects.freed() => station.intake.refresh(),
                () = station.intake.changed() => {}
                () = over(&mut claim) => {}
                () = over(&mut wake) => station.intake.refresh(),
                () = over(&mut judging) => {}
                () = opening(station) => {
                    // The wait in progress leaves paced queues out; one of them may no longer be paced.
                    wake = None;
                    station.intake.refresh();
                }
                _ = fit.changed() => station.intake.refresh(),
                _ = order.changed() => station.intake.refresh(),
                _ = queues.changed() => {
                    // The wait under way knows the old names only.
                    wake = None;
                    station.intake.refresh();
                }
                _ = tick.tick() => self.give_back_unstarted(UNSTARTED_MAX),
            }
        }
        if let Some(claim) = claim {
            // Never dropped: it may hold a transaction.
            claim.await;
        }
        if let Some(judging) = judging {
            judging.await;
        }
        for waiting in station.foreign.take() {
            self.end(waiting.task, Ending::Released, None);
        }
        self.give_back_unstarted(Duration::ZERO);
    }

    /// Claims for the free slots.
    async fn claim(&self, params: ClaimParams, asked: Asked<'_>) {
        let station = &self.station;
        match station.answered(station.store.claim(params)).await {
            Ok(claim) => {
                station.contact.answered();
                station.receive(asked, claim);
            }
            Err(error) => {
                station.doubt();
                if station.hush.allows("claim") {
                    warn_unless_outage!(error, "claim failed");
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    async fn wait_for_work(&self, since: windlass_core::store::WakeMark) {
        let station = &self.station;
        let served = Arc::clone(&station.queues.borrow());
        let mut queues: Vec<_> = served.weighted.iter().map(|(name, _)| name.clone()).collect();
        // Paced queues are polled: a wake-up for their tasks is meant for the workers that handle them.
        queues.retain(|queue| !station.paces.lock().is_paced(queue));
        if queues.is_empty() {
            return std::future::pending().await;
        }
        let worker = &station.client.config().worker;
        let params = WaitParams {
            queues,
            since: Some(since),
            at_most: WAIT_AT_MOST,
            idle_poll: IdlePoll { min: worker.idle_poll_min, max: worker.idle_poll_max },
            ..WaitParams::default()
        };
        match station.store.wait(params).await {
            Ok(Wake::Work | Wake::Finished(_) | Wake::Orders | Wake::TimedOut) => {}
            Err(error) => {
                if station.hush.allows("wait") {
                    warn_unless_outage!(error, "wait for work failed");
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// Ends tasks of kinds that the worker does not handle.
    async fn end_foreign(&self) {
        let station = &self.station;
        let mut failing = Vec::new();
        for (waiting, outcome) in foreign::judge(station, station.foreign.take()).await {
            match outcome {
                ForeignOutcome::Ends(ending) => self.end(waiting.task, ending, None),
                ForeignOutcome::Runs => {
                    let (task, client) = (std::slice::from_ref(&waiting.task), &station.client);
                    client.metrics().claimed(task);
                    client.live().claimed(&waiting.controls.worker, task);
                    failing.push(waiting);
                }
            }
        }
        station.intake.push(failing.into_iter(), station.intake.expect(0));
    }

    /// Starts what waits, as long as there are slots.
    fn start_waiting(&self) {
        while let Some(waiting) = self.station.intake.pop() {
            // Reported since the buffer was looked through.
            if self.is_held_back(&waiting) {
                self.end(waiting.task, Ending::Released, None);
                continue;
            }
            // A store that cannot tell suspects apart brings more of them than it was asked for.
            if waiting.task.is_suspect() && waiting.pass.is_none() {
                self.end(waiting.task, Ending::PutOff, None);
                continue;
            }
            let Some(slot) = self.station.slots.take() else {
                self.station.intake.unpop(waiting);
                return;
            };
            let (station, ended) = (Arc::clone(&self.station), self.ended.clone());
            tokio::spawn(async move {
                let Waiting { task, controls, pass, .. } = waiting;
                let started = Instant::now();
                let ending = run(&station, &task, &controls, slot.with(pass)).await;
                // The syncer lives longer than every run.
                let _ = ended.send(Ended { task, ending, took: Some(started.elapsed()) });
            });
        }
    }

    /// Releases tasks of paused queues that have not started, also those behind tasks that wait for a slot.
    fn release_paused(&self) {
        if !self.station.paused_queues.is_any() {
            return;
        }
        for waiting in self.station.intake.take_all(|waiting| self.is_held_back(waiting)) {
            self.end(waiting.task, Ending::Released, None);
        }
    }

    fn is_held_back(&self, waiting: &Waiting) -> bool {
        self.station.paused_queues.holds_back(&waiting.task.queue, waiting.claimed_after)
    }

    fn give_back_unstarted(&self, older_than: Duration) {
        for waiting in self.station.intake.take_older(older_than) {
            self.end(waiting.task, Ending::Released, None);
        }
    }

    fn end(&self, task: Claimed, ending: Ending, took: Option<Duration>) {
        let _ = self.ended.send(Ended { task, ending, took });
    }
}

/// Ends when a queue opens that was closed because of its foreign tasks.
async fn opening(station: &Station) {
    let next = station.paces.lock().next_opening();
    match next {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
    station.paces.lock().announce(Instant::now());
}

/// Ends when what is under way does, and with it that is over; never while nothing is.
async fn over(under_way: &mut Option<impl Future<Output = ()> + Unpin>) {
    match under_way {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
    *under_way = None;
}
