//! PostgreSQL as the ledger and Redis as the broker in front of it.
//!
//! Everything is decided and kept in the ledger, by the PostgreSQL store. Brokers carry references to
//! pending tasks, so that workers are pushed work and nobody looks for it in the database. Whatever a
//! broker loses is found again, and without brokers this is the PostgreSQL store.

mod arrivals;
mod broker;
mod brokers;
mod claim;
mod holding;
mod keys;
mod options;
mod reference;
mod scripts;
mod settled;
mod single;
mod sweep;
mod take;
mod turns;
mod wishes;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::oneshot;
use windlass_core::store::{
    Applied, ApplyParams, ApplyReply, Beat, Bid, BroadcastStream, BrokerState, ChangeParams,
    ChangeReply, Claim, ClaimParams, Depth, DocQuery, Document, Duty, DutyReport, GetParams,
    Inserted, Inspection, Leadership, ListParams, Order, Orders, Page, Profile, QueueRecord,
    Reservation, RunOrder, SaveDoc, Saved, WaitParams, Wake, WorkerRecord,
};
use windlass_core::{NewTask, Result, Store, TaskId, TaskRecord, Transition, WorkerId};

pub use options::HybridOptions;

use crate::claimed::ClaimedTasks;
use crate::postgres::PostgresStore;
use crate::postgres::brokered::{Claimable, Reported, are_successes, segments, to_the_end};
use brokers::Brokers;
use holding::Holding;
use settled::Settled;
use sweep::Sweeps;
use take::Manner;
use turns::Turns;
use wishes::Wishes;

/// A store in a PostgreSQL database with brokers in front.
#[derive(Clone)]
pub struct HybridStore {
    shared: Arc<Shared>,
}

struct Shared {
    ledger: PostgresStore,
    brokers: Arc<Brokers>,
    holding: Arc<Holding>,
    sweeps: Arc<Sweeps>,
    wishes: Arc<Wishes>,
    turns: Arc<Turns>,
}

impl HybridStore {
    /// Opens a store; its schema is made and migrated if need be. Brokers may be away.
    pub async fn open(options: HybridOptions) -> Result<Self> {
        let plain = PostgresStore::open(options.ledger.clone()).await?;
        let identity = plain.schema_identity().await?;
        let brokers = Brokers::new(&options, &identity, plain.wakes());
        if plain.creates() {
            plain.use_brokers(brokers.names()).await?;
        }
        let carrier = Arc::clone(&brokers);
        let ledger = plain.with_carrier(carrier);
        let sweeps = Arc::new(Sweeps::new(options.sweep_every));
        let (holding, wishes, turns) = (Arc::default(), Arc::default(), Arc::default());
        Ok(Self { shared: Arc::new(Shared { ledger, brokers, holding, sweeps, wishes, turns }) })
    }

    /// How the brokers are, the urgent one first.
    pub fn brokers(&self) -> Vec<BrokerState> {
        self.shared.brokers.states()
    }

    /// The store behind the brokers, for transactions of applications: what they make pending is
    /// pushed by the leader.
    pub fn ledger(&self) -> &PostgresStore {
        &self.shared.ledger
    }
}

impl Shared {
    async fn apply(&self, mut params: ApplyParams) -> Result<Reply> {
        let transitions = &params.transitions;
        let apart = params
            .then_claim
            .take_if(|wanted| !are_successes(transitions) || segments(&wanted.quotas).len() != 1);
        let reply = match &params.then_claim {
            // The claim travels right behind the endings, if there is something to claim.
            Some(wanted) => self.apply_and_claim(&params, wanted).await?,
            None => {
                let nothing = std::future::ready(Claimable::Nothing);
                let outcomes = self.ledger.apply_by(&params, nothing).await?.outcomes;
                let claimed = match apart {
                    Some(wanted) => Some(self.claim(&wanted).await),
                    None => None,
                };
                Reply { outcomes, claimed }
            }
        };
        self.let_go(&params.transitions).await;
        Ok(reply)
    }

