//! A worker without roles: one task at a time, on the caller's own task, when the caller says so.
//!
//! For tests of handlers, and for programs that want to work off a store and end. A task is run and
//! its end reported by the same code as in a worker; what is missing is everything that happens by
//! itself: no heartbeat goes on while a task runs, nobody leads, nothing is prefetched.

use std::sync::Arc;

use tokio::time::Instant;
use windlass_core::dice::Dice;
use windlass_core::store::{Beat, Bid, ClaimParams, Duty, Leadership, Orders, WorkerCard};
use windlass_core::{Claimed, Ending, Error, ErrorKind, Result, TaskId};

use crate::foreign;
use crate::quotas::{Queues, share};
use crate::run::run;
use crate::station::{Station, Unknown};
use crate::syncer::{Ended, judge, report};

/// Runs tasks one after the other on the caller's task; made by
/// [`WorkerBuilder::inline`](crate::WorkerBuilder::inline).
pub struct Inline {
    station: Arc<Station>,
    serves_all: bool,
}

impl Inline {
    pub(crate) fn new(station: Arc<Station>, serves_all: bool) -> Self {
        // What comes back from the store is claimed here, not along with a report.
        station.stopping.cancel();
        *station.dice.lock() = Dice::seeded(1);
        Self { station, serves_all }
    }

    /// Claims one task, runs it to its end and reports that; `None` when there is nothing to run.
    pub async fn run_next(&self) -> Result<Option<TaskId>> {
        let Some(task) = self.claim().await? else { return Ok(None) };
        let station = &self.station;
        let controls = station.leases.add(&task, &station.identity.id(), Instant::now());
        let slot = station.slots.take().ok_or_else(|| {
            let text = "every slot is taken by a blocking handler that was given up";
            Error::new(ErrorKind::Unavailable, text)
        })?;
        let id = task.id.clone();
        let started = Instant::now();
        let ending = if waits_for_others(station, &task) {
            Ending::Unhandled { delay: foreign::WAIT_MIN }
        } else {
            run(station, &task, &controls, slot).await
        };
        let took = Some(started.elapsed());
        // Carries the last progress of the run, which only a beat does.
        self.beat().await?;
        let judged = judge(station, Ended { task, ending, took });
        if let Some(unrecorded) = report(station, vec![judged]).await.pop() {
            unrecorded.let_go(station);
            let text = format!("record the end of task {id}: its queue cannot be used");
            return Err(Error::corrupt(text));
        }
        Ok(Some(id))
    }

    /// Makes pending whatever is due by now; answers how many tasks that were.
    pub async fn promote(&self) -> Result<u64> {
        let (store, config) = (&self.station.store, &self.station.client.config().upkeep);
        let holder = self.station.identity.id();
        let bid = Bid::Seek { holder, term_length: config.leader_term };
        let Leadership::Leading(term) = store.lead(bid).await? else { return Ok(0) };
        let mut promoted = 0;
        loop {
            let report = store.promote(Duty { term, limit: config.batch }).await?;
            promoted += report.done;
            if !report.has_more {
                return Ok(promoted);
            }
        }
    }

    async fn claim(&self) -> Result<Option<Claimed>> {
        self.beat().await?;
        let station = &self.station;
        let queues = self.queues().await?;
        let quotas = share(&queues, 1, &mut station.dice.lock());
        let worker = station.identity.id();
        let params = ClaimParams { worker, quotas, limit: 1, suspects_at_most: 1 };
        Ok(station.store.claim(params).await?.tasks.pop())
    }

    /// The queues that were named; all that there are when none was.
    async fn queues(&self) -> Result<Queues> {
        let named = self.station.settings.queues.clone();
        if !self.serves_all {
            return Ok(named);
        }
        let all = self.station.store.queues().await?;
        let weighted = all.into_iter().map(|queue| (queue.name, 1)).collect();
        Ok(Queues { weighted, is_strict: true, ..named })
    }

    async fn beat(&self) -> Result<Orders> {
        let station = &self.station;
        let settings = &station.settings;
        let queues = settings.queues.weighted.iter().map(|(queue, _)| queue.clone());
        let card = WorkerCard {
            pid: std::process::id(),
            name: settings.name.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            queues: queues.collect(),
            slots: 1,
            kinds: station.kinds.clone(),
            ..WorkerCard::default()
        };
        let beat = Beat {
            worker: station.identity.id(),
            card,
            lease: station.client.config().worker.lease,
            held: None,
            progress: station.leases.take_progress(),
        };
        let orders = station.store.beat(beat).await?;
        station.link.clock.hear(orders.now);
        Ok(orders)
    }
}

/// True for a task that no handler of this worker knows, and that must not fail for it.
fn waits_for_others(station: &Station, task: &Claimed) -> bool {
    station.settings.unknown == Unknown::GivenBack && !station.registry.handles(&task.kind)
}

impl std::fmt::Debug for Inline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Inline({})", self.station.identity.id())
    }
}
