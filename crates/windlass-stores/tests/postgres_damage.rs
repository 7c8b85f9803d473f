//! Rows that windlass never writes stop claims from their own queue and no promotion of others; the doctor names tasks in
//! no place or in several.

#![cfg(all(feature = "postgres", feature = "redis"))]
#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

#[path = "subjects/hybrid.rs"]
mod hybrid;
#[path = "postgres_damage/places.rs"]
mod places;
#[path = "subjects/postgres.rs"]
mod postgres;
#[path = "postgres_damage/promotion.rs"]
mod promotion;
#[path = "subjects/schema.rs"]
mod schema;

use std::sync::Arc;
use std::time::Duration;

use hybrid::HybridSubject;
use postgres::PostgresSubject;
use schema::connect;
use windlass_core::TaskId;
use windlass_core::store::{ApplyParams, ClaimParams, Depth, Finding, Quota, Severity};
use windlass_testkit::draft::{draft, queue};
use windlass_testkit::scene::{claim_of, completed};
use windlass_testkit::servers::redis::Keeping;
use windlass_testkit::{PostgresServer, RedisServer, Scene};

/// Rows that overlap the pending tasks of a queue: the rest of a claim of one task cannot be written beside the first, the
/// length of the second is no number of tasks.
const DAMAGE: [&str; 2] = [
    "INSERT INTO ready SELECT position, lo + 1, lo + 1, since, queue, lane, bits FROM ready
     WHERE queue = (SELECT id FROM queue WHERE name = 'damaged')",
    "UPDATE ready SET hi = 4611686018427387904 WHERE queue = (SELECT id FROM queue WHERE name = 'damaged')",
];

async fn check_others_are_served(s: Scene, schema: &str) {
    let client = connect(schema).await;
    for damage in DAMAGE {
        s.promote().await;
        let worker = s.worker().await;
        let submit = async |name: &'static str| -> Vec<TaskId> {
            s.submit_all(std::iter::repeat_n(draft().queue(name), 3)).await
        };
        let (_, sound) = (submit("damaged").await, submit("sound").await);
        client.batch_execute(damage).await.unwrap();
        let quotas = || ["damaged", "sound"].map(|name| Quota::of(queue(name), 1)).to_vec();
        let params = || ClaimParams { quotas: quotas(), ..claim_of(&worker, 2) };
        let mut claimed = s.store.claim(params()).await.unwrap().tasks;
        let mut ids = Vec::new();
        while let Some(task) = claimed.pop() {
            assert!(claimed.is_empty(), "one at a time: {claimed:?}");
            ids.push(task.id.clone());
            // The claim behind a report, too.
            let reply = s.store.apply(ApplyParams {
                worker: worker.clone(),
                transitions: vec![s.transition(&task, completed())],
                then_claim: Some(params()),
            });
            claimed = reply.await.unwrap().claim.unwrap().unwrap().tasks;
        }
        assert_eq!(ids, sound, "after {damage}");
        let clear = "DELETE FROM ready WHERE queue = (SELECT id FROM queue WHERE name = 'damaged')";
        client.batch_execute(clear).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_rows_of_a_queue_do_not_stop_claims_from_others() {
    let subject = PostgresSubject::at(|schema| PostgresServer::shared().url(schema)).await;
    let schema = subject.place.schema.clone();
    check_others_are_served(Scene::on(Arc::new(subject)), &schema).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_broker_damaged_rows_of_a_queue_do_not_stop_claims_from_others() {
    let server = RedisServer::start(Keeping::Nothing);
    let subject = HybridSubject::on(&[&server]).await;
    let schema = subject.ledger.schema.clone();
    check_others_are_served(Scene::on(Arc::new(subject)), &schema).await;
}

const HOUR: Duration = Duration::from_secs(3_600);

/// The problems that the doctor finds with the places and the counts of tasks.
async fn problems(s: &Scene, depth: Depth) -> Vec<Finding> {
    let findings = s.store.inspect(depth).await.unwrap().findings;
    let is_ours = |one: &Finding| ["places", "counters"].contains(&one.subject);
    findings.into_iter().filter(is_ours).filter(|one| one.severity == Severity::Problem).collect()
}

async fn submit_later(s: &Scene, name: &str) -> Vec<TaskId> {
    s.submit_all(std::iter::repeat_n(draft().queue(name).after(HOUR), 3)).await
}
