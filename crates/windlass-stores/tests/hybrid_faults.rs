//! Brokers that lose what they hold, go away or never were told: the ledger has all tasks, and each is given
//! out once.

#![cfg(all(feature = "postgres", feature = "redis"))]
#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

#[path = "subjects/hybrid.rs"]
mod hybrid;
#[path = "hybrid_faults/load.rs"]
mod load;
#[path = "hybrid_faults/moves.rs"]
mod moves;
#[path = "hybrid_faults/notes.rs"]
mod notes;
#[path = "subjects/schema.rs"]
mod schema;

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Arc;

use hybrid::HybridSubject;
use schema::{Place, connect};
use windlass_core::store::{Applied, ApplyParams, Depth, Inspection};
use windlass_core::{Priority, State, TaskId};
use windlass_testkit::draft::draft;
use windlass_testkit::scene::{LEASE, SECOND, claim_of, completed};
use windlass_testkit::servers::redis::Keeping;
use windlass_testkit::{PostgresServer, RedisServer, Scene};

/// A broker of its own, and a scene on it.
async fn stage(extra: &[&str]) -> (RedisServer, Scene, String) {
    let server = RedisServer::start_with(Keeping::Nothing, extra);
    let subject = HybridSubject::on(&[&server]).await;
    let schema = subject.ledger.schema.clone();
    (server, Scene::on(Arc::new(subject)), schema)
}

/// A number that SQL behind the store's back answers.
async fn number(schema: &str, text: &str) -> i64 {
    connect(schema).await.query_one(text, &[]).await.unwrap().get(0)
}

