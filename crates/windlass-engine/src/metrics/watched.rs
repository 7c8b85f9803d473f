//! A store whose calls are counted, timed and told as live events. What it answers is handed on as it is.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::time::Instant;
use windlass_core::store::{
    ApplyParams, ApplyReply, Beat, Bid, BroadcastStream, ChangeParams, ChangeReply, Claim,
    ClaimParams, Depth, DocQuery, Document, Duty, DutyReport, GetParams, HandledKinds, Inserted,
    Inspection, Leadership, ListParams, Order, Orders, Page, Profile, QueueRecord, Reservation,
    SaveDoc, Saved, WaitParams, Wake, WorkerRecord,
};
use windlass_core::{Claimed, NewTask, Result, Store, TaskId, TaskRecord, WorkerId};

use super::{EndedRun, Metrics};
use crate::dead_letters::DeadLetters;
use crate::live::Live;
use crate::outage::Outage;

pub(crate) struct Watched {
    inner: Arc<dyn Store>,
    metrics: Metrics,
    live: Live,
    /// Shared by all ways to the store, so that each outage is logged once.
    outage: Arc<Outage>,
    /// Claimed tasks of other kinds will be released, so they are neither counted nor published as events.
    kinds: Option<HandledKinds>,
}

impl Watched {
    /// A store for a worker that handles only these kinds, or for all others.
    pub(crate) fn around(
        inner: Arc<dyn Store>,
        metrics: Metrics,
        live: Live,
        outage: Arc<Outage>,
        kinds: Option<HandledKinds>,
    ) -> Arc<dyn Store> {
        Arc::new(Self { inner, metrics, live, outage, kinds })
    }

    fn claimed(&self, worker: &WorkerId, tasks: &[Claimed]) {
        let is_own = |task: &Claimed| self.kinds.as_ref().is_none_or(|k| k.handles(&task.kind));
        let own: Cow<'_, [Claimed]> = match tasks.iter().all(is_own) {
            true => Cow::Borrowed(tasks),
            false => tasks.iter().filter(|task| is_own(task)).cloned().collect(),
        };
        self.metrics.claimed(&own);
        self.live.claimed(worker, &own);
    }

    async fn timed<T>(&self, op: &str, call: impl Future<Output = Result<T>>) -> Result<T> {
        let began = Instant::now();
        let answer = call.await;
        let metrics = &self.metrics.0;
        let its = metrics.store_op.with_label_values(&[metrics.store_name, op]);
        its.observe(began.elapsed().as_secs_f64());
        self.outage.note(metrics.store_name, op, began, &answer);
        answer
    }

    async fn duty(
        &self,
        op: &str,
        call: impl Future<Output = Result<DutyReport>>,
    ) -> Result<DutyReport> {
        let report = self.timed(op, call).await?;
        self.metrics.0.repairs.inc_by(report.repaired);
        Ok(report)
    }
}

#[async_trait]
impl Store for Watched {
    fn profile(&self) -> Profile {
        self.inner.profile()
    }

    async fn dedicated(&self) -> Result<Arc<dyn Store>> {
        let inner = self.inner.dedicated().await?;
        let (metrics, live) = (self.metrics.clone(), self.live.at_home());
        let (outage, kinds) = (Arc::clone(&self.outage), self.kinds.clone());
        Ok(Self::around(inner, metrics, live, outage, kinds))
    }

    async fn inspect(&self, depth: Depth) -> Result<Inspection> {
        self.timed("inspect", self.inner.inspect(depth)).await
    }

    async fn reserve(&self, wanted: Vec<Reservation>) -> Result<Vec<TaskId>> {
        self.timed("reserve", self.inner.reserve(wanted)).await
    }

    async fn insert(&self, tasks: Vec<NewTask>) -> Result<Vec<Inserted>> {
        let sort = |task: &NewTask| (task.queue.clone(), task.kind.clone(), task.priority);
        let sorts: Vec<_> = tasks.iter().map(sort).collect();
        let to_be_told = self.live.inserting(&tasks);
        let told = self.timed("insert", self.inner.insert(tasks)).await?;
        self.metrics.submitted(&sorts, &told);
        self.live.inserted(to_be_told, &told);
        Ok(told)
    }

