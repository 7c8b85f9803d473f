//! The store for the highest rates: streams of ids in consumer groups, records apart.
//!
//! `docs/redis.md` has the keys and the rules. A plain submit, claim, success and promote are one script
//! call for up to 200 tasks. Everything else looks at tasks, lets [`windlass_core::state`] decide, and
//! has them placed by a script if they are still as they were seen (`place`, `row`).
//!
//! The entry of a task in its lane is its fence: it only grows, and a task that is taken from a worker
//! gets a new one.

mod activity;
mod apply;
mod beat;
mod change;
mod claim;
mod epoch;
mod expire;
mod id;
mod insert;
mod inspect;
mod keys;
mod large;
mod list;
mod moves;
mod names;
mod place;
mod promote;
mod read;
mod recent;
mod record;
mod row;
mod scripts;
mod sweeps;
mod tend;
mod wait;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use windlass_core::store::{
    ApplyParams, ApplyReply, Beat, Bid, BroadcastStream, Capabilities, ChangeParams, ChangeReply,
    Claim, ClaimParams, Depth, DocQuery, Document, Duty, DutyReport, GetParams, Inserted,
    Inspection, Leadership, ListOrder, ListParams, Order, Orders, Page, Profile, QueueRecord,
    RETENTION_DEFAULT, Reservation, SaveDoc, Saved, WaitParams, Wake, WorkerRecord,
};
use windlass_core::unique::UniqueScope;
use windlass_core::{NewTask, Priority, QueueName, Result, Store, TaskId, TaskRecord, WorkerId};

use super::asking::AT_ONCE;
use super::ears::Ears;
use super::error::in_queue;
use super::fleet::{self, Fleet};
use super::news::Herald;
use super::options::RedisOptions;
use super::reply::Reply;
use super::script::Call;
use super::waiting;
use activity::Activity;
use names::Names;
use recent::RecentQueues;
use sweeps::SweepPlan;

/// A store in Redis, on Streams.
#[derive(Clone)]
pub struct StreamsStore {
    shared: Arc<Shared>,
}

/// One handle on the store.
struct Shared {
    this: Weak<Shared>,
    fleet: Fleet,
    names: Arc<Names>,
    activity: Activity,
    sweeps: SweepPlan,
    recent: RecentQueues,
    /// The priorities that this process claims of each queue: it must not take others' bells.
    served: Mutex<HashMap<QueueName, BTreeSet<Priority>>>,
    ears: Ears,
    herald: Herald,
}

impl StreamsStore {
    /// Opens a store; asks the server what it promises.
    pub async fn open(options: RedisOptions) -> Result<Self> {
        let options = options.prefix_unless_set(keys::PREFIX);
        let stem = keys::fleet_stem(options.key_prefix());
        let names = fleet::Names { queues: keys::queues(&stem), stem };
        Ok(Self::on(Fleet::open(options, names).await?, Arc::default()))
    }

    fn on(fleet: Fleet, names: Arc<Names>) -> Self {
        let shared = Arc::new_cyclic(|this| Shared {
            this: this.clone(),
            fleet,
            names,
            activity: Activity::default(),
            sweeps: SweepPlan::default(),
            recent: RecentQueues::default(),
            served: Mutex::default(),
            ears: Ears::default(),
            herald: Herald::default(),
        });
        Self { shared }
    }
}

impl Shared {
    /// Calls a script.
    async fn ask(&self, call: Call) -> Result<Reply> {
        self.fleet.ask(call).await
    }

    /// Calls a script on one queue; an error because of damaged data names the queue.
    async fn ask_queue(&self, queue: &QueueName, call: Call) -> Result<Reply> {
        self.ask(call).await.map_err(|error| in_queue(queue, error))
    }

    fn options(&self) -> &RedisOptions {
        &self.fleet.common.options
    }

    fn stem(&self, queue: &QueueName) -> String {
        keys::queue_stem(self.options().key_prefix(), queue)
    }
}

