//! The harness: tasks run when the test says so, and time passes when it says so.

#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

use std::sync::Mutex;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass::Handler;
use windlass::core::State;
use windlass::prelude::*;
use windlass::testing::Harness;

const MINUTE: Duration = Duration::from_secs(60);

#[derive(Serialize, Deserialize, Debug, PartialEq)]
struct Step(u32);

impl Task for Step {
    const KIND: &'static str = "step";
    type Output = u32;
}

#[derive(Default)]
struct Log(Mutex<Vec<u32>>);

/// Counts down through tasks of its own.
async fn count_down(task: Step, cx: Context<Log>) -> Outcome<u32> {
    cx.state().0.lock().unwrap().push(task.0);
    cx.progress(0.5, "half").await;
    if task.0 > 0 {
        cx.client().enqueue(Step(task.0 - 1)).await?;
    }
    Ok(task.0)
}

fn counting() -> Harness {
    Harness::new(|worker| worker.state(Log::default()).handle(count_down)).unwrap()
}

async fn fail(_task: Step, _cx: Context<()>) -> Outcome<u32> {
    Err("no luck".into())
}

#[tokio::test]
async fn drain_runs_what_tasks_add_too() {
    let harness = counting();
    let handle = harness.client().enqueue(Step(3)).await.unwrap();
    assert_eq!(harness.drain().await.unwrap(), 4);
    assert_eq!(handle.output().await.unwrap(), Some(3));
    assert_eq!(harness.tasks_in(State::Completed).await.unwrap().len(), 4);
    let progress = harness.task(&handle).await.unwrap().progress.unwrap();
    assert_eq!((progress.fraction, progress.note.as_str()), (0.5, "half"));
}

#[tokio::test]
async fn scheduled_work_waits_for_the_clock() {
    let harness = counting();
    harness.client().enqueue(Step(0)).delay(MINUTE).await.unwrap();
    assert_eq!(harness.waiting::<Step>().await.unwrap(), [Step(0)]);
    harness.advance(MINUTE - Duration::from_millis(1)).await.unwrap();
    assert_eq!(harness.drain().await.unwrap(), 0);
    harness.advance(Duration::from_millis(1)).await.unwrap();
    assert_eq!(harness.drain().await.unwrap(), 1);
}

#[tokio::test]
async fn a_task_out_of_retries_is_dead_and_says_why() {
    let harness = Harness::new(|worker| worker.handle(fail)).unwrap();
    let handle = harness.client().enqueue(Step(0)).max_retries(2).await.unwrap();
    for runs in [1, 1, 1, 0] {
        assert_eq!(harness.drain().await.unwrap(), runs);
        harness.advance(10 * MINUTE).await.unwrap();
    }
    let task = harness.task(&handle).await.unwrap();
    assert_eq!((task.state, task.attempts), (State::DeadLetter, 3));
    assert_eq!(task.history.last_error(), Some("no luck"));
    assert!(handle.output().await.unwrap_err().chain().contains("no luck"));
}

#[tokio::test]
async fn a_worker_without_queues_serves_all_and_one_with_queues_just_those() {
    let all = Harness::new(|worker| worker.handle(fail)).unwrap();
    all.client().enqueue(Step(0)).queue("elsewhere").await.unwrap();
    assert_eq!(all.drain().await.unwrap(), 1);

    let named = Harness::new(|worker| worker.handle(fail).queue("here", 1)).unwrap();
    named.client().enqueue(Step(0)).queue("elsewhere").await.unwrap();
    assert_eq!(named.drain().await.unwrap(), 0);
}

