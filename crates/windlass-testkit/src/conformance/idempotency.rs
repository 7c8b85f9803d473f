//! Idempotency keys, both keys together, and many submitters at once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Barrier;
use windlass_core::store::{Filter, Inserted};
use windlass_core::unique::{OnConflict, Unique, UniqueScope};
use windlass_core::{State, TaskId};

use crate::draft::{Draft, RETENTION, draft, held_for, until_finished};
use crate::scene::{HOUR, MS, Scene};

/// How many submit at once.
const CROWD: usize = 32;

fn once() -> Draft {
    draft().idempotency("once").payload("request")
}

/// Requires the same submit again to be answered with this task, and nothing to be stored.
async fn check_returns(s: &Scene, id: &TaskId, why: &str) {
    let count = s.list(Filter::default()).await.len();
    let (_, answer) = s.offer(once()).await;
    match answer {
        Inserted::Existing { id: first, is_same_request } => {
            assert_eq!((&first, is_same_request), (id, true), "{why}");
        }
        other => panic!("{why}, task {id} should be returned, not {other:?}"),
    }
    let stored = s.list(Filter::default()).await.len();
    assert_eq!(stored, count, "nothing is stored by a repetition");
}

pub async fn the_same_request_under_one_key_returns_the_first_task(s: Scene) {
    let id = s.submit(once()).await;
    check_returns(&s, &id, "submitted again").await;
    check_returns(&s.elsewhere().await, &id, "submitted elsewhere").await;
}

pub async fn a_different_request_under_one_key_is_told_so(s: Scene) {
    let id = s.submit(once()).await;
    let mut others = vec![once().payload("another request")];
    if s.capabilities().unique_scope == UniqueScope::Kind {
        others.push(once().queue("other"));
    }
    for other in others {
        let (_, answer) = s.offer(other.clone()).await;
        match answer {
            Inserted::Existing { id: first, is_same_request } => {
                assert_eq!((first, is_same_request), (id.clone(), false), "{other:?}");
            }
            answer => panic!("{other:?} should be told apart, not {answer:?}"),
        }
    }
}

pub async fn options_that_are_not_part_of_the_request_do_not_make_it_different(s: Scene) {
    let id = s.submit(once()).await;
    let (_, answer) = s.offer(once().max_retries(9).after(HOUR)).await;
    let same =
        matches!(&answer, Inserted::Existing { id: first, is_same_request: true } if *first == id);
    assert!(same, "kind, queue and payload are the request: {answer:?}");
}

pub async fn an_idempotency_key_counts_per_kind(s: Scene) {
    s.submit(once()).await;
    s.submit(once().kind("other")).await;
}

pub async fn an_idempotency_key_is_held_in_every_state(s: Scene) {
    for state in State::ALL {
        let id = s.bring(once(), state).await;
        s.expect(&id, state, "brought there").await;
        check_returns(&s, &id, &format!("while it is {state}")).await;
        s.lose_all_workers().await;
        s.delete(&id).await;
    }
}

pub async fn an_idempotency_key_is_freed_by_a_delete_in_every_state(s: Scene) {
    for state in State::ALL {
        if state == State::Running {
            continue;
        }
        let id = s.bring(once(), state).await;
        s.delete(&id).await;
        let next = s.submit(once().after(HOUR)).await;
        s.delete(&next).await;
    }
}

pub async fn an_idempotency_key_is_freed_by_prune_and_not_before(s: Scene) {
    for state in [State::Completed, State::Cancelled] {
        let id = s.bring(once(), state).await;
        s.advance(RETENTION - MS);
        s.prune().await;
        check_returns(&s, &id, "a millisecond before its time is over").await;
        s.advance(MS);
        s.prune().await;
        let next = s.submit(once().after(HOUR * 99)).await;
        s.delete(&next).await;
    }
}

pub async fn an_idempotency_key_is_free_when_its_record_is_over_pruned_or_not(s: Scene) {
    for state in [State::Completed, State::Cancelled] {
        let first = s.bring(once(), state).await;
        s.advance(RETENTION);
        let next = s.submit(once().after(HOUR * 99)).await;
        s.expect_gone(&first, "its time is over").await;
        check_returns(&s, &next, "the key has a new owner").await;
        s.prune().await;
        check_returns(&s, &next, "a prune of the first frees nothing of it").await;
        s.delete(&next).await;
    }
}

pub async fn an_idempotency_key_survives_a_rerun(s: Scene) {
    let id = s.bring(once(), State::DeadLetter).await;
    s.rerun(&id).await;
    check_returns(&s, &id, "after a rerun").await;
    s.cancel(&id).await;
    s.rerun(&id).await;
    check_returns(&s, &id, "after a cancel and a rerun").await;
}

