//! The auditor itself is audited: each thing that it must notice is planted once.

use std::sync::Arc;

use windlass_core::store::{Action, ChangeParams, Target};
use windlass_core::{Claimed, Epoch, QueueName};

use super::super::ledger::Run;
use super::*;

const TASKS: usize = 20;
const FINISHED: usize = 5;

/// A store after a life without any fault, and the ledger that belongs to it.
struct Story {
    store: Arc<dyn Store>,
    ledger: Ledger,
}

impl Story {
    /// Twenty tasks inserted, ten claimed, five of those completed, all acknowledged.
    async fn told() -> Self {
        let store = windlass_stores::open("memory:").await.unwrap();
        let queue = load::queues().unwrap().remove(0);
        let mut ledger = Ledger::default();
        for number in 0..TASKS {
            let id = TaskId::new(format!("task-{number:02}"));
            insert(store.as_ref(), &id, &queue).await;
            ledger.sent_inserts.insert(id.clone());
            ledger.acked_inserts.insert(id);
        }
        let worker = WorkerId::new("worker");
        ledger.workers.push(worker.to_string());
        load::beat(store.as_ref(), &worker).await.unwrap();
        let wish = load::claim_params(&worker, 2 * FINISHED).unwrap();
        let claimed = store.claim(wish).await.unwrap().tasks;
        for task in &claimed {
            ledger.acked_claims.insert(task.id.clone(), task.epoch);
        }
        for task in &claimed[..FINISHED] {
            let run = complete(store.as_ref(), &worker, task).await;
            ledger.sent_applies.insert(task.id.clone(), run.clone());
            ledger.acked_applies.insert(task.id.clone(), run);
        }
        Self { store, ledger }
    }

    async fn audit(&self) -> Audit {
        let mut audit = Audit::default();
        look(self.store.as_ref(), &self.ledger, &mut audit).await.unwrap();
        audit
    }
}

async fn insert(store: &dyn Store, id: &TaskId, queue: &QueueName) {
    let task = load::plain_task(id.clone(), queue.clone(), &load::plain_spec()).unwrap();
    assert!(store.insert(vec![task]).await.unwrap()[0].is_new());
}

async fn complete(store: &dyn Store, worker: &WorkerId, task: &Claimed) -> Run {
    let result = Some(load::result_of(&task.id).into());
    let ending = Ending::Completed { result };
    let transition = state::finish(task, ending, &Backoff::default(), &mut Dice::seeded(0));
    let params =
        ApplyParams { worker: worker.clone(), transitions: vec![transition], then_claim: None };
    store.apply(params).await.unwrap();
    Run { id: task.id.clone(), epoch: task.epoch, state: State::Completed }
}

async fn change(story: &Story, id: &TaskId, action: Action) {
    let params = ChangeParams {
        target: Target::Tasks(vec![id.clone()]),
        action,
        only_in: Vec::new(),
        by: None,
    };
    assert_eq!(story.store.change(params).await.unwrap().changed_count, 1);
}

fn some_finished(story: &Story) -> TaskId {
    story.ledger.acked_applies.keys().next().unwrap().clone()
}

#[tokio::test]
async fn a_store_that_lost_nothing_passes() {
    let audit = Story::told().await.audit().await;
    assert_eq!((audit.lost(), audit.wrong), (0, Vec::new()));
}

#[tokio::test]
async fn a_missing_task_is_a_lost_insert() {
    let mut story = Story::told().await;
    story.ledger.sent_inserts.insert(TaskId::new("vanished"));
    story.ledger.acked_inserts.insert(TaskId::new("vanished"));
    let audit = story.audit().await;
    assert_eq!((audit.lost_inserts, audit.lost()), (1, 1));
}

#[tokio::test]
async fn an_insert_that_was_never_acknowledged_may_be_missing() {
    let mut story = Story::told().await;
    story.ledger.sent_inserts.insert(TaskId::new("unanswered"));
    assert_eq!(story.audit().await.lost(), 0);
}

#[tokio::test]
async fn a_finished_task_that_waits_again_is_a_lost_apply() {
    let story = Story::told().await;
    change(&story, &some_finished(&story), Action::Rerun).await;
    assert_eq!(story.audit().await.lost_applies, 1);
}

#[tokio::test]
async fn a_claim_under_another_epoch_is_a_lost_claim() {
    let mut story = Story::told().await;
    let id = some_finished(&story);
    story.ledger.acked_claims.insert(id, Epoch(u128::MAX));
    assert_eq!(story.audit().await.lost_claims, 1);
}

#[tokio::test]
async fn a_task_that_nobody_sent_is_wrong() {
    let mut story = Story::told().await;
    let stranger = TaskId::new("task-00");
    story.ledger.sent_inserts.remove(&stranger);
    let audit = story.audit().await;
    assert!(audit.wrong[0].contains("never sent"), "{:?}", audit.wrong);
}

#[tokio::test]
async fn a_completion_that_nobody_sent_is_wrong() {
    let mut story = Story::told().await;
    let id = some_finished(&story);
    story.ledger.sent_applies.remove(&id);
    let audit = story.audit().await;
    assert!(audit.wrong[0].contains("nobody asked for"), "{:?}", audit.wrong);
}

#[tokio::test]
async fn a_waiting_task_whose_epoch_is_given_again_is_told() {
    let mut story = Story::told().await;
    let waiting = TaskId::new("task-19");
    story.ledger.acked_claims.insert(waiting, Epoch(u128::MAX));
    let audit = story.audit().await;
    assert!(audit.losses.iter().any(|loss| loss.contains("anew")));
}
