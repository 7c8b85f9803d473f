//! The doctor names tasks in no place or in several; a repair makes those in none pending again, and no others.

use std::sync::Arc;

use windlass_core::store::{ClaimParams, Depth, Quota};
use windlass_testkit::draft::{draft, queue};
use windlass_testkit::scene::{claim_of, completed};
use windlass_testkit::servers::redis::Keeping;
use windlass_testkit::{PostgresServer, RedisServer, Scene};

use super::hybrid::HybridSubject;
use super::postgres::PostgresSubject;
use super::schema::connect;
use super::{HOUR, problems, submit_later};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_doctor_names_tasks_in_several_places() {
    let subject = PostgresSubject::at(|schema| PostgresServer::shared().url(schema)).await;
    let client = connect(&subject.place.schema).await;
    let s = Scene::on(Arc::new(subject));
    let twice = submit_later(&s, "damaged").await;
    let damage =
        "INSERT INTO ready SELECT 1000 + seq, seq, seq, 0, queue, lane, bits FROM deferred";
    client.batch_execute(damage).await.unwrap();
    let found = problems(&s, Depth::Full).await;
    let places = found.iter().find(|one| one.subject == "places").expect("found");
    for id in twice {
        let name = format!("{id} of queue damaged in several");
        assert!(places.text.contains(&name), "{name}: {places:?}");
    }
}

async fn check_lost_tasks_are_put_back(s: Scene, schema: &str) {
    let client = connect(schema).await;
    let ids = s.submit_all(std::iter::repeat_n(draft().queue("damaged"), 4)).await;
    let other = s.submit(draft().queue("sound")).await;
    let damage =
        "UPDATE ready SET hi = lo - 3 WHERE queue = (SELECT id FROM queue WHERE name = 'damaged')";
    client.batch_execute(damage).await.unwrap();
    let found = problems(&s, Depth::Full).await;
    let places = found.iter().find(|one| one.subject == "places").expect("found");
    for id in &ids {
        let name = format!("{id} of queue damaged in none");
        assert!(places.text.contains(&name), "{name}: {places:?}");
    }
    assert!(!places.text.contains(other.as_str()), "{places:?}");
    assert_eq!(problems(&s, Depth::Repair).await, []);
    let worker = s.worker().await;
    let quotas = vec![Quota::of(queue("damaged"), 4)];
    let mut claimed = Vec::new();
    while claimed.len() < ids.len() {
        let params = ClaimParams { quotas: quotas.clone(), ..claim_of(&worker, 4) };
        let tasks = s.store.claim(params).await.unwrap().tasks;
        assert!(!tasks.is_empty(), "only {claimed:?} of {ids:?}");
        claimed.extend(tasks.into_iter().map(|task| task.id));
    }
    assert_eq!(claimed, ids);
    assert_eq!(problems(&s, Depth::Full).await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repair_makes_tasks_in_no_place_pending_again() {
    let subject = PostgresSubject::at(|schema| PostgresServer::shared().url(schema)).await;
    let schema = subject.place.schema.clone();
    check_lost_tasks_are_put_back(Scene::on(Arc::new(subject)), &schema).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_broker_a_repair_makes_tasks_in_no_place_pending_again() {
    let server = RedisServer::start(Keeping::Nothing);
    let subject = HybridSubject::on(&[&server]).await;
    let schema = subject.ledger.schema.clone();
    check_lost_tasks_are_put_back(Scene::on(Arc::new(subject)), &schema).await;
}

async fn complete(s: &Scene, count: usize) {
    let ids = s.submit_many(count).await;
    let worker = s.worker().await;
    let mut done = 0;
    while done < ids.len() {
        let tasks = s.claim(&worker, count).await;
        done += tasks.len();
        let transitions = tasks.iter().map(|task| s.transition(task, completed())).collect();
        s.apply(&worker, transitions).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repair_makes_no_pruned_task_pending_again() {
    let subject = PostgresSubject::at(|schema| PostgresServer::shared().url(schema)).await;
    let client = connect(&subject.place.schema).await;
    let s = Scene::on(Arc::new(subject));
    complete(&s, 3).await;
    s.advance(HOUR * 2);
    assert_eq!(s.prune().await.done, 3);
    s.submit(draft()).await;
    client.batch_execute("DELETE FROM ready").await.unwrap();
    let found = problems(&s, Depth::Repair).await;
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].text, "1 tasks stand in no place or in several");
    let worker = s.worker().await;
    assert!(s.claim(&worker, 4).await.is_empty(), "nobody can tell which of the four was lost");
}

/// A task that is on its way from one place to another is in some place whenever a repair looks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repair_while_all_work_makes_nothing_pending_again() {
    let subject = PostgresSubject::at(|schema| PostgresServer::shared().url(schema)).await;
    let s = Scene::on(Arc::new(subject));
    let work = async {
        for _ in 0..60 {
            complete(&s, 10).await;
        }
    };
    let repairs = async {
        for _ in 0..20 {
            let findings = s.store.inspect(Depth::Repair).await.unwrap().findings;
            let places: Vec<_> = findings.iter().filter(|one| one.subject == "places").collect();
            assert!(places.is_empty(), "{places:?}");
        }
    };
    tokio::join!(work, repairs);
    assert_eq!(problems(&s, Depth::Full).await, []);
}
