//! The store of a worker behind a server: what a worker needs of the store contract, as requests of the pull protocol.
//! The engine runs on it unchanged, with its slots, heartbeats and self-fencing; all upkeep is the server's.
//!
//! ```text
//! engine             here                            server
//! beat    ─────────▶ heartbeat, names all held ────▶ renews; cancelled and lost runs come back
//! claim   ─────────▶ lease, waits for tasks ───────▶ claims
//! apply   ─────────▶ results, and the next lease ──▶ applies, claims in the same trip
//! ```
//!
//! The engine makes up a new worker id when it was declared lost. A server knows each of these under an id of its own.

mod exchange;
mod runs;
mod shared;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use windlass::core::duration;
use windlass::core::limits::Limits;
use windlass::core::store::{
    ApplyParams, ApplyReply, Beat, Bid, BroadcastStream, Capabilities, ChangeParams, ChangeReply,
    Claim, ClaimParams, Depth, DocQuery, Document, Durability, Duty, DutyReport, GetParams,
    Inserted, Inspection, Leadership, ListOrder, ListParams, Order, Orders, Page, Profile,
    QueueRecord, RETENTION_DEFAULT, Reservation, SaveDoc, Saved, Store, WaitParams, Wake,
    WorkerRecord,
};
use windlass::core::unique::UniqueScope;
use windlass::core::{Error, ErrorKind, NewTask, QueueName, Reason, Result, WorkerId};
use windlass::{Claimed, TaskId, TaskRecord};

use self::exchange::{Exchange, Reply};
use self::shared::{EARLY_PAUSE, Shared};
use self::wire::{
    Control, HeartbeatReply, HeartbeatRequest, LeaseReply, LeaveReply, ResultsReply,
    ResultsRequest, RunResult,
};
use crate::exit::Done;
use crate::settings::Server;

/// Most tasks of one lease.
const LEASE_TASKS_MAX: usize = 100;
/// Most slots that a worker may have at a server.
pub(crate) const SLOTS_MAX: u32 = 1_000;
/// Longest wait of a lease. The engine takes an answer that is older than two heartbeats for lost.
const LEASE_WAIT_MAX: Duration = Duration::from_secs(20);
/// How long a server may take for an answer, beyond any wait that was asked for.
const REPLY_WITHIN: Duration = Duration::from_secs(30);
const LEAVE_WITHIN: Duration = Duration::from_secs(5);
/// How often a worker that starts asks a server that may be starting too, and the pauses between: 5 s in all.
const REGISTER_TRIES: u32 = 20;
const REGISTER_PAUSE: Duration = Duration::from_millis(250);
/// No server hands its leadership to a worker.
const BID_AFTER: Duration = Duration::from_secs(3_600);

/// What a worker says of itself to a server.
#[derive(Debug, Clone)]
pub(crate) struct PullWorker {
    pub(crate) name: String,
    pub(crate) slots: u32,
    pub(crate) queues: Vec<(QueueName, u32)>,
    pub(crate) is_strict: bool,
}

/// How long leases last at a server, and how often they are renewed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeaseTerms {
    pub(crate) heartbeat: Duration,
    pub(crate) lease: Duration,
}

/// The store. What [`Store::dedicated`] makes of it shares all but the connections.
pub(crate) struct HttpStore {
    exchange: Exchange,
    shared: Arc<Shared>,
}

impl HttpStore {
    /// Registers a worker at a server. `stop` ends leases that wait.
    pub(crate) async fn open(
        server: Server,
        worker: PullWorker,
        limits: Limits,
        stop: CancellationToken,
    ) -> Done<Self> {
        let exchange = Exchange::new(&server)?;
        let id = new_id();
        let control = register_patiently(&exchange, &worker, &id).await?;
        let seconds = |seconds| duration::from_seconds(seconds);
        let terms =
            LeaseTerms { heartbeat: seconds(control.heartbeat)?, lease: seconds(control.lease)? };
        let registered = (id, control.state, terms);
        let shared = Shared::new(server, worker, limits, stop, registered);
        Ok(Self { exchange, shared: Arc::new(shared) })
    }

    /// How long leases last here.
    pub(crate) fn terms(&self) -> LeaseTerms {
        self.shared.terms
    }

