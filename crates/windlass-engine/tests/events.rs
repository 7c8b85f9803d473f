//! Live events: what those who listen are told, of their own process and of others.

#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

use std::time::Duration;

use windlass_core::retry::Backoff;
use windlass_core::store::{Order, RunOrder};
use windlass_core::{QueueName, TaskId, When};
use windlass_engine::{
    Client, Configure, Context, EventFilter, Listener, Options, Outcome, Told, discard,
};
use windlass_testkit::Method;
use windlass_testkit::fleet::{Do, Fleet};

const SECOND: Duration = Duration::from_secs(1);

async fn listen(client: &Client, patterns: &[&str]) -> Listener {
    client.listen(EventFilter::of(patterns).unwrap(), None).await.unwrap()
}

fn data(told: &Told) -> serde_json::Value {
    serde_json::from_slice::<serde_json::Value>(&told.json).unwrap()["data"].take()
}

/// The names of the next events, and of which task.
async fn next(listener: &mut Listener, count: usize) -> Vec<(String, String)> {
    let mut told = Vec::new();
    for _ in 0..count {
        let next = tokio::time::timeout(SECOND * 60, listener.next()).await;
        let next = next.unwrap_or_else(|_| panic!("only {told:?}"));
        let task = data(&next)["task_id"].as_str().unwrap_or_default().to_owned();
        told.push((next.event.kind.to_string(), task));
    }
    told
}

async fn kinds(listener: &mut Listener, count: usize) -> Vec<String> {
    next(listener, count).await.into_iter().map(|(kind, _)| kind).collect()
}

/// Nothing more is told for a while.
async fn is_quiet(listener: &mut Listener) {
    let more = tokio::time::timeout(SECOND * 3, listener.next()).await;
    assert!(more.is_err(), "{more:?}");
}

async fn succeed(task: Do, _: Context<()>) -> Outcome<u64> {
    Ok(task.0)
}

