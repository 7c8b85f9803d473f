//! Keeps a hub while someone listens: hears the others, says that someone listens, compares figures, and puts
//! everything up in its order.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};
use windlass_core::Result;
use windlass_core::event::{Event, Subject};
use windlass_core::store::{Broadcast, BroadcastStream};

use super::audience::{FRESH_FOR, RENEWED_EVERY, Sign};
use super::depths::Depths;
use super::happening::TaskEvent;
use super::hub::{Hub, Standing};
use super::known::{Known, Mark};
use super::order::{Order, Verdict};
use super::other::OtherEvent;
use super::packet::{News, unpack};
use crate::metrics::Figures;

/// How long after the sign was put up everybody has seen it.
const SEEN_AFTER: Duration = FRESH_FOR.saturating_add(Duration::from_millis(50));
/// How often figures are compared, and the sign and the listeners looked after.
const TICK: Duration = Duration::from_secs(1);
/// How soon after each other figures are read when others say that it is worth it.
const LOOK_PAUSE: Duration = Duration::from_millis(200);
/// How long a hub is kept when nobody listens any more: whoever comes back by then misses nothing.
const LINGER: Duration = Duration::from_secs(10);
/// Time between two times that events are put up, in which the next ones gather: each time wakes everybody
/// who wants one of them.
const PACE: Duration = Duration::from_millis(25);
/// Messages that are read before their events are put up.
const READ_MAX: usize = 200;
/// Processes of which the last message's number is remembered.
const ORIGINS_MAX: usize = 10_000;

/// Keeps a hub until nobody has listened for a while.
pub(super) async fn keep(hub: Arc<Hub>, said: watch::Sender<Standing>) {
    let mut sign = Sign::new(&hub.origin);
    let (stream, figures) = match begin(&hub, &mut sign).await {
        Ok(begun) => begun,
        Err(error) => {
            tracing::warn!(error = error.chain(), "live events cannot be heard");
            hub.ends(true);
            said.send_replace(Standing::Down(error));
            return;
        }
    };
    let mut keeper = Keeper {
        stream,
        order: Order::since(figures.now),
        known: Known::of(&figures),
        depths: Depths::default(),
        origins: HashMap::new(),
        sign: Some(sign),
        renewed: Instant::now(),
        renewing: None,
        has_failed: false,
        gap_at: None,
        looked: None,
        reading: None,
        read_since: Mark::default(),
        wants_look: false,
        listened: Instant::now(),
        hub,
    };
    said.send_replace(Standing::Up);
    keeper.run().await;
    if let Some(sign) = keeper.sign.take()
        && let Err(error) = sign.remove(&*keeper.hub.store).await
    {
        tracing::debug!(error = error.chain(), "others will find out that nobody listens here");
    }
}

/// Begins to hear; answers when everybody tells, with what was there before.
async fn begin(hub: &Hub, sign: &mut Sign) -> Result<(Option<BroadcastStream>, Figures)> {
    let stream = match hub.store.profile().capabilities.has_broadcasts {
        true => {
            let stream = hub.store.subscribe().await?;
            sign.renew(&*hub.store).await?;
            tokio::time::sleep(SEEN_AFTER).await;
            Some(stream)
        }
        false => {
            tracing::warn!(
                "this store carries no broadcasts: only events of this process are told"
            );
            None
        }
    };
    let figures = Figures::read(&hub.store).await?;
    hub.clock.hear(figures.now);
    Ok((stream, figures))
}

struct Keeper {
    hub: Arc<Hub>,
    stream: Option<BroadcastStream>,
    order: Order,
    known: Known,
    depths: Depths,
    /// The number of the last message of each process.
    origins: HashMap<String, u64>,
    /// Absent while it is being renewed.
    sign: Option<Sign>,
    renewed: Instant,
    renewing: Option<JoinHandle<(Sign, Result<()>)>>,
    /// The sign could not be renewed: others may think that nobody listens.
    has_failed: bool,
    /// When everybody tells again, after they may not have.
    gap_at: Option<Instant>,
    looked: Option<Instant>,
    reading: Option<JoinHandle<Result<Figures>>>,
    /// What was heard when the reading was begun.
    read_since: Mark,
    wants_look: bool,
    listened: Instant,
}

/// What there is to do.
enum Turn {
    Heard(Broadcast),
    Arrived,
    Tick,
    Renewed(Option<(Sign, Result<()>)>),
    Read(Option<Figures>),
}

impl Keeper {
    async fn run(&mut self) {
        // Not at once: who has begun to listen says what it wants only after this has begun.
        let mut tick = tokio::time::interval_at(Instant::now() + TICK, TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let turn = tokio::select! {
                heard = next(self.stream.as_mut()) => Turn::Heard(heard),
                () = self.hub.arrived.notified() => Turn::Arrived,
                done = ended(&mut self.renewing) => Turn::Renewed(done),
                done = ended(&mut self.reading) => Turn::Read(done.and_then(Result::ok)),
                _ = tick.tick() => Turn::Tick,
            };
            let mut events = Vec::new();
            // What was heard may follow from what happened here.
            self.take_own(&mut events);
            match turn {
                Turn::Heard(heard) => self.hear(heard, &mut events),
                Turn::Arrived => {}
                Turn::Renewed(done) => self.has_renewed(done),
                Turn::Read(Some(figures)) => {
                    self.known.look(&figures, self.read_since, &mut events);
                    self.depths.look(&figures, &mut events);
                }
                Turn::Read(None) => {}
                Turn::Tick if self.has_ended() => return,
                Turn::Tick => self.look_after(&mut events),
            }
            self.gather(&mut events);
            if self.wants_look {
                self.look();
            }
            if !events.is_empty() {
                self.hub.board.lock().put(events);
                tokio::time::sleep(PACE).await;
            }
        }
    }

