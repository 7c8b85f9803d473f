//! Faults while work goes on.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use windlass_core::store::Applied;
use windlass_core::{State, TaskId};
use windlass_testkit::Scene;
use windlass_testkit::scene::completed;

use crate::stage;

/// Tasks in all, and how many end from one fault to the next.
const TASKS: usize = 400;
const FAULT_EVERY: usize = 40;

/// What became of tasks.
#[derive(Default)]
struct Books {
    ends: Mutex<HashMap<TaskId, usize>>,
    ended: AtomicUsize,
}

/// Works until all tasks have ended.
async fn work(s: Scene, books: Arc<Books>) {
    let worker = s.worker().await;
    while books.ended.load(Ordering::SeqCst) < TASKS {
        let given = s.claim(&worker, 5).await;
        let endings = given.iter().map(|task| s.transition(task, completed())).collect();
        let outcomes = s.apply(&worker, endings).await;
        for (task, outcome) in given.iter().zip(outcomes) {
            assert_eq!(outcome, Applied::Applied(State::Completed));
            *books.ends.lock().entry(task.id.clone()).or_default() += 1;
            books.ended.fetch_add(1, Ordering::SeqCst);
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_flushed_restarted_and_lost_under_load_costs_no_task() {
    let (server, s, _) = stage(&[]).await;
    let books = Arc::new(Books::default());
    let mut working = Vec::new();
    for _ in 0..2 {
        working.push(tokio::spawn(work(s.elsewhere().await, Arc::clone(&books))));
    }
    let submitter = s.clone();
    let submitting = tokio::spawn(async move {
        for _ in 0..TASKS / 10 {
            submitter.submit_many(10).await;
        }
    });
    let (mut faults, mut next_at) = (0, FAULT_EVERY);
    while books.ended.load(Ordering::SeqCst) < TASKS {
        s.promote().await;
        if books.ended.load(Ordering::SeqCst) < next_at {
            continue;
        }
        next_at += FAULT_EVERY;
        faults += 1;
        match faults {
            3 => {
                server.kill();
                server.launch();
            }
            // For good.
            8 => server.kill(),
            9.. => {}
            _ => drop(server.operate(&["FLUSHALL"]).unwrap()),
        }
    }
    submitting.await.unwrap();
    for one in working {
        one.await.unwrap();
    }
    let ends = books.ends.lock();
    assert_eq!(ends.len(), TASKS, "each task has ended");
    assert!(ends.values().all(|count| *count == 1), "and was given out once");
}
