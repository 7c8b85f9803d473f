//! Asynqmon, the `asynq` command line and a Go inspector on what windlass wrote.

use std::time::Duration;

use futures_util::StreamExt;
use windlass_core::store::{Action, Beat, Changed, WaitParams, Wake, WorkerCard};
use windlass_core::{QueueName, State};
use windlass_testkit::asynq::{GoError, GoServer, GoTask, Shelf};
use windlass_testkit::draft::{draft, held_for};
use windlass_testkit::scene::{completed, failed};

use crate::ground::Ground;

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn tasks_of_windlass_are_listed_in_every_state() {
    let ground = Ground::fresh().await;
    ground.strike();
    let scene = ground.scene().await;
    let states =
        [State::Running, State::Retrying, State::DeadLetter, State::Completed, State::Cancelled];
    let mut ids = Vec::new();
    for state in states {
        ids.push(scene.bring(draft(), state).await);
    }
    let later = scene.submit(draft().after(HOUR)).await;
    let waiting = scene.submit(draft()).await;
    let peer = &ground.peer;
    for (shelf, expected) in [
        (Shelf::Active, &ids[0..1]),
        (Shelf::Retry, &ids[1..2]),
        (Shelf::Completed, &ids[3..4]),
        (Shelf::Scheduled, std::slice::from_ref(&later)),
        (Shelf::Pending, std::slice::from_ref(&waiting)),
    ] {
        let listed = peer.list("main", shelf).await.unwrap();
        let listed: Vec<_> = listed.iter().map(|found| found.message.id.as_str()).collect();
        let expected: Vec<_> = expected.iter().map(|id| id.as_str()).collect();
        assert_eq!(listed, expected, "{shelf:?}");
    }
    assert_eq!(peer.list("main", Shelf::Archived).await.unwrap().len(), 2, "dead and cancelled");
    let stats = peer.stats("main").await.unwrap();
    assert_eq!((stats.pending, stats.active, stats.scheduled), (1, 1, 1));
    assert_eq!((stats.retry, stats.archived, stats.completed), (1, 2, 1));
    assert_eq!(stats.today, (3, 2), "a success and two failures have ended");
    assert!(peer.memory_usage("main").await.unwrap() > 0);
    let info = peer.task_info("main", ids[1].as_str()).await.unwrap();
    assert_eq!((info.message.error_msg.as_str(), info.message.retried), ("first try", 1));
    assert_eq!(info.next_process_at, ground.seconds() + 10);
    assert!(!peer.list("main", Shelf::Active).await.unwrap()[0].is_orphaned);
    ground.sound("in every state").await;
}

#[tokio::test]
async fn the_inspector_runs_archives_and_deletes_tasks_of_windlass() {
    let ground = Ground::fresh().await;
    let scene = ground.scene().await;
    let peer = &ground.peer;
    let dead = scene.bring(draft(), State::DeadLetter).await;
    let retrying = scene.bring(draft(), State::Retrying).await;
    let running = scene.start(draft()).await;
    let later = scene.submit(draft().after(HOUR)).await;
    let unique = scene.submit(draft().unique(held_for("key", HOUR)).payload("{\"a\":1}")).await;
    for (id, state) in
        [(&dead, State::DeadLetter), (&retrying, State::Retrying), (&later, State::Scheduled)]
    {
        scene.expect(id, state, "before it is run").await;
        peer.run_task("main", id.as_str()).await.unwrap();
        scene.expect(id, State::Pending, "after `asynq task run`").await;
    }
    assert_eq!(peer.run_task("main", running.id.as_str()).await, Err(GoError::WrongState));
    assert_eq!(peer.delete_task("main", running.id.as_str()).await, Err(GoError::WrongState));
    peer.archive_task("main", later.as_str()).await.unwrap();
    scene.expect(&later, State::DeadLetter, "after `asynq task archive`").await;
    peer.delete_task("main", unique.as_str()).await.unwrap();
    scene.expect_gone(&unique, "after `asynq task delete`").await;
    scene.submit(draft().unique(held_for("key", HOUR)).payload("{\"a\":1}")).await;
    ground.sound("after the inspector").await;
    let worker = scene.worker().await;
    assert_eq!(scene.claim(&worker, 9).await.len(), 3, "the dead, the retrying, the unique one");
    scene.finish_as(&running, completed(), State::Completed).await;
    assert_eq!(peer.run_all("main", Shelf::Archived).await, Ok(1));
    assert_eq!(peer.archive_all("main", Shelf::Pending).await, Ok(1));
    assert_eq!(peer.delete_all("main", Shelf::Archived).await, Ok(1));
    scene.expect_gone(&later, "after `asynq task deleteall`").await;
    scene.books_balance("after the inspector").await;
    ground.sound("after all that").await;
}

