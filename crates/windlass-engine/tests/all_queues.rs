//! A worker that serves all queues, those too that come later.

#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

use std::time::Duration;

use windlass_core::store::{Order, RunOrder};
use windlass_core::{ErrorKind, QueueName};
use windlass_engine::{Configure, Context, Options, Worker};
use windlass_testkit::Method;
use windlass_testkit::fleet::{Do, Fleet, Seat};

const SECOND: Duration = Duration::from_secs(1);

fn in_queue(queue: &str) -> Options {
    Options::new().queue(queue)
}

async fn serve_all(fleet: &Fleet, seat: &Seat) -> Worker {
    let handle = |task: Do, _: Context<()>| async move { Ok(task.0) };
    let worker = seat.worker().handle(handle).all_queues().start().await.unwrap();
    // Idle for so long that a wait for work is under way.
    tokio::time::sleep(SECOND * 13).await;
    assert_eq!(queues_on_card(fleet).await, ["default"]);
    worker
}

async fn queues_on_card(fleet: &Fleet) -> Vec<String> {
    fleet.alive().await[0].card.queues.iter().map(ToString::to_string).collect()
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_appears_later_is_served_within_five_seconds_and_then_at_once() {
    let fleet = Fleet::new();
    let worker = serve_all(&fleet, &fleet.seat()).await;
    for (queue, at_most) in [("mail", SECOND * 5), ("mail", SECOND / 100), ("a", SECOND * 5)] {
        let submitted = tokio::time::Instant::now();
        fleet.submit_with(7, in_queue(queue)).await.wait().await.unwrap();
        assert!(submitted.elapsed() <= at_most, "{queue}: {:?}", submitted.elapsed());
        tokio::time::sleep(SECOND * 6).await;
    }
    assert_eq!(queues_on_card(&fleet).await, ["default", "a", "mail"]);
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn queues_that_are_there_already_are_served_from_the_start() {
    let fleet = Fleet::new();
    let task = fleet.submit_with(7, in_queue("mail")).await;
    let handle = |task: Do, _: Context<()>| async move { Ok(task.0) };
    let began = tokio::time::Instant::now();
    let worker = fleet.worker().handle(handle).queue("soon", 3).all_queues().start().await.unwrap();
    task.wait().await.unwrap();
    assert!(began.elapsed() < SECOND, "{:?}", began.elapsed());
    // Named or by default, without ever having had a task.
    for queue in ["soon", "default"] {
        let began = tokio::time::Instant::now();
        fleet.submit_with(7, in_queue(queue)).await.wait().await.unwrap();
        assert!(began.elapsed() < SECOND, "{queue}: {:?}", began.elapsed());
    }
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_look_for_queues_that_fails_is_repeated() {
    for kind in [ErrorKind::Unavailable, ErrorKind::Corrupt, ErrorKind::Invalid] {
        let fleet = Fleet::new();
        let seat = fleet.seat();
        let worker = serve_all(&fleet, &seat).await;
        seat.faults.fail(Method::Queues, 2, kind);
        let submitted = tokio::time::Instant::now();
        fleet.submit_with(7, in_queue("mail")).await.wait().await.unwrap();
        assert!(!seat.faults.is_planned(Method::Queues), "it has failed");
        assert!(submitted.elapsed() <= SECOND * 15, "{:?}", submitted.elapsed());
        worker.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_with_a_name_that_nobody_may_choose_is_served_and_hurts_no_other() {
    let fleet = Fleet::new();
    let worker = serve_all(&fleet, &fleet.seat()).await;
    let long = "long".repeat(1_000);
    let names = ["default", "", "'; DROP", "a\0b", &long, "{odd} name"];
    for name in &names[1..] {
        let (queue, order) = (QueueName::stored(name), RunOrder::Run);
        fleet.store.order(Order::Queue { queue, order }).await.unwrap();
    }
    tokio::time::sleep(SECOND * 11).await;
    assert_eq!(queues_on_card(&fleet).await, names);
    fleet.submit(7).await.wait().await.unwrap();
    worker.stop().await.unwrap();
}
