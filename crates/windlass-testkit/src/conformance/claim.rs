//! Claims: what is given, in which order, how much, and from where.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Barrier;
use windlass_core::retry::Backoff;
use windlass_core::store::{
    ApplyParams, CLAIM_BYTES_MAX, ClaimParams, Inserted, PrioritySet, Quota, RunOrder,
};
use windlass_core::task::Extras;
use windlass_core::{
    Claimed, Ending, Epoch, ErrorKind, Priority, State, Tag, TaskId, Timestamp, WorkerId,
};

use crate::draft::{draft, queue};
use crate::scene::{HOUR, LEASE, MS, SECOND, Scene, claim_of, completed, failed, snoozed};

pub async fn tasks_of_one_batch_are_claimed_in_the_order_given(s: Scene) {
    let worker = s.worker().await;
    let ids = s.submit_many(20).await;
    assert_eq!(s.claim_ids(&worker, 20).await, ids);
}

pub async fn tasks_are_claimed_in_the_order_of_becoming_pending(s: Scene) {
    let worker = s.worker().await;
    let mut ids = Vec::new();
    for number in 0..6 {
        // Some at the same instant, some later: the order of the calls decides.
        s.advance(MS * (number % 2));
        ids.push(s.submit(draft()).await);
    }
    let mut given = s.claim_ids(&worker, 2).await;
    given.extend(s.claim_ids(&worker, 10).await);
    assert_eq!(given, ids);
}

pub async fn a_promoted_task_goes_behind_those_that_were_pending_before(s: Scene) {
    let worker = s.worker().await;
    let later = s.submit(draft().after(SECOND)).await;
    let first = s.submit(draft()).await;
    s.advance(SECOND);
    s.promote().await;
    let last = s.submit(draft()).await;
    assert_eq!(s.claim_ids(&worker, 9).await, [first, later, last]);
}

pub async fn a_higher_priority_is_claimed_first(s: Scene) {
    if !s.capabilities().has_priorities {
        return priorities_are_refused(&s).await;
    }
    let worker = s.worker().await;
    let mut ids = BTreeMap::new();
    for priority in [Priority::Normal, Priority::Low, Priority::Critical, Priority::High] {
        let drafts = [draft().priority(priority), draft().priority(priority)];
        ids.insert(priority, s.submit_all(drafts).await);
    }
    let expected: Vec<_> = ids.into_values().rev().flatten().collect();
    let mut given = s.claim_ids(&worker, 3).await;
    given.extend(s.claim_ids(&worker, 9).await);
    assert_eq!(given, expected, "critical, high, normal, low");
}

/// Not even tasks that were submitted together, of which every claim takes one.
pub async fn claims_at_once_leave_nothing_urgent_behind(s: Scene) {
    if !s.capabilities().has_priorities {
        return priorities_are_refused(&s).await;
    }
    // A store may wait for what another claim leaves over, but only for a bounded time: a round that took longer is
    // excused. A try in which most rounds were excused shows nothing.
    let mut tries = Vec::new();
    while tries.len() < 5 {
        let rounds = claim_urgent_in_pairs(&s).await;
        tries.push(rounds);
        if rounds.excused * 2 <= rounds.all {
            return;
        }
    }
    panic!("the machine was too slow to ask: {tries:?}");
}

#[derive(Debug, Clone, Copy, Default)]
struct Rounds {
    all: usize,
    excused: usize,
}

/// Claims twenty urgent tasks, two claims at once, from a queue that has others too.
async fn claim_urgent_in_pairs(s: &Scene) -> Rounds {
    let worker = s.worker().await;
    let of = |priority| vec![draft().priority(priority); 20];
    s.submit_all([of(Priority::Low), of(Priority::Normal)].concat()).await;
    let urgent = s.submit_all(of(Priority::Critical)).await;
    let (mut given, mut rounds) = (BTreeSet::new(), Rounds::default());
    while given.len() < urgent.len() {
        let begun = Instant::now();
        let (one, other) = tokio::join!(s.claim_ids(&worker, 1), s.claim_ids(&worker, 1));
        let is_excused = begun.elapsed() > MS * 200;
        rounds.all += 1;
        rounds.excused += usize::from(is_excused);
        for id in [one, other].concat() {
            let left = urgent.len() - given.len();
            assert!(is_excused || urgent.contains(&id), "{id} came before {left} urgent ones");
            given.extend(urgent.contains(&id).then_some(id));
        }
    }
    rounds
}