#[tokio::test]
async fn a_queue_that_go_pauses_gives_nothing_and_one_that_is_removed_is_gone() {
    let ground = Ground::fresh().await;
    let scene = ground.scene().await;
    let id = scene.submit(draft()).await;
    let worker = scene.worker().await;
    assert!(ground.peer.pause("main").await);
    assert!(scene.claim(&worker, 1).await.is_empty());
    assert!(scene.queue("main").await.unwrap().is_paused);
    assert!(ground.peer.resume("main").await);
    scene.order_queue("main", windlass_core::store::RunOrder::Pause).await;
    let server = GoServer::start(ground.peer.clone(), ("go", 1, "go"), &[("main", 1)]);
    assert!(server.dequeue(&["main"]).await.is_none());
    assert!(ground.peer.stats("main").await.unwrap().is_paused);
    assert_eq!(ground.peer.remove_queue("main", false).await, Err(GoError::QueueNotEmpty));
    ground.peer.remove_queue("main", true).await.unwrap();
    scene.expect_gone(&id, "after `asynq queue remove`").await;
    // A process that knew the queue puts it on record again within a minute (one in Go never does); another at once.
    ground.scene().await.submit(draft()).await;
    ground.peer.stats("main").await.unwrap();
}

#[tokio::test]
async fn a_worker_of_windlass_is_listed_with_what_it_runs() {
    let ground = Ground::fresh().await;
    let scene = ground.scene().await;
    let queue = |name| QueueName::new(name).unwrap();
    let card = WorkerCard {
        host: "machine".into(),
        pid: 4_711,
        queues: vec![queue("main"), queue("low")],
        is_strict: true,
        slots: 64,
        slots_used: 1,
        ..WorkerCard::default()
    };
    let worker = scene.new_worker_id();
    let beat = Beat { card, ..scene.sign(&worker) };
    scene.store.beat(beat.clone()).await.unwrap();
    let id = scene.submit(draft().kind("email:welcome").payload("{\"a\":1}")).await;
    let run = scene.take(&worker, &id).await;
    scene.store.beat(beat).await.unwrap();
    let servers = ground.peer.servers().await;
    let (server, workers) =
        servers.iter().find(|(server, _)| server.host == "machine").expect("it should be listed");
    assert_eq!((server.pid, server.concurrency, server.status.as_str()), (4_711, 64, "active"));
    // Served in order: asynq's tools take the heavier for the earlier.
    assert!(server.strict_priority);
    assert_eq!(server.queues, [("main".to_owned(), 2), ("low".to_owned(), 1)].into());
    assert_eq!(server.active_worker_count, 1);
    let [worker] = &workers[..] else { panic!("one run should be listed: {workers:?}") };
    assert_eq!(worker.task_id, run.id.as_str());
    assert_eq!((worker.task_type.as_str(), worker.queue.as_str()), ("email:welcome", "main"));
    assert_eq!(worker.task_payload, b"{\"a\":1}");
    let ends = worker.deadline.unwrap().seconds - worker.start_time.unwrap().seconds;
    assert_eq!(ends, 300, "its timeout");
    for key in ground.peer.dump().await.0.keys().filter(|key| key.starts_with("asynq:servers:")) {
        assert!((1..=10).contains(&ground.peer.ttl(key).await), "{key} goes by itself");
    }
    scene.leave(&run.worker).await;
    let left: Vec<_> =
        ground.peer.servers().await.into_iter().map(|(server, _)| server.host).collect();
    assert!(!left.contains(&"machine".to_owned()), "it has left: {left:?}");
}

