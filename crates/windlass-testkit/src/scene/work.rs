//! What workers do: register, claim, finish, beat, leave.

use std::ops::Deref;
use std::time::Duration;

use windlass_core::dice::Dice;
use windlass_core::retry::Backoff;
use windlass_core::state;
use windlass_core::store::{
    Applied, ApplyParams, Beat, ClaimParams, HeldLeases, Orders, Quota, WorkerCard,
};
use windlass_core::{Claimed, Ending, Lease, State, TaskId, Transition, WorkerId};

use super::{LEASE, SECOND, Scene};
use crate::draft::{Draft, MAIN, queue};

/// The pause before a retry in tests, without jitter.
const BACKOFF: Backoff = Backoff::Fixed { initial: Duration::from_secs(10), jitter: 0.0 };

/// A claimed task and who claimed it.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Who runs it.
    pub worker: WorkerId,
    /// What it was given.
    pub task: Claimed,
}

impl Deref for Run {
    type Target = Claimed;
    fn deref(&self) -> &Claimed {
        &self.task
    }
}

/// A run that succeeded without a result.
pub fn completed() -> Ending {
    Ending::Completed { result: None }
}

/// A run that failed.
pub fn failed(error: &str) -> Ending {
    Ending::Failed { error: error.into(), retry_after: None }
}

/// A run that failed for good.
pub fn discarded(error: &str) -> Ending {
    Ending::Discarded { error: error.into() }
}

/// A run that wants to be run this many seconds later.
pub fn snoozed(seconds: u64) -> Ending {
    Ending::Snoozed { delay: SECOND * u32::try_from(seconds).unwrap() }
}

/// A claim of up to `limit` tasks from queue `main`, suspects or not.
pub fn claim_of(worker: &WorkerId, limit: usize) -> ClaimParams {
    ClaimParams {
        worker: worker.clone(),
        quotas: vec![Quota::of(queue(MAIN), limit)],
        limit,
        suspects_at_most: limit,
    }
}

impl Scene {
    /// An id that no worker has had yet.
    pub fn new_worker_id(&self) -> WorkerId {
        WorkerId::new(format!("worker-{}", self.serial()))
    }

    /// Registers a new worker.
    pub async fn worker(&self) -> WorkerId {
        let worker = self.new_worker_id();
        self.beat(&worker).await;
        worker
    }

    /// A plain sign of life.
    pub fn sign(&self, worker: &WorkerId) -> Beat {
        Beat {
            worker: worker.clone(),
            card: WorkerCard::default(),
            lease: LEASE,
            held: None,
            progress: Vec::new(),
        }
    }

    /// Sends a plain sign of life that must be taken.
    pub async fn beat(&self, worker: &WorkerId) -> Orders {
        self.store.beat(self.sign(worker)).await.unwrap()
    }

    /// Sends a sign of life of a worker that serves these queues.
    pub async fn beat_serving(&self, worker: &WorkerId, queues: &[&str]) -> Orders {
        let queues = queues.iter().map(|name| queue(name)).collect();
        let card = WorkerCard { queues, ..WorkerCard::default() };
        self.store.beat(Beat { card, ..self.sign(worker) }).await.unwrap()
    }

    /// Sends a sign of life that names these leases as all that the worker knows.
    pub async fn beat_holding(
        &self,
        worker: &WorkerId,
        leases: Vec<Lease>,
        older_than: Duration,
    ) -> Orders {
        let held = Some(HeldLeases { leases, older_than });
        let beat = Beat { held, ..self.sign(worker) };
        self.store.beat(beat).await.unwrap()
    }

    /// Claims up to `limit` tasks from queue `main`.
    pub async fn claim(&self, worker: &WorkerId, limit: usize) -> Vec<Claimed> {
        self.claim_by(claim_of(worker, limit)).await
    }

