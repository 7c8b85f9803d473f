//! Every way in which a run can end, and what the task's record says of it.
//!
//! `cargo run -p windlass --example retries_and_outcomes`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass::prelude::*;

const MOMENT: Duration = Duration::from_millis(20);

#[derive(Serialize, Deserialize, Debug)]
enum Call {
    /// Fails twice with an ordinary error, then succeeds.
    Flaky,
    /// Is told when to come back.
    Busy,
    /// Asks to be run later; that costs no attempt.
    Early,
    /// Can never succeed.
    Wrong,
    /// Never stops failing.
    Broken,
    /// Takes longer than it may.
    Slow,
    /// Panics.
    Panics,
}

impl Task for Call {
    const KIND: &'static str = "call";
    type Output = String;

    fn defaults() -> Options {
        Options::new()
            .max_retries(2)
            .timeout(5 * MOMENT)
            .backoff(Backoff::Fixed { initial: MOMENT, jitter: 0.1 })
    }
}

/// Whether [`Call::Early`] was put off already.
type HasSnoozed = AtomicBool;

async fn call(task: Call, cx: Context<HasSnoozed>) -> Outcome<String> {
    let is_first = cx.attempt() == 1;
    match task {
        // Any error type will do, also through `?`.
        Call::Flaky if cx.attempt() <= 2 => Err(std::io::Error::other("connection reset"))?,
        Call::Busy if is_first => return Err(retry_after(2 * MOMENT, "429: slow down")),
        // A snoozed run is not counted, so the attempt is 1 again the next time.
        Call::Early if !cx.state().swap(true, Ordering::Relaxed) => return Err(snooze(MOMENT)),
        Call::Wrong => return Err(discard("no such number")),
        Call::Broken => return Err("still broken".into()),
        Call::Slow if is_first => tokio::time::sleep(Duration::from_secs(60)).await,
        Call::Panics if is_first => panic!("a bug"),
        Call::Flaky | Call::Busy | Call::Early | Call::Slow | Call::Panics => {}
    }
    Ok(format!("done in run {}", cx.attempt()))
}

#[tokio::main]
async fn main() -> windlass::Result<()> {
    let client = windlass::connect("memory:").await?;
    let worker =
        client.worker().state(HasSnoozed::new(false)).handle(call).concurrency(8).start().await?;
    let calls = [
        (Call::Flaky, Some("done in run 3")),
        (Call::Busy, Some("done in run 2")),
        (Call::Early, Some("done in run 1")),
        (Call::Wrong, None),
        (Call::Broken, None),
        (Call::Slow, Some("done in run 2")),
        (Call::Panics, Some("done in run 2")),
    ];
    for (call, expected) in calls {
        let name = format!("{call:?}");
        let handle = client.enqueue(call).await?;
        let outcome = handle.wait().await;
        let task = handle.record().await?;
        let error = task.history.last_error().unwrap_or("no error");
        println!("{name}: {} after {} attempts; last: {error}", task.state, task.attempts);
        assert_eq!(outcome.ok().as_deref(), expected, "{name}");
    }
    worker.stop().await
}