#[tokio::test]
async fn a_server_of_go_is_shown_among_the_workers() {
    let ground = Ground::fresh().await;
    let scene = ground.scene().await;
    let own = scene.worker().await;
    let queues = [("low", 1), ("critical", 6)];
    let server = GoServer::start(ground.peer.clone(), ("machine", 7, "go-1"), &queues);
    ground.peer.enqueue(&GoTask::new("kind", "").queue("low")).await.unwrap();
    server.dequeue(&["low"]).await.unwrap();
    server.beat().await;
    let workers = scene.store.workers().await.unwrap();
    let ids: Vec<_> = workers.iter().map(|worker| worker.id.as_str()).collect();
    assert_eq!(ids, [own.as_str(), "go-1"], "ours is not told twice");
    let card = &workers[1].card;
    assert_eq!((card.host.as_str(), card.pid, card.name.as_str()), ("machine", 7, "asynq"));
    let served: Vec<_> = card.queues.iter().map(QueueName::as_str).collect();
    assert_eq!((served, &card.weights[..]), (vec!["critical", "low"], &[6, 1][..]));
    assert_eq!((card.slots, card.slots_used, workers[1].is_gone), (4, 1, false));
    ground.advance(Duration::from_secs(11));
    let left = scene.store.workers().await.unwrap();
    assert_eq!(left.len(), 1, "it has said nothing for two of its beats");
}

#[tokio::test]
async fn a_cancel_by_go_reaches_the_worker_that_runs_the_task() {
    let ground = Ground::alone().await;
    let scene = ground.scene().await;
    let run = scene.start(draft()).await;
    let orders = scene.beat(&run.worker).await;
    let params = WaitParams {
        orders: Some(run.worker.clone()),
        since: Some(orders.mark),
        at_most: Duration::from_secs(20),
        ..WaitParams::default()
    };
    let store = scene.store.clone();
    let waiting = tokio::spawn(async move { store.wait(params).await.unwrap() });
    // A message without a listener is lost, in asynq as well: the worker listens since it has beaten.
    while ground.peer.cancel(run.id.as_str()).await == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(waiting.await.unwrap(), Wake::Orders);
    assert_eq!(scene.beat(&run.worker).await.cancels, [run.lease()]);
    scene.finish_as(&run, failed("stopped"), State::Cancelled).await;
    ground.sound("after the cancel").await;
    assert_eq!(ground.peer.task_info("main", run.id.as_str()).await.unwrap().state, "archived");
}

#[tokio::test]
async fn a_pause_by_go_is_listed_by_the_next_beat() {
    let ground = Ground::alone().await;
    let scene = ground.scene().await;
    scene.submit(draft()).await;
    let worker = scene.worker().await;
    assert!(ground.peer.pause("main").await);
    let paused = scene.beat_serving(&worker, &["main"]).await.paused_queues;
    assert_eq!(paused, [QueueName::stored("main")]);
    assert!(ground.peer.resume("main").await);
    assert_eq!(scene.beat_serving(&worker, &["main"]).await.paused_queues, []);
}

#[tokio::test]
async fn a_cancel_by_windlass_reaches_go() {
    let ground = Ground::alone().await;
    let scene = ground.scene().await;
    ground.peer.enqueue(&GoTask::new("kind", "").id("one")).await.unwrap();
    let server = GoServer::start(ground.peer.clone(), ("go", 1, "go"), &[("default", 1)]);
    let run = server.dequeue(&["default"]).await.unwrap();
    let mut heard = ground.peer.cancels().await;
    let id = windlass_core::TaskId::new("one");
    assert_eq!(scene.change(&id, Action::Cancel).await, Changed::Requested);
    let message = heard.on_message().next().await.unwrap();
    assert_eq!(message.get_payload::<String>().unwrap(), "one");
    // In Go the run then fails, and is tried again; windlass has not forgotten the request.
    server.fail(&run, "context canceled", 15).await.unwrap();
    ground.advance(Duration::from_secs(15));
    scene.promote().await;
    let worker = scene.worker().await;
    let again = scene.take(&worker, &id).await;
    assert!(again.is_cancel_requested);
    scene.finish_as(&again, failed("stopped"), State::Cancelled).await;
    ground.sound("after the cancel").await;
}
