//! What the connections of one worker share: its registration at the server, the runs that it holds, and what the server
//! has told it to do.

use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use windlass::core::limits::Limits;
use windlass::core::store::{ClaimParams, Orders, RunOrder, WakeMark};
use windlass::core::{Error, QueueName, Reason, Result, WorkerId};
use windlass::{Claimed, Timestamp};

use super::runs::Runs;
use super::wire::{Control, LeaseRequest, LeasedTask, WorkerPart};
use super::{LeaseTerms, PullWorker};
use crate::settings::Server;

/// Most runs that a heartbeat may name.
const HELD_MAX: usize = 1_000;
/// The pause after a lease that ended early without tasks: as when the worker stops, or may not take more.
pub(super) const EARLY_PAUSE: Duration = Duration::from_millis(200);

pub(super) struct Shared {
    pub(super) server: Server,
    pub(super) worker: PullWorker,
    pub(super) terms: LeaseTerms,
    pub(super) limits: Limits,
    /// Ends the lease that waits for tasks.
    pub(super) stop: CancellationToken,
    registration: Mutex<Registration>,
    pub(super) runs: Mutex<Runs>,
    pub(super) heard: watch::Sender<Heard>,
    /// No lease before this instant.
    pub(super) rest_until: Mutex<Instant>,
}

/// Under which id the server knows the worker.
struct Registration {
    /// At the engine; nothing before its first beat.
    worker: Option<WorkerId>,
    /// At the server.
    id: WorkerId,
}

/// The last control state that the server told, and how often it told another one outside of heartbeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Heard {
    state: RunOrder,
    pub(super) mark: WakeMark,
}

impl Shared {
    /// A worker that is registered at the server under this id.
    pub(super) fn new(
        server: Server,
        worker: PullWorker,
        limits: Limits,
        stop: CancellationToken,
        registered: (WorkerId, RunOrder, LeaseTerms),
    ) -> Self {
        let (id, state, terms) = registered;
        Self {
            server,
            worker,
            terms,
            limits,
            stop,
            registration: Mutex::new(Registration { worker: None, id }),
            runs: Mutex::default(),
            heard: watch::Sender::new(Heard { state, mark: WakeMark(0) }),
            rest_until: Mutex::new(Instant::now()),
        }
    }

    /// The id at the server of a worker that has registered there.
    pub(super) fn id_of(&self, worker: &WorkerId) -> Result<WorkerId> {
        let registration = self.registration.lock();
        if registration.worker.as_ref() == Some(worker) {
            return Ok(registration.id.clone());
        }
        let text = format!("worker {worker} is not registered at the server");
        Err(Error::lease_lost(text).reason_is(Reason::WorkerLost))
    }

    pub(super) fn lease_request<'a>(
        &'a self,
        id: &'a WorkerId,
        params: &ClaimParams,
        max: usize,
        wait: Duration,
    ) -> LeaseRequest<'a> {
        let ClaimParams { quotas, suspects_at_most, .. } = params;
        let is_wanted =
            |(queue, _): &&(QueueName, u32)| quotas.iter().any(|quota| quota.queue == *queue);
        let queues = self.worker.queues.iter().filter(is_wanted);
        let wait = wait.as_secs_f64();
        LeaseRequest {
            queues: self.worker.name_queues(queues),
            suspects: *suspects_at_most > 0,
            ..self.worker.request(id, max, wait)
        }
    }

    /// How many more tasks the worker may hold.
    pub(super) fn room(&self) -> usize {
        HELD_MAX.saturating_sub(self.runs.lock().count())
    }

    pub(super) fn take(&self, tasks: Vec<LeasedTask>, asked: Instant) -> Result<Vec<Claimed>> {
        let tasks: Vec<_> =
            tasks.into_iter().map(LeasedTask::into_claimed).collect::<Result<_>>()?;
        let mut runs = self.runs.lock();
        tasks.iter().for_each(|task| runs.add(task, asked));
        Ok(tasks)
    }

    /// Another control state than before has the engine beat at once, which brings it there.
    pub(super) fn hear(&self, control: Control) {
        self.heard.send_if_modified(|heard| {
            let is_new = heard.state != control.state;
            if is_new {
                *heard = Heard { state: control.state, mark: WakeMark(heard.mark.0 + 1) };
            }
            is_new
        });
    }

    /// The answer to a beat has told this control state.
    fn note_beat(&self, state: RunOrder) -> WakeMark {
        let mut mark = WakeMark(0);
        self.heard.send_modify(|heard| {
            heard.state = state;
            mark = heard.mark;
        });
        mark
    }

    pub(super) fn mark(&self) -> WakeMark {
        self.heard.borrow().mark
    }

    pub(super) fn rest(&self) {
        *self.rest_until.lock() = Instant::now() + EARLY_PAUSE;
    }

    /// The id at the server of a worker that beats: the one of `open` is its first. Nothing when it has none yet.
    pub(super) fn adopt(&self, worker: &WorkerId) -> Option<WorkerId> {
        let mut registration = self.registration.lock();
        let known = registration.worker.get_or_insert_with(|| worker.clone());
        (known == worker).then(|| registration.id.clone())
    }

    /// The worker goes on under another id: what it held before is lost.
    pub(super) fn enroll(&self, worker: &WorkerId, id: WorkerId) {
        *self.registration.lock() = Registration { worker: Some(worker.clone()), id };
        self.runs.lock().clear();
    }

    pub(super) fn orders(&self, state: RunOrder, now: Timestamp) -> Orders {
        Orders {
            order: state,
            paused_queues: Vec::new(),
            cancels: Vec::new(),
            lost: Vec::new(),
            given_back: Vec::new(),
            now,
            mark: self.note_beat(state),
        }
    }
}

impl PullWorker {
    pub(super) fn request<'a>(
        &'a self,
        id: &'a WorkerId,
        max: usize,
        wait: f64,
    ) -> LeaseRequest<'a> {
        let worker = WorkerPart {
            id,
            name: &self.name,
            version: env!("CARGO_PKG_VERSION"),
            slots: self.slots,
        };
        let queues = self.name_queues(self.queues.iter());
        LeaseRequest { worker, queues, strict: self.is_strict, suspects: false, max, wait }
    }

    /// With weights, where these count.
    fn name_queues<'a>(&self, queues: impl Iterator<Item = &'a (QueueName, u32)>) -> Value {
        if self.is_strict {
            return queues.map(|(queue, _)| Value::from(queue.as_str())).collect();
        }
        queues.map(|(queue, weight)| (queue.to_string(), Value::from(*weight))).collect()
    }
}