impl fmt::Debug for StreamsStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamsStore").field("options", self.shared.options()).finish()
    }
}

#[async_trait]
impl Store for StreamsStore {
    fn profile(&self) -> Profile {
        let common = &self.shared.fleet.common;
        Profile {
            name: "redis",
            capabilities: Capabilities {
                has_priorities: true,
                unique_scope: UniqueScope::QueueAndKind,
                schedule_resolution: Duration::from_millis(1),
                list_order: ListOrder::NewestFirst,
                forgets_at_once: false,
                is_shared: true,
                has_transactions: false,
                has_broadcasts: true,
            },
            durability: common.facts.durability.clone(),
            retention_default: RETENTION_DEFAULT,
            limits: common.options.limits,
        }
    }

    async fn dedicated(&self) -> Result<Arc<dyn Store>> {
        // A connection is driven by the runtime in which it is made, which is the caller's.
        Ok(Arc::new(Self::on(self.shared.fleet.another(), Arc::clone(&self.shared.names))))
    }

    async fn inspect(&self, depth: Depth) -> Result<Inspection> {
        self.shared.inspect(depth).await
    }

    async fn reserve(&self, wanted: Vec<Reservation>) -> Result<Vec<TaskId>> {
        Ok(self.shared.reserve(&wanted))
    }

    async fn insert(&self, tasks: Vec<NewTask>) -> Result<Vec<Inserted>> {
        self.shared.insert(&tasks).await
    }

    async fn claim(&self, params: ClaimParams) -> Result<Claim> {
        let mark = self.shared.fleet.common.wakes.mark();
        Ok(self.shared.claim(&params).await?.into_claim(mark))
    }

    async fn apply(&self, params: ApplyParams) -> Result<ApplyReply> {
        let mark = self.shared.fleet.common.wakes.mark();
        self.shared.apply(&params, mark).await
    }

    async fn wait(&self, params: WaitParams) -> Result<Wake> {
        waiting::wait(&*self.shared, &params).await
    }

    async fn beat(&self, beat: Beat) -> Result<Orders> {
        let mark = self.shared.fleet.common.wakes.mark();
        self.shared.beat(&beat, mark).await
    }

    async fn leave(&self, worker: WorkerId) -> Result<u64> {
        self.shared.leave(&worker).await
    }

    async fn lead(&self, bid: Bid) -> Result<Leadership> {
        self.shared.fleet.lead(&bid).await
    }

    async fn promote(&self, duty: Duty) -> Result<DutyReport> {
        self.shared.promote(duty).await
    }

    async fn expire(&self, duty: Duty) -> Result<DutyReport> {
        self.shared.expire(duty).await
    }

    async fn prune(&self, duty: Duty) -> Result<DutyReport> {
        self.shared.prune(duty).await
    }

    async fn tend(&self, duty: Duty) -> Result<DutyReport> {
        self.shared.tend(duty).await
    }

    async fn change(&self, params: ChangeParams) -> Result<ChangeReply> {
        self.shared.change(&params).await
    }

    async fn order(&self, order: Order) -> Result<()> {
        self.shared.order(&order).await
    }

    async fn get(&self, params: GetParams) -> Result<Vec<Option<TaskRecord>>> {
        self.shared.get(&params).await
    }

    async fn list(&self, params: ListParams) -> Result<Page> {
        self.shared.list(&params).await
    }

    async fn queues(&self) -> Result<Vec<QueueRecord>> {
        self.shared.queues().await
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>> {
        self.shared.workers().await
    }

    async fn load(&self, query: DocQuery) -> Result<Vec<Document>> {
        self.shared.fleet.load(&query).await
    }

    async fn save(&self, save: SaveDoc) -> Result<Saved> {
        self.shared.fleet.save(&save).await
    }

    async fn publish(&self, messages: Vec<String>) -> Result<()> {
        self.shared.fleet.publish(messages).await
    }

    async fn subscribe(&self) -> Result<BroadcastStream> {
        self.shared.fleet.hear_broadcasts().await
    }
}
