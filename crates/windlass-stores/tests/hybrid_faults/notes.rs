//! What brokers and database know of each other: processing lists, the outbox, references that lead nowhere.

use std::sync::Arc;

use windlass_core::Store;
use windlass_core::store::{WaitParams, Wake};
use windlass_stores::hybrid::HybridStore;
use windlass_stores::postgres::PostgresStore;
use windlass_testkit::draft::{draft, queue};
use windlass_testkit::scene::{LEASE, SECOND, claim_of};
use windlass_testkit::servers::redis::Keeping;
use windlass_testkit::{RedisServer, Scene, Subject as _};

use crate::hybrid::HybridSubject;
use crate::schema::{Place, connect};
use crate::{claim_all, number, stage};

/// Moves all references of a lane to a worker's list, as a take does whose answer nobody gets.
fn take_for_nobody(server: &RedisServer, worker: &str) {
    let script = "local n = 0
        for _, list in ipairs(redis.call('KEYS', '*:l:*')) do
          local taken = string.gsub(list, 'l:%d+:%d+$', 'taken:' .. ARGV[1])
          while redis.call('RPOPLPUSH', list, taken) do n = n + 1 end
        end
        return n";
    let moved = server.operate(&["EVAL", script, "0", worker]).unwrap();
    assert_ne!(moved, ":0\r\n", "there was something to move");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_lost_worker_has_taken_is_given_back() {
    let (server, s, _) = stage(&[]).await;
    s.promote().await;
    let (lost, other) = (s.worker().await, s.worker().await);
    let ids = s.submit_many(3).await;
    take_for_nobody(&server, lost.as_str());
    s.promote().await;
    s.promote().await;
    assert_eq!(s.claim_ids(&other, 9).await, [], "it may still claim them");
    s.advance(LEASE + SECOND);
    s.expire().await;
    claim_all(&s, &ids).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_worker_has_taken_without_an_answer_is_its_own_to_claim() {
    let (server, s, _) = stage(&[]).await;
    let worker = s.worker().await;
    let ids = s.submit_many(3).await;
    take_for_nobody(&server, worker.as_str());
    assert_eq!(s.claim_ids(&worker, 9).await, ids);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn references_that_lead_nowhere_are_dropped_and_counted() {
    let server = RedisServer::start(Keeping::Nothing);
    let subject = HybridSubject::on(&[&server]).await;
    let plain = PostgresStore::open(subject.ledger.options()).await.unwrap();
    let store: Arc<HybridStore> = Arc::clone(&subject.store);
    let s = Scene::on(Arc::new(subject));
    let worker = s.worker().await;
    for _ in 0..3 {
        s.submit(draft()).await;
    }
    let directly = plain.claim(claim_of(&worker, 9)).await.unwrap().tasks;
    assert_eq!(directly.len(), 3, "who knows no broker claims as ever");
    assert_eq!(s.claim_ids(&worker, 9).await, [], "and the references lead nowhere");
    assert_eq!(store.brokers()[0].refused.gone_count, 3);
    assert!(store.brokers()[0].is_up);
    assert_eq!(s.claim_ids(&worker, 9).await, []);
    assert_eq!(store.brokers()[0].refused.gone_count, 3, "nobody meets them again");
}

/// Whoever waits asks the broker; the table of what is pending might as well not be there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_worker_asks_nothing_of_the_database() {
    let (_server, s, schema) = stage(&[]).await;
    let worker = s.worker().await;
    let id = s.submit(draft()).await;
    assert_eq!(s.claim_ids(&worker, 9).await, [id]);
    let client = connect(&schema).await;
    client.batch_execute("ALTER TABLE ready RENAME TO hidden").await.unwrap();
    let claim = s.store.claim(claim_of(&worker, 9)).await.unwrap();
    let wait = WaitParams {
        queues: vec![queue("main")],
        since: Some(claim.mark),
        at_most: LEASE,
        ..WaitParams::default()
    };
    // Nobody rings: it looks by itself after a while.
    assert_eq!(s.store.wait(wait).await.unwrap(), Wake::Work);
    assert_eq!(s.store.claim(claim_of(&worker, 9)).await.unwrap().tasks, []);
    client.batch_execute("ALTER TABLE hidden RENAME TO ready").await.unwrap();
    let id = s.submit(draft()).await;
    assert_eq!(s.claim_ids(&worker, 9).await, [id]);
}

const TRIGGERS: &str = "SELECT count(*) FROM pg_trigger
    WHERE tgrelid = 'ready'::regclass AND NOT tgisinternal";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_broker_nothing_is_noted_and_who_only_looks_changes_nothing() {
    let place = Place::fresh();
    PostgresStore::open(place.options()).await.unwrap();
    assert_eq!(number(&place.schema, TRIGGERS).await, 0, "a plain store pays nothing");
    let server = RedisServer::start(Keeping::Nothing);
    let subject = HybridSubject::at(place, &[&server], |ledger| ledger.existing()).await;
    subject.store().queues().await.unwrap();
    let schema = &subject.ledger.schema;
    assert_eq!(number(schema, TRIGGERS).await, 0);
    assert_eq!(number(schema, "SELECT count(*) FROM broker").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outbox_that_was_dropped_under_a_leader_is_made_again() {
    let (_server, s, schema) = stage(&[]).await;
    s.promote().await;
    let client = connect(&schema).await;
    client.execute("SELECT use_brokers('{}')", &[]).await.unwrap();
    assert_eq!(number(&schema, TRIGGERS).await, 0);
    let row = client.query_one("SELECT enqueue('mail', queue => 'main')", &[]).await.unwrap();
    s.promote().await;
    assert_eq!(number(&schema, TRIGGERS).await, 2);
    claim_all(&s, &[windlass_core::TaskId::new(row.get::<_, String>(0))]).await;
}

/// A note that a row is gone is dropped with its reference. Where no reference ever comes up it would stay, since
/// each new note put the end of all of them off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notes_of_rows_that_are_gone_are_forgotten_after_a_day() {
    let (server, s, _) = stage(&[]).await;
    s.promote().await;
    let ids = s.submit_many(4).await;
    s.cancel(&ids[1]).await;
    s.promote().await;
    let age = "local gone, count = redis.call('KEYS', '*:gone')[1], 0
        for _, row in ipairs(redis.call('ZRANGE', gone, 0, -1)) do
          redis.call('ZADD', gone, 1, row)
          count = count + 1
        end
        return count";
    assert_ne!(server.operate(&["EVAL", age, "0"]).unwrap(), ":0\r\n", "a row was noted");
    s.cancel(&ids[2]).await;
    s.promote().await;
    let old = "return redis.call('ZCOUNT', redis.call('KEYS', '*:gone')[1], '-inf', 1)";
    assert_eq!(server.operate(&["EVAL", old, "0"]).unwrap(), ":0\r\n", "old notes");
}
