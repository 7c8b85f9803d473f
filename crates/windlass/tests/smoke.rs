//! Workers on a real file, from submit to result.

use serde::{Deserialize, Serialize};
use windlass::prelude::*;

#[derive(Serialize, Deserialize)]
struct Add(u64, u64);

impl Task for Add {
    const KIND: &'static str = "add";
    type Output = u64;
}

async fn add(task: Add, _cx: Context<()>) -> Outcome<u64> {
    Ok(task.0 + task.1)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_tasks_go_from_submit_to_result() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("tasks.db").display());
    let client = windlass::connect(&url).await.unwrap();
    let worker = client.worker().handle(add).concurrency(20).start().await.unwrap();
    let handles = client.enqueue_all((0..1_000).map(|number| Add(number, 1))).await.unwrap();
    for (number, handle) in handles.into_iter().enumerate() {
        assert_eq!(handle.unwrap().wait().await.unwrap(), number as u64 + 1);
    }
    worker.stop().await.unwrap();
}
