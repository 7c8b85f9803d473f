//! Workers share their runs among queues by weight, or serve them strictly in order: asked on the asynq
//! layout, where queues are the priorities, and on the embedded store.

#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

use std::collections::BTreeMap;

use bytes::Bytes;
use tokio::sync::mpsc;
use windlass::core::config::Config;
use windlass::prelude::*;
use windlass::{RawTask, WorkerBuilder};
use windlass_testkit::RedisServer;
use windlass_testkit::servers::redis::Keeping;

/// Claims that count.
const RUNS: usize = 1_000;
/// Tasks at once.
const SLOTS: usize = 5;
/// The queues with their weights, and enough tasks that each is backed up until the end.
const QUEUES: [(&str, u32, usize); 3] =
    [("critical", 6, 1_000), ("default", 3, 700), ("low", 1, 400)];

async fn fill(client: &Client) {
    for (queue, _, count) in QUEUES {
        let task = || {
            let options = Options::new().queue(queue);
            options.into_task("count", Bytes::from_static(b"{}"), &Config::default()).unwrap()
        };
        let tasks = std::iter::repeat_with(task).take(count).collect();
        for answer in client.insert_all(tasks).await {
            assert!(answer.unwrap().1.is_new());
        }
    }
}

/// The queues of the first runs of a worker while all queues are backed up.
async fn first_runs(
    client: &Client,
    queues: impl FnOnce(WorkerBuilder<()>) -> WorkerBuilder<()>,
) -> Vec<String> {
    fill(client).await;
    let (tell, mut told) = mpsc::unbounded_channel();
    let handle = move |_: RawTask, cx: Context<()>| {
        let _ = tell.send(cx.queue().to_string());
        async { Ok(Bytes::new()) }
    };
    let worker = queues(client.worker()).handle_raw("count", handle).concurrency(SLOTS);
    let worker = worker.start().await.unwrap();
    let mut runs = Vec::new();
    while runs.len() < RUNS {
        runs.push(told.recv().await.unwrap());
    }
    worker.stop().await.unwrap();
    runs
}

fn weighted(worker: WorkerBuilder<()>) -> WorkerBuilder<()> {
    QUEUES.iter().fold(worker, |worker, (queue, weight, _)| worker.queue(queue, *weight))
}

async fn check_shares(client: Client) {
    let runs = first_runs(&client, weighted).await;
    let mut shares = BTreeMap::new();
    runs.iter().for_each(|queue| *shares.entry(queue.as_str()).or_insert(0.0) += 0.1);
    for (queue, percent) in [("critical", 60.0), ("default", 30.0), ("low", 10.0)] {
        let share: f64 = shares[queue];
        assert!((share - percent).abs() <= 5.0, "{queue} has {share} %: {shares:?}");
    }
}

async fn check_order(client: Client) {
    // The weights say the opposite, and do not count.
    let strict = |worker: WorkerBuilder<()>| {
        worker.queue("low", 1).queue("default", 3).queue("critical", 6).strict()
    };
    let runs = first_runs(&client, strict).await;
    let low = runs.iter().filter(|queue| *queue == "low").count();
    assert_eq!(low, 400, "all of the first queue, before the others are done");
    // Two claims may be on their way together, and their answers change places where the first ends.
    let early = &runs[..400 - 4 * SLOTS];
    assert!(early.iter().all(|queue| queue == "low"), "the first queue goes first: {early:?}");
    assert!(!runs.iter().any(|queue| queue == "critical"), "the second is not empty yet");
}

async fn embedded(folder: &tempfile::TempDir) -> Client {
    let path = folder.path().join("tasks.db");
    windlass::connect(&format!("sqlite:{}?durability=fast", path.display())).await.unwrap()
}

async fn asynq(server: &RedisServer) -> Client {
    let url = format!("redis+asynq://127.0.0.1:{}/?durability=fast", server.port());
    windlass::connect(&url).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn weights_are_shares_on_the_asynq_layout() {
    check_shares(asynq(&RedisServer::start(Keeping::Nothing)).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn strict_is_strict_on_the_asynq_layout() {
    check_order(asynq(&RedisServer::start(Keeping::Nothing)).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn weights_are_shares_on_the_embedded_store() {
    check_shares(embedded(&tempfile::tempdir().unwrap()).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn strict_is_strict_on_the_embedded_store() {
    check_order(embedded(&tempfile::tempdir().unwrap()).await).await;
}
