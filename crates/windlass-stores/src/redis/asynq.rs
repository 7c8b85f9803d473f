//! The store that shares its data with Go's asynq: the same keys, the same fields, the same messages.
//!
//! `docs/asynq.md` has the keys and the rules. A plain submit, claim, success and promote are one script call
//! for up to 200 tasks. Everything else looks at tasks, lets [`windlass_core::state`] decide, and has them
//! placed by a script if they are still as they were seen (`place`, `row`).
//!
//! The number of a claim, in a field that Go workers do not know, is the fence; together with the lease, since
//! a Go worker that takes the task leaves that field as it is.

mod apply;
mod beat;
mod change;
mod claim;
mod damage;
mod due;
mod expire;
mod foreign;
mod insert;
mod inspect;
pub mod keys;
mod list;
pub mod message;
mod moves;
mod names;
mod place;
mod presence;
mod promote;
mod read;
mod record;
mod row;
mod scripts;
mod stray;
mod tend;
mod told;
mod turns;
mod wait;

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use windlass_core::store::{
    ApplyParams, ApplyReply, Beat, Bid, BroadcastStream, Capabilities, ChangeParams, ChangeReply,
    Claim, ClaimParams, Depth, DocQuery, Document, Duty, DutyReport, GetParams, Inserted,
    Inspection, Leadership, ListOrder, ListParams, Order, Orders, Page, Profile, QueueRecord,
    Reservation, SaveDoc, Saved, WaitParams, Wake, WorkerRecord,
};
use windlass_core::unique::UniqueScope;
use windlass_core::{NewTask, QueueName, Result, Store, TaskId, TaskRecord, WorkerId};

use super::asking::AT_ONCE;
use super::ears::Ears;
use super::fleet::{self, Fleet};
use super::news::Herald;
use super::options::RedisOptions;
use super::reply::Reply;
use super::script::Call;
use super::waiting;
use names::Names;
use presence::Presence;
use turns::Turns;

/// A store in Redis, on asynq's keys.
#[derive(Clone)]
pub struct AsynqStore {
    shared: Arc<Shared>,
}

/// One handle on the store.
struct Shared {
    this: Weak<Shared>,
    fleet: Fleet,
    together: Arc<Together>,
    ears: Ears,
    herald: Herald,
}

/// What all handles of one opening share beside the fleet.
#[derive(Default)]
struct Together {
    names: Names,
    presence: Presence,
    /// Where the walk through all keys goes on.
    walk_cursor: Mutex<u64>,
    /// The last queue through which the leader's sweep has taken its steps.
    mended_last: Mutex<Option<QueueName>>,
    turns: Mutex<Turns>,
}

impl Deref for Shared {
    type Target = Together;

    fn deref(&self) -> &Together {
        &self.together
    }
}

impl AsynqStore {
    /// Opens a store; asks the server what it promises.
    pub async fn open(options: RedisOptions) -> Result<Self> {
        let options = options.prefix_unless_set(keys::PREFIX);
        let prefix = options.key_prefix();
        let names = fleet::Names { stem: keys::fleet_stem(prefix), queues: keys::queues(prefix) };
        Ok(Self::on(Fleet::open(options, names).await?, Arc::default()))
    }

    fn on(fleet: Fleet, together: Arc<Together>) -> Self {
        let shared = Arc::new_cyclic(|this| Shared {
            this: this.clone(),
            fleet,
            together,
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

    fn options(&self) -> &RedisOptions {
        &self.fleet.common.options
    }

    fn stem(&self, queue: &QueueName) -> String {
        keys::queue_stem(self.options().key_prefix(), queue)
    }
}

impl fmt::Debug for AsynqStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsynqStore").field("options", self.shared.options()).finish()
    }
}

#[async_trait]
impl Store for AsynqStore {
    fn profile(&self) -> Profile {
        let common = &self.shared.fleet.common;
        Profile {
            name: "asynq",
            capabilities: Capabilities {
                has_priorities: false,
                unique_scope: UniqueScope::QueueAndKind,
                schedule_resolution: Duration::from_secs(1),
                list_order: ListOrder::StateByState,
                forgets_at_once: true,
                is_shared: true,
                has_transactions: false,
                has_broadcasts: true,
            },
            durability: common.facts.durability.clone(),
            retention_default: Duration::ZERO,
            limits: common.options.limits,
        }
    }

    async fn dedicated(&self) -> Result<Arc<dyn Store>> {
        // A connection is driven by the runtime in which it is made, which is the caller's.
        Ok(Arc::new(Self::on(self.shared.fleet.another(), Arc::clone(&self.shared.together))))
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