    /// Records successes, and claims behind them. References are taken while the successes are on their
    /// way to the ledger, so that neither waits for the other.
    async fn apply_and_claim(&self, params: &ApplyParams, wanted: &ClaimParams) -> Result<Reply> {
        let turn = self.turns.begin(&wanted.worker);
        let (tell, told) = oneshot::channel();
        let found = async { told.await.unwrap_or(Claimable::Nothing) };
        let applying = self.ledger.apply_by(params, found);
        let taking = async {
            // The endings, and those behind them, must not wait for a broker that is late.
            let manner = Manner { looks_back: turn.is_alone, is_patient: false };
            let haul = self.take(wanted, manner).await;
            // Who has ended early needs nothing.
            let _ = tell.send(match &haul {
                Ok(haul) if haul.leads_somewhere() => Claimable::Referred(haul.wanted.clone()),
                Ok(_) | Err(_) => Claimable::Nothing,
            });
            haul
        };
        let (reported, haul) = tokio::join!(applying, taking);
        let Reported { outcomes, given } = match (reported, &haul) {
            (Ok(reported), _) => reported,
            // What the references lead to is still there, or there again.
            (Err(error), Ok(haul)) => {
                self.put_back(wanted, &haul.wanted).await;
                return Err(error);
            }
            (Err(error), Err(_)) => return Err(error),
        };
        let claimed = match (given, haul) {
            (Some(given), Ok(haul)) => match self.receive(wanted, &haul, given).await {
                Ok(landed) => Ok(self.fill(wanted, landed).await),
                Err(error) => Err(error),
            },
            (_, Ok(haul)) => self.claim_haul(wanted, haul).await,
            (_, Err(error)) => Err(error),
        };
        Ok(Reply { outcomes, claimed: Some(claimed) })
    }

    /// Lets go of the references of claims whose last task has ended.
    async fn let_go(&self, transitions: &[Transition]) {
        for (worker, references) in self.holding.end(transitions) {
            for (at, broker) in self.brokers.all().iter().enumerate() {
                let its = references.iter().filter(|one| self.brokers.number_of(one.lane) == at);
                let settled = its.map(|one| (Settled::Finished, *one)).collect();
                broker.settle(&worker, settled).await;
            }
        }
    }

    /// Gives back what workers have taken that are gone.
    async fn reclaim(&self) -> Result<()> {
        for broker in self.brokers.all().iter().filter(|broker| !broker.is_away()) {
            let Ok(workers) = broker.workers().await else { continue };
            if workers.is_empty() {
                continue;
            }
            for worker in self.ledger.gone_among(workers).await? {
                broker.reclaim(&worker).await;
            }
        }
        Ok(())
    }
}

/// What became of endings, and of the claim behind them.
struct Reply {
    outcomes: Vec<Applied>,
    claimed: Option<Result<ClaimedTasks>>,
}