/// A store without priorities says so instead of dropping them.
async fn priorities_are_refused(s: &Scene) {
    let (_, answer) = s.offer(draft().priority(Priority::High)).await;
    match answer {
        Inserted::Bad(error) => assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:?}"),
        other => panic!("a priority should be unsupported, not {other:?}"),
    }
}

pub async fn only_the_priorities_of_a_quota_are_claimed(s: Scene) {
    if !s.capabilities().has_priorities {
        return priorities_are_refused(&s).await;
    }
    let worker = s.worker().await;
    let drafts = Priority::DESCENDING.map(|priority| draft().priority(priority));
    let ids = s.submit_all(drafts).await;
    let served = PrioritySet::of(&[Priority::High, Priority::Low]);
    let quotas = vec![Quota { priorities: served, ..Quota::of(queue("main"), 9) }];
    let params = ClaimParams { quotas, ..claim_of(&worker, 9) };
    let given = ids_of(&s, params).await;
    assert_eq!(given, [ids[1].clone(), ids[3].clone()], "high and low only");
    let rest = s.claim_ids(&worker, 9).await;
    assert_eq!(rest, [ids[0].clone(), ids[2].clone()]);
}

pub async fn a_quota_gives_at_most_what_it_says(s: Scene) {
    let worker = s.worker().await;
    let ids = s.submit_many(5).await;
    let given = ids_of(&s, quotas(&worker, &[("main", 3)], 10)).await;
    assert_eq!(given, ids[..3], "three of five");
    let given = ids_of(&s, quotas(&worker, &[("main", 0)], 10)).await;
    assert_eq!(given, [], "a quota of nothing");
}

pub async fn the_limit_bounds_the_whole_claim(s: Scene) {
    let worker = s.worker().await;
    let first = s.submit_many(3).await;
    let second = s.submit_all(vec![draft().queue("second"); 3]).await;
    let shares = [("main", 3), ("second", 3)];
    let given = ids_of(&s, quotas(&worker, &shares, 4)).await;
    assert_eq!(given, [&first[..], &second[..1]].concat(), "four in all");
    let given = ids_of(&s, quotas(&worker, &shares, 0)).await;
    assert_eq!(given, [], "a limit of nothing");
}

pub async fn quotas_are_served_in_the_order_given(s: Scene) {
    let worker = s.worker().await;
    let first = s.submit_many(2).await;
    let second = s.submit_all(vec![draft().queue("second"); 2]).await;
    let shares = [("second", 9), ("main", 9)];
    let given = ids_of(&s, quotas(&worker, &shares, 3)).await;
    assert_eq!(given, [&second[..], &first[..1]].concat());
}

pub async fn a_queue_may_be_named_again_in_one_claim(s: Scene) {
    let worker = s.worker().await;
    let main = s.submit_many(4).await;
    let other = s.submit_all(vec![draft().queue("other"); 2]).await;
    let shares = [("main", 1), ("other", 1), ("main", 2)];
    let given = ids_of(&s, quotas(&worker, &shares, 9)).await;
    assert_eq!(given, [&main[..1], &other[..1], &main[1..3]].concat());
}

pub async fn a_claim_takes_nothing_from_queues_that_it_does_not_name(s: Scene) {
    let worker = s.worker().await;
    s.submit(draft().queue("other")).await;
    assert_eq!(s.claim(&worker, 9).await, []);
    assert_eq!(s.claim_from(&worker, &["nowhere"], 9).await, []);
    assert_eq!(s.claim_by(quotas(&worker, &[], 9)).await, []);
}

