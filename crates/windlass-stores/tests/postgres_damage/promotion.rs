//! Rows of `deferred` that windlass never writes stop no promotion of others.

use std::sync::Arc;

use windlass_core::State;
use windlass_core::store::Depth;
use windlass_testkit::servers::redis::Keeping;
use windlass_testkit::{PostgresServer, RedisServer, Scene};

use super::hybrid::HybridSubject;
use super::postgres::PostgresSubject;
use super::schema::connect;
use super::{HOUR, problems, submit_later};

async fn check_others_are_promoted(s: Scene, schema: &str) {
    let client = connect(schema).await;
    let (twice, sound) = (submit_later(&s, "damaged").await, submit_later(&s, "sound").await);
    let damage = "INSERT INTO ready SELECT 1000 + seq, seq, seq, 0, queue, lane, bits FROM deferred
        WHERE queue = (SELECT id FROM queue WHERE name = 'damaged')";
    client.batch_execute(damage).await.unwrap();
    s.advance(HOUR);
    let duty = s.duty().await;
    let report = s.store.promote(duty).await.unwrap();
    assert_eq!((report.done, report.skipped_bad, report.has_more), (3, 3, false));
    for id in twice.iter().chain(&sound) {
        s.expect(id, State::Pending, "each stands in `ready`").await;
    }
    assert_eq!(problems(&s, Depth::Full).await, []);
    let again = s.store.promote(duty).await.unwrap();
    assert_eq!((again.done, again.skipped_bad), (0, 0), "it is not looked at again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_in_two_places_does_not_stop_the_promotion_of_others() {
    let subject = PostgresSubject::at(|schema| PostgresServer::shared().url(schema)).await;
    let schema = subject.place.schema.clone();
    check_others_are_promoted(Scene::on(Arc::new(subject)), &schema).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_broker_a_task_in_two_places_does_not_stop_the_promotion_of_others() {
    let server = RedisServer::start(Keeping::Nothing);
    let subject = HybridSubject::on(&[&server]).await;
    let schema = subject.ledger.schema.clone();
    check_others_are_promoted(Scene::on(Arc::new(subject)), &schema).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_cannot_be_promoted_is_put_off_and_stops_no_other() {
    let subject = PostgresSubject::at(|schema| PostgresServer::shared().url(schema)).await;
    let client = connect(&subject.place.schema).await;
    let s = Scene::on(Arc::new(subject));
    let (damaged, sound) = (submit_later(&s, "damaged").await, submit_later(&s, "sound").await);
    // No number is below this one.
    let damage = "UPDATE deferred SET seq = -9223372036854775808 WHERE seq = (SELECT min(seq) FROM deferred)";
    client.batch_execute(damage).await.unwrap();
    s.advance(HOUR);
    let duty = s.duty().await;
    let report = s.store.promote(duty).await.unwrap();
    assert_eq!((report.done, report.skipped_bad, report.has_more), (5, 1, false));
    for id in damaged.iter().skip(1).chain(&sound) {
        s.expect(id, State::Pending, "others go on").await;
    }
    let again = s.store.promote(duty).await.unwrap();
    assert_eq!((again.done, again.skipped_bad), (0, 0), "it is looked at once a minute");
}
