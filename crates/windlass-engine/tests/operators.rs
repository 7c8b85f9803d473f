//! Queues and tasks in the hands of an operator, through the client.

use std::time::Duration;

use windlass_core::{ErrorKind, State};
use windlass_engine::{Configure, Context, Options};
use windlass_testkit::fleet::{Do, Fleet};

/// More tasks than one call of the store changes.
const MANY: u64 = 1_200;

#[tokio::test(start_paused = true)]
async fn paused_queue_shows_it_until_it_is_resumed() {
    let fleet = Fleet::new();
    let queue = fleet.client.queue("mail");
    assert!(queue.record().await.unwrap().is_none());
    queue.pause().await.unwrap();
    assert!(queue.record().await.unwrap().unwrap().is_paused);
    queue.resume().await.unwrap();
    assert!(!queue.record().await.unwrap().unwrap().is_paused);
}

#[tokio::test(start_paused = true)]
async fn purge_removes_what_waits_in_this_queue_only() {
    let fleet = Fleet::new();
    fleet.submit_all(MANY).await;
    let kept = fleet.submit_with(0, Options::new().queue("other")).await;
    let later = Options::new().delay(Duration::from_secs(60));
    fleet.submit_with(1, later).await;
    let counts = fleet.client.queue("default").purge().await.unwrap();
    assert_eq!((counts.changed_count, counts.requested_count), (MANY + 1, 0));
    assert_eq!(fleet.record(kept.id()).await.state, State::Pending);
    assert!(fleet.client.queue("default").tasks().list(10).await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn query_lists_and_changes_exactly_what_it_names() {
    let fleet = Fleet::new();
    for number in 0..3 {
        fleet.submit_with(number, Options::new().queue("mail").tag("red")).await;
    }
    let blue = fleet.submit_with(3, Options::new().queue("mail").tag("blue")).await;
    let red = fleet.client.tasks().queue("mail").kind("do").tag("red");
    assert_eq!(red.clone().list(2).await.unwrap().len(), 2, "no more than asked for");
    assert_eq!(red.clone().list(10).await.unwrap().len(), 3);
    assert_eq!(red.clone().cancel().await.unwrap().changed_count, 3);
    assert_eq!(red.clone().state(State::Pending).list(10).await.unwrap().len(), 0);
    assert_eq!(red.clone().rerun().await.unwrap().changed_count, 3);
    assert_eq!(red.delete().await.unwrap().changed_count, 3);
    assert_eq!(fleet.record(blue.id()).await.state, State::Pending);
}

#[tokio::test(start_paused = true)]
async fn list_goes_on_over_pages() {
    let fleet = Fleet::new();
    fleet.submit_all(MANY).await;
    let tasks = fleet.client.tasks().list(1_100).await.unwrap();
    assert_eq!(tasks.len(), 1_100);
}

#[tokio::test(start_paused = true)]
async fn wrong_name_is_reported_by_the_call() {
    let fleet = Fleet::new();
    let tasks = fleet.client.tasks().queue("no queue");
    assert_eq!(tasks.list(1).await.unwrap_err().kind(), ErrorKind::Invalid);
    let error = fleet.client.queue("{x}").pause().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[tokio::test(start_paused = true)]
async fn worker_reports_with_a_heartbeat_that_it_leads() {
    let fleet = Fleet::new();
    let worker =
        fleet.worker().handle(|_: Do, _: Context<()>| async { Ok(1) }).start().await.unwrap();
    tokio::time::sleep(Duration::from_secs(6)).await;
    let [record] = &fleet.store.workers().await.unwrap()[..] else { panic!("one worker") };
    assert!(record.card.is_leader);
    worker.stop().await.unwrap();
}
