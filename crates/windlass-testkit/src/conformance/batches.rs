//! One bad item hurts only itself: in a batch, in a claim, in a sweep.

use std::time::Duration;

use windlass_core::store::{
    Action, Applied, ApplyParams, ClaimParams, Filter, GetParams, Inserted, Parts, Quota, Refusal,
    Reservation,
};
use windlass_core::{ErrorKind, Kind, QueueName, Reason, State, TaskId};

use crate::draft::{Draft, RETENTION, draft, queue};
use crate::scene::{HOUR, LEASE, MS, SECOND, Scene, claim_of, completed, failed};

/// Drafts that no store may take.
fn bad_drafts(s: &Scene) -> Vec<Draft> {
    let most = s.store.profile().limits.payload_bytes_max;
    vec![
        draft().payload(vec![0; most + 1]),
        draft().but(|task| task.queue = QueueName::stored("{bad}")),
        draft().but(|task| task.kind = Kind::stored("")),
        draft().idempotency("with \n control"),
        draft().unique(crate::draft::until_finished("")),
        draft().but(|task| task.spec.timeout = Duration::ZERO),
        draft().max_retries(u32::MAX),
    ]
}

pub async fn a_bad_item_of_an_insert_hurts_only_itself(s: Scene) {
    for (number, bad) in bad_drafts(&s).into_iter().enumerate() {
        let name = format!("good-{number}");
        let mut batch = vec![s.make(draft().queue(&name)).await];
        let id = batch[0].id.clone();
        let bad_id = s.make(draft()).await.id;
        batch.push(bad.with_id(bad_id.clone()));
        batch.push(s.make(draft().queue(&name)).await);
        let answers = s.insert(batch).await;
        assert!(answers[0].is_new() && answers[2].is_new(), "{answers:?}");
        match &answers[1] {
            Inserted::Bad(error) => assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}"),
            other => panic!("bad item {number} was answered {other:?}"),
        }
        s.expect(&id, State::Pending, "a good neighbour").await;
        s.expect_gone(&bad_id, "it was refused").await;
        assert_eq!(s.count(&name, State::Pending).await, 2);
    }
}

pub async fn a_payload_over_the_limit_is_refused_as_too_large(s: Scene) {
    let most = s.store.profile().limits.payload_bytes_max;
    let (_, answer) = s.offer(draft().payload(vec![0; most + 1])).await;
    match answer {
        Inserted::Bad(error) => assert_eq!(error.reason(), Reason::TooLarge, "{error:?}"),
        other => panic!("{} bytes were answered {other:?}", most + 1),
    }
}

pub async fn a_refused_item_of_an_apply_hurts_only_itself(s: Scene) {
    let worker = s.worker().await;
    s.submit_many(4).await;
    let tasks = s.claim(&worker, 4).await;
    let mut batch: Vec<_> = tasks.iter().map(|t| s.transition(t, completed())).collect();
    batch[1].lease.task = TaskId::new("nobody");
    batch[2].lease.epoch.0 += 1;
    let outcomes = s.apply(&worker, batch).await;
    let expected = [
        Applied::Applied(State::Completed),
        Applied::Refused(Refusal::Gone),
        Applied::Refused(Refusal::LeaseLost),
        Applied::Applied(State::Completed),
    ];
    assert_eq!(outcomes, expected, "each in its place");
    assert_eq!(s.count("main", State::Running).await, 2);
}

pub async fn empty_batches_are_no_error(s: Scene) {
    let worker = s.worker().await;
    assert_eq!(s.insert(vec![]).await.len(), 0);
    assert_eq!(s.apply(&worker, vec![]).await, []);
    assert_eq!(s.store.reserve(vec![]).await.unwrap(), []);
}

pub async fn a_large_batch_is_taken_whole(s: Scene) {
    let ids = s.submit_many(1_500).await;
    let worker = s.worker().await;
    let tasks = s.claim(&worker, 2_000).await;
    assert_eq!(tasks.len(), ids.len());
    let batch = tasks.iter().map(|task| s.transition(task, completed()));
    let outcomes = s.apply(&worker, batch.collect()).await;
    let all = outcomes.iter().all(|o| *o == Applied::Applied(State::Completed));
    assert!(all, "each is applied");
    assert_eq!(s.count("main", State::Completed).await, 1_500);
}