/// Claims until nothing comes; every task must come once.
async fn claim_all(s: &Scene, expected: &[TaskId]) {
    let worker = s.worker().await;
    let mut given = Vec::new();
    loop {
        let some = s.claim_ids(&worker, 7).await;
        if some.is_empty() {
            break;
        }
        given.extend(some);
    }
    let distinct: BTreeSet<_> = given.iter().cloned().collect();
    assert_eq!(distinct.len(), given.len(), "a task was given twice");
    assert_eq!(distinct, expected.iter().cloned().collect(), "all tasks, and no others");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flushed_broker_is_told_of_everything_again() {
    let (server, s, _) = stage(&[]).await;
    s.promote().await;
    let ids = s.submit_many(30).await;
    server.operate(&["FLUSHALL"]).unwrap();
    let worker = s.worker().await;
    assert_eq!(s.claim_ids(&worker, 9).await, [], "its references are gone");
    s.promote().await;
    claim_all(&s, &ids).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_that_was_deleted_is_pushed_again_after_the_second_look() {
    let (server, s, schema) = stage(&[]).await;
    s.promote().await;
    let ids = s.submit_many(30).await;
    while number(&schema, "SELECT count(*) FROM outbox").await > 0 {
        tokio::task::yield_now().await;
    }
    let script = "for _, key in ipairs(redis.call('KEYS', '*:l:*')) do redis.call('DEL', key) end";
    server.operate(&["EVAL", script, "0"]).unwrap();
    let worker = s.worker().await;
    s.promote().await;
    assert_eq!(s.claim_ids(&worker, 9).await, [], "once may be chance");
    s.promote().await;
    claim_all(&s, &ids).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_broker_tasks_are_claimed_directly_and_it_comes_back_by_itself() {
    let (server, s, _) = stage(&[]).await;
    s.promote().await;
    let before = s.submit_many(5).await;
    server.kill();
    let during = s.submit_many(5).await;
    claim_all(&s, &[before, during].concat()).await;
    let is_away = async || {
        let findings = s.store.inspect(Depth::Ping).await.unwrap().findings;
        findings.iter().any(|finding| finding.subject == "broker")
    };
    assert!(is_away().await, "that is told");
    server.launch();
    while is_away().await {
        tokio::task::yield_now().await;
    }
    s.promote().await;
    let after = s.submit_many(5).await;
    claim_all(&s, &after).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_submit_is_pushed_by_the_leader() {
    let (_server, s, schema) = stage(&[]).await;
    s.promote().await;
    let client = connect(&schema).await;
    let row = client.query_one("SELECT enqueue('mail', queue => 'main')", &[]).await.unwrap();
    let id = TaskId::new(row.get::<_, String>(0));
    // As if a second had passed since.
    client.execute("UPDATE outbox SET made_at = 0", &[]).await.unwrap();
    s.promote().await;
    claim_all(&s, &[id]).await;
    assert_eq!(number(&schema, "SELECT count(*) FROM outbox").await, 0);
}

/// Whatever makes a row of `ready` leaves a note of it; a push takes it away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_way_to_become_pending_leaves_a_reference_and_no_note() {
    let (_server, s, schema) = stage(&[]).await;
    let done = s.bring(draft(), State::Completed).await;
    s.rerun(&done).await;
    let batch = s.submit_many(9).await;
    s.cancel(&batch[4]).await;
    let later = s.submit(draft().after(SECOND)).await;
    s.advance(SECOND);
    s.promote().await;
    let worker = s.worker().await;
    let held = s.claim_ids(&worker, 2).await;
    s.leave(&worker).await;
    let lost = s.worker().await;
    s.claim_ids(&lost, 2).await;
    s.advance(LEASE + SECOND);
    s.expire().await;
    assert_eq!(held.len(), 2);
    let mut expected = batch;
    expected.remove(4);
    expected.extend([later, done]);
    claim_all(&s, &expected).await;
    while number(&schema, "SELECT count(*) FROM outbox").await > 0 {
        tokio::task::yield_now().await;
    }
    let sum = "SELECT coalesce(sum(rows), 0)::int8 FROM ready_count";
    assert_eq!(number(&schema, sum).await, 0, "all rows were counted in and out");
}

/// What is urgent goes by a broker of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_broker_of_low_tasks_does_not_keep_urgent_ones() {
    let (high, low) = (RedisServer::start(Keeping::Nothing), RedisServer::start(Keeping::Nothing));
    let s = Scene::on(Arc::new(HybridSubject::on(&[&high, &low]).await));
    let worker = s.worker().await;
    let normal = s.submit_many(100).await;
    signal(&low, "STOP");
    let urgent = s.submit(draft().priority(Priority::Critical)).await;
    let given = s.claim_ids(&worker, 1).await;
    assert_eq!(given, [urgent], "the urgent one, and nothing is asked of the other broker");
    let next = s.submit(draft().priority(Priority::High)).await;
    let given = s.claim_ids(&worker, 9).await;
    assert_eq!(given.first(), Some(&next), "an urgent one comes first, with or without others");
    let mut seen = given;
    while seen.len() <= normal.len() {
        let more = s.claim_ids(&worker, 9).await;
        seen.extend(more);
    }
    assert!(normal.iter().all(|id| seen.contains(id)), "and the others from the ledger");
    signal(&low, "CONT");
}

/// While one process takes some of many urgent tasks, and the rest of them is on its way back, others wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_process_leaves_over_of_urgent_tasks_goes_before_low_ones_of_the_other_broker()
{
    let (high, low) = (RedisServer::start(Keeping::Nothing), RedisServer::start(Keeping::Nothing));
    let s = Scene::on(Arc::new(HybridSubject::on(&[&high, &low]).await));
    let elsewhere = s.elsewhere().await;
    let (one, other) = (s.worker().await, elsewhere.worker().await);
    s.submit_many(60).await;
    let urgent = s.submit_all(vec![draft().priority(Priority::High); 60]).await;
    let mut given = BTreeSet::new();
    while given.len() < urgent.len() {
        let (mine, its) = tokio::join!(s.claim_ids(&one, 3), elsewhere.claim_ids(&other, 3));
        given.extend([mine, its].concat());
        assert!(given.iter().all(|id| urgent.contains(id)), "{given:#?}");
    }
}

/// A worker that died over what it had taken keeps others from the rest of the queue for a moment only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_died_with_urgent_tasks_does_not_keep_others_from_the_rest_of_the_queue() {
    let (server, s, _) = stage(&[]).await;
    let worker = s.worker().await;
    let low = s.submit_many(1).await;
    let urgent = s.submit_all(vec![draft().priority(Priority::High); 9]).await;
    // As a claim of one task does, of which nothing more is heard.
    let script = "local list = redis.call('KEYS', '*:l:*:4')[1]
        local stem = string.match(list, '^(.*:)l:')
        local place, lo, size = string.match(redis.call('RPOP', list), '^(%d+:%d+:%d+):(%d+):(%d+)$')
        local time = redis.call('TIME')
        redis.call('ZADD', stem .. 'rests', time[1] * 1000, place .. ':' .. (lo + size) .. ':' .. lo)";
    server.operate(&["EVAL", script, "0"]).unwrap();
    assert_eq!(s.claim_ids(&worker, 9).await, low, "after a wait");
    s.promote().await;
    s.promote().await;
    assert_eq!(s.claim_ids(&worker, 9).await, urgent, "and they are found again");
}

/// Whatever someone else may have put into a list.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_reference_is_dropped_and_keeps_nobody_from_the_others() {
    let (server, s, _) = stage(&[]).await;
    let ids = s.submit_many(3).await;
    let script = "for _, key in ipairs(redis.call('KEYS', '*:l:*')) do
        redis.call('RPUSH', key, '', 'odd', '1:2', '1:2:3:4:5:6')
    end";
    server.operate(&["EVAL", script, "0"]).unwrap();
    claim_all(&s, &ids).await;
}

