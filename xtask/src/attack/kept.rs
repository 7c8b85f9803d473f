//! A worker that holds a task over HTTP all the while: whatever happens, it must not lose it.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::client::Client;
use crate::Result;

const HEARTBEAT: Duration = Duration::from_secs(2);

/// A worker, and the task that it holds.
pub(super) struct Kept {
    client: Client,
    worker: String,
    task: Value,
}

impl Kept {
    /// Leases a task of its own.
    pub(super) async fn lease(client: Client) -> Result<Self> {
        client.submit(&json!({ "queue": "kept" })).await?;
        let answer = client.post("/api/v1/leases", r#"{"queues":["kept"]}"#).await?;
        let leased: Value = serde_json::from_str(&answer.body)?;
        let worker = leased["worker"]["id"].as_str().ok_or("a lease without a worker")?;
        let task = leased["tasks"].get(0).ok_or("a lease without a task")?;
        Ok(Self { client, worker: worker.to_owned(), task: task.clone() })
    }

    /// Sends heartbeats for ever, and counts those that fail.
    pub(super) async fn beat(&self, failed: &AtomicUsize) -> Infallible {
        let path = format!("/api/v1/workers/{}/heartbeat", self.worker);
        let held = json!({ "id": self.task["id"], "epoch": self.task["epoch"] });
        let body = json!({ "held": [held] }).to_string();
        loop {
            let answer = self.client.post(&path, &body).await;
            if !answer.is_ok_and(|answer| answer.status == 200) {
                failed.fetch_add(1, Ordering::Relaxed);
            }
            tokio::time::sleep(HEARTBEAT).await;
        }
    }

    /// Reports a success; true when it counts, and no crash was counted before.
    pub(super) async fn complete(&self) -> Result<bool> {
        let (id, epoch) = (&self.task["id"], &self.task["epoch"]);
        let result = json!({ "id": id, "epoch": epoch, "outcome": "completed" });
        let report = json!({ "worker_id": self.worker, "results": [result] }).to_string();
        let answer = self.client.post("/api/v1/results", &report).await?;
        let path = format!("/api/v1/tasks/{}", id.as_str().unwrap_or_default());
        let task: Value = serde_json::from_str(&self.client.get(&path).await?.body)?;
        let is_done = task["state"] == "completed" && task["crashes"] == 0;
        Ok(answer.status == 200 && is_done)
    }
}
