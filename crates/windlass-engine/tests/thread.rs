//! The heartbeat has a thread of its own: a handler that blocks the runtime costs no lease. In real
//! time, since that is what such a handler uses up.

#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

use std::sync::Arc;
use std::time::Duration;

use windlass_core::config::Config;
use windlass_core::store::{GetParams, Parts};
use windlass_core::{State, Store};
use windlass_engine::{Client, Context};
use windlass_testkit::fleet::{Do, check_ended};

const SETTINGS: &str = r#"
    [worker]
    lease = "1s"
    heartbeat = "300ms"
    [upkeep]
    leader_term = "1s"
    leader_renewal = "300ms"
    sweep = "200ms"
"#;

/// Three leases long.
const BLOCKED_FOR: Duration = Duration::from_secs(3);

fn client(store: &Arc<dyn Store>) -> Client {
    Client::with_config(Arc::clone(store), Config::parse(SETTINGS).unwrap())
}

#[tokio::test]
async fn a_handler_that_blocks_the_runtime_costs_the_worker_no_lease() {
    let store = windlass_testkit::fleet::memory();
    // A runtime with one thread, which the handler blocks.
    let blocked = std::thread::spawn({
        let client = client(&store);
        move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let block = |task: Do, _: Context<()>| async move {
                    std::thread::sleep(BLOCKED_FOR);
                    Ok(task.0)
                };
                let worker = client.worker().handle(block).start().await.unwrap();
                let task = client.enqueue(Do(1)).await.unwrap();
                assert_eq!(task.wait().await.unwrap(), 1);
                worker.stop().await.unwrap();
                task.id().clone()
            })
        }
    });
    // Another worker, who would take over what a lost one leaves.
    let other = client(&store)
        .worker()
        .handle(|_: Do, _: Context<()>| async { Ok(0) })
        .queue("other", 1)
        .start()
        .await
        .unwrap();
    let id = tokio::task::spawn_blocking(|| blocked.join().unwrap()).await.unwrap();
    let params = GetParams { ids: vec![id], parts: Parts::ALL };
    let record = store.get(params).await.unwrap().pop().unwrap().unwrap();
    check_ended(&record, State::Completed, 1, 0);
    other.stop().await.unwrap();
}
