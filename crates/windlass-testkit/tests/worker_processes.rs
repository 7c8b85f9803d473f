//! Worker processes on one SQLite file under load: killed again and again, or told to end.

#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

mod processes;

use std::cell::Cell;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use processes::{Process, Scene};
use windlass_core::history::{Happening, last_run};
use windlass_core::store::{Depth, Filter, ListParams};
use windlass_core::{Clock, Epoch, State, SystemClock, TaskId, TaskRecord, Timestamp};
use windlass_engine::Configure;
use windlass_testkit::fleet::{Do, ENDLESS};

const KILLS: u32 = 20;
const TERMINATIONS: u32 = 100;
/// How long after its crash a task must run again: lease, sweep, and a slow machine.
const RERUN_MAX: Duration = Duration::from_secs(25);

/// A run that was under way when its process was killed.
struct Crash {
    task: TaskId,
    epoch: Epoch,
    at: Timestamp,
}

impl Scene {
    /// Submits tasks while this goes on, then waits until all are done; answers their records, and
    /// what it came to. A last worker works until then.
    async fn load<T>(&self, act: impl Future<Output = T>) -> (Vec<TaskRecord>, T) {
        let is_over = Cell::new(false);
        let acting = async {
            let acted = act.await;
            let last = self.start().await;
            is_over.set(true);
            (acted, last)
        };
        let submitting = async {
            let mut acknowledged = Vec::new();
            while !is_over.get() {
                let task = self.client.enqueue(Do(acknowledged.len() as u64)).max_crashes(KILLS);
                acknowledged.push(task.await.unwrap().id().clone());
                // Load, not a backlog that nobody can work off.
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            acknowledged
        };
        let ((acted, last), acknowledged) = tokio::join!(acting, submitting);
        let records = self.drained(acknowledged).await;
        self.end(last).await;
        (records, acted)
    }

    /// Tells a worker to end, which it does well.
    async fn end(&self, mut worker: Process) {
        worker.terminate();
        assert!(tokio::task::spawn_blocking(move || worker.ended()).await.unwrap().success());
    }

    /// Stops a process, but not in the middle of a transaction: there it would keep the lock of the
    /// file, and nobody could write until it goes on.
    async fn pause(&self, process: &Process) {
        loop {
            process.signal("-STOP");
            let write = self.store.inspect(Depth::Ping);
            if tokio::time::timeout(Duration::from_secs(1), write).await.is_ok() {
                return;
            }
            process.signal("-CONT");
        }
    }

    /// Kills a worker; answers what ran there.
    async fn kill(&self, victim: Process) -> Vec<Crash> {
        let pid = victim.child.id();
        let at = SystemClock.now();
        drop(victim);
        let workers = self.store.workers().await.unwrap();
        let is_its_own = |task: &TaskRecord| {
            workers
                .iter()
                .any(|worker| worker.card.pid == pid && task.worker == Some(worker.id.clone()))
        };
        let running = self.running().await.into_iter().filter(is_its_own);
        running.map(|task| Crash { task: task.id, epoch: task.epoch.unwrap(), at }).collect()
    }

    async fn running(&self) -> Vec<TaskRecord> {
        let filter = Filter { states: vec![State::Running], ..Filter::default() };
        let mut params = ListParams { filter, limit: 1_000, cursor: None };
        let mut found = Vec::new();
        loop {
            let page = self.store.list(params.clone()).await.unwrap();
            found.extend(page.tasks);
            params.cursor = page.next_cursor;
            if params.cursor.is_none() {
                return found;
            }
        }
    }
}

async fn random_while(millis: std::ops::Range<u64>) {
    tokio::time::sleep(Duration::from_millis(fastrand::u64(millis))).await;
}

/// Checks that a crash was counted as one, and that the task ran again soon.
#[track_caller]
fn check_recovered(record: &TaskRecord, crash: &Crash) {
    let entries = record.history.entries();
    let runs = || entries.iter().filter_map(|entry| entry.run.clone()).chain(last_run(record));
    let is_told = entries.iter().any(|entry| {
        let is_it = entry.run.as_ref().is_some_and(|run| run.epoch == crash.epoch);
        is_it && entry.what == Happening::Crashed
    });
    assert!(is_told, "no crash of epoch {:?} in {record:?}", crash.epoch);
    let next = runs().filter(|run| run.epoch > crash.epoch).min_by_key(|run| run.epoch);
    let pause = next.expect("it ran again").claimed_at.since(crash.at);
    assert!(pause <= RERUN_MAX, "ran again after {pause:?}: {record:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_killed_again_and_again_under_load_costs_no_task_and_no_attempt() {
    let scene = Scene::new().await;
    let kills = async {
        // Started first, the victim leads: the first kill moves that too.
        let mut victim = scene.start().await;
        let _survivor = scene.start().await;
        let mut crashes = Vec::new();
        for _ in 0..KILLS {
            random_while(300..2_500).await;
            crashes.extend(scene.kill(victim).await);
            victim = scene.start().await;
        }
        crashes
    };
    let (records, crashes) = scene.load(kills).await;
    for record in &records {
        assert_eq!((record.state, record.attempts), (State::Completed, 1), "{record:?}");
    }
    assert!(crashes.len() >= KILLS as usize, "only {} runs were killed", crashes.len());
    let by_id: HashMap<_, _> = records.iter().map(|record| (&record.id, record)).collect();
    for crash in &crashes {
        let record = by_id.get(&crash.task).expect("what ran was acknowledged");
        assert!(record.crashes >= 1, "{record:?}");
        check_recovered(record, crash);
    }
    let queues = scene.store.queues().await.unwrap();
    assert_eq!(queues[0].counts.total(), records.len() as u64, "and nothing else is there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_terminated_under_load_ends_well_and_costs_no_attempt_and_no_crash() {
    let scene = Scene::new().await;
    let terminations = async {
        for _ in 0..TERMINATIONS {
            let worker = scene.start().await;
            random_while(0..100).await;
            scene.end(worker).await;
        }
    };
    for record in scene.load(terminations).await.0 {
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
        std::thread::sleep(Duration::from_millis(500));
        assert!(worker.child.try_wait().unwrap().is_none());
        worker.terminate_at_once()
    });
    let status = ended.await.unwrap();
    assert!(!status.success(), "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_paused_past_its_lease_comes_back_under_a_new_id_and_takes_nothing_away() {
    let scene = Scene::new().await;
    let task = scene.client.enqueue(Do(ENDLESS)).await.unwrap();
    let paused = scene.start().await;
    let before = scene.alive(&paused).await;
    scene.pause(&paused).await;
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
    random_while(500..501).await;
    let now = task.record().await.unwrap();
    assert_eq!((now.epoch, now.crashes), (taken_over.epoch, 1), "its late report was refused");
}