pub async fn a_paused_queue_gives_nothing_while_the_others_go_on(s: Scene) {
    let worker = s.worker().await;
    let main = s.submit_many(2).await;
    let other = s.submit(draft().queue("other")).await;
    s.order_queue("main", RunOrder::Pause).await;
    assert_eq!(s.claim(&worker, 9).await, [], "the queue is paused");
    let shares = [("main", 9), ("other", 9)];
    let given = ids_of(&s, quotas(&worker, &shares, 9)).await;
    assert_eq!(given, [other], "only the other queue gives");
    let elsewhere = s.elsewhere().await;
    assert_eq!(elsewhere.claim(&worker, 9).await, [], "everywhere");
    assert!(s.queue("main").await.unwrap().is_paused);
    s.order_queue("main", RunOrder::Run).await;
    assert!(!s.queue("main").await.unwrap().is_paused);
    assert_eq!(s.claim_ids(&worker, 9).await, main, "it runs again");
}

pub async fn a_queue_can_be_paused_before_its_first_task(s: Scene) {
    let worker = s.worker().await;
    s.order_queue("main", RunOrder::Pause).await;
    s.submit_many(1).await;
    let due = s.submit(draft().after(SECOND)).await;
    s.advance(SECOND);
    s.promote().await;
    s.expect(&due, State::Pending, "a pause does not stop time").await;
    assert_eq!(s.claim(&worker, 9).await, [], "paused from the start");
}

pub async fn a_paused_queue_gives_nothing_to_the_claim_behind_an_apply(s: Scene) {
    let run = s.start(draft()).await;
    s.submit_many(1).await;
    s.order_queue("main", RunOrder::Pause).await;
    let reply = s
        .store
        .apply(ApplyParams {
            worker: run.worker.clone(),
            transitions: vec![s.transition(&run, completed())],
            then_claim: Some(claim_of(&run.worker, 9)),
        })
        .await
        .unwrap();
    let given = reply.claim.expect("a claim was asked for").unwrap();
    assert_eq!(given.tasks, [], "the queue is paused");
}

pub async fn a_claim_hands_over_everything_that_was_submitted(s: Scene) {
    let worker = s.worker().await;
    let now = s.now().await;
    let extras = Extras {
        deadline: Some(Timestamp::from_millis(now.as_millis() + 1)),
        backoff: Some(Backoff::Fixed { initial: Duration::from_millis(1_500), jitter: 0.25 }),
        tags: vec![Tag::new("a").unwrap(), Tag::new("b").unwrap()],
        metadata: BTreeMap::from([("key".into(), "välue \"'\\".into())]),
        traceparent: Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into()),
        limit_key: Some("customer 7".into()),
        parent: Some(TaskId::new("parent")),
    };
    let sent = draft()
        .kind("email.send")
        .payload(&b"\x00\xff payload"[..])
        .max_retries(7)
        .max_crashes(11)
        .retention(Duration::from_millis(123_456))
        .idempotency("once")
        .extras(extras)
        .but(|task| task.spec.timeout = Duration::from_millis(77_001));
    let task = s.make(sent).await;
    s.insert(vec![task.clone()]).await;
    s.advance(SECOND);
    let claimed = s.take(&worker, &task.id).await.task;
    let record = s.record(&task.id).await;
    assert_eq!(claimed.spec, task.spec);
    assert_eq!(record.spec, task.spec);
    assert_eq!((&claimed.kind, &record.kind), (&task.kind, &task.kind));
    assert_eq!(claimed.queue, task.queue);
    assert_eq!(claimed.priority, task.priority);
    assert_eq!(claimed.payload, task.payload);
    assert_eq!(record.payload, task.payload);
    assert_eq!(record.idempotency_key, task.idempotency_key);
    assert_eq!(claimed.created_at, now);
    assert_eq!(claimed.claimed_at, now.after(SECOND));
    assert!(!claimed.is_cancel_requested);
}

pub async fn a_claim_counts_an_attempt_and_records_worker_time_and_epoch(s: Scene) {
    let run = s.start(draft()).await;
    assert_eq!((run.attempts, run.crashes), (1, 0));
    let record = s.record(&run.id).await;
    assert_eq!(record.state, State::Running);
    assert_eq!((record.attempts, record.crashes), (1, 0));
    assert_eq!(record.worker.as_ref(), Some(&run.worker));
    assert_eq!(record.epoch, Some(run.epoch));
    assert_eq!(record.claimed_at, Some(s.now().await));
    s.finish(&run, completed()).await;
    let record = s.record(&run.id).await;
    assert_eq!(record.worker.as_ref(), Some(&run.worker), "it stays");
    assert_eq!(record.epoch, Some(run.epoch), "it stays");
}

