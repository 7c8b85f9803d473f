//! What all roles of one worker share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use windlass_core::dice::Dice;
use windlass_core::store::{CLAIM_BYTES_MAX, Claim, ClaimParams, HandledKinds, RunOrder, WakeMark};
use windlass_core::{Claimed, Clock, Store, WorkerId};

use crate::claim_pace::ClaimPaces;
use crate::client::Client;
use crate::contact::Contact;
use crate::foreign::ForeignTasks;
use crate::handler::Registry;
use crate::hush::Hush;
use crate::identity::Identity;
use crate::intake::{Coming, Intake, Waiting};
use crate::leases::Leases;
use crate::link::Link;
use crate::paused_queues::{PausedQueues, ReportNumber};
use crate::quotas::{Queues, share};
use crate::slots::Slots;
use crate::suspects::{Pass, Suspects};
use crate::unrecorded::UnusableQueues;

/// A claim without an answer for so long may have brought tasks that we do not know of.
const DOUBT_AFTER: Duration = Duration::from_secs(5);
/// How long beats name everything that is held, after a claim that had no answer.
const DOUBT: Duration = Duration::from_secs(20);
/// How often they do so anyway.
const DOUBT_EVERY: Duration = Duration::from_secs(60);

/// How a worker works.
#[derive(Clone)]
pub(crate) struct Settings {
    /// Those that were named.
    pub(crate) queues: Queues,
    /// All others of the store too, as they come.
    pub(crate) serves_all: bool,
    pub(crate) concurrency: usize,
    pub(crate) name: String,
    pub(crate) unknown: Unknown,
    /// The wall clock, beside which the monotonic one is watched.
    pub(crate) wall: Arc<dyn Clock>,
    /// Beats on a thread and runtime of their own; off only in tests that drive time by hand.
    pub(crate) has_own_thread: bool,
}

/// How a task ends whose kind neither this worker nor another live worker of its queue handles. A task that another
/// worker handles is always released immediately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// It fails, and is retried as after any failure.
    Fails,
    /// It waits, at first for a second and later for up to ten, and fails ten minutes after a worker first met it.
    GivenBack,
}

pub(crate) struct Station {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) client: Client,
    pub(crate) settings: Settings,
    pub(crate) registry: Registry,
    /// The kinds of the registry, as the worker's card lists them.
    pub(crate) kinds: Option<HandledKinds>,
    pub(crate) identity: Identity,
    pub(crate) leases: Leases,
    pub(crate) slots: Slots,
    pub(crate) suspects: Suspects,
    pub(crate) intake: Intake,
    /// Tasks of kinds that the registry does not know, and how it claims from queues that have such.
    pub(crate) foreign: ForeignTasks,
    pub(crate) paces: Mutex<ClaimPaces>,
    pub(crate) hush: Hush,
    /// Queues that are left out of claims, since endings of theirs could not be recorded.
    pub(crate) unusable: UnusableQueues,
    /// Endings wait for the store: until it has taken them, nothing more is claimed.
    pub(crate) is_stuck: AtomicBool,
    /// What it shares with those who look after the store without a worker.
    pub(crate) link: Arc<Link>,
    pub(crate) contact: Arc<Contact>,
    /// What is served at present.
    pub(crate) queues: watch::Sender<Arc<Queues>>,
    pub(crate) order: watch::Sender<RunOrder>,
    /// Queues whose claimed tasks must not start.
    pub(crate) paused_queues: PausedQueues,
    /// The last beat that was answered.
    pub(crate) beaten: watch::Sender<Option<Beaten>>,
    /// Asks for a beat before its time.
    pub(crate) beat_now: Notify,
    /// No more claims.
    pub(crate) stopping: CancellationToken,
    pub(crate) dice: Mutex<Dice>,
    doubt: Mutex<Doubt>,
}

/// A beat that was answered: whose, and up to which of the store's rings it has told all orders.
#[derive(Debug, Clone)]
pub(crate) struct Beaten {
    pub(crate) worker: WorkerId,
    pub(crate) mark: WakeMark,
}

/// A claim on its way: what it may bring is counted as here until it is answered.
pub(crate) struct Asked<'a> {
    worker: WorkerId,
    queues: Arc<Queues>,
    sent: Instant,
    claimed_after: ReportNumber,
    coming: Coming<'a>,
    /// How many tasks it asks for.
    limit: usize,
    /// It asks one queue of several.
    is_alone: bool,
    pass: Option<Pass>,
}

struct Doubt {
    until: Option<Instant>,
    next: Instant,
}

