//! Workers and clients of windlass beside Go's asynq, on the server's own clock: wake-ups, presence, cancels.

#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;
use windlass::core::SystemClock;
use windlass::core::config::Config;
use windlass::prelude::*;
use windlass_testkit::RedisServer;
use windlass_testkit::asynq::{GoServer, GoTask, Peer, audit};
use windlass_testkit::servers::redis::Keeping;

/// Longest that anything here may take; it is a matter of milliseconds.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Serialize, Deserialize)]
struct Greet {
    name: String,
}

impl Task for Greet {
    const KIND: &'static str = "greet";
    type Output = String;
}

async fn stage() -> (RedisServer, Client, Peer) {
    let server = RedisServer::start(Keeping::Nothing);
    let address = format!("127.0.0.1:{}/0", server.port());
    let url = format!("redis+asynq://{address}?durability=fast");
    let mut config = Config::default();
    config.worker.heartbeat = Duration::from_millis(200);
    let client = Client::with_config(windlass::open(&url).await.unwrap(), config);
    let peer = Peer::connect(&format!("redis://{address}"), Arc::new(SystemClock)).await;
    (server, client, peer)
}

#[tokio::test]
async fn an_idle_worker_notices_what_go_enqueues() {
    let (_server, client, peer) = stage().await;
    let (tell, mut told) = mpsc::unbounded_channel();
    let greet = move |task: Greet, _: Context<()>| {
        let _ = tell.send(task.name.clone());
        async move { Ok(format!("hello, {}", task.name)) }
    };
    let worker = client.worker().handle(greet).queue("default", 1).queue("other", 1);
    let worker = worker.concurrency(4).start().await.unwrap();
    for queue in ["default", "other", "default"] {
        let task =
            GoTask { retention_s: 60, ..GoTask::new("greet", "{\"name\":\"Go\"}").queue(queue) };
        let message = peer.enqueue(&task).await.unwrap();
        assert_eq!(timeout(PATIENCE, told.recv()).await.unwrap().as_deref(), Some("Go"));
        let handle = client.handle::<Greet>(windlass::TaskId::new(&message.id));
        assert_eq!(timeout(PATIENCE, handle.wait()).await.unwrap().unwrap(), "hello, Go");
        let info = peer.task_info(queue, &message.id).await.unwrap();
        assert_eq!((info.state.as_str(), &info.result[..]), ("completed", &b"\"hello, Go\""[..]));
    }
    worker.stop().await.unwrap();
    audit::assert_sound(&peer.dump().await, "after the last");
}

#[tokio::test]
async fn a_client_of_windlass_waits_for_what_go_works() {
    let (_server, client, peer) = stage().await;
    let task = client.enqueue(Greet { name: "Go".into() }).retention(PATIENCE).await.unwrap();
    let server = GoServer::start(peer.clone(), ("go", 1, "go"), &[("default", 1)]);
    let run = server.dequeue(&["default"]).await.unwrap();
    assert_eq!(run.message.payload, b"{\"name\":\"Go\"}");
    let waiting = tokio::spawn(async move { task.wait().await });
    server.write_result(&run, b"\"hello from Go\"").await;
    server.succeed(&run).await.unwrap();
    assert_eq!(timeout(PATIENCE, waiting).await.unwrap().unwrap().unwrap(), "hello from Go");
}

#[tokio::test]
async fn a_success_without_retention_is_told_to_who_waits_for_it() {
    let (_server, client, peer) = stage().await;
    let may_end = Arc::new(Notify::new());
    let end = Arc::clone(&may_end);
    let greet = move |task: Greet, _: Context<()>| {
        let end = Arc::clone(&end);
        async move {
            end.notified().await;
            Ok(format!("hello, {}", task.name))
        }
    };
    let worker = client.worker().handle(greet).start().await.unwrap();
    let task = client.enqueue(Greet { name: "nobody".into() }).await.unwrap();
    let id = task.id().to_string();
    let waiting = tokio::spawn(async move { task.wait().await });
    let awaited = async {
        let key = format!("asynq:{{default}}:t:{id}");
        while !peer
            .dump()
            .await
            .0
            .get(&key)
            .is_some_and(|value| format!("{value:?}").contains("wl_a"))
        {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, awaited).await.unwrap();
    may_end.notify_one();
    assert_eq!(timeout(PATIENCE, waiting).await.unwrap().unwrap().unwrap(), "hello, nobody");
    worker.stop().await.unwrap();
    audit::assert_sound(&peer.dump().await, "while it is kept");
}

#[tokio::test]
async fn a_worker_for_priorities_that_the_store_has_not_is_refused() {
    let (_server, client, _peer) = stage().await;
    let greet = |_: Greet, _: Context<()>| async { Ok(String::new()) };
    let refused = client.worker().handle(greet).priorities(&[Priority::High]).start().await;
    assert_eq!(refused.err().unwrap().kind(), windlass::ErrorKind::Unsupported);
    let both = client.worker().handle(greet).priorities(&[Priority::High, Priority::Normal]);
    both.start().await.unwrap().stop().await.unwrap();
}

#[tokio::test]
async fn a_worker_is_seen_by_go_and_a_cancel_by_go_stops_its_run() {
    let (_server, client, peer) = stage().await;
    let started = Arc::new(Notify::new());
    let begun = Arc::clone(&started);
    let hang = move |_: Greet, cx: Context<()>| {
        begun.notify_one();
        async move {
            cx.cancelled().await;
            Err(windlass::cancelled())
        }
    };
    let worker = client.worker().handle(hang).queue("default", 3).queue("low", 1);
    let worker = worker.concurrency(7).start().await.unwrap();
    let task = client.enqueue(Greet { name: "nobody".into() }).retention(PATIENCE).await.unwrap();
    timeout(PATIENCE, started.notified()).await.unwrap();
    let seen = async {
        loop {
            let servers = peer.servers().await;
            // The run is told of at the next beat.
            if let Some((server, runs)) = servers.into_iter().next()
                && !runs.is_empty()
            {
                return (server, runs);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let (server, runs) = timeout(PATIENCE, seen).await.unwrap();
    assert_eq!((server.concurrency, server.status.as_str()), (7, "active"));
    assert_eq!(server.queues, [("default".to_owned(), 3), ("low".to_owned(), 1)].into());
    assert!(!server.strict_priority);
    assert_eq!(runs[0].task_id, task.id().as_str());
    assert!(peer.cancel(task.id().as_str()).await > 0, "the worker listens");
    assert!(timeout(PATIENCE, task.wait()).await.unwrap().is_err(), "it was cancelled");
    worker.stop().await.unwrap();
    assert!(peer.servers().await.is_empty(), "it has left");
    assert_eq!(peer.task_info("default", task.id().as_str()).await.unwrap().state, "archived");
    audit::assert_sound(&peer.dump().await, "after the cancel");
}
