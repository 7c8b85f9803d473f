//! A worker process with a short lease, for tests that signal or kill it.
//!
//! `worker-child URL` prints `ready` when its first task runs, and ends gracefully on SIGTERM. It
//! does not outlive who started it: when its input is closed, it is gone.

#![expect(clippy::print_stdout, reason = "the lines are its answers")]
#![expect(clippy::unwrap_used, reason = "a test's process says what it expected by panicking")]

use std::hint::black_box;
use std::sync::Once;
use std::time::Duration;

use windlass_core::config::Config;
use windlass_engine::{Client, Context, Outcome};
use windlass_testkit::fleet::{Animal, Do, ENDLESS, SHORT_LEASE};

static READY: Once = Once::new();

// Two threads on any machine: one of the animals blocks one of them.
#[tokio::main(worker_threads = 2)]
async fn main() {
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(3);
    });
    let url = std::env::args().nth(1).unwrap();
    let store = windlass_stores::open(&url).await.unwrap();
    let client = Client::with_config(store, Config::parse(SHORT_LEASE).unwrap());
    if client.worker().handle(work).handle(keep).concurrency(20).run().await.is_err() {
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

/// Handlers as nobody should write them.
async fn keep(animal: Animal, _cx: Context<()>) -> Outcome<String> {
    READY.call_once(|| println!("ready"));
    match animal {
        Animal::Aborts => std::process::abort(),
        Animal::Exits => std::process::exit(0),
        Animal::Overflows => println!("{}", descend(0)),
        Animal::BlocksForEver => loop {
            std::thread::sleep(Duration::from_secs(1));
        },
        Animal::IgnoresCancel { for_ms } => tokio::time::sleep(Duration::from_millis(for_ms)).await,
        Animal::Leaks => {
            tokio::spawn(async {
                loop {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            });
        }
        Animal::Returns { bytes } => return Ok("x".repeat(bytes)),
    }
    Ok(String::new())
}

/// Deeper than any stack.
fn descend(depth: u64) -> u64 {
    let frame = black_box([depth; 64]);
    if depth == u64::MAX { 0 } else { descend(depth + 1) + black_box(frame)[0] }
}
