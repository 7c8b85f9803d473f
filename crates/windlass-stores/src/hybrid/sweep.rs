//! What the leader does about brokers: pushes what nobody has pushed, gives back what lost workers had
//! taken, and sees whether a broker has lost references.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use windlass_core::Result;
use windlass_core::store::{Duty, Finding, Severity};

use super::Shared;
use super::broker::Broker;
use crate::postgres::brokered::LaneCount;
use crate::postgres::outbox::Carrier;

/// Rows of the outbox that are younger are on their way.
const ON_THE_WAY: Duration = Duration::from_secs(1);
/// From one look into the outbox to the next, between comparisons.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often a process with workers says that it uses brokers; after a minute nobody believes it.
const SAY_EVERY: Duration = Duration::from_secs(15);
/// References in one step.
const STEP: i64 = 1_000;
/// A broker that is away for so long is told of everything when it is back.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(30);

/// What the leader remembers from one sweep to the next.
pub(super) struct Sweeps {
    every: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    swept_at: Option<Instant>,
    looked_at: Option<Instant>,
    said_at: Option<Instant>,
    /// Lanes that had fewer references than rows, also counting what may still be pushed.
    short: HashSet<(i32, i16)>,
    /// By broker: since when it is away.
    away_since: Vec<Option<Instant>>,
}

impl Sweeps {
    pub(super) fn new(every: Duration) -> Self {
        Self { every, state: Mutex::default() }
    }

    /// True when the next sweep is due, which then counts as begun.
    fn is_due(&self) -> bool {
        is_time(&mut self.state.lock().swept_at, self.every)
    }

    /// True when the outbox is to be looked at, which then counts as done.
    fn is_time_to_look(&self) -> bool {
        is_time(&mut self.state.lock().looked_at, LOOK_EVERY)
    }

    /// True when it is to be said that brokers are in use, which then counts as done.
    pub(super) fn is_time_to_say_so(&self) -> bool {
        is_time(&mut self.state.lock().said_at, SAY_EVERY)
    }
}

/// True when so much time has passed since this was last asked and answered so.
fn is_time(last: &mut Option<Instant>, every: Duration) -> bool {
    let is_time = last.is_none_or(|at| at.elapsed() >= every);
    if is_time {
        *last = Some(Instant::now());
    }
    is_time
}

impl Shared {
    /// Sweeps, unless that was done a moment ago. Nothing is wrong where it fails: the next one does it.
    pub(super) async fn sweep_now_and_then(&self, duty: Duty) {
        let swept = if self.sweeps.is_due() {
            self.sweep(duty).await
        } else if self.ledger.was_told_of_work() {
            // A transaction of an application, or a process without brokers: it need not wait.
            self.push_left(Duration::ZERO).await
        } else if self.sweeps.is_time_to_look() {
            // Of those who tell nobody.
            self.push_left(ON_THE_WAY).await
        } else {
            Ok(())
        };
        if let Err(error) = swept {
            tracing::warn!(error = error.chain(), "brokers and database were not compared");
        }
    }

    async fn sweep(&self, duty: Duty) -> Result<()> {
        self.ledger.use_brokers(self.brokers.names()).await?;
        self.push_left(ON_THE_WAY).await?;
        let paused = self.ledger.queues_paused().await?;
        let mut short = HashSet::new();
        for (at, broker) in self.brokers.all().iter().enumerate() {
            match self.sweep_one(duty, at, broker, &paused).await {
                Ok(lanes) => short.extend(lanes),
                // The others are none the worse for it.
                Err(error) => {
                    tracing::warn!(broker = broker.name, error = error.chain(), "not compared");
                }
            }
        }
        self.sweeps.state.lock().short = short;
        Ok(())
    }

    /// Sees to one broker; answers the lanes that seem to lack references.
    async fn sweep_one(
        &self,
        duty: Duty,
        at: usize,
        broker: &Broker,
        paused: &[(i32, bool)],
    ) -> Result<Vec<(i32, i16)>> {
        if self.is_given_up(at, broker.is_away()) {
            self.ledger.set_broker_generation(duty, broker.name, None).await?;
            while self.ledger.outbox_drop(self.lanes_of(at), STEP).await? >= STEP.unsigned_abs() {}
        }
        if broker.is_away() {
            return Ok(Vec::new());
        }
        broker.reclaim_all().await?;
        broker.pause(paused).await;
        match self.renew(duty, at, broker, paused).await? {
            true => Ok(Vec::new()),
            false => self.compare(at, broker, paused).await,
        }
    }

    /// Pushes what is in the outbox for so long.
    async fn push_left(&self, age: Duration) -> Result<()> {
        let present = (0..self.brokers.all().len()).filter(|at| !self.brokers.all()[*at].is_away());
        let lanes: Vec<i16> = present.flat_map(|at| self.lanes_of(at)).collect();
        loop {
            let left = self.ledger.outbox_left(age, lanes.clone(), STEP).await?;
            let (count, is_last) = (left.len(), left.len() < usize::try_from(STEP).unwrap_or(0));
            let arrived = self.brokers.carry(left).await;
            let is_stuck = arrived.len() < count;
            self.ledger.outbox_forget(arrived).await?;
            if is_last || is_stuck {
                return Ok(());
            }
        }
    }