pub async fn reserved_ids_come_in_the_number_asked_for_and_never_twice(s: Scene) {
    let wish = |name, count| Reservation { queue: queue(name), count };
    let mut ids = Vec::new();
    for scene in [s.clone(), s.elsewhere().await] {
        let wanted = vec![wish("a", 3), wish("b", 0), wish("c", 2_000)];
        let reserved = scene.store.reserve(wanted).await.unwrap();
        assert_eq!(reserved.len(), 2_003);
        ids.extend(reserved);
    }
    let count = ids.len();
    assert!(ids.iter().all(|id| (1..=255).contains(&id.as_str().len())));
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), count, "an id came twice");
}

pub async fn an_apply_claims_the_next_tasks_in_the_same_trip(s: Scene) {
    let run = s.start(draft()).await;
    let next = s.submit_many(3).await;
    let params = ApplyParams {
        worker: run.worker.clone(),
        transitions: vec![s.transition(&run, completed())],
        then_claim: Some(claim_of(&run.worker, 2)),
    };
    let reply = s.store.apply(params).await.unwrap();
    assert_eq!(reply.outcomes, [Applied::Applied(State::Completed)]);
    let claim = reply.claim.expect("a claim was asked for").unwrap();
    let given: Vec<_> = claim.tasks.iter().map(|task| task.id.clone()).collect();
    assert_eq!(given, next[..2]);
    assert_eq!(claim.tasks[0].attempts, 1);
    s.expect(&next[0], State::Running, "it was claimed").await;
    s.expect(&next[2], State::Pending, "two were asked for").await;
}

pub async fn a_claim_behind_an_apply_sees_what_the_apply_released(s: Scene) {
    let run = s.start(draft()).await;
    let params = ApplyParams {
        worker: run.worker.clone(),
        transitions: vec![s.transition(&run, windlass_core::Ending::Released)],
        then_claim: Some(claim_of(&run.worker, 2)),
    };
    let reply = s.store.apply(params).await.unwrap();
    let claim = reply.claim.expect("a claim was asked for").unwrap();
    let given: Vec<_> = claim.tasks.iter().map(|task| &task.id).collect();
    assert_eq!(given, [&run.id]);
    assert!(claim.tasks[0].epoch > run.epoch);
}

pub async fn a_claim_that_fails_behind_an_apply_does_not_undo_it(s: Scene) {
    let run = s.start(draft()).await;
    s.submit(draft()).await;
    let params = ApplyParams {
        worker: run.worker.clone(),
        transitions: vec![s.transition(&run, completed())],
        then_claim: Some(claim_of(&s.new_worker_id(), 2)),
    };
    let reply = s.store.apply(params).await.unwrap();
    assert_eq!(reply.outcomes, [Applied::Applied(State::Completed)]);
    let refused = reply.claim.expect("a claim was asked for");
    let error = refused.expect_err("nobody knows that worker");
    assert!(error.is_lease_lost(), "{error:?}");
    s.expect(&run.id, State::Completed, "it was applied").await;
}

/// Why a store in memory skips the rules about unreadable records.
const NOTHING_STORED: &str = "the store keeps no stored form that could be damaged";

/// Why most stores skip the rules about damaged queues.
const NOT_APART: &str = "the store keeps no part of a queue that could be damaged alone";

/// A queue of three tasks whose middle one cannot be read; none where nothing can spoil.
async fn spoiled(s: &Scene, draft: Draft) -> Option<[TaskId; 3]> {
    let ids = s.submit_all(vec![draft; 3]).await;
    let is_spoiled = s.spoil(&ids[1]).await;
    is_spoiled.then(|| ids.try_into().unwrap())
}

pub async fn an_unreadable_record_does_not_stop_a_claim(s: Scene) {
    let Some([first, _, last]) = spoiled(&s, draft()).await else {
        return s.skip(NOTHING_STORED);
    };
    let worker = s.worker().await;
    let mut given = s.claim_ids(&worker, 9).await;
    given.extend(s.claim_ids(&worker, 9).await);
    for id in [first, last] {
        assert!(given.contains(&id), "{id} is missing from {given:?}");
    }
}

