//! Hooks see every run begin and end, and can do no harm.

#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass::prelude::*;
use windlass::testing::Harness;
use windlass::{Ending, State};

#[derive(Serialize, Deserialize, Debug)]
enum Do {
    Well,
    Badly,
    Panic,
    Hang,
}

impl Task for Do {
    const KIND: &'static str = "do";
    type Output = ();
}

async fn run(task: Do, _cx: Context<()>) -> Outcome<()> {
    match task {
        Do::Well => Ok(()),
        Do::Badly => Err("bad".into()),
        Do::Panic => panic!("ouch"),
        Do::Hang => std::future::pending().await,
    }
}

type Notes = Arc<Mutex<Vec<String>>>;

/// What hooks saw of one task.
async fn seen(task: Do) -> Vec<String> {
    let notes = Notes::default();
    let note = |name: &'static str| {
        let notes = Arc::clone(&notes);
        move |text: String| notes.lock().unwrap().push(format!("{name} {text}"))
    };
    let (before, after, outer) = (note("before"), note("after"), note("outer"));
    let harness = Harness::new(|worker| {
        worker
            .handle(run)
            .before(move |task| before(format!("{} {}", task.kind, task.attempts)))
            .after(move |_, _| outer("after".into()))
            .after(move |_, ending| {
                after(match ending {
                    Ending::Completed { .. } => "completed".into(),
                    Ending::Failed { error, .. } => error.clone(),
                    other => format!("{other:?}"),
                });
            })
    })
    .unwrap();
    harness.client().enqueue(task).await.unwrap();
    harness.drain().await.unwrap();
    let notes = notes.lock().unwrap();
    notes.clone()
}

#[tokio::test(start_paused = true)]
async fn hooks_see_every_way_in_which_a_run_ends() {
    for (task, ending) in [
        (Do::Well, "after completed"),
        (Do::Badly, "after bad"),
        (Do::Panic, "after panicked: ouch"),
        (Do::Hang, "after TimedOut"),
    ] {
        assert_eq!(seen(task).await, ["before do 1", ending, "outer after"]);
    }
}

#[tokio::test]
async fn a_hook_that_panics_harms_nobody() {
    let harness = Harness::new(|worker| {
        worker.handle(run).before(|_| panic!("before")).after(|_, _| panic!("after"))
    })
    .unwrap();
    let handle = harness.client().enqueue(Do::Well).timeout(Duration::from_secs(5)).await.unwrap();
    harness.drain().await.unwrap();
    assert_eq!(harness.task(&handle).await.unwrap().state, State::Completed);
}
