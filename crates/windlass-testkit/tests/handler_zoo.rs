//! Handlers that kill, block or litter their process: what becomes of their tasks, of their
//! neighbours and of the worker.

#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

mod processes;

use std::time::{Duration, Instant};

use processes::{Process, Scene};
use windlass_core::{State, TaskId};
use windlass_engine::{Configure, Handle, Options};
use windlass_testkit::fleet::{Animal, Do, check_ended};

const SECOND: Duration = Duration::from_secs(1);
/// Four crashes, each noticed after lease and sweep, take some 20 s.
const PATIENCE: Duration = Duration::from_secs(60);

impl Scene {
    async fn submit(&self, animal: Animal, options: Options) -> Handle<Animal> {
        let mut submit = self.client.enqueue(animal);
        *submit.options_mut() = options;
        submit.await.unwrap()
    }

    async fn submit_innocent(&self, count: u64) -> Vec<TaskId> {
        let handles = self.client.enqueue_all((0..count).map(Do)).await.unwrap();
        handles.into_iter().map(|handle| handle.unwrap().id().clone()).collect()
    }

    /// The worker does ordinary work, and ends well when told to.
    async fn check_lives(&self, mut process: Process) {
        let ids = self.submit_innocent(5).await;
        for record in self.drained(ids).await {
            check_ended(&record, State::Completed, 1, 0);
        }
        process.terminate();
        assert!(tokio::task::spawn_blocking(move || process.ended()).await.unwrap().success());
    }
}

/// Runs a task that ends its process each time, in the middle of innocent ones, under a supervisor
/// that starts the process anew; checks that it ends dead after these crashes, alone.
async fn check_dies_alone(animal: Animal, innocent_count: u64, crashes: u32) {
    let scene = Scene::new().await;
    let mut ids = scene.submit_innocent(innocent_count / 2).await;
    let options = Options::new().max_crashes(crashes - 1);
    let poison = scene.submit(animal, options).await;
    ids.extend(scene.submit_innocent(innocent_count - innocent_count / 2).await);
    ids.push(poison.id().clone());
    let mut process = Process::spawn(&scene.url);
    let mut deaths = 0;
    let supervise = || {
        if process.child.try_wait().unwrap().is_some() {
            deaths += 1;
            process = Process::spawn(&scene.url);
        }
    };
    let mut records = scene.drained_while(ids, PATIENCE, supervise).await;
    check_ended(&records.pop().unwrap(), State::DeadLetter, 0, crashes);
    for record in records {
        assert_eq!((record.state, record.attempts), (State::Completed, 1), "{record:?}");
    }
    assert_eq!(deaths, crashes);
    scene.check_lives(process).await;
}

#[tokio::test]
async fn a_task_that_aborts_its_process_each_time_ends_dead_and_a_hundred_others_complete() {
    check_dies_alone(Animal::Aborts, 100, 4).await;
}

#[tokio::test]
async fn a_task_that_exits_its_process_has_not_succeeded() {
    check_dies_alone(Animal::Exits, 10, 2).await;
}

#[tokio::test]
async fn a_task_that_overflows_the_stack_ends_dead_alone() {
    check_dies_alone(Animal::Overflows, 10, 2).await;
}

#[tokio::test]
async fn a_handler_that_blocks_a_thread_for_ever_costs_no_lease_and_no_neighbour() {
    let scene = Scene::new().await;
    let blocking = scene.submit(Animal::BlocksForEver, Options::new().timeout(SECOND)).await;
    let mut process = scene.start().await;
    let (worker, started) = (scene.alive(&process).await, Instant::now());
    assert_eq!(worker.len(), 1);
    // Longer than a lease; its neighbours run meanwhile.
    while started.elapsed() < SECOND * 5 {
        let ids = scene.submit_innocent(20).await;
        for record in scene.drained(ids).await {
            check_ended(&record, State::Completed, 1, 0);
        }
    }
    check_ended(&blocking.record().await.unwrap(), State::Running, 1, 0);
    assert_eq!(scene.alive(&process).await, worker, "it was never declared lost");
    process.terminate();
    tokio::time::sleep(SECOND / 2).await;
    assert!(process.child.try_wait().unwrap().is_none(), "it waits for the run");
    let ended = tokio::task::spawn_blocking(move || process.terminate_at_once());
    let status = ended.await.unwrap();
    assert!(!status.success(), "{status}");
}

#[tokio::test]
async fn a_handler_that_ignores_a_cancel_is_completed_if_it_succeeds_and_else_cancelled() {
    let scene = Scene::new().await;
    let options = Options::new().timeout(SECOND * 4);
    let succeeds = scene.submit(Animal::IgnoresCancel { for_ms: 2_500 }, options.clone()).await;
    let hangs = scene.submit(Animal::IgnoresCancel { for_ms: 3_600_000 }, options).await;
    let process = scene.start().await;
    for task in [&succeeds, &hangs] {
        while task.record().await.unwrap().state != State::Running {
            tokio::time::sleep(SECOND / 50).await;
        }
        task.cancel().await.unwrap();
    }
    let records = scene.drained(vec![succeeds.id().clone(), hangs.id().clone()]).await;
    check_ended(&records[0], State::Completed, 1, 0);
    check_ended(&records[1], State::Cancelled, 1, 0);
    scene.check_lives(process).await;
}

#[tokio::test]
async fn handlers_that_leave_spawned_tasks_behind_do_not_keep_the_worker_from_ending() {
    let scene = Scene::new().await;
    let leaks = scene.client.enqueue_all([Animal::Leaks; 100]).await.unwrap();
    let ids = leaks.into_iter().map(|handle| handle.unwrap().id().clone()).collect();
    let process = scene.start().await;
    for record in scene.drained(ids).await {
        check_ended(&record, State::Completed, 1, 0);
    }
    scene.check_lives(process).await;
}

#[tokio::test]
async fn a_result_of_64_mib_is_a_failure_that_names_the_limit_and_the_worker_lives() {
    let scene = Scene::new().await;
    let large = Animal::Returns { bytes: 64 << 20 };
    let task = scene.submit(large, Options::new().max_retries(0)).await;
    let process = scene.start().await;
    let record = scene.drained(vec![task.id().clone()]).await.pop().unwrap();
    check_ended(&record, State::DeadLetter, 1, 0);
    let error = record.history.last_error().unwrap();
    assert!(error.ends_with("at most 1048576 are kept"), "{error}");
    scene.check_lives(process).await;
}