fn in_order(ids: &[TaskId], told: &[(String, String)]) {
    for id in ids {
        let mine = told.iter().filter(|(_, task)| task == id.as_str());
        let kinds: Vec<_> = mine.map(|(kind, _)| kind.as_str()).collect();
        assert_eq!(kinds, ["task.submitted", "task.started", "task.completed"], "{id}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_is_told_from_its_submit_to_its_end() {
    let fleet = Fleet::new();
    let mut listener = listen(&fleet.client, &["task.*"]).await;
    let worker = fleet.client.worker().driven_by(fleet.clock.clone()).handle(succeed);
    let worker = worker.start().await.unwrap();
    let ids = fleet.submit_all(500).await;
    in_order(&ids, &next(&mut listener, 1_500).await);
    worker.stop().await.unwrap();
    is_quiet(&mut listener).await;
}

#[tokio::test(start_paused = true)]
async fn what_other_processes_do_is_told_in_order() {
    let fleet = Fleet::new();
    let (submits, works, listens) = (fleet.seat(), fleet.seat(), fleet.seat());
    let worker = works.worker().handle(succeed).start().await.unwrap();
    let mut listener = listen(&listens.client, &["task.*"]).await;
    let mut ids = Vec::new();
    for n in 0..300 {
        ids.push(submits.client.enqueue(Do(n)).await.unwrap().id().clone());
    }
    in_order(&ids, &next(&mut listener, 900).await);
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn while_nobody_listens_nothing_is_published_and_it_is_asked_once_a_second() {
    let fleet = Fleet::new();
    let seat = fleet.seat();
    let worker = seat.worker().handle(succeed).start().await.unwrap();
    let began = tokio::time::Instant::now();
    for n in 0..200 {
        seat.client.enqueue(Do(n)).await.unwrap().wait().await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let seconds = began.elapsed().as_secs() + 1;
    worker.stop().await.unwrap();
    assert_eq!(seat.faults.calls(Method::Publish), 0);
    let asked = seat.faults.calls(Method::Load);
    // Its upkeep reads a few documents besides, of statistics and audit.
    assert!((1..=seconds + 1 + 8).contains(&asked), "{asked} in {seconds} s");
}

#[tokio::test(start_paused = true)]
async fn a_failing_task_tells_of_each_failure_and_of_its_end() {
    let fleet = Fleet::new();
    let mut listener = listen(&fleet.client, &["task.*"]).await;
    let fail =
        async |_: Do, _: Context<()>| -> Outcome<u64> { Err(std::io::Error::other("boom").into()) };
    let worker = fleet.worker().handle(fail).start().await.unwrap();
    let backoff = Backoff::Fixed { initial: SECOND, jitter: 0.0 };
    fleet.submit_with(1, Options::new().max_retries(1).backoff(backoff)).await;
    assert_eq!(kinds(&mut listener, 2).await, ["task.submitted", "task.started"]);
    let failed = listener.next().await;
    let told = data(&failed);
    assert_eq!((failed.event.kind.as_str(), &told["will_retry"]), ("task.failed", &true.into()));
    assert!(told["error"].as_str().unwrap().contains("boom"), "{told}");
    let retrying = data(&*listener.next().await);
    assert_eq!((&retrying["state"], &retrying["delay_ms"]), (&"retrying".into(), &1_000.into()));
    assert_eq!(kinds(&mut listener, 1).await, ["task.started"]);
    assert_eq!(data(&*listener.next().await)["will_retry"], false);
    assert_eq!(kinds(&mut listener, 1).await, ["task.dead_letter"]);
    worker.stop().await.unwrap();
    is_quiet(&mut listener).await;
}

#[tokio::test(start_paused = true)]
async fn what_operators_do_is_told_and_what_is_refused_is_not() {
    let fleet = Fleet::new();
    let mut listener = listen(&fleet.client, &["task.*"]).await;
    let elsewhere = fleet.seat().client;
    let first = elsewhere.enqueue(Do(1)).idempotency_key("k").await.unwrap();
    elsewhere.enqueue(Do(1)).idempotency_key("k").await.unwrap();
    elsewhere.cancel(first.id()).await.unwrap();
    elsewhere.cancel(first.id()).await.unwrap();
    assert_eq!(kinds(&mut listener, 2).await, ["task.submitted", "task.cancelled"]);
    elsewhere.rerun(first.id()).await.unwrap();
    let retrying = listener.next().await;
    assert_eq!(retrying.event.kind.as_str(), "task.retrying");
    assert_eq!(data(&retrying)["state"], "pending");
    elsewhere.reschedule(first.id(), When::After(SECOND * 70)).await.unwrap();
    let snoozed = data(&*listener.next().await);
    assert_eq!((&snoozed["state"], &snoozed["delay_ms"]), (&"scheduled".into(), &70_000.into()));
    is_quiet(&mut listener).await;
}

#[tokio::test(start_paused = true)]
async fn progress_is_told_with_the_task_that_makes_it() {
    let fleet = Fleet::with("[worker]\nheartbeat = \"1s\"");
    let seat = fleet.seat();
    let slow = async |_: Do, cx: Context<()>| -> Outcome<u64> {
        cx.progress(0.5, "half").await;
        tokio::time::sleep(SECOND * 5).await;
        Ok(1)
    };
    let worker = seat.worker().handle(slow).start().await.unwrap();
    let mut listener = listen(&fleet.client, &["task.progress", "task.completed"]).await;
    let task = fleet.submit(1).await;
    let told = listener.next().await;
    let told = data(&told);
    assert_eq!((&told["progress"], &told["note"]), (&0.5.into(), &"half".into()), "{told}");
    assert_eq!((&told["task_id"], &told["queue"]), (&task.id().as_str().into(), &"default".into()));
    assert_eq!(kinds(&mut listener, 1).await, ["task.completed"]);
    worker.stop().await.unwrap();
}

fn of_mail(order: RunOrder) -> Order {
    Order::Queue { queue: QueueName::new("mail").unwrap(), order }
}

#[tokio::test(start_paused = true)]
async fn queues_and_workers_are_told_when_they_change() {
    let fleet = Fleet::new();
    let mut listener = listen(&fleet.client, &["worker.*", "queue.*"]).await;
    let elsewhere = fleet.seat();
    let worker = elsewhere.worker().handle(succeed).start().await.unwrap();
    assert_eq!(kinds(&mut listener, 1).await, ["worker.joined"]);
    elsewhere.client.watched().order(of_mail(RunOrder::Pause)).await.unwrap();
    assert_eq!(kinds(&mut listener, 2).await, ["queue.paused", "queue.depth"]);
    elsewhere.client.watched().order(of_mail(RunOrder::Run)).await.unwrap();
    assert_eq!(kinds(&mut listener, 1).await, ["queue.resumed"]);
    let id = fleet.alive().await[0].id.clone();
    for (order, kind) in [(RunOrder::Pause, "worker.paused"), (RunOrder::Run, "worker.resumed")] {
        let order = Order::Worker { worker: id.clone(), order };
        fleet.client.watched().order(order).await.unwrap();
        assert_eq!(kinds(&mut listener, 1).await, [kind]);
    }
    worker.stop().await.unwrap();
    assert_eq!(kinds(&mut listener, 1).await, ["worker.left"]);
    is_quiet(&mut listener).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_done_past_windlass_is_found_in_the_figures_and_told_once() {
    let fleet = Fleet::new();
    let leads = fleet.worker().handle(succeed).start().await.unwrap();
    let wanted = ["worker.*", "queue.paused", "queue.resumed"];
    let mut listener = listen(&fleet.client, &wanted).await;
    // As by SQL, or by a Go program: right in the store, so that nobody tells.
    for (order, kind) in [(RunOrder::Pause, "queue.paused"), (RunOrder::Run, "queue.resumed")] {
        fleet.store.order(of_mail(order)).await.unwrap();
        assert_eq!(kinds(&mut listener, 1).await, [kind]);
    }
    // A process that cannot tell others, and then ends without a word.
    let mute = fleet.seat();
    mute.faults.fail(Method::Load, 1_000, windlass_core::ErrorKind::Unavailable);
    let worker = mute.worker().handle(succeed).start().await.unwrap();
    assert_eq!(kinds(&mut listener, 1).await, ["worker.joined"]);
    mute.faults.go_away();
    let (ended, left) = tokio::join!(worker.stop(), kinds(&mut listener, 1));
    assert!(ended.is_err() && left == ["worker.left"], "{ended:?} {left:?}");
    is_quiet(&mut listener).await;
    leads.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_order_that_cannot_be_told_is_given_all_the_same_and_is_a_gap() {
    let fleet = Fleet::new();
    let (seat, wanted) = (fleet.seat(), ["queue.paused", "queue.resumed"]);
    let mut here = listen(&seat.client, &wanted).await;
    let mut there = listen(&fleet.client, &wanted).await;
    let order = async |order| seat.client.watched().order(of_mail(order)).await.unwrap();
    seat.faults.fail(Method::Publish, 1, windlass_core::ErrorKind::Unavailable);
    order(RunOrder::Pause).await;
    for listener in [&mut here, &mut there] {
        assert_eq!(kinds(listener, 1).await, ["gap"]);
    }
    // What those who listen know is in doubt: the next word is told, whatever it says.
    order(RunOrder::Run).await;
    for listener in [&mut here, &mut there] {
        assert_eq!(kinds(listener, 1).await, ["queue.resumed"]);
    }
    seat.faults.hold(Method::Publish);
    order(RunOrder::Pause).await;
    assert!(fleet.store.queues().await.unwrap()[0].is_paused);
    seat.faults.release(Method::Publish);
    for listener in [&mut here, &mut there] {
        assert_eq!(kinds(listener, 1).await, ["queue.paused"]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_told_is_a_gap_and_then_it_goes_on() {
    let fleet = Fleet::new();
    let (seat, mut listener) = (fleet.seat(), listen(&fleet.client, &["task.*"]).await);
    seat.client.enqueue(Do(1)).await.unwrap();
    assert_eq!(kinds(&mut listener, 1).await, ["task.submitted"]);
    seat.faults.fail(Method::Publish, 3, windlass_core::ErrorKind::Unavailable);
    seat.client.enqueue(Do(2)).await.unwrap();
    assert_eq!(kinds(&mut listener, 1).await, ["gap"]);
    seat.client.enqueue(Do(3)).await.unwrap();
    assert_eq!(kinds(&mut listener, 1).await, ["task.submitted"]);
}

#[tokio::test(start_paused = true)]
async fn who_could_not_say_that_it_listens_is_told_of_a_gap_and_then_everything_again() {
    let fleet = Fleet::new();
    let (listens, seat) = (fleet.seat(), fleet.seat());
    let mut listener = listen(&listens.client, &["task.*"]).await;
    seat.client.enqueue(Do(0)).await.unwrap();
    assert_eq!(kinds(&mut listener, 1).await, ["task.submitted"]);
    listens.faults.go_away();
    // The other one looks once a second, as long as it has something to tell.
    for n in 1..=30 {
        tokio::time::sleep(SECOND).await;
        seat.client.enqueue(Do(n)).await.unwrap();
    }
    listens.faults.come_back();
    let mut told = kinds(&mut listener, 1).await;
    while told == ["task.submitted"] {
        told = kinds(&mut listener, 1).await;
    }
    assert_eq!(told, ["gap"]);
    seat.client.enqueue(Do(99)).await.unwrap();
    assert_eq!(kinds(&mut listener, 1).await, ["task.submitted"]);
}

#[tokio::test(start_paused = true)]
async fn who_comes_back_goes_on_after_the_last_event_seen() {
    let fleet = Fleet::new();
    let mut listener = listen(&fleet.client, &["task.*"]).await;
    fleet.submit_all(3).await;
    let seen = listener.next().await;
    drop(listener);
    tokio::time::sleep(SECOND).await;
    let again = async |id: &str| fleet.client.listen(EventFilter::all(), Some(id)).await.unwrap();
    let mut listener = again(&seen.id).await;
    assert_eq!(kinds(&mut listener, 2).await, ["task.submitted"; 2]);
    drop(listener);
    tokio::time::sleep(SECOND * 20).await;
    fleet.submit(4).await;
    let mut late = again(&seen.id).await;
    assert_eq!(kinds(&mut late, 1).await, ["gap"], "nobody listened in between");
}

#[tokio::test(start_paused = true)]
async fn a_discarded_run_fails_for_good() {
    let fleet = Fleet::new();
    let mut listener = listen(&fleet.client, &["task.failed", "task.dead_letter"]).await;
    let throw_away = async |_: Do, _: Context<()>| -> Outcome<u64> { Err(discard("no use")) };
    let worker = fleet.worker().handle(throw_away).start().await.unwrap();
    fleet.submit(1).await;
    assert_eq!(kinds(&mut listener, 2).await, ["task.failed", "task.dead_letter"]);
    worker.stop().await.unwrap();
}
