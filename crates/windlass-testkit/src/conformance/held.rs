//! `held`: claims whose reply was lost come back although their worker lives.

use windlass_core::store::{Applied, ApplyParams, Orders};
use windlass_core::{Epoch, Lease, State, TaskId};

use crate::draft::draft;
use crate::faults::{FaultyStore, Method};
use crate::scene::{MS, Run, SECOND, Scene, claim_of, completed};

/// How old an unnamed lease must be in these tests.
const OLD: std::time::Duration = SECOND.saturating_mul(10);

async fn check(s: &Scene, id: &TaskId, state: State, attempts: u32) {
    let record = s.record(id).await;
    assert_eq!(
        (record.state, record.attempts, record.crashes),
        (state, attempts, 0),
        "state, attempts and crashes of {record:#?}"
    );
}

/// A beat that names no lease.
async fn name_nothing(s: &Scene, run: &Run) -> Orders {
    s.beat_holding(&run.worker, vec![], OLD).await
}

pub async fn an_old_lease_that_is_not_named_goes_back_and_counts_nothing(s: Scene) {
    let run = s.start(draft()).await;
    s.advance(OLD + MS);
    let orders = name_nothing(&s, &run).await;
    assert_eq!(orders.given_back, std::slice::from_ref(&run.id));
    check(&s, &run.id, State::Pending, 0).await;
    let again = s.take(&run.worker, &run.id).await;
    assert!(again.epoch > run.epoch, "the same worker may have it again");
}

pub async fn a_claim_behind_an_apply_whose_reply_was_lost_goes_back(s: Scene) {
    let run = s.start(draft()).await;
    let next = s.submit_many(3).await;
    let (store, faults) = FaultyStore::around(s.store.clone());
    faults.lose_reply(Method::Apply);
    let transitions = vec![s.transition(&run, completed())];
    let then_claim = Some(claim_of(&run.worker, 2));
    let params = ApplyParams { worker: run.worker.clone(), transitions, then_claim };
    store.apply(params.clone()).await.expect_err("the reply was lost");
    check(&s, &next[0], State::Running, 1).await;
    let again = ApplyParams { then_claim: None, ..params };
    assert_eq!(s.store.apply(again).await.unwrap().outcomes, [Applied::Already]);
    s.advance(OLD + MS);
    let mut given_back = name_nothing(&s, &run).await.given_back;
    given_back.sort();
    let mut lost = next[..2].to_vec();
    lost.sort();
    assert_eq!(given_back, lost, "the worker knows of neither");
    for id in &next {
        check(&s, id, State::Pending, 0).await;
    }
}

pub async fn a_lease_that_is_named_stays(s: Scene) {
    let worker = s.worker().await;
    s.submit_many(3).await;
    let tasks = s.claim(&worker, 3).await;
    s.advance(OLD + MS);
    let named = vec![tasks[0].lease(), tasks[2].lease()];
    let orders = s.beat_holding(&worker, named, OLD).await;
    assert_eq!(orders.given_back, [tasks[1].id.clone()]);
    assert_eq!(orders.lost, [], "both named ones are valid");
    check(&s, &tasks[0].id, State::Running, 1).await;
    check(&s, &tasks[1].id, State::Pending, 0).await;
    check(&s, &tasks[2].id, State::Running, 1).await;
}

pub async fn a_young_lease_stays_although_it_is_not_named(s: Scene) {
    let run = s.start(draft()).await;
    s.advance(OLD - MS);
    assert_eq!(name_nothing(&s, &run).await.given_back, []);
    check(&s, &run.id, State::Running, 1).await;
    s.finish_as(&run, completed(), State::Completed).await;
}

pub async fn a_lease_goes_back_when_it_is_older_than_said_and_not_when_it_is_as_old(s: Scene) {
    let run = s.start(draft()).await;
    s.advance(OLD);
    assert_eq!(name_nothing(&s, &run).await.given_back, [], "just as old");
    check(&s, &run.id, State::Running, 1).await;
    s.advance(MS);
    assert_eq!(name_nothing(&s, &run).await.given_back, std::slice::from_ref(&run.id), "older");
    check(&s, &run.id, State::Pending, 0).await;
}

pub async fn age_counts_from_the_last_claim_and_not_from_the_submit(s: Scene) {
    let id = s.submit(draft()).await;
    s.advance(OLD * 2);
    let worker = s.worker().await;
    let run = s.take(&worker, &id).await;
    s.advance(MS);
    assert_eq!(name_nothing(&s, &run).await.given_back, []);
    check(&s, &id, State::Running, 1).await;
}

pub async fn a_beat_without_held_gives_nothing_back(s: Scene) {
    let run = s.start(draft()).await;
    s.advance(OLD + MS);
    let orders = s.beat(&run.worker).await;
    assert_eq!((orders.given_back, orders.lost), (vec![], vec![]));
    check(&s, &run.id, State::Running, 1).await;
}

pub async fn held_says_nothing_about_other_workers_leases(s: Scene) {
    let run = s.start(draft()).await;
    let other = s.start(draft()).await;
    s.advance(OLD + MS);
    let orders = name_nothing(&s, &run).await;
    assert_eq!(orders.given_back, std::slice::from_ref(&run.id));
    check(&s, &other.id, State::Running, 1).await;
}

pub async fn a_lease_named_under_an_old_epoch_is_lost_and_the_new_one_unnamed(s: Scene) {
    let run = s.start(draft()).await;
    let stale = Lease { epoch: Epoch(run.epoch.0 - 1), ..run.lease() };
    s.advance(OLD + MS);
    let orders = s.beat_holding(&run.worker, vec![stale.clone()], OLD).await;
    assert_eq!(orders.lost, [stale], "that lease is not valid");
    assert_eq!(orders.given_back, std::slice::from_ref(&run.id));
    check(&s, &run.id, State::Pending, 0).await;
}

pub async fn a_named_lease_that_is_not_valid_any_more_is_told_as_lost(s: Scene) {
    let worker = s.worker().await;
    let ids = s.submit_many(3).await;
    let tasks = s.claim(&worker, 3).await;
    let leases: Vec<_> = tasks.iter().map(|task| task.lease()).collect();
    // The first is finished, the second finished and deleted, the third goes on.
    for task in &tasks[..2] {
        let transition = s.transition(task, completed());
        let outcomes = s.apply(&worker, vec![transition]).await;
        assert_eq!(outcomes, [Applied::Applied(State::Completed)]);
    }
    s.delete(&ids[1]).await;
    let orders = s.beat_holding(&worker, leases.clone(), OLD).await;
    assert_eq!(orders.lost, leases[..2], "both are over");
    check(&s, &ids[2], State::Running, 1).await;
}

pub async fn what_is_given_back_under_a_cancel_request_is_cancelled(s: Scene) {
    let run = s.start(draft()).await;
    s.cancel(&run.id).await;
    s.advance(OLD + MS);
    name_nothing(&s, &run).await;
    check(&s, &run.id, State::Cancelled, 0).await;
}