#[tokio::test]
async fn a_panic_is_a_failure_and_the_harness_goes_on() {
    async fn panic(task: Step, _cx: Context<()>) -> Outcome<u32> {
        assert_ne!(task.0, 1, "one is too many");
        Ok(task.0)
    }
    let harness = Harness::new(|worker| worker.handle(panic)).unwrap();
    let bad = harness.client().enqueue(Step(1)).await.unwrap();
    let good = harness.client().enqueue(Step(2)).await.unwrap();
    assert_eq!(harness.drain().await.unwrap(), 2);
    let bad = harness.task(&bad).await.unwrap();
    assert_eq!(bad.state, State::Retrying);
    assert!(bad.history.last_error().unwrap().contains("one is too many"));
    assert_eq!(good.output().await.unwrap(), Some(2));
}

#[tokio::test(start_paused = true)]
async fn a_timeout_passes_at_once_under_paused_time() {
    async fn hang(_task: Step, _cx: Context<()>) -> Outcome<u32> {
        std::future::pending().await
    }
    let harness = Harness::new(|worker| worker.handle(hang)).unwrap();
    let handle = harness.client().enqueue(Step(0)).timeout(MINUTE).await.unwrap();
    assert_eq!(harness.drain().await.unwrap(), 1);
    assert_eq!(harness.task(&handle).await.unwrap().state, State::Retrying);
}

#[tokio::test]
async fn a_blocking_handler_runs_to_its_end() {
    fn double(task: Step, _cx: Context<()>) -> Outcome<u32> {
        Ok(2 * task.0)
    }
    let harness = Harness::new(|worker| worker.handle_blocking(double)).unwrap();
    let handle = harness.client().enqueue(Step(21)).await.unwrap();
    assert_eq!(harness.drain().await.unwrap(), 1);
    assert_eq!(handle.output().await.unwrap(), Some(42));
}

#[tokio::test]
async fn work_that_never_ends_is_noticed() {
    async fn again(_task: Step, _cx: Context<()>) -> Outcome<u32> {
        Err(snooze(Duration::ZERO))
    }
    let harness = Harness::new(|worker| worker.handle(again)).unwrap();
    harness.client().enqueue(Step(0)).await.unwrap();
    let error = harness.drain().await.unwrap_err();
    assert!(error.to_string().contains("in circles"), "{error}");
}

#[tokio::test]
async fn handlers_keep_the_state_that_was_given_before_them() {
    let harness =
        Harness::new(|worker| worker.handle(fail).state(Log::default()).queue("default", 1))
            .unwrap();
    let handle = harness.client().enqueue(Step(0)).await.unwrap();
    assert_eq!(harness.drain().await.unwrap(), 1);
    let task = harness.task(&handle).await.unwrap();
    assert_eq!(task.history.last_error(), Some("no luck"));
}

#[tokio::test]
async fn the_existing_task_is_returned_in_whatever_order_that_was_asked_for() {
    let harness = counting();
    let first = harness.client().enqueue(Step(0)).unique("key").await.unwrap();
    for submit in [
        harness.client().enqueue(Step(1)).unique("key").or_existing(),
        harness.client().enqueue(Step(1)).or_existing().unique("key"),
    ] {
        let second = submit.await.unwrap();
        assert_eq!((second.id(), second.is_new()), (first.id(), false));
    }
}

/// A handler with something of its own.
struct Adder(u32);

impl Handler<Step, ()> for Adder {
    async fn run(&self, task: Step, _cx: Context<()>) -> Outcome<u32> {
        Ok(self.0 + task.0)
    }
}

#[tokio::test]
async fn a_struct_can_be_a_handler() {
    let harness = Harness::new(|worker| worker.handle(Adder(40))).unwrap();
    let handle = harness.client().enqueue(Step(2)).await.unwrap();
    harness.drain().await.unwrap();
    assert_eq!(handle.output().await.unwrap(), Some(42));
}

#[tokio::test]
async fn a_closure_can_be_a_handler() {
    let offset = 40;
    let handler = move |task: Step, _cx: Context<()>| async move { Ok(task.0 + offset) };
    let harness = Harness::new(|worker| worker.handle(handler)).unwrap();
    let handle = harness.client().enqueue(Step(2)).await.unwrap();
    harness.drain().await.unwrap();
    assert_eq!(handle.output().await.unwrap(), Some(42));
}
