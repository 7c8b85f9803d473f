//! Every method of a store, sent through the faults.

use std::sync::Arc;

use async_trait::async_trait;
use windlass_core::store::{
    Applied, ApplyParams, ApplyReply, Beat, Bid, BroadcastStream, ChangeParams, ChangeReply, Claim,
    ClaimParams, Depth, DocQuery, Document, Duty, DutyReport, GetParams, Inserted, Inspection,
    Leadership, ListParams, Order, Orders, Page, Profile, QueueRecord, Reservation, SaveDoc, Saved,
    WaitParams, Wake, WorkerRecord,
};
use windlass_core::{Error, NewTask, Result, Store, TaskId, TaskRecord, WorkerId};

use super::{FaultyStore, Method};

#[async_trait]
impl Store for FaultyStore {
    fn profile(&self) -> Profile {
        self.inner.profile()
    }

    async fn dedicated(&self) -> Result<Arc<dyn Store>> {
        let inner = self.pass(Method::Dedicated, self.inner.dedicated()).await?;
        Ok(Arc::new(Self { inner, faults: self.faults.clone() }))
    }

    async fn inspect(&self, depth: Depth) -> Result<Inspection> {
        self.pass(Method::Inspect, self.inner.inspect(depth)).await
    }

    async fn reserve(&self, wanted: Vec<Reservation>) -> Result<Vec<TaskId>> {
        self.pass(Method::Reserve, self.inner.reserve(wanted)).await
    }

    async fn insert(&self, mut tasks: Vec<NewTask>) -> Result<Vec<Inserted>> {
        let part = self.faults.0.partial_inserts.lock().unwrap().pop_front();
        if let Some((count, _)) = part {
            tasks.truncate(count);
        }
        let answer = self.pass(Method::Insert, self.inner.insert(tasks)).await?;
        match part {
            Some((_, kind)) => Err(Error::new(kind, "insert: stored in part, as planned")),
            None => Ok(answer),
        }
    }

    async fn claim(&self, params: ClaimParams) -> Result<Claim> {
        let claim = self.pass(Method::Claim, self.inner.claim(params)).await?;
        self.faults.spoil_claim(claim)
    }

    async fn apply(&self, mut params: ApplyParams) -> Result<ApplyReply> {
        let damaged = self.faults.0.setting.borrow().damaged.clone();
        let all = std::mem::take(&mut params.transitions);
        let is_sound: Vec<_> = all.iter().map(|end| !damaged.contains(&end.queue)).collect();
        let sound = all.into_iter().zip(&is_sound).filter(|(_, is_sound)| **is_sound);
        params.transitions = sound.map(|(end, _)| end).collect();
        let mut reply = self.pass(Method::Apply, self.inner.apply(params)).await?;
        let mut recorded = reply.outcomes.into_iter();
        let outcome = |is_sound: &bool| is_sound.then(|| recorded.next()).flatten();
        let outcomes = is_sound.iter().map(outcome);
        reply.outcomes = outcomes.map(|it| it.unwrap_or(Applied::Unrecorded)).collect();
        reply.claim = reply.claim.map(|claim| self.faults.spoil_claim(claim?));
        Ok(reply)
    }

    async fn wait(&self, params: WaitParams) -> Result<Wake> {
        // A wait that is under way when the connection breaks ends with it.
        let wait = async {
            tokio::select! {
                wake = self.inner.wait(params) => wake,
                () = self.faults.gone() => Ok(Wake::TimedOut),
            }
        };
        self.pass(Method::Wait, wait).await
    }

    async fn beat(&self, beat: Beat) -> Result<Orders> {
        self.pass(Method::Beat, self.inner.beat(beat)).await
    }

    async fn leave(&self, worker: WorkerId) -> Result<u64> {
        self.pass(Method::Leave, self.inner.leave(worker)).await
    }

    async fn lead(&self, bid: Bid) -> Result<Leadership> {
        self.pass(Method::Lead, self.inner.lead(bid)).await
    }

    async fn promote(&self, duty: Duty) -> Result<DutyReport> {
        self.pass(Method::Promote, self.inner.promote(duty)).await
    }

    async fn expire(&self, duty: Duty) -> Result<DutyReport> {
        self.pass(Method::Expire, self.inner.expire(duty)).await
    }

    async fn prune(&self, duty: Duty) -> Result<DutyReport> {
        self.pass(Method::Prune, self.inner.prune(duty)).await
    }

    async fn tend(&self, duty: Duty) -> Result<DutyReport> {
        self.pass(Method::Tend, self.inner.tend(duty)).await
    }

    async fn change(&self, params: ChangeParams) -> Result<ChangeReply> {
        self.pass(Method::Change, self.inner.change(params)).await
    }

    async fn order(&self, order: Order) -> Result<()> {
        self.pass(Method::Order, self.inner.order(order)).await
    }

    async fn get(&self, params: GetParams) -> Result<Vec<Option<TaskRecord>>> {
        self.pass(Method::Get, self.inner.get(params)).await
    }

    async fn list(&self, params: ListParams) -> Result<Page> {
        self.pass(Method::List, self.inner.list(params)).await
    }

    async fn queues(&self) -> Result<Vec<QueueRecord>> {
        self.pass(Method::Queues, self.inner.queues()).await
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>> {
        self.pass(Method::Workers, self.inner.workers()).await
    }

    async fn load(&self, query: DocQuery) -> Result<Vec<Document>> {
        self.pass(Method::Load, self.inner.load(query)).await
    }

    async fn save(&self, save: SaveDoc) -> Result<Saved> {
        self.pass(Method::Save, self.inner.save(save)).await
    }

    async fn publish(&self, messages: Vec<String>) -> Result<()> {
        self.pass(Method::Publish, self.inner.publish(messages)).await
    }

    async fn subscribe(&self) -> Result<BroadcastStream> {
        self.pass(Method::Subscribe, self.inner.subscribe()).await
    }
}
