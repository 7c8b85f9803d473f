//! Live events between processes, on each store that carries them: what a worker with a connection of its own
//! does is told elsewhere, in order, also after every connection was cut.

#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

use std::collections::HashMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass::prelude::*;
use windlass::{EventFilter, Listener, open};
use windlass_testkit::servers::redis::Keeping;
use windlass_testkit::{PostgresServer, Proxy, RedisServer};

const TASKS: u64 = 200;
const SOON: Duration = Duration::from_secs(30);

#[derive(Serialize, Deserialize)]
struct Do(u64);

impl Task for Do {
    const KIND: &'static str = "do";
    type Output = u64;
}

async fn succeed(task: Do, _: Context<()>) -> Outcome<u64> {
    Ok(task.0)
}

/// The same store, as another process has it.
async fn client(url: &str) -> Client {
    Client::new(open(url).await.unwrap())
}

async fn listen(url: &str) -> Listener {
    client(url).await.listen(EventFilter::of(&["task.*"]).unwrap(), None).await.unwrap()
}

/// Hears until every one of these tasks has completed; answers what was told of each, and how many gaps.
async fn hear(listener: &mut Listener, ids: &[String]) -> (HashMap<String, Vec<String>>, usize) {
    let (mut told, mut gaps) = (HashMap::<String, Vec<String>>::new(), 0);
    let hear = async {
        let mut ended = 0;
        while ended < ids.len() {
            let event = listener.next().await;
            let json: serde_json::Value = serde_json::from_slice(&event.json).unwrap();
            let Some(id) = json["data"]["task_id"].as_str() else {
                gaps += 1;
                continue;
            };
            let kind = event.event.kind.to_string();
            let is_of_these = ids.iter().any(|one| one == id);
            ended += usize::from(kind == "task.completed" && is_of_these);
            told.entry(id.to_owned()).or_default().push(kind);
        }
    };
    let is_done = tokio::time::timeout(SOON, hear).await.is_ok();
    assert!(is_done, "only {} tasks were told, and {gaps} gaps", told.len());
    (told, gaps)
}

async fn submit(client: &Client) -> Vec<String> {
    let mut ids = Vec::new();
    for n in 0..TASKS {
        ids.push(client.enqueue(Do(n)).await.unwrap().id().to_string());
    }
    ids
}

/// A worker, who submits and who listens, each with a store of its own.
async fn everything_is_told_in_order(url: &str) {
    let (works, submits) = (client(url).await, client(url).await);
    let mut listener = listen(url).await;
    let worker = works.worker().handle(succeed).concurrency(10).start().await.unwrap();
    let ids = submit(&submits).await;
    let (told, gaps) = hear(&mut listener, &ids).await;
    assert_eq!(gaps, 0);
    for id in &ids {
        assert_eq!(told[id], ["task.submitted", "task.started", "task.completed"], "{id}");
    }
    worker.stop().await.unwrap();
}

/// The same after every connection of everybody was cut: a gap, and then all again.
async fn a_cut_is_a_gap_and_then_events_again(url: &str, proxy: &Proxy) {
    let (works, submits) = (client(url).await, client(url).await);
    let mut listener = listen(url).await;
    let worker = works.worker().handle(succeed).concurrency(10).start().await.unwrap();
    hear(&mut listener, &submit(&submits).await).await;
    proxy.cut();
    let gap = async {
        while listener.next().await.event.kind.as_str() != "gap" {
            // What was on its way.
        }
    };
    tokio::time::timeout(SOON, gap).await.expect("a gap is told");
    // Nothing is promised until the way is open again: events come as soon as it is.
    let heard = async {
        loop {
            submits.enqueue(Do(0)).await.unwrap();
            let next = tokio::time::timeout(Duration::from_millis(500), listener.next()).await;
            if next.is_ok_and(|told| told.event.kind.as_str() == "task.completed") {
                return;
            }
        }
    };
    tokio::time::timeout(SOON, heard).await.expect("events are told again");
    let ids = submit(&submits).await;
    let (told, _) = hear(&mut listener, &ids).await;
    for id in &ids {
        assert!(told[id].is_sorted_by_key(|kind| stage(kind)), "{:?}", told[id]);
    }
    worker.stop().await.unwrap();
}

fn stage(kind: &str) -> usize {
    let stages = ["task.submitted", "task.started", "task.completed"];
    stages.iter().position(|stage| *stage == kind).unwrap()
}

#[tokio::test]
async fn on_one_file() {
    let folder = tempfile::tempdir().unwrap();
    everything_is_told_in_order(&format!("sqlite:{}", folder.path().join("a.db").display())).await;
}

#[tokio::test]
async fn on_postgres() {
    let server = PostgresServer::shared();
    everything_is_told_in_order(&server.url(&PostgresServer::new_schema())).await;
}

#[tokio::test]
async fn on_postgres_after_a_cut() {
    let server = PostgresServer::shared();
    let proxy = Proxy::start(server.port()).await;
    let url = server.url_through(proxy.port(), &PostgresServer::new_schema());
    a_cut_is_a_gap_and_then_events_again(&url, &proxy).await;
}

#[tokio::test]
async fn on_redis() {
    everything_is_told_in_order(&RedisServer::start(Keeping::Nothing).url("events")).await;
}

#[tokio::test]
async fn on_redis_after_a_cut() {
    let server = RedisServer::start(Keeping::Nothing);
    let proxy = Proxy::start(server.port()).await;
    a_cut_is_a_gap_and_then_events_again(&server.url_through(proxy.port(), "events"), &proxy).await;
}
