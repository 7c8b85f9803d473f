//! A store in memory: for tests, and the oracle that every other store is compared with.
//!
//! It is driven by [`windlass_core::state`] alone and keeps to the letter of the contract. One lock
//! makes each method atomic; all is gone with the process.

mod apply;
mod beat;
mod change;
mod claim;
mod document;
mod expire;
mod insert;
mod lead;
mod model;
mod promote;
mod prune;
mod read;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use uuid::Uuid;
use windlass_core::config::Config;
use windlass_core::store::{
    ApplyParams, ApplyReply, Beat, Bid, BroadcastStream, Capabilities, ChangeParams, ChangeReply,
    Claim, ClaimParams, Depth, DocQuery, Document, Durability, Duty, DutyReport, GetParams,
    Inserted, Inspection, Leadership, ListOrder, ListParams, Order, Orders, Page, Profile,
    QueueRecord, RETENTION_DEFAULT, Reservation, SaveDoc, Saved, WaitParams, Wake, WorkerRecord,
};
use windlass_core::unique::UniqueScope;
use windlass_core::{Clock, NewTask, Result, Store, TaskId, TaskRecord, WorkerId};

use crate::broadcasts::{self, Broadcasts};
use crate::wakes::Wakes;
use model::Model;

/// A store in memory.
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

struct Shared {
    model: Mutex<Model>,
    wakes: Wakes,
    broadcasts: Broadcasts,
}

impl MemoryStore {
    /// An empty store that tells time by this clock.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let model = Mutex::new(Model::new(clock, Config::default().limits));
        let (wakes, broadcasts) = (Wakes::new(|| {}), Broadcasts::default());
        Self { shared: Arc::new(Shared { model, wakes, broadcasts }) }
    }

    /// Claims exactly the tasks that another store gave in answer to the same claim, if the
    /// contract allows that answer; else says why not ([`windlass_core::ErrorKind::Conflict`]).
    ///
    /// This is what makes the memory store an oracle although the contract leaves some order open.
    pub fn claim_as(&self, params: ClaimParams, chosen: &[TaskId]) -> Result<Claim> {
        let mark = self.shared.wakes.mark();
        self.change(|model| model.claim_as(&params, chosen)).map(|tasks| Claim::new(tasks, mark))
    }

    /// Runs one step of the model and rings for what it has made ready or ended.
    fn change<T>(&self, step: impl FnOnce(&mut Model) -> T) -> T {
        let mut model = self.shared.model.lock();
        let answer = step(&mut model);
        let news = model.take_news();
        drop(model);
        self.shared.wakes.tell(news);
        answer
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn profile(&self) -> Profile {
        Profile {
            name: "memory",
            capabilities: Capabilities {
                has_priorities: true,
                unique_scope: UniqueScope::Kind,
                schedule_resolution: Duration::from_millis(1),
                list_order: ListOrder::NewestFirst,
                forgets_at_once: false,
                is_shared: false,
                has_transactions: false,
                has_broadcasts: true,
            },
            durability: Durability::Volatile,
            retention_default: RETENTION_DEFAULT,
            limits: self.shared.model.lock().limits,
        }
    }

    async fn dedicated(&self) -> Result<Arc<dyn Store>> {
        // Nothing here is driven by a runtime or shared through a pool.
        Ok(Arc::new(self.clone()))
    }

    async fn inspect(&self, _depth: Depth) -> Result<Inspection> {
        Ok(Inspection {
            now: self.shared.model.lock().now(),
            refusal: None,
            version: env!("CARGO_PKG_VERSION").into(),
            findings: Vec::new(),
            brokers: Vec::new(),
        })
    }

    async fn reserve(&self, wanted: Vec<Reservation>) -> Result<Vec<TaskId>> {
        let count = wanted.iter().map(|wish| wish.count).sum();
        Ok((0..count).map(|_| TaskId::new(Uuid::now_v7().to_string())).collect())
    }

    async fn insert(&self, tasks: Vec<NewTask>) -> Result<Vec<Inserted>> {
        Ok(self.change(|model| tasks.into_iter().map(|task| model.insert(task)).collect()))
    }

    async fn claim(&self, params: ClaimParams) -> Result<Claim> {
        let mark = self.shared.wakes.mark();
        self.change(|model| model.claim(&params)).map(|tasks| Claim::new(tasks, mark))
    }

    async fn apply(&self, params: ApplyParams) -> Result<ApplyReply> {
        let mark = self.shared.wakes.mark();
        Ok(self.change(|model| {
            let outcomes = params.transitions.into_iter().map(|t| model.apply(t)).collect();
            let claim = params
                .then_claim
                .map(|params| model.claim(&params).map(|tasks| Claim::new(tasks, mark)));
            ApplyReply { outcomes, claim }
        }))
    }

    async fn wait(&self, params: WaitParams) -> Result<Wake> {
        let ended = async |tasks: Vec<TaskId>| Ok(self.shared.model.lock().ended(tasks));
        self.shared.wakes.wait(params, ended).await
    }

    async fn beat(&self, beat: Beat) -> Result<Orders> {
        let mark = self.shared.wakes.mark();
        self.change(|model| model.beat(beat, mark))
    }

    async fn leave(&self, worker: WorkerId) -> Result<u64> {
        Ok(self.change(|model| model.leave(&worker)))
    }

    async fn lead(&self, bid: Bid) -> Result<Leadership> {
        Ok(self.change(|model| model.lead(bid)))
    }

    async fn promote(&self, duty: Duty) -> Result<DutyReport> {
        self.change(|model| model.promote(duty))
    }

    async fn expire(&self, duty: Duty) -> Result<DutyReport> {
        self.change(|model| model.expire(duty))
    }

    async fn prune(&self, duty: Duty) -> Result<DutyReport> {
        self.change(|model| model.prune(duty))
    }

    async fn tend(&self, duty: Duty) -> Result<DutyReport> {
        self.change(|model| model.tend(duty))
    }

    async fn change(&self, params: ChangeParams) -> Result<ChangeReply> {
        self.change(|model| model.change(&params))
    }

    async fn order(&self, order: Order) -> Result<()> {
        self.change(|model| model.order(order))
    }

    async fn get(&self, params: GetParams) -> Result<Vec<Option<TaskRecord>>> {
        Ok(self.shared.model.lock().get(&params))
    }

    async fn list(&self, params: ListParams) -> Result<Page> {
        self.shared.model.lock().list(&params)
    }

    async fn queues(&self) -> Result<Vec<QueueRecord>> {
        Ok(self.shared.model.lock().queues())
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>> {
        Ok(self.shared.model.lock().workers())
    }

    async fn load(&self, query: DocQuery) -> Result<Vec<Document>> {
        Ok(self.shared.model.lock().load(&query))
    }

    async fn save(&self, save: SaveDoc) -> Result<Saved> {
        Ok(self.change(|model| model.save(save)))
    }

    async fn publish(&self, messages: Vec<String>) -> Result<()> {
        broadcasts::check(&messages)?;
        messages.into_iter().for_each(|message| self.shared.broadcasts.say(message));
        Ok(())
    }

    async fn subscribe(&self) -> Result<BroadcastStream> {
        Ok(self.shared.broadcasts.listen())
    }
}