impl Station {
    pub(crate) fn new(client: Client, settings: Settings, registry: Registry) -> Arc<Self> {
        let identity = Identity::new(Arc::clone(&settings.wall));
        let link = Link::new(client.clone(), Arc::clone(&settings.wall), identity.id());
        let kinds = registry.kinds();
        Arc::new(Self {
            store: client.watched_for(kinds.as_ref()),
            kinds,
            registry,
            identity,
            leases: Leases::default(),
            slots: Slots::new(settings.concurrency),
            suspects: Suspects::default(),
            intake: Intake::default(),
            foreign: ForeignTasks::default(),
            paces: Mutex::default(),
            hush: Hush::default(),
            unusable: UnusableQueues::default(),
            is_stuck: AtomicBool::new(false),
            contact: Arc::clone(&link.contact),
            link,
            queues: watch::Sender::new(Arc::new(settings.queues.clone())),
            order: watch::Sender::new(RunOrder::Run),
            paused_queues: PausedQueues::default(),
            beaten: watch::Sender::new(None),
            beat_now: Notify::new(),
            stopping: CancellationToken::new(),
            dice: Mutex::new(Dice::thrown()),
            doubt: Mutex::new(Doubt { until: None, next: Instant::now() + DOUBT_EVERY }),
            client,
            settings,
        })
    }

    /// The claim that the free slots call for; nothing when there is no room, or no right to claim.
    pub(crate) fn next_claim(&self) -> Option<(ClaimParams, Asked<'_>)> {
        if self.stopping.is_cancelled() || *self.order.borrow() != RunOrder::Run {
            return None;
        }
        if self.is_stuck.load(Ordering::Relaxed) || self.intake.is_full() {
            return None;
        }
        let worker = self.identity.fit_id()?;
        let room = self.slots.room(self.intake.waiting());
        if room == 0 {
            return None;
        }
        let queues = Arc::clone(&self.queues.borrow());
        let usable = self.unusable.left_of(&queues);
        let turn = self.paces.lock().turn(usable, room, Instant::now());
        let (limit, is_alone) = (turn.limit, turn.is_alone);
        if turn.queues.weighted.is_empty() {
            return None;
        }
        let quotas = share(&turn.queues, limit, &mut self.dice.lock());
        let (coming, pass) = (self.intake.expect(room), self.suspects.pass());
        let claimed_after = self.paused_queues.last_report();
        let (sent, owner) = (Instant::now(), worker.clone());
        let asked =
            Asked { worker: owner, queues, sent, claimed_after, coming, limit, is_alone, pass };
        let suspects_at_most = usize::from(asked.pass.is_some());
        Some((ClaimParams { worker, quotas, limit, suspects_at_most }, asked))
    }

    /// Takes what a claim has brought.
    pub(crate) fn receive(&self, asked: Asked<'_>, claim: Claim) {
        let Asked { worker, queues, sent, claimed_after, coming, limit, is_alone, mut pass } =
            asked;
        let had_pass = pass.is_some();
        let (since, got) = (Instant::now(), claim.tasks.len());
        if got > 0 {
            self.slots.note_claim(sent.elapsed());
        }
        let arrive = |task: Claimed| {
            let controls = self.leases.add(&task, &worker, sent);
            let pass = if task.is_suspect() { pass.take() } else { None };
            Waiting { task, controls, since, claimed_after, pass }
        };
        self.intake.note(limit, got, claim.mark);
        // It may have left a suspect behind, and whoever had the pass cannot tell that any more. Or it
        // did not ask all queues that are served by now, and its mark says nothing of the others.
        let is_outdated = is_alone || !Arc::ptr_eq(&queues, &self.queues.borrow());
        if claim.is_cut_short {
            self.doubt();
        }
        // One that stopped at its bound in bytes may have left tasks behind.
        let bytes: usize = claim.tasks.iter().map(|task| task.payload.len()).sum();
        let is_short = claim.is_cut_short || bytes >= CLAIM_BYTES_MAX;
        if is_short || is_outdated || (!had_pass && self.suspects.is_free()) {
            self.intake.refresh();
        }
        let handles = |task: &Claimed| self.registry.handles(&task.kind);
        let mut paces = self.paces.lock();
        let (own, foreign) = paces.part(claim.tasks, handles, since, &mut self.dice.lock());
        drop(paces);
        let own_count = own.len();
        let mut arrived: Vec<_> = own.into_iter().chain(foreign).map(arrive).collect();
        // A late answer may bring what a beat has given back meanwhile, or another worker runs. Asked only now:
        // whoever ends the worker's rights from here on finds the leases.
        let is_late = sent.elapsed() >= self.unknown_after();
        if is_late || self.identity.fit_id().as_ref() != Some(&worker) {
            arrived.iter().for_each(|waiting| waiting.controls.give_up());
        }
        self.foreign.push(arrived.drain(own_count..));
        self.intake.push(arrived.into_iter(), coming);
    }

    /// The store has declared this worker lost: its runs are given up, and it goes on under another id. Answers
    /// both ids.
    pub(crate) fn lose(&self) -> (WorkerId, WorkerId) {
        let lost = self.identity.id();
        // First the id: a claim that arrives meanwhile sees that it has changed, or is found here.
        let id = self.identity.lose();
        self.leases.stop(&self.leases.of(&lost));
        (lost, id)
    }

    /// Serves these queues from now on.
    pub(crate) fn serve(&self, queues: Queues) {
        self.queues.send_if_modified(|served| {
            let is_new = **served != queues;
            if is_new {
                *served = Arc::new(queues);
            }
            is_new
        });
    }