    /// True while a broker is away for long.
    fn is_given_up(&self, at: usize, is_away: bool) -> bool {
        let mut state = self.sweeps.state.lock();
        state.away_since.resize(self.brokers.all().len(), None);
        let since = &mut state.away_since[at];
        match is_away {
            true => since.get_or_insert_with(Instant::now).elapsed() >= GIVEN_UP_AFTER,
            false => {
                *since = None;
                false
            }
        }
    }

    /// Pushes everything where a broker is not the one that it was; true when it was not.
    async fn renew(
        &self,
        duty: Duty,
        at: usize,
        broker: &Broker,
        queues: &[(i32, bool)],
    ) -> Result<bool> {
        let found = broker.generation().await?;
        if self.ledger.broker_generation(broker.name).await?.as_ref() == Some(&found) {
            return Ok(false);
        }
        tracing::info!(broker = broker.name, "a broker is told of all pending tasks");
        for (queue, lane) in self.lanes_in(at, queues) {
            self.push_lane(broker, queue, lane).await?;
        }
        // Another one by now: the next sweep begins again.
        if broker.generation().await? == found {
            self.ledger.set_broker_generation(duty, broker.name, Some(found)).await?;
        }
        Ok(true)
    }

    /// Brokers that are not those that the leader fills. (Nobody fills one that the ledger has no generation of.)
    pub(super) async fn strangers(&self) -> Result<Vec<Finding>> {
        let mut findings = Vec::new();
        for broker in self.brokers.all() {
            let Some(known) = self.ledger.broker_generation(broker.name).await? else { continue };
            match broker.generation().await {
                Ok(found) if found != known => findings.push(Finding {
                    severity: Severity::Warning,
                    subject: "broker",
                    text: format!(
                        "broker {} is not the server that the leader uses under that name, or has just lost everything",
                        broker.name
                    ),
                    advice: "name the same brokers in all processes on a database; a broker that was emptied is filled \
                             within seconds"
                        .into(),
                }),
                // One that is away has been told of.
                Ok(_) | Err(_) => {}
            }
        }
        Ok(findings)
    }

    /// Pushes lanes again that had fewer references than rows twice in a row; answers those that have now.
    async fn compare(
        &self,
        at: usize,
        broker: &Broker,
        queues: &[(i32, bool)],
    ) -> Result<Vec<(i32, i16)>> {
        let lanes = self.lanes_in(at, queues);
        // Both before and after: what is claimed or pushed meanwhile must not look like a loss.
        let before = broker.count(&lanes).await?;
        let counts = self.counts_of(at).await?;
        let after = broker.count(&lanes).await?;
        let most = before.into_iter().zip(after).map(|(before, after)| before.max(after));
        let found: HashMap<_, _> = lanes.into_iter().zip(most).collect();
        let mut short = Vec::new();
        for lane in &counts {
            let found = found.get(&(lane.queue, lane.lane)).copied().unwrap_or(0);
            if found + lane.unpushed >= lane.rows {
                continue;
            }
            let key = (lane.queue, lane.lane);
            let was_short = self.sweeps.state.lock().short.contains(&key);
            if !was_short {
                short.push(key);
                continue;
            }
            tracing::warn!(
                broker = broker.name,
                queue = lane.queue,
                lane = lane.lane,
                rows = lane.rows,
                found,
                "references are missing and are pushed again"
            );
            self.push_lane(broker, lane.queue, lane.lane).await?;
        }
        Ok(short)
    }

    /// The lanes of a broker that have rows.
    async fn counts_of(&self, at: usize) -> Result<Vec<LaneCount>> {
        let mut counts = self.ledger.ready_counts().await?;
        counts.retain(|one| self.brokers.number_of(one.lane) == at);
        Ok(counts)
    }

    /// Pushes all rows of a lane anew, from the last down: each goes to the front of what is there.
    async fn push_lane(&self, broker: &Broker, queue: i32, lane: i16) -> Result<()> {
        broker.clear(queue, lane).await?;
        let mut before = i64::MAX;
        loop {
            let some = self.ledger.ready_stretch((queue, lane), before, STEP).await?;
            let Some(last) = some.last() else { return Ok(()) };
            before = last.position;
            if !broker.push(&some).await {
                return Ok(());
            }
        }
    }

    /// The lanes of these queues that a broker has.
    fn lanes_in(&self, at: usize, queues: &[(i32, bool)]) -> Vec<(i32, i16)> {
        let lanes = self.lanes_of(at);
        queues.iter().flat_map(|(queue, _)| lanes.iter().map(|lane| (*queue, *lane))).collect()
    }

    fn lanes_of(&self, at: usize) -> Vec<i16> {
        (0..8).filter(|lane| self.brokers.number_of(*lane) == at).collect()
    }
}