impl fmt::Debug for HybridStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HybridStore").field("ledger", &self.shared.ledger).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for HybridStore {
    fn profile(&self) -> Profile {
        Profile { name: "hybrid", ..self.shared.ledger.profile() }
    }

    async fn dedicated(&self) -> Result<Arc<dyn Store>> {
        let Shared { ledger, brokers, holding, sweeps, wishes, turns } = &*self.shared;
        let shared = Shared {
            ledger: ledger.another(),
            brokers: brokers.another(),
            holding: Arc::clone(holding),
            sweeps: Arc::clone(sweeps),
            wishes: Arc::clone(wishes),
            turns: Arc::clone(turns),
        };
        Ok(Arc::new(Self { shared: Arc::new(shared) }))
    }

    async fn inspect(&self, depth: Depth) -> Result<Inspection> {
        let Shared { ledger, brokers, .. } = &*self.shared;
        match depth {
            // Asked on many ways: whoever asks again knows.
            Depth::Ping => brokers.look_now_and_then().await,
            Depth::Full | Depth::Repair => brokers.look().await,
        }
        let mut inspection = ledger.inspect(depth).await?;
        inspection.findings.extend(brokers.findings(depth));
        if depth != Depth::Ping {
            inspection.findings.extend(self.shared.strangers().await?);
        }
        inspection.brokers = self.brokers();
        Ok(inspection)
    }

    async fn reserve(&self, wanted: Vec<Reservation>) -> Result<Vec<TaskId>> {
        self.shared.ledger.reserve(wanted).await
    }

    async fn insert(&self, tasks: Vec<NewTask>) -> Result<Vec<Inserted>> {
        self.shared.ledger.insert(tasks).await
    }

    async fn claim(&self, params: ClaimParams) -> Result<Claim> {
        let mark = self.shared.ledger.wakes().mark();
        let shared = Arc::clone(&self.shared);
        let claimed = to_the_end(async move { shared.claim(&params).await }).await?;
        Ok(claimed.into_claim(mark))
    }

    async fn apply(&self, params: ApplyParams) -> Result<ApplyReply> {
        let mark = self.shared.ledger.wakes().mark();
        let shared = Arc::clone(&self.shared);
        let Reply { outcomes, claimed } =
            to_the_end(async move { shared.apply(params).await }).await?;
        let claim = claimed.map(|claimed| claimed.map(|claimed| claimed.into_claim(mark)));
        Ok(ApplyReply { outcomes, claim })
    }

    async fn wait(&self, params: WaitParams) -> Result<Wake> {
        let Shared { ledger, brokers, .. } = &*self.shared;
        if !params.queues.is_empty() && params.since.is_some() {
            let numbers = ledger.queue_numbers(params.queues.clone()).await?;
            brokers.listen(&params.queues, &numbers, &self.shared.wishes);
        }
        ledger.wait(params).await
    }

    async fn beat(&self, beat: Beat) -> Result<Orders> {
        let Shared { ledger, brokers, sweeps, .. } = &*self.shared;
        let (worker, lease) = (beat.worker.clone(), beat.lease);
        let orders = ledger.beat(beat).await?;
        brokers.beat(&worker, lease).await;
        if sweeps.is_time_to_say_so() {
            let (ledger, names) = (ledger.clone(), brokers.names());
            // Apart: a beat must not wait for locks. Who waits at brokers would wait in vain if nothing
            // filled them.
            tokio::spawn(async move {
                if let Err(error) = ledger.use_brokers_if_unsaid(names).await {
                    let error = error.chain();
                    tracing::warn!(error, "the database was not told that brokers are in use");
                }
            });
        }
        Ok(orders)
    }

    async fn leave(&self, worker: WorkerId) -> Result<u64> {
        let count = self.shared.ledger.leave(worker.clone()).await?;
        self.shared.holding.forget(&worker);
        self.shared.wishes.forget(&worker);
        self.shared.brokers.reclaim(worker.as_str()).await;
        Ok(count)
    }

    async fn lead(&self, bid: Bid) -> Result<Leadership> {
        self.shared.ledger.lead(bid).await
    }

    async fn promote(&self, duty: Duty) -> Result<DutyReport> {
        let report = self.shared.ledger.promote(duty).await?;
        self.shared.sweep_now_and_then(duty).await;
        Ok(report)
    }

    async fn expire(&self, duty: Duty) -> Result<DutyReport> {
        let report = self.shared.ledger.expire(duty).await?;
        self.shared.reclaim().await?;
        Ok(report)
    }

    async fn prune(&self, duty: Duty) -> Result<DutyReport> {
        self.shared.ledger.prune(duty).await
    }

    async fn tend(&self, duty: Duty) -> Result<DutyReport> {
        self.shared.ledger.tend(duty).await
    }

    async fn change(&self, params: ChangeParams) -> Result<ChangeReply> {
        self.shared.ledger.change(params).await
    }

    async fn order(&self, order: Order) -> Result<()> {
        let paused = match &order {
            Order::Queue { queue, order } => Some((queue.clone(), *order == RunOrder::Pause)),
            Order::Worker { .. } => None,
        };
        let Shared { ledger, brokers, .. } = &*self.shared;
        ledger.order(order).await?;
        if let Some((queue, is_paused)) = paused {
            let numbers = ledger.queue_numbers(vec![queue]).await?;
            for number in numbers.into_values() {
                brokers.pause(&[(number, is_paused)]).await;
            }
        }
        Ok(())
    }

    async fn get(&self, params: GetParams) -> Result<Vec<Option<TaskRecord>>> {
        self.shared.ledger.get(params).await
    }

    async fn list(&self, params: ListParams) -> Result<Page> {
        self.shared.ledger.list(params).await
    }

    async fn queues(&self) -> Result<Vec<QueueRecord>> {
        self.shared.ledger.queues().await
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>> {
        self.shared.ledger.workers().await
    }

    async fn load(&self, query: DocQuery) -> Result<Vec<Document>> {
        self.shared.ledger.load(query).await
    }

    async fn save(&self, save: SaveDoc) -> Result<Saved> {
        self.shared.ledger.save(save).await
    }

    async fn publish(&self, messages: Vec<String>) -> Result<()> {
        self.shared.ledger.publish(messages).await
    }

    async fn subscribe(&self) -> Result<BroadcastStream> {
        self.shared.ledger.subscribe().await
    }
}