    /// Takes what happened in this process.
    fn take_own(&mut self, events: &mut Vec<Event>) {
        let News { events: own, others, marks } = self.hub.take();
        if marks.has_gap {
            self.miss(
                "tasks were taken back, or changed by a filter, or too much happened at once",
                events,
            );
        }
        self.wants_look |= marks.has_look;
        self.tell_others(others, events);
        self.tell(own, events);
    }

    /// Takes what else is there by now.
    fn gather(&mut self, events: &mut Vec<Event>) {
        for _ in 0..READ_MAX {
            let Some(heard) = next(self.stream.as_mut()).now_or_never() else { return };
            self.hear(heard, events);
        }
    }

    fn hear(&mut self, heard: Broadcast, events: &mut Vec<Event>) {
        let message = match heard {
            Broadcast::Said(message) => message,
            Broadcast::Gap => {
                self.origins.clear();
                return self.miss("the store was not heard for a while", events);
            }
        };
        let Some(packet) = unpack(&message) else {
            tracing::debug!("a broadcast is none of ours");
            return;
        };
        if packet.origin == self.hub.origin {
            // All else it was told directly.
            return self.tell_others(packet.others, events);
        }
        if self.origins.len() >= ORIGINS_MAX {
            self.origins.clear();
        }
        let last = self.origins.insert(packet.origin, packet.number);
        if packet.has_gap || last.is_some_and(|last| last + 1 != packet.number) {
            self.miss("another process could not tell everything", events);
        }
        self.wants_look |= packet.has_look;
        self.tell_others(packet.others, events);
        self.tell(packet.events, events);
    }

    /// Puts events of tasks in their order.
    fn tell(&mut self, heard: Vec<TaskEvent>, events: &mut Vec<Event>) {
        let plain = |event: TaskEvent| Event {
            kind: event.kind,
            at: event.at,
            subject: Subject::Task(event.task),
        };
        let mut told = Vec::with_capacity(2);
        for event in heard {
            match self.order.judge(event, &mut told) {
                Verdict::Told => events.extend(told.drain(..).map(plain)),
                Verdict::Known => {}
                Verdict::Late => events.push(self.hub.gap("an event came too late for its place")),
            }
        }
    }

    /// Tells what is news of queues and workers.
    fn tell_others(&mut self, heard: Vec<OtherEvent>, events: &mut Vec<Event>) {
        for event in heard {
            match self.known.hear(event, events) {
                Verdict::Told | Verdict::Known => {}
                Verdict::Late => events.push(self.hub.gap("an event came too late for its place")),
            }
        }
    }

    /// Something was not heard.
    fn miss(&mut self, reason: &'static str, events: &mut Vec<Event>) {
        self.known.miss();
        events.push(self.hub.gap(reason));
    }

    /// What is to be done now and then.
    fn look_after(&mut self, events: &mut Vec<Event>) {
        let now = Instant::now();
        if self.gap_at.is_some_and(|at| at <= now) {
            self.gap_at = None;
            self.miss("others may have thought that nobody listens", events);
        }
        let is_due = self.has_failed || now.duration_since(self.renewed) >= RENEWED_EVERY;
        if self.stream.is_some()
            && is_due
            && let Some(mut sign) = self.sign.take()
        {
            let hub = self.hub.clone();
            // On its own: a store that hangs must not keep events from being told.
            self.renewing = Some(tokio::spawn(async move {
                let renewed = sign.renew(&*hub.store).await;
                (sign, renewed)
            }));
        }
        self.hub.board.lock().tidy();
        self.wants_look = true;
    }

    fn has_renewed(&mut self, done: Option<(Sign, Result<()>)>) {
        // One that panicked is made anew.
        let (sign, renewed) = done.unwrap_or_else(|| (Sign::new(&self.hub.origin), Ok(())));
        self.sign = Some(sign);
        match renewed {
            Ok(()) => {
                self.renewed = Instant::now();
                if std::mem::take(&mut self.has_failed) {
                    self.gap_at = Some(self.renewed + SEEN_AFTER);
                }
            }
            Err(error) => {
                tracing::debug!(error = error.chain(), "others are not told that someone listens");
                self.has_failed = true;
            }
        }
    }

    /// Reads figures, if someone wants to know and nobody has looked just now.
    fn look(&mut self) {
        let is_early = self.looked.is_some_and(|looked| looked.elapsed() < LOOK_PAUSE);
        if self.reading.is_some() || is_early {
            return;
        }
        self.wants_look = false;
        if !self.hub.board.lock().wants_figures() {
            // Whoever comes later begins with what is there then.
            self.depths = Depths::default();
            self.known.look_away();
            return;
        }
        (self.looked, self.read_since) = (Some(Instant::now()), self.known.mark());
        let hub = self.hub.clone();
        self.reading = Some(tokio::spawn(async move { Figures::read(&hub.store).await }));
    }

    fn has_ended(&mut self) -> bool {
        if self.hub.has_listeners() {
            self.listened = Instant::now();
        }
        self.listened.elapsed() >= LINGER && self.hub.ends(false)
    }
}

async fn next(stream: Option<&mut BroadcastStream>) -> Broadcast {
    match stream {
        Some(stream) => match stream.next().await {
            Some(heard) => heard,
            // It does not end, by contract.
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

/// The outcome of what was begun; nothing when it panicked. Never ends when there is none.
async fn ended<T>(begun: &mut Option<JoinHandle<T>>) -> Option<T> {
    match begun {
        Some(handle) => {
            let outcome = handle.await.ok();
            *begun = None;
            outcome
        }
        None => std::future::pending().await,
    }
}