    /// Leases up to `max` tasks of these queues.
    async fn lease(
        &self,
        id: &WorkerId,
        params: &ClaimParams,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<Claimed>> {
        let asked = Instant::now();
        let request = self.shared.lease_request(id, params, max, wait);
        let reply = self.exchange.post("/leases", &request, wait + REPLY_WITHIN);
        let reply: Reply<LeaseReply> = tokio::select! {
            reply = reply => reply?,
            // The server gives back what it was about to hand out.
            () = self.shared.stop.cancelled(), if !wait.is_zero() => return Ok(Vec::new()),
        };
        self.shared.hear(reply.body.control);
        self.shared.take(reply.body.tasks, asked)
    }
}

/// Shows the server that there is a worker of this id; no task is leased.
async fn register(
    exchange: &Exchange,
    worker: &PullWorker,
    id: &WorkerId,
) -> Result<Reply<LeaseReply>> {
    exchange.post("/leases", &worker.request(id, 0, 0.0), REPLY_WITHIN).await
}

/// Registers a new worker; waits for a server that is just being started.
async fn register_patiently(
    exchange: &Exchange,
    worker: &PullWorker,
    id: &WorkerId,
) -> Result<Control> {
    let mut tries = 1;
    loop {
        let error = match register(exchange, worker, id).await {
            Ok(reply) => return Ok(reply.body.control),
            Err(error) => error,
        };
        let may_pass = error.is_unavailable() && error.reason() != Reason::Forbidden;
        if !may_pass || tries == REGISTER_TRIES {
            return Err(error);
        }
        tries += 1;
        tokio::time::sleep(REGISTER_PAUSE).await;
    }
}

/// An id of the form that servers make.
fn new_id() -> WorkerId {
    WorkerId::remote(uuid::Uuid::new_v4().simple())
}

fn unsupported<T>(what: &str) -> Result<T> {
    Err(Error::unsupported(format!("{what}: a worker of a server only runs tasks")))
}

#[async_trait]
impl Store for HttpStore {
    fn profile(&self) -> Profile {
        Profile {
            name: "http",
            capabilities: Capabilities {
                has_priorities: true,
                unique_scope: UniqueScope::Kind,
                schedule_resolution: Duration::from_millis(1),
                list_order: ListOrder::NewestFirst,
                forgets_at_once: false,
                is_shared: true,
                has_transactions: false,
                has_broadcasts: false,
            },
            durability: Durability::Durable,
            limits: self.shared.limits,
            retention_default: RETENTION_DEFAULT,
        }
    }

    async fn dedicated(&self) -> Result<Arc<dyn Store>> {
        let exchange = Exchange::new(&self.shared.server)
            .map_err(|failure| Error::new(ErrorKind::Unavailable, failure.text))?;
        Ok(Arc::new(Self { exchange, shared: Arc::clone(&self.shared) }))
    }

    async fn inspect(&self, _depth: Depth) -> Result<Inspection> {
        let now = self.exchange.ping(REPLY_WITHIN).await?;
        let (version, findings, brokers) = (String::new(), Vec::new(), Vec::new());
        Ok(Inspection { now, refusal: None, version, findings, brokers })
    }

    async fn claim(&self, mut params: ClaimParams) -> Result<Claim> {
        let id = self.shared.id_of(&params.worker)?;
        let mut wait = self.shared.terms.heartbeat.min(LEASE_WAIT_MAX);
        let (began, mut tasks) = (Instant::now(), Vec::new());
        let mut is_cut_short = false;
        loop {
            let max = params
                .limit
                .saturating_sub(tasks.len())
                .min(LEASE_TASKS_MAX)
                .min(self.shared.room());
            if max == 0 {
                break;
            }
            match self.lease(&id, &params, max, wait).await {
                Ok(leased) => {
                    let is_short = leased.len() < max;
                    let suspects = leased.iter().filter(|task| task.is_suspect()).count();
                    params.suspects_at_most = params.suspects_at_most.saturating_sub(suspects);
                    tasks.extend(leased);
                    if is_short {
                        break;
                    }
                }
                Err(error) if tasks.is_empty() => return Err(error),
                Err(_) => {
                    is_cut_short = true;
                    break;
                }
            }
            wait = Duration::ZERO;
        }
        if tasks.is_empty() && began.elapsed() < EARLY_PAUSE {
            self.shared.rest();
        }
        Ok(Claim { is_cut_short, ..Claim::new(tasks, self.shared.mark()) })
    }

    async fn apply(&self, params: ApplyParams) -> Result<ApplyReply> {
        let ApplyParams { worker, transitions, then_claim } = params;
        let (id, asked) = (self.shared.id_of(&worker)?, Instant::now());
        let lease = then_claim.as_ref().map(|claim| {
            let max = claim.limit.min(LEASE_TASKS_MAX).min(self.shared.room());
            self.shared.lease_request(&id, claim, max, Duration::ZERO)
        });
        let results = transitions.iter().map(RunResult::of).collect();
        let request = ResultsRequest { worker_id: &id, results, lease };
        let reply: ResultsReply =
            self.exchange.post("/results", &request, REPLY_WITHIN).await?.body;
        let is_complete = reply.results.len() == transitions.len();
        let answers = reply.results.iter().zip(&transitions);
        if !is_complete || answers.clone().any(|(answer, of)| !answer.is_of(&of.lease.task)) {
            return Err(Error::new(
                ErrorKind::Unavailable,
                "the server did not answer every result",
            ));
        }
        let outcomes: Vec<_> = answers.map(|(answer, of)| answer.applied(of.next.state)).collect();
        self.shared.runs.lock().settle(&transitions, &outcomes);
        if let Some(control) = reply.control {
            self.shared.hear(control);
        }
        let claim = then_claim.map(|_| match reply.tasks {
            Some(tasks) => {
                let tasks = self.shared.take(tasks, asked);
                tasks.map(|tasks| Claim::new(tasks, self.shared.mark()))
            }
            None => Err(Error::new(ErrorKind::Unavailable, "the server leased nothing")),
        });
        Ok(ApplyReply { outcomes, claim })
    }