/// Nobody need push or take anything to learn that a broker is away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_inspects_learns_that_a_broker_is_away() {
    let (server, s, _) = stage(&[]).await;
    server.kill();
    let found = s.store.inspect(Depth::Full).await.unwrap();
    assert!(!found.brokers[0].is_up && found.findings.iter().any(|one| one.subject == "broker"));
    let of_broker = |found: Inspection| {
        let finding = found.findings.into_iter().find(|one| one.subject == "broker");
        finding.map(|one| one.text).unwrap_or_default()
    };
    assert!(of_broker(found).contains('('), "an operator learns why");
    let (server, s, _) = stage(&[]).await;
    server.kill();
    let found = loop {
        let found = s.store.inspect(Depth::Ping).await.unwrap();
        if !found.brokers[0].is_up {
            break found;
        }
        tokio::task::yield_now().await;
    };
    let text = of_broker(found);
    assert!(text.contains("is away") && !text.contains('('), "strangers do not: {text}");
}

/// Two processes with different brokers under one name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_names_another_broker_than_the_leader_is_told() {
    let (_server, s, schema) = stage(&[]).await;
    let of_brokers = async |s: &Scene| {
        let found = s.store.inspect(Depth::Full).await.unwrap().findings;
        found.into_iter().filter(|one| one.subject == "broker").count()
    };
    assert_eq!(of_brokers(&s).await, 0, "nobody leads yet");
    s.promote().await;
    assert_eq!(of_brokers(&s).await, 0);
    let other = RedisServer::start(Keeping::Nothing);
    let place = Place::at(|_| PostgresServer::shared().url(&schema));
    let strange = Scene::on(Arc::new(HybridSubject::at(place, &[&other], |same| same).await));
    assert_eq!(of_brokers(&strange).await, 1);
}

/// How a run ended is stored although the claim behind it finds the broker of low tasks silent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_broker_of_low_tasks_does_not_keep_the_ends_of_runs() {
    let (high, low) = (RedisServer::start(Keeping::Nothing), RedisServer::start(Keeping::Nothing));
    let s = Scene::on(Arc::new(HybridSubject::on(&[&high, &low]).await));
    let worker = s.worker().await;
    let is_up = async || s.store.inspect(Depth::Ping).await.unwrap().brokers[1].is_up;
    // On a busy machine all may take so long that the broker is given up meanwhile: not every time.
    for _ in 0..10 {
        s.submit_many(2).await;
        let task = s.store.claim(claim_of(&worker, 1)).await.unwrap().tasks.remove(0);
        signal(&low, "STOP");
        let params = ApplyParams {
            worker: worker.clone(),
            transitions: vec![s.transition(&task, completed())],
            then_claim: Some(claim_of(&worker, 1)),
        };
        let reply = s.store.apply(params).await.unwrap();
        assert_eq!(reply.outcomes, [Applied::Applied(State::Completed)]);
        let is_not_given_up = is_up().await;
        signal(&low, "CONT");
        if is_not_given_up {
            return;
        }
        while !is_up().await {
            tokio::task::yield_now().await;
        }
    }
    panic!("it was waited for until it was given up, every time");
}

/// Sends a signal to a server.
fn signal(server: &RedisServer, name: &str) {
    let pid = server.pid().unwrap().to_string();
    let sent = Command::new("kill").args(["-s", name, &pid]).status().unwrap();
    assert!(sent.success());
}