pub async fn an_unreadable_record_does_not_stop_a_promote(s: Scene) {
    let Some([first, _, last]) = spoiled(&s, draft().after(SECOND)).await else {
        return s.skip(NOTHING_STORED);
    };
    s.advance(HOUR);
    s.promote().await;
    for id in [first, last] {
        s.expect(&id, State::Pending, "its time has come").await;
    }
}

pub async fn an_unreadable_record_does_not_stop_an_expire(s: Scene) {
    let worker = s.worker().await;
    let ids = s.submit_many(3).await;
    s.claim(&worker, 3).await;
    if !s.spoil(&ids[1]).await {
        return s.skip(NOTHING_STORED);
    }
    s.lose_all_workers().await;
    for id in [&ids[0], &ids[2]] {
        s.expect(id, State::Pending, "its worker was lost").await;
    }
}

pub async fn an_unreadable_record_does_not_stop_a_prune(s: Scene) {
    let worker = s.worker().await;
    let ids = s.submit_many(3).await;
    for task in s.claim(&worker, 3).await {
        let transition = s.transition(&task, completed());
        s.apply(&worker, vec![transition]).await;
    }
    if !s.spoil(&ids[1]).await {
        return s.skip(NOTHING_STORED);
    }
    s.advance(RETENTION);
    s.prune().await;
    assert!(s.count("main", State::Completed).await <= 1, "others are pruned");
}

pub async fn an_unreadable_record_does_not_stop_an_apply_or_a_list(s: Scene) {
    let worker = s.worker().await;
    let ids = s.submit_many(3).await;
    let tasks = s.claim(&worker, 3).await;
    if !s.spoil(&ids[1]).await {
        return s.skip(NOTHING_STORED);
    }
    let batch = [&tasks[0], &tasks[2]].map(|task| s.transition(task, failed("boom")));
    let outcomes = s.apply(&worker, batch.into()).await;
    assert_eq!(outcomes, [Applied::Applied(State::Retrying); 2]);
    let listed: Vec<_> = s.list(Filter::default()).await;
    for id in [&ids[0], &ids[2]] {
        let seen = listed.iter().any(|record| record.id == *id);
        assert!(seen, "the list leaves out {id}");
    }
}

pub async fn an_unreadable_record_does_not_stop_a_leave(s: Scene) {
    let worker = s.worker().await;
    let ids = s.submit_many(3).await;
    s.claim(&worker, 3).await;
    if !s.spoil(&ids[1]).await {
        return s.skip(NOTHING_STORED);
    }
    s.leave(&worker).await;
    for id in [&ids[0], &ids[2]] {
        s.expect(id, State::Pending, "its worker has left").await;
    }
}

pub async fn an_unreadable_record_does_not_stop_a_change_by_filter(s: Scene) {
    let Some([first, _, last]) = spoiled(&s, draft()).await else {
        return s.skip(NOTHING_STORED);
    };
    s.change_matching(Filter::default(), Action::Cancel, 2).await;
    for id in [first, last] {
        s.expect(&id, State::Cancelled, "it was cancelled with all others").await;
    }
}

pub async fn an_unreadable_record_does_not_stop_a_get(s: Scene) {
    let Some(ids) = spoiled(&s, draft()).await else {
        return s.skip(NOTHING_STORED);
    };
    let params = GetParams { ids: ids.to_vec(), parts: Parts::ALL };
    let found = s.store.get(params).await.unwrap();
    assert!(found[0].is_some() && found[2].is_some(), "{found:?}");
}

/// Submits this many tasks to a queue that is served first, and to one behind it.
async fn two_queues(s: &Scene, count: usize) -> (Vec<TaskId>, Vec<TaskId>) {
    let drafts = |name: &'static str| std::iter::repeat_n(draft().queue(name), count);
    (s.submit_all(drafts("damaged")).await, s.submit_all(drafts("sound")).await)
}