pub async fn the_idempotency_key_is_looked_at_before_the_unique_key(s: Scene) {
    let first = s.submit(once()).await;
    s.submit(draft().unique(until_finished("key"))).await;
    let (_, answer) = s.offer(once().unique(until_finished("key"))).await;
    let told = matches!(&answer, Inserted::Existing { id, .. } if *id == first);
    assert!(told, "both are in use: {answer:?}");
}

pub async fn a_task_takes_both_keys_or_neither(s: Scene) {
    let holder = s.submit(draft().unique(until_finished("key"))).await;
    let (_, refused) = s.offer(once().unique(until_finished("key"))).await;
    assert!(matches!(refused, Inserted::Conflict { .. }), "{refused:?}");
    let id = s.submit(once()).await;
    check_returns(&s, &id, "the refused one did not keep its key").await;
    s.delete(&holder).await;
    let (_, known) = s.offer(once().unique(until_finished("key"))).await;
    assert!(matches!(known, Inserted::Existing { .. }), "{known:?}");
    s.submit(draft().unique(until_finished("key"))).await;
}

/// A key that a refused submit leaves behind is a leak, also where nobody trips over it.
pub async fn a_refused_submit_leaves_nothing_behind(s: Scene) {
    s.submit(once()).await;
    s.submit(draft().unique(until_finished("key"))).await;
    let fresh = || draft().idempotency("fresh").payload(vec![7; 70_000]);
    let returning = Unique { on_conflict: OnConflict::Return, ..until_finished("key") };
    let refused = [
        fresh().unique(until_finished("key")),
        fresh().unique(returning),
        once().unique(until_finished("fresh")),
        once().unique(held_for("fresh", HOUR)).payload("another request"),
        fresh().unique(until_finished("fresh")).but(|task| task.spec.timeout = Duration::ZERO),
    ];
    let kept = s.rows_kept().await;
    for draft in refused {
        let (id, answer) = s.offer(draft).await;
        assert!(!answer.is_new(), "{answer:?}");
        s.expect_gone(&id, "it was refused").await;
        assert_eq!(s.rows_kept().await, kept, "rows, after {answer:?}");
    }
    s.submit(fresh().unique(until_finished("fresh"))).await;
}

pub async fn two_requests_of_one_batch_under_one_key_are_one_task(s: Scene) {
    let first = s.make(once()).await;
    let second = s.make(once()).await;
    let id = first.id.clone();
    let answers = s.insert(vec![first, second]).await;
    assert!(answers[0].is_new(), "{answers:?}");
    let told = matches!(&answers[1], Inserted::Existing { id: first, .. } if *first == id);
    assert!(told, "{answers:?}");
}

pub async fn of_many_submits_at_once_one_idempotency_key_makes_one_task(s: Scene) {
    for round in 0..3 {
        check_crowd(&s, once().idempotency(&format!("once-{round}"))).await;
    }
}

pub async fn of_many_submits_at_once_one_unique_key_lets_one_in(s: Scene) {
    for round in 0..3 {
        check_crowd(&s, draft().unique(until_finished(&format!("u{round}")))).await;
        check_crowd(&s, draft().unique(held_for(&format!("f{round}"), HOUR))).await;
        let returning =
            Unique { on_conflict: OnConflict::Return, ..until_finished(&format!("r{round}")) };
        check_crowd(&s, draft().unique(returning)).await;
    }
}

/// Submits the same draft from many callers at once, through two handles: one is new, and all the
/// others are told its id.
async fn check_crowd(s: &Scene, draft: Draft) {
    let elsewhere = s.elsewhere().await;
    let barrier = Arc::new(Barrier::new(CROWD));
    let mut sending = Vec::new();
    for number in 0..CROWD {
        let scene = if number % 2 == 0 { s } else { &elsewhere }.clone();
        let (draft, barrier) = (draft.clone(), barrier.clone());
        sending.push(tokio::spawn(async move {
            let task = scene.make(draft).await;
            let id = task.id.clone();
            barrier.wait().await;
            (id, scene.insert(vec![task]).await.remove(0))
        }));
    }
    let (mut new, mut told) = (BTreeSet::new(), BTreeSet::new());
    for sent in sending {
        match sent.await.unwrap() {
            (id, Inserted::New { .. }) => drop(new.insert(id)),
            (_, Inserted::Existing { id, .. } | Inserted::Conflict { holder: id }) => {
                told.insert(id);
            }
            (_, Inserted::Bad(error)) => panic!("the crowd was told {error:?}"),
        }
    }
    assert_eq!(new.len(), 1, "one of {CROWD} is new, not {new:?}");
    assert_eq!(told, new, "all others are told of that one");
}
