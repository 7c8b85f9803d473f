//! Live events of queues and workers: whoever gives an order, joins, obeys or leaves is told of, in its order.
//! (Those of tasks are made of answers that other rules ask for.)

use std::time::Duration;

use windlass_core::WorkerId;
use windlass_core::store::{Order, RunOrder};
use windlass_engine::{Client, EventFilter, Listener};

use crate::scene::Scene;

/// How long an event may take that surely comes.
const PATIENCE: Duration = Duration::from_secs(20);

/// A process of its own on the same data.
async fn process(s: &Scene) -> (Scene, Client) {
    let mut scene = s.elsewhere().await;
    let client = Client::new(scene.store.clone());
    scene.store = client.watched().clone();
    (scene, client)
}

async fn listen(client: &Client, patterns: &[&str]) -> Listener {
    client.listen(EventFilter::of(patterns).unwrap(), None).await.unwrap()
}

/// The next event, and whom it is about.
async fn next(listener: &mut Listener) -> (String, String) {
    let told = tokio::time::timeout(PATIENCE, listener.next()).await.expect("more is told");
    let json: serde_json::Value = serde_json::from_slice(&told.json).unwrap();
    let about = |field: &str| json["data"][field].as_str().map(ToOwned::to_owned);
    let about = about("queue").or_else(|| about("worker_id")).unwrap_or_default();
    (told.event.kind.to_string(), about)
}

async fn hears(listener: &mut Listener, kind: &str, about: &str) {
    assert_eq!(next(listener).await, (kind.to_owned(), about.to_owned()));
}

async fn order_worker(s: &Scene, worker: &WorkerId, order: RunOrder) {
    let worker = worker.clone();
    s.store.order(Order::Worker { worker, order }).await.unwrap();
}

pub async fn every_pause_and_resume_of_a_queue_is_told_in_order_whoever_gives_it(s: Scene) {
    let ((here, client), (there, _), (third, _)) =
        (process(&s).await, process(&s).await, process(&s).await);
    let mut listener = listen(&client, &["queue.paused", "queue.resumed"]).await;
    for (pauses, resumes) in
        [(&there, &there), (&here, &here), (&there, &here), (&here, &there), (&there, &third)]
    {
        pauses.order_queue("mail", RunOrder::Pause).await;
        resumes.order_queue("mail", RunOrder::Run).await;
    }
    for _ in 0..5 {
        hears(&mut listener, "queue.paused", "mail").await;
        hears(&mut listener, "queue.resumed", "mail").await;
    }
}

pub async fn an_order_that_a_queue_obeys_already_is_not_told(s: Scene) {
    let ((here, client), (there, _)) = (process(&s).await, process(&s).await);
    here.order_queue("paused", RunOrder::Pause).await;
    let mut listener = listen(&client, &["queue.paused", "queue.resumed"]).await;
    for s in [&here, &there] {
        s.order_queue("paused", RunOrder::Pause).await;
        s.order_queue("new", RunOrder::Run).await;
        s.order_queue("mail", RunOrder::Pause).await;
    }
    there.order_queue("last", RunOrder::Pause).await;
    hears(&mut listener, "queue.paused", "mail").await;
    hears(&mut listener, "queue.paused", "last").await;
}

pub async fn a_worker_is_told_when_it_joins_obeys_and_leaves(s: Scene) {
    let ((here, client), (there, _)) = (process(&s).await, process(&s).await);
    let old = there.worker().await;
    let mut listener = listen(&client, &["worker.*"]).await;
    for (works, orders) in [(&there, &here), (&here, &there)] {
        // A worker that was there before has not joined, whoever speaks for it next.
        works.beat(&old).await;
        let worker = works.worker().await;
        hears(&mut listener, "worker.joined", worker.as_str()).await;
        for (order, kind) in [(RunOrder::Pause, "worker.paused"), (RunOrder::Run, "worker.resumed")]
        {
            order_worker(orders, &worker, order).await;
            works.beat(&worker).await;
            works.beat(&worker).await;
            hears(&mut listener, kind, worker.as_str()).await;
        }
        works.leave(&worker).await;
        works.leave(&worker).await;
        hears(&mut listener, "worker.left", worker.as_str()).await;
    }
}

pub async fn a_worker_that_is_declared_lost_has_left(s: Scene) {
    let ((_, client), (there, _)) = (process(&s).await, process(&s).await);
    let mut listener = listen(&client, &["worker.*"]).await;
    let worker = there.worker().await;
    hears(&mut listener, "worker.joined", worker.as_str()).await;
    there.lose_all_workers().await;
    hears(&mut listener, "worker.left", worker.as_str()).await;
}