pub async fn each_claim_of_a_task_has_a_larger_epoch(s: Scene) {
    let id = s.submit(draft().max_retries(99).max_crashes(99)).await;
    let mut last = Epoch(0);
    for round in 0..3 {
        for way in ["release", "fail", "snooze", "leave", "held", "crash", "rerun"] {
            let scene = match round {
                1 => s.elsewhere().await,
                _ => s.clone(),
            };
            let worker = scene.worker().await;
            let run = scene.take(&worker, &id).await;
            let (now, why) = (run.epoch, format!("after a {way}"));
            assert!(now > last, "epoch {now} comes {why}, was {last} before");
            last = now;
            match way {
                "release" => drop(s.finish(&run, Ending::Released).await),
                "fail" => drop(s.finish(&run, failed("boom")).await),
                "snooze" => drop(s.finish(&run, snoozed(1)).await),
                "leave" => drop(s.leave(&worker).await),
                "held" => {
                    s.advance(MS * 2);
                    s.beat_holding(&worker, vec![], MS).await;
                }
                "crash" => drop(s.lose_all_workers().await),
                _ => drop(s.finish(&run, completed()).await),
            }
            if s.state(&id).await != State::Pending {
                s.rerun(&id).await;
            }
        }
    }
}

pub async fn a_task_is_given_to_one_worker_only_however_many_ask_at_once(s: Scene) {
    let ids = s.submit_many(64).await;
    let elsewhere = s.elsewhere().await;
    let barrier = Arc::new(Barrier::new(16));
    let mut asking = Vec::new();
    for number in 0..16 {
        let scene = if number % 2 == 0 { &s } else { &elsewhere }.clone();
        let barrier = barrier.clone();
        asking.push(tokio::spawn(async move {
            let worker = scene.worker().await;
            barrier.wait().await;
            scene.claim_ids(&worker, 5).await
        }));
    }
    let mut given = Vec::new();
    for asked in asking {
        given.extend(asked.await.unwrap());
    }
    // 16 × 5 were asked for, 64 are there. A claim that met too many others may return less; the next claim gets what
    // is left. That excuses some, not most.
    assert!(given.len() * 2 >= ids.len(), "claims at once returned only {} of 64", given.len());
    let worker = s.worker().await;
    while given.len() < ids.len() {
        given.extend(s.claim_ids(&worker, 5).await);
    }
    let distinct: BTreeSet<_> = given.iter().cloned().collect();
    assert_eq!(distinct.len(), given.len(), "a task was given twice");
}

/// Claims until nothing comes; no claim brings much more than its bound.
async fn claim_heavy(mut claim: impl AsyncFnMut() -> Vec<Claimed>, ids: &[TaskId]) {
    let mut given: Vec<TaskId> = Vec::new();
    while given.len() < ids.len() {
        let tasks = claim().await;
        let (last, before) = tasks.split_last().expect("a claim brings one task at least");
        let bytes: usize = before.iter().map(|task| task.payload.len()).sum();
        assert!(bytes < CLAIM_BYTES_MAX, "{bytes} bytes in front of {}", last.id);
        given.extend(tasks.into_iter().map(|task| task.id));
    }
    assert_eq!(given, ids, "all of them, in their order");
}

pub async fn a_claim_stops_at_its_bound_in_bytes(s: Scene) {
    let heavy = vec![b'x'; 1024 * 1024];
    let worker = s.worker().await;
    let mut drafts = vec![draft(); 3];
    drafts.extend(vec![draft().payload(heavy); 20]);
    drafts.extend(vec![draft(); 3]);
    let ids = s.submit_all(drafts).await;
    claim_heavy(async || s.claim(&worker, 100).await, &ids).await;
}