    /// Claims up to `limit` tasks from the named queues, as many from each.
    pub async fn claim_from(
        &self,
        worker: &WorkerId,
        queues: &[&str],
        limit: usize,
    ) -> Vec<Claimed> {
        let quotas = queues.iter().map(|name| Quota::of(queue(name), limit));
        let params = ClaimParams { quotas: quotas.collect(), ..claim_of(worker, limit) };
        self.claim_by(params).await
    }

    /// Claims as told.
    pub async fn claim_by(&self, params: ClaimParams) -> Vec<Claimed> {
        self.store.claim(params).await.unwrap().tasks
    }

    /// Claims the ids of up to `limit` tasks from queue `main`.
    pub async fn claim_ids(&self, worker: &WorkerId, limit: usize) -> Vec<TaskId> {
        let tasks = self.claim(worker, limit).await;
        tasks.into_iter().map(|task| task.id).collect()
    }

    /// Claims this task, which must be the next of its queue.
    pub async fn take(&self, worker: &WorkerId, id: &TaskId) -> Run {
        let name = self.record(id).await.queue;
        let mut tasks = self.claim_from(worker, &[name.as_str()], 1).await;
        let ids: Vec<_> = tasks.iter().map(|task| &task.id).collect();
        assert_eq!(ids, [id], "{worker} should be given task {id} of {name}");
        Run { worker: worker.clone(), task: tasks.remove(0) }
    }

    /// Submits a task and has a new worker claim it.
    pub async fn start(&self, draft: Draft) -> Run {
        let id = self.submit(draft).await;
        let worker = self.worker().await;
        self.take(&worker, &id).await
    }

    /// What core decides about an ending, with a pause of 10 s before a retry.
    pub fn transition(&self, task: &Claimed, ending: Ending) -> Transition {
        state::finish(task, ending, &BACKOFF, &mut Dice::seeded(1))
    }

    /// Reports how runs ended.
    pub async fn apply(&self, worker: &WorkerId, transitions: Vec<Transition>) -> Vec<Applied> {
        let count = transitions.len();
        let params = ApplyParams { worker: worker.clone(), transitions, then_claim: None };
        let reply = self.store.apply(params).await.unwrap();
        assert_eq!(reply.outcomes.len(), count, "each report is answered");
        assert!(reply.claim.is_none(), "no claim was asked for");
        reply.outcomes
    }

    /// Reports how a run ended.
    pub async fn finish(&self, run: &Run, ending: Ending) -> Applied {
        let transition = self.transition(run, ending);
        self.apply(&run.worker, vec![transition]).await.remove(0)
    }

    /// Reports how a run ended; it must come to this state.
    pub async fn finish_as(&self, run: &Run, ending: Ending, state: State) {
        let outcome = self.finish(run, ending.clone()).await;
        assert_eq!(outcome, Applied::Applied(state), "after {ending:?}");
    }

    /// Ends a worker; answers how many tasks went back.
    pub async fn leave(&self, worker: &WorkerId) -> u64 {
        self.store.leave(worker.clone()).await.unwrap()
    }

    /// Submits a task and brings it into a state by the shortest way. Its queue must have nothing
    /// else that is pending.
    pub async fn bring(&self, draft: Draft, state: State) -> TaskId {
        match state {
            State::Scheduled => self.submit(draft.after(super::HOUR * 1_000)).await,
            State::Pending => self.submit(draft).await,
            State::Running => self.start(draft).await.id.clone(),
            State::Retrying => self.end(draft, failed("first try"), state).await,
            State::Completed => self.end(draft, completed(), state).await,
            State::DeadLetter => self.end(draft, discarded("no use"), state).await,
            State::Cancelled => {
                let id = self.submit(draft).await;
                self.cancel(&id).await;
                id
            }
        }
    }

    async fn end(&self, draft: Draft, ending: Ending, state: State) -> TaskId {
        let run = self.start(draft).await;
        self.finish_as(&run, ending, state).await;
        run.id.clone()
    }
}
