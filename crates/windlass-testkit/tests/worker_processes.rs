//! Worker processes on one SQLite file under load: killed again and again, or told to end.

#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use windlass_core::config::Config;
use windlass_core::store::{GetParams, Parts, WorkerRecord};
use windlass_core::{State, Store, TaskId, TaskRecord, WorkerId};
use windlass_engine::{Client, Configure};
use windlass_testkit::fleet::{Do, ENDLESS, SHORT_LEASE};

const KILLS: u32 = 7;
const TERMINATIONS: u32 = 100;
/// How long after the last submit everything must be done: lease, sweep, and a slow machine.
const DRAIN_MAX: Duration = Duration::from_secs(25);

/// A worker process; killed when dropped, so that a failing test leaves none behind.
struct Process {
    child: Child,
    /// Kept open here, since waiting for the child would close it, and the child would be gone.
    _input: ChildStdin,
}

impl Process {
    /// Starts one and waits until it runs a task.
    fn start(url: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_worker-child"))
            .arg(url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let input = child.stdin.take().unwrap();
        let mut process = Self { child, _input: input };
        match lines.next() {
            Some(line) => assert_eq!(line.unwrap(), "ready"),
            None => panic!("it ended early: {:?}", process.child.wait()),
        }
        process
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    fn terminate(&self) {
        self.signal("-TERM");
    }

    fn ended(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SIGKILL; an error means that it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A file of its own, and a client of it.
struct Scene {
    _folder: TempDir,
    url: String,
    store: Arc<dyn Store>,
    client: Client,
}

impl Scene {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("tasks.db").display());
        let store = windlass_stores::open(&url).await.unwrap();
        let client = Client::with_config(store.clone(), Config::parse(SHORT_LEASE).unwrap());
        Self { _folder: folder, url, store, client }
    }

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

    /// Workers of a process that are neither lost nor gone.
    async fn alive(&self, process: &Process) -> Vec<WorkerId> {
        let workers = self.store.workers().await.unwrap();
        let is_it = |worker: &WorkerRecord| worker.card.pid == process.child.id();
        workers.into_iter().filter(|w| !w.is_gone && is_it(w)).map(|w| w.id).collect()
    }

    async fn drained(&self, ids: Vec<TaskId>) -> Vec<TaskRecord> {
        let submitted = Instant::now();
        let params = GetParams { ids, parts: Parts::NONE };
        loop {
            let records = self.store.get(params.clone()).await.unwrap();
            let is_done = records.iter().flatten().all(|record| record.state.is_terminal());
            if is_done || submitted.elapsed() > DRAIN_MAX {
                return records.into_iter().map(|r| r.expect("an acknowledged task")).collect();
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
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
    let paused = Process::start(&scene.url);
    let before = scene.alive(&paused).await;
    paused.signal("-STOP");
    // It is ready when the task was taken from the other and runs here.
    let url = scene.url.clone();
    let other = tokio::task::spawn_blocking(move || Process::start(&url)).await.unwrap();
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
