//! Worker processes on one SQLite file under load: killed again and again, or told to end.

#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

mod processes;

use std::time::{Duration, Instant};

use processes::{Process, Scene};
use windlass_core::{State, TaskRecord};
use windlass_engine::Configure;
use windlass_testkit::fleet::{Do, ENDLESS};

const KILLS: u32 = 7;
const TERMINATIONS: u32 = 100;

impl Scene {
    /// Submits tasks while this goes on, then waits until all are done; answers their records. A
    /// last worker works until then.
    async fn load(&self, act: impl FnOnce(&str) + Send + 'static) -> Vec<TaskRecord> {
        let url = self.url.clone();
        let acting = tokio::task::spawn_blocking(move || {
            act(&url);
            Process::start(&url)
        });
        let mut acknowledged = Vec::new();
        while !acting.is_finished() {
            let task = self.client.enqueue(Do(acknowledged.len() as u64)).max_crashes(KILLS);
            acknowledged.push(task.await.unwrap().id().clone());
            // Load, not a backlog that nobody can work off.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let mut last = acting.await.unwrap();
        let records = self.drained(acknowledged).await;
        last.terminate();
        assert!(last.ended().success());
        records
    }
}

fn random_while(millis: std::ops::Range<u64>) {
    std::thread::sleep(Duration::from_millis(fastrand::u64(millis)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_killed_again_and_again_under_load_costs_no_task_and_no_attempt() {
    let scene = Scene::new().await;
    let kills = |url: &str| {
        // Started first, the victim leads: the first kill moves that too.
        let mut victim = Process::start(url);
        let _survivor = Process::start(url);
        for _ in 0..KILLS {
            random_while(300..2_500);
            drop(victim);
            victim = Process::start(url);
        }
    };
    let records = scene.load(kills).await;
    for record in &records {
        assert_eq!((record.state, record.attempts), (State::Completed, 1), "{record:?}");
    }
    assert!(records.iter().any(|record| record.crashes > 0), "nothing has crashed");
    let queues = scene.store.queues().await.unwrap();
    assert_eq!(queues[0].counts.total(), records.len() as u64, "and nothing else is there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_terminated_under_load_ends_well_and_costs_no_attempt_and_no_crash() {
    let scene = Scene::new().await;
    let terminations = |url: &str| {
        for _ in 0..TERMINATIONS {
            let mut worker = Process::start(url);
            random_while(0..100);
            worker.terminate();
            assert!(worker.ended().success());
        }
    };
    for record in scene.load(terminations).await {
        let is = (record.state, record.attempts, record.crashes);
        assert_eq!(is, (State::Completed, 1, 0), "{record:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_signal_ends_a_worker_at_once() {
    let scene = Scene::new().await;
    scene.client.enqueue(Do(ENDLESS)).await.unwrap();
    let url = scene.url.clone();
    let ended = tokio::task::spawn_blocking(move || {
        let mut worker = Process::start(&url);
        worker.terminate();
        // It waits for its run: the shutdown timeout is 25 s.
        random_while(500..501);
        assert!(worker.child.try_wait().unwrap().is_none());
        let asked = Instant::now();
        worker.terminate();
        (worker.ended(), asked.elapsed())
    });
    let (status, took) = ended.await.unwrap();
    assert!(!status.success() && took < Duration::from_secs(5), "{status} after {took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_paused_past_its_lease_comes_back_under_a_new_id_and_takes_nothing_away() {
    let scene = Scene::new().await;
    let task = scene.client.enqueue(Do(ENDLESS)).await.unwrap();
    let paused = scene.start().await;
    let before = scene.alive(&paused).await;
    paused.signal("-STOP");
    // It is ready when the task was taken from the other and runs here.
    let other = scene.start().await;
    let taken_over = task.record().await.unwrap();
    assert_eq!((taken_over.attempts, taken_over.crashes), (1, 1));
    assert_eq!(taken_over.worker.as_ref(), scene.alive(&other).await.first());
    paused.signal("-CONT");
    let resumed = Instant::now();
    let after = loop {
        let alive = scene.alive(&paused).await;
        if !alive.is_empty() || resumed.elapsed() > Duration::from_secs(10) {
            break alive;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(after.len(), 1, "it is back");
    assert_ne!(after, before);
    random_while(500..501);
    let now = task.record().await.unwrap();
    assert_eq!((now.epoch, now.crashes), (taken_over.epoch, 1), "its late report was refused");
}