    /// A claim had no answer: it may have brought tasks that we do not know of.
    pub(crate) fn doubt(&self) {
        self.doubt.lock().until = Some(Instant::now() + DOUBT);
    }

    /// Awaits the answer to a call that claims. A call that is late counts as a claim without an answer.
    pub(crate) async fn answered<T>(&self, mut call: impl Future<Output = T> + Unpin) -> T {
        match tokio::time::timeout(DOUBT_AFTER, &mut call).await {
            Ok(answer) => answer,
            Err(_) => {
                self.doubt();
                // Never dropped: it may hold a transaction.
                call.await
            }
        }
    }

    /// How long after its claim a task that no beat names goes back.
    pub(crate) fn unknown_after(&self) -> Duration {
        self.client.config().worker.heartbeat * 2
    }

    /// True when the next beat should name everything that is held.
    pub(crate) fn should_name_held(&self) -> bool {
        let doubt = self.doubt.lock();
        doubt.until.is_some() || Instant::now() >= doubt.next
    }

    /// A beat that named everything was accepted. Only that ends a doubt: the time may have run out
    /// while the store was away.
    pub(crate) fn named_held(&self, sent: Instant) {
        let mut doubt = self.doubt.lock();
        doubt.until.take_if(|until| sent >= *until);
        doubt.next = sent + DOUBT_EVERY;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use windlass_core::store::PrioritySet;
    use windlass_core::{Epoch, Kind, Priority, Spec, SystemClock, TaskId, Timestamp};

    use super::*;

    fn station() -> Arc<Station> {
        let queue = windlass_core::QueueName::new("default").unwrap();
        let priorities = PrioritySet::ALL;
        let settings = Settings {
            queues: Queues { weighted: vec![(queue, 1)], is_strict: false, priorities },
            serves_all: false,
            concurrency: 4,
            name: String::new(),
            unknown: Unknown::Fails,
            wall: Arc::new(SystemClock),
            has_own_thread: false,
        };
        let client = Client::new(windlass_testkit::fleet::memory());
        let station = Station::new(client, settings, Registry::default());
        let sent = station.identity.sending();
        station.identity.renewed(sent, Duration::from_secs(15));
        station
    }

    /// Runs that have just ended make room for more.
    fn end_runs(station: &Station, count: usize) {
        (0..count).for_each(|_| drop(station.slots.take()));
    }

    fn claimed(number: usize) -> Claimed {
        Claimed {
            id: TaskId::new(format!("task-{number}")),
            epoch: Epoch(1),
            kind: Kind::new("do").unwrap(),
            queue: windlass_core::QueueName::new("default").unwrap(),
            priority: Priority::Normal,
            payload: Default::default(),
            attempts: 1,
            crashes: 0,
            spec: Spec {
                max_retries: 3,
                max_crashes: 3,
                timeout: Duration::from_secs(1),
                retention: Duration::from_secs(1),
                extras: Default::default(),
            },
            is_cancel_requested: false,
            created_at: Timestamp::default(),
            pending_at: Timestamp::default(),
            claimed_at: Timestamp::default(),
        }
    }

    #[tokio::test]
    async fn a_claim_that_arrives_while_its_worker_is_declared_lost_is_given_up() {
        for _ in 0..50 {
            let station = station();
            let asked = station.next_claim().unwrap().1;
            let claim = Claim::new((0..1_000).map(claimed).collect(), WakeMark(1));
            let has_begun = Barrier::new(2);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    has_begun.wait();
                    while station.leases.count() == 0 {
                        std::thread::yield_now();
                    }
                    station.lose();
                });
                has_begun.wait();
                station.receive(asked, claim);
            });
            let mut arrived = std::iter::from_fn(|| station.intake.pop());
            assert!(arrived.all(|waiting| waiting.controls.stop.is_cancelled()));
        }
    }

    #[tokio::test]
    async fn while_a_suspect_may_be_on_its_way_no_other_is_claimed() {
        let station = station();
        let _busy = [station.slots.take(), station.slots.take(), station.slots.take()];
        let (first, asked) = station.next_claim().unwrap();
        assert_eq!(first.suspects_at_most, 1);
        end_runs(&station, 3);
        let (second, _) = station.next_claim().unwrap();
        assert_eq!(second.suspects_at_most, 0);
        drop(asked);
        let (third, _) = station.next_claim().unwrap();
        assert_eq!(third.suspects_at_most, 1);
    }

    #[tokio::test]
    async fn a_claim_that_may_have_left_a_suspect_behind_is_followed_by_one_that_brings_it() {
        let station = station();
        let _busy = [station.slots.take(), station.slots.take(), station.slots.take()];
        let ask = |after| {
            end_runs(&station, after);
            station.next_claim().unwrap().1
        };
        let (with_pass, second, third) = (ask(1), ask(3), ask(7));
        let is_followed = |answered| {
            station.receive(answered, Claim::new(Vec::new(), WakeMark(1)));
            station.intake.dry().is_none()
        };
        assert!(!is_followed(second), "who has the pass tells when it is free");
        drop(with_pass);
        assert!(is_followed(third), "nobody will tell that any more");
    }
}