pub async fn a_damaged_queue_does_not_stop_claims_from_others(s: Scene) {
    let (damaged, sound) = two_queues(&s, 2).await;
    if !s.damage("damaged").await {
        return s.skip(NOT_APART);
    }
    let worker = s.worker().await;
    let claimed = s.claim_from(&worker, &["damaged", "sound"], 9).await;
    let ids: Vec<_> = claimed.iter().map(|task| task.id.clone()).collect();
    assert_eq!(ids, sound, "the sound queue is served");
    // The claim behind an apply, too.
    let more = s.submit(draft().queue("sound")).await;
    let claim = claim_of(&worker, 9);
    let quotas = ["damaged", "sound"].map(|name| Quota::of(queue(name), 9));
    let params = ApplyParams {
        worker: worker.clone(),
        transitions: claimed.iter().map(|task| s.transition(task, completed())).collect(),
        then_claim: Some(ClaimParams { quotas: quotas.into(), ..claim }),
    };
    let reply = s.store.apply(params).await.unwrap();
    assert_eq!(reply.outcomes, [Applied::Applied(State::Completed); 2]);
    let next: Vec<_> = reply.claim.unwrap().unwrap().tasks;
    assert_eq!(next.iter().map(|task| &task.id).collect::<Vec<_>>(), [&more]);
    s.undo_damage("damaged").await;
    let later = s.claim_from(&worker, &["damaged"], 9).await;
    let ids: Vec<_> = later.into_iter().map(|task| task.id).collect();
    assert_eq!(ids, damaged, "nothing of the damaged queue is lost");
}

pub async fn a_damaged_queue_does_not_stop_reports_and_beats_of_others(s: Scene) {
    two_queues(&s, 2).await;
    let worker = s.worker().await;
    let mut tasks = s.claim_from(&worker, &["damaged"], 2).await;
    tasks.extend(s.claim_from(&worker, &["sound"], 2).await);
    s.submit(draft().queue("damaged")).await;
    if !s.damage("damaged").await {
        return s.skip(NOT_APART);
    }
    s.advance(LEASE / 2);
    s.beat(&worker).await;
    s.advance(LEASE / 2 + MS);
    let mut unrecorded = Vec::new();
    for ending in [completed(), failed("boom")] {
        let (damaged, sound) = (tasks.remove(0), tasks.remove(tasks.len() - 1));
        let state = if ending == completed() { State::Completed } else { State::Retrying };
        let batch = [&damaged, &sound].map(|task| s.transition(task, ending.clone()));
        let outcomes = s.apply(&worker, batch.into()).await;
        assert_eq!(outcomes[1], Applied::Applied(state), "the sound one of {outcomes:?}");
        // Where the damaged part is not needed for it, the other one is recorded too.
        if outcomes[0] != Applied::Applied(state) {
            assert_eq!(outcomes[0], Applied::Unrecorded);
            unrecorded.push((s.transition(&damaged, ending), state));
        }
    }
    s.undo_damage("damaged").await;
    s.beat(&worker).await;
    for (again, state) in unrecorded {
        assert_eq!(s.apply(&worker, vec![again]).await, [Applied::Applied(state)]);
    }
    assert_eq!(s.count("damaged", State::Completed).await, 1);
    assert_eq!(s.count("damaged", State::Retrying).await, 1);
}

pub async fn a_damaged_queue_does_not_stop_reads_and_upkeep_of_others(s: Scene) {
    let (_, sound) = two_queues(&s, 1).await;
    let worker = s.worker().await;
    let later = s.submit(draft().queue("sound").after(SECOND)).await;
    s.take(&worker, &sound[0]).await;
    if !s.damage("damaged").await {
        return s.skip(NOT_APART);
    }
    assert_eq!(s.count("sound", State::Running).await, 1);
    assert_eq!(s.count("sound", State::Scheduled).await, 1);
    let listed = s.list(Filter::default()).await;
    for id in [&sound[0], &later] {
        assert!(listed.iter().any(|record| record.id == *id), "the list leaves out {id}");
        s.record(id).await;
    }
    s.store.workers().await.unwrap();
    s.advance(SECOND);
    s.promote().await;
    s.expect(&later, State::Pending, "its time has come").await;
    s.lose_all_workers().await;
    s.expect(&sound[0], State::Pending, "its worker was lost").await;
    s.prune().await;
    s.tend().await;
    s.undo_damage("damaged").await;
    assert_eq!(s.count("damaged", State::Pending).await, 1, "nothing was lost");
}