pub async fn a_claim_behind_an_apply_stops_at_its_bound_in_bytes(s: Scene) {
    let run = s.start(draft()).await;
    let worker = run.worker.clone();
    let heavy = vec![b'x'; 1024 * 1024];
    let ids = s.submit_all(vec![draft().payload(heavy); 20]).await;
    let mut last = vec![s.transition(&run, completed())];
    let claim = async || {
        let transitions = std::mem::take(&mut last);
        let then_claim = Some(claim_of(&worker, 100));
        let params = ApplyParams { worker: worker.clone(), transitions, then_claim };
        let tasks = s.store.apply(params).await.unwrap().claim.unwrap().unwrap().tasks;
        last = tasks.iter().take(1).map(|task| s.transition(task, failed("boom"))).collect();
        tasks
    };
    claim_heavy(claim, &ids).await;
}

pub async fn a_claim_gives_no_more_suspects_than_allowed(s: Scene) {
    let suspects = suspects(&s, &["main"; 3]).await;
    let plain = s.submit_many(2).await;
    let worker = s.worker().await;
    for allowed in [0, 1, 2] {
        let params = ClaimParams { suspects_at_most: allowed, ..claim_of(&worker, 9) };
        let given = ids_of(&s, params).await;
        let count = given.iter().filter(|id| suspects.contains(id)).count();
        assert_eq!(count, allowed, "suspects among {given:?}");
        if allowed == 0 {
            assert_eq!(given, plain, "suspects hold up nobody");
        }
    }
}

pub async fn the_bound_on_suspects_counts_over_all_queues_of_a_claim(s: Scene) {
    let suspects = suspects(&s, &["main", "other", "main", "other"]).await;
    let worker = s.worker().await;
    let params = ClaimParams {
        suspects_at_most: 1,
        ..quotas(&worker, &[("main", 9), ("other", 9), ("main", 9)], 9)
    };
    let given = ids_of(&s, params).await;
    assert_eq!(given.len(), 1, "one of {suspects:?}, not {given:?}");
}

pub async fn a_claim_behind_an_apply_gives_no_more_suspects_than_allowed(s: Scene) {
    suspects(&s, &["main"; 2]).await;
    let run = s.start(draft().queue("other")).await;
    let then_claim = ClaimParams { suspects_at_most: 1, ..claim_of(&run.worker, 9) };
    let params = ApplyParams {
        worker: run.worker.clone(),
        transitions: vec![s.transition(&run, completed())],
        then_claim: Some(then_claim),
    };
    let reply = s.store.apply(params).await.unwrap();
    let given = reply.claim.expect("a claim was asked for").unwrap();
    assert_eq!(given.tasks.len(), 1, "one suspect: {given:?}");
}

pub async fn one_crash_does_not_make_a_suspect(s: Scene) {
    let id = s.start(draft()).await.id.clone();
    s.lose_all_workers().await;
    let worker = s.worker().await;
    let params = ClaimParams { suspects_at_most: 0, ..claim_of(&worker, 9) };
    assert_eq!(ids_of(&s, params).await, [id]);
}

/// Tasks with two crashes each.
async fn suspects(s: &Scene, queues: &[&str]) -> Vec<TaskId> {
    let drafts = queues.iter().map(|queue| draft().queue(queue));
    let ids = s.submit_all(drafts).await;
    for _ in 0..2 {
        let worker = s.worker().await;
        let given = s.claim_from(&worker, &["main", "other"], 99).await;
        assert_eq!(given.len(), ids.len(), "all are claimed before each crash");
        s.advance(LEASE + MS);
        s.expire().await;
    }
    s.advance(HOUR / 60);
    ids
}

fn quotas(worker: &WorkerId, shares: &[(&str, usize)], limit: usize) -> ClaimParams {
    let quotas = shares.iter().map(|(name, at_most)| Quota::of(queue(name), *at_most));
    ClaimParams { quotas: quotas.collect(), ..claim_of(worker, limit) }
}

async fn ids_of(s: &Scene, params: ClaimParams) -> Vec<TaskId> {
    let tasks = s.claim_by(params).await;
    tasks.into_iter().map(|task| task.id).collect()
}