    async fn claim(&self, params: ClaimParams) -> Result<Claim> {
        let worker = params.worker.clone();
        let claim = self.timed("claim", self.inner.claim(params)).await?;
        self.claimed(&worker, &claim.tasks);
        Ok(claim)
    }

    async fn apply(&self, params: ApplyParams) -> Result<ApplyReply> {
        let runs: Vec<EndedRun> = params.transitions.iter().map(EndedRun::of).collect();
        let (ends, worker) = (self.live.applying(&params), params.worker.clone());
        let dead_letters = DeadLetters::among(&params.transitions);
        let reply = self.timed("apply", self.inner.apply(params)).await?;
        self.metrics.ended(&runs, &reply.outcomes);
        dead_letters.log(&reply.outcomes);
        self.live.applied(ends, &reply.outcomes);
        if let Some(Ok(claim)) = &reply.claim {
            self.claimed(&worker, &claim.tasks);
        }
        Ok(reply)
    }

    async fn wait(&self, params: WaitParams) -> Result<Wake> {
        let began = Instant::now();
        let wake = self.inner.wait(params).await;
        self.outage.note(self.metrics.0.store_name, "wait", began, &wake);
        wake
    }

    async fn beat(&self, beat: Beat) -> Result<Orders> {
        let beating = self.live.beating(&beat);
        let orders = self.timed("beat", self.inner.beat(beat)).await?;
        self.live.beaten(beating, &orders);
        Ok(orders)
    }

    async fn leave(&self, worker: WorkerId) -> Result<u64> {
        let released = self.timed("leave", self.inner.leave(worker.clone())).await?;
        self.live.left(&worker, released).await;
        Ok(released)
    }

    async fn lead(&self, bid: Bid) -> Result<Leadership> {
        let asked = Instant::now();
        let answer = self.timed("lead", self.inner.lead(bid.clone())).await;
        self.metrics.0.leading.note(&bid, asked, &answer);
        answer
    }

    async fn promote(&self, duty: Duty) -> Result<DutyReport> {
        self.duty("promote", self.inner.promote(duty)).await
    }

    async fn expire(&self, duty: Duty) -> Result<DutyReport> {
        let report = self.duty("expire", self.inner.expire(duty)).await?;
        self.metrics.0.leases_lost.inc_by(report.done);
        self.live.expired(report.done);
        Ok(report)
    }

    async fn prune(&self, duty: Duty) -> Result<DutyReport> {
        self.duty("prune", self.inner.prune(duty)).await
    }

    async fn tend(&self, duty: Duty) -> Result<DutyReport> {
        self.duty("tend", self.inner.tend(duty)).await
    }

    async fn change(&self, params: ChangeParams) -> Result<ChangeReply> {
        let change = self.live.changing(&params);
        let reply = self.timed("change", self.inner.change(params)).await?;
        self.live.changed(change, &reply);
        Ok(reply)
    }

    async fn order(&self, order: Order) -> Result<()> {
        let to_be_told = self.live.ordering(&order);
        let given = self.timed("order", self.inner.order(order)).await;
        self.live.ordered(to_be_told, &given).await;
        given
    }

    async fn get(&self, params: GetParams) -> Result<Vec<Option<TaskRecord>>> {
        self.timed("get", self.inner.get(params)).await
    }

    async fn list(&self, params: ListParams) -> Result<Page> {
        self.timed("list", self.inner.list(params)).await
    }

    async fn queues(&self) -> Result<Vec<QueueRecord>> {
        self.timed("queues", self.inner.queues()).await
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>> {
        self.timed("workers", self.inner.workers()).await
    }

    async fn load(&self, query: DocQuery) -> Result<Vec<Document>> {
        self.timed("load", self.inner.load(query)).await
    }

    async fn save(&self, save: SaveDoc) -> Result<Saved> {
        self.timed("save", self.inner.save(save)).await
    }

    async fn publish(&self, messages: Vec<String>) -> Result<()> {
        self.timed("publish", self.inner.publish(messages)).await
    }

    async fn subscribe(&self) -> Result<BroadcastStream> {
        self.inner.subscribe().await
    }
}
