//! `dev` beside workers of one's own on one queue: a Rust program on the same file, and a pull worker over HTTP.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use windlass::core::State;
use windlass::{Client, Context, Options, RawTask, TaskId, TaskRecord};

use crate::support::{Place, Server, eventually};

/// Few enough for a busy machine: a backlog of mixed types drains slowly there.
const TASKS: usize = 150;
/// Machines may be busy; without others a start takes milliseconds.
const DELAY_MAX: Duration = Duration::from_secs(60);

/// Leases tasks of one type and completes them, until `stop` is set.
fn pull(server: &Server, kind: &str, stop: &AtomicBool) {
    let mut worker = Value::Null;
    while !stop.load(Ordering::SeqCst) {
        let lease = json!({ "worker": { "id": worker, "types": [kind] }, "max": 10, "wait": 0.2 });
        let (status, answer) = server.post("/api/v1/leases", &lease.to_string());
        assert_eq!(status, 200, "{answer}");
        let leased: Value = serde_json::from_str(&answer).expect("JSON");
        worker = leased["worker"]["id"].clone();
        let tasks = leased["tasks"].as_array().expect("tasks");
        assert!(tasks.iter().all(|task| task["type"] == kind), "{leased}");
        let result = |task: &Value| json!({ "id": task["id"], "epoch": task["epoch"], "outcome": "completed" });
        let results: Vec<_> = tasks.iter().map(result).collect();
        if !results.is_empty() {
            let report = json!({ "worker_id": worker, "results": results });
            let (status, answer) = server.post("/api/v1/results", &report.to_string());
            assert_eq!(status, 200, "{answer}");
        }
    }
}

/// Requires that a task ran as if its worker had been alone.
fn check_undisturbed(record: &TaskRecord) {
    let counts = (record.state, record.attempts, record.crashes);
    assert_eq!(counts, (State::Completed, 1, 0), "{record:?}");
    assert_eq!(record.history.entries(), [], "{record:?}");
    let delay = record.claimed_at.expect("it ran").since(record.created_at);
    assert!(delay < DELAY_MAX, "{} started after {delay:?}", record.kind);
}

/// Stops the pull worker, also when an assertion fails: its thread is joined.
struct StopGuard<'a>(&'a AtomicBool);

impl Drop for StopGuard<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

async fn own_worker(client: &Client) -> windlass::Worker {
    let own = |task: RawTask, _: Context<()>| async move { Ok(task.payload) };
    let worker = client.worker().handle_raw("own.rust", own).concurrency(4);
    worker.start().await.expect("it registers")
}

/// Submits tasks of the three types in turn, one after the other.
async fn submit_mixed(client: &Client) -> Vec<TaskId> {
    let types = ["echo", "own.rust", "own.http"];
    let mut ids = Vec::with_capacity(TASKS);
    for number in 0..TASKS {
        let submit = client.enqueue_raw(types[number % 3], "{}".into(), Options::new());
        ids.push(submit.await.expect("the file takes it").0);
    }
    ids
}

#[test]
fn workers_of_different_types_share_a_queue_without_delays() {
    let place = Place::new();
    let server = place.dev(&[]);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let store = format!("sqlite:{}", place.path().join("windlass.db").display());
    let client = runtime.block_on(windlass::connect(&store)).expect("the file opens");
    let worker = runtime.block_on(own_worker(&client));
    let is_over = AtomicBool::new(false);
    let ids: Vec<TaskId> = std::thread::scope(|scope| {
        let _stop = StopGuard(&is_over);
        scope.spawn(|| pull(&server, "own.http", &is_over));
        eventually("all three workers are known", || {
            let (_, answer) = server.get("/api/v1/workers");
            let workers: Value = serde_json::from_str(&answer).expect("JSON");
            workers["data"].as_array().is_some_and(|workers| workers.len() >= 3)
        });
        let ids = runtime.block_on(submit_mixed(&client));
        eventually("all tasks are finished", || {
            let (_, answer) = server.get("/api/v1/tasks/count?state=completed");
            let count: Value = serde_json::from_str(&answer).expect("JSON");
            count["count"] == TASKS
        });
        ids
    });
    for id in &ids {
        let record = runtime.block_on(client.get(id)).expect("the file answers");
        check_undisturbed(&record.expect("it is kept"));
    }
    runtime.block_on(worker.stop()).expect("it ends");
}
