//! What all roles of one worker share.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use windlass_core::dice::Dice;
use windlass_core::store::{ClaimParams, RunOrder, WakeMark};
use windlass_core::{Clock, Store, Timestamp, WorkerId};

use crate::client::Client;
use crate::contact::Contact;
use crate::handler::Registry;
use crate::identity::Identity;
use crate::intake::Intake;
use crate::leases::Leases;
use crate::quotas::{Queues, share};
use crate::slots::Slots;

/// How long beats name everything that is held, after a claim that had no answer.
const DOUBT: Duration = Duration::from_secs(20);
/// How often they do so anyway.
const DOUBT_EVERY: Duration = Duration::from_secs(60);

/// How a worker works.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) queues: Queues,
    pub(crate) concurrency: usize,
    pub(crate) name: String,
    pub(crate) unknown: Unknown,
    /// The wall clock, beside which the monotonic one is watched.
    pub(crate) wall: Arc<dyn Clock>,
    /// Beats on a thread and runtime of their own; off only in tests that drive time by hand.
    pub(crate) has_own_thread: bool,
}

/// What becomes of a task whose kind no handler knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// It fails, and is retried as after any failure.
    Fails,
    /// It is given back for others, a while later, and fails only after ten minutes.
    GivenBack,
}

pub(crate) struct Station {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) client: Client,
    pub(crate) settings: Settings,
    pub(crate) registry: Registry,
    pub(crate) identity: Identity,
    pub(crate) leases: Leases,
    pub(crate) slots: Slots,
    pub(crate) intake: Intake,
    pub(crate) contact: Contact,
    pub(crate) order: watch::Sender<RunOrder>,
    /// The last beat that was answered.
    pub(crate) beaten: watch::Sender<Option<Beaten>>,
    /// Asks for a beat before its time.
    pub(crate) beat_now: Notify,
    /// No more claims.
    pub(crate) stopping: CancellationToken,
    pub(crate) dice: Mutex<Dice>,
    doubt: Mutex<Doubt>,
    /// How far the store's clock is ahead of ours, in ms.
    clock_lead_ms: AtomicI64,
}

/// A beat that was answered: whose, and up to which of the store's rings it has told all orders.
#[derive(Debug, Clone)]
pub(crate) struct Beaten {
    pub(crate) worker: WorkerId,
    pub(crate) mark: WakeMark,
}

struct Doubt {
    until: Option<Instant>,
    next: Instant,
}

impl Station {
    pub(crate) fn new(client: Client, settings: Settings, registry: Registry) -> Arc<Self> {
        let worker = &client.config().worker;
        Arc::new(Self {
            store: Arc::clone(client.store()),
            registry,
            identity: Identity::new(Arc::clone(&settings.wall)),
            leases: Leases::default(),
            slots: Slots::new(settings.concurrency),
            intake: Intake::default(),
            contact: Contact::new(Arc::clone(&settings.wall), worker.heartbeat),
            order: watch::Sender::new(RunOrder::Run),
            beaten: watch::Sender::new(None),
            beat_now: Notify::new(),
            stopping: CancellationToken::new(),
            dice: Mutex::new(Dice::thrown()),
            doubt: Mutex::new(Doubt { until: None, next: Instant::now() + DOUBT_EVERY }),
            clock_lead_ms: AtomicI64::new(0),
            client,
            settings,
        })
    }

    /// The claim that the free slots call for; nothing when there is no room, or no right to claim.
    pub(crate) fn next_claim(&self) -> Option<ClaimParams> {
        if self.stopping.is_cancelled() || *self.order.borrow() != RunOrder::Run {
            return None;
        }
        let worker = self.identity.fit_id()?;
        let limit = self.slots.room(self.intake.waiting());
        if limit == 0 {
            return None;
        }
        let quotas = share(&self.settings.queues, limit, &mut self.dice.lock());
        let suspects_at_most = self.slots.room_for_suspects();
        Some(ClaimParams { worker, quotas, limit, suspects_at_most })
    }

    /// Takes what a claim, sent at this moment, has brought.
    pub(crate) fn receive(
        &self,
        sent: Instant,
        worker: &WorkerId,
        tasks: Vec<windlass_core::Claimed>,
    ) {
        // A late answer may bring what a beat has given back meanwhile, or another worker runs.
        let is_late = sent.elapsed() >= self.unknown_after();
        let is_ours = !is_late && self.identity.fit_id().as_ref() == Some(worker);
        let with_controls = |task: windlass_core::Claimed| {
            let controls = self.leases.add(&task, worker);
            if !is_ours {
                controls.cancel.cancel();
                controls.stop.cancel();
            }
            (task, controls)
        };
        self.intake.push(tasks.into_iter().map(with_controls));
    }

    /// A claim had no answer: it may have brought tasks that we do not know of.
    pub(crate) fn doubt(&self) {
        self.doubt.lock().until = Some(Instant::now() + DOUBT);
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

    /// The store's clock, as far as we know.
    pub(crate) fn store_now(&self) -> Timestamp {
        let lead = self.clock_lead_ms.load(Ordering::Relaxed);
        Timestamp::from_millis(self.settings.wall.now().as_millis() + lead)
    }

    pub(crate) fn heard_time(&self, store_now: Timestamp) {
        let lead = store_now.as_millis() - self.settings.wall.now().as_millis();
        self.clock_lead_ms.store(lead, Ordering::Relaxed);
    }
}