    /// A claim waits at the server, so that there may be work at once.
    async fn wait(&self, params: WaitParams) -> Result<Wake> {
        if !params.tasks.is_empty() {
            return unsupported("wait for the end of tasks");
        }
        if params.orders.is_none() {
            let rest_until = *self.shared.rest_until.lock();
            tokio::time::sleep_until(rest_until).await;
            return Ok(Wake::Work);
        }
        let since = params.since.unwrap_or_default();
        let mut heard = self.shared.heard.subscribe();
        let newer_state = heard.wait_for(|heard| heard.mark > since);
        match tokio::time::timeout(params.at_most, newer_state).await {
            Ok(_) => Ok(Wake::Orders),
            Err(_) => Ok(Wake::TimedOut),
        }
    }

    async fn beat(&self, beat: Beat) -> Result<Orders> {
        let id = self.shared.adopt(&beat.worker);
        let Some(id) = id else {
            let id = new_id();
            let Reply { body, now } = register(&self.exchange, &self.shared.worker, &id).await?;
            tracing::info!(worker = %id, "registered at the server");
            self.shared.enroll(&beat.worker, id);
            return Ok(self.shared.orders(body.control.state, now));
        };
        let request = HeartbeatRequest { held: self.shared.runs.lock().held(&beat.progress) };
        let path = format!("/workers/{id}/heartbeat");
        let within = self.shared.terms.heartbeat.max(Duration::from_secs(1));
        let reply = self.exchange.post(&path, &request, within).await?;
        let Reply { body: HeartbeatReply { control, cancel, lost }, now } = reply;
        let mut orders = self.shared.orders(control.state, now);
        let mut runs = self.shared.runs.lock();
        orders.cancels = runs.cancelled(&cancel, &request.held, now);
        orders.lost = runs.lose(&lost, &request.held);
        Ok(orders)
    }

    async fn leave(&self, worker: WorkerId) -> Result<u64> {
        let Ok(id) = self.shared.id_of(&worker) else { return Ok(0) };
        match self.exchange.delete(&format!("/workers/{id}"), LEAVE_WITHIN).await {
            Ok(LeaveReply { released }) => Ok(released),
            Err(error) if error.is_lease_lost() => Ok(0),
            Err(error) => Err(error),
        }
    }

    async fn lead(&self, _bid: Bid) -> Result<Leadership> {
        Ok(Leadership::Following { leader: None, bid_after: BID_AFTER })
    }

    async fn reserve(&self, _wanted: Vec<Reservation>) -> Result<Vec<TaskId>> {
        unsupported("reserve ids")
    }

    async fn insert(&self, _tasks: Vec<NewTask>) -> Result<Vec<Inserted>> {
        unsupported("submit")
    }

    async fn promote(&self, _duty: Duty) -> Result<DutyReport> {
        unsupported("promote")
    }

    async fn expire(&self, _duty: Duty) -> Result<DutyReport> {
        unsupported("expire")
    }

    async fn prune(&self, _duty: Duty) -> Result<DutyReport> {
        unsupported("prune")
    }

    async fn tend(&self, _duty: Duty) -> Result<DutyReport> {
        unsupported("tend")
    }

    async fn change(&self, _params: ChangeParams) -> Result<ChangeReply> {
        unsupported("change tasks")
    }

    async fn order(&self, _order: Order) -> Result<()> {
        unsupported("give orders")
    }

    async fn get(&self, _params: GetParams) -> Result<Vec<Option<TaskRecord>>> {
        unsupported("read tasks")
    }

    async fn list(&self, _params: ListParams) -> Result<Page> {
        unsupported("list tasks")
    }

    async fn queues(&self) -> Result<Vec<QueueRecord>> {
        unsupported("list queues")
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>> {
        unsupported("list workers")
    }

    async fn load(&self, _query: DocQuery) -> Result<Vec<Document>> {
        unsupported("read documents")
    }

    async fn save(&self, _save: SaveDoc) -> Result<Saved> {
        unsupported("write documents")
    }

    async fn publish(&self, _messages: Vec<String>) -> Result<()> {
        unsupported("publish")
    }

    async fn subscribe(&self) -> Result<BroadcastStream> {
        unsupported("subscribe")
    }
}
