//! A worker process with a short lease, for tests that signal or kill it.
//!
//! `worker-child URL` prints `ready` when its first task runs, and ends gracefully on SIGTERM. It
//! does not outlive who started it: when its input is closed, it is gone.

#![expect(clippy::print_stdout, reason = "the lines are its answers")]
#![expect(clippy::unwrap_used, reason = "a test's process says what it expected by panicking")]

use std::sync::Once;
use std::time::Duration;

use windlass_core::config::Config;
use windlass_engine::{Client, Context, Outcome};
use windlass_testkit::fleet::{Do, ENDLESS, SHORT_LEASE};

static READY: Once = Once::new();

#[tokio::main]
async fn main() {
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(3);
    });
    let url = std::env::args().nth(1).unwrap();
    let store = windlass_stores::open(&url).await.unwrap();
    let client = Client::with_config(store, Config::parse(SHORT_LEASE).unwrap());
    if client.worker().handle(work).concurrency(20).run().await.is_err() {
        std::process::exit(2);
    }
}

/// Takes its time, so that there is always something to crash.
async fn work(task: Do, _cx: Context<()>) -> Outcome<u64> {
    READY.call_once(|| println!("ready"));
    if task.0 >= ENDLESS {
        std::future::pending::<()>().await;
    }
    tokio::time::sleep(Duration::from_millis(20 + task.0 % 10 * 20)).await;
    Ok(task.0)
}
