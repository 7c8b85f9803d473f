//! Worker processes and the file that they share.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use windlass_core::config::Config;
use windlass_core::store::{GetParams, Parts, WorkerRecord};
use windlass_core::{Store, TaskId, TaskRecord, WorkerId};
use windlass_engine::Client;
use windlass_testkit::fleet::SHORT_LEASE;

/// How long after the last submit everything must be done: lease, sweep, and a slow machine.
const DRAIN_MAX: Duration = Duration::from_secs(25);

/// A worker process; killed when dropped, so that a failing test leaves none behind.
pub(crate) struct Process {
    pub(crate) child: Child,
    /// Kept open here, since waiting for the child would close it, and the child would be gone.
    _input: ChildStdin,
}

impl Process {
    /// Starts one.
    pub(crate) fn spawn(url: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_worker-child"))
            .arg(url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        Self { child, _input: input }
    }

    /// Starts one and waits until it runs a task.
    pub(crate) fn start(url: &str) -> Self {
        let mut process = Self::spawn(url);
        let mut lines = BufReader::new(process.child.stdout.take().unwrap()).lines();
        match lines.next() {
            Some(line) => assert_eq!(line.unwrap(), "ready"),
            None => panic!("it ended early: {:?}", process.child.wait()),
        }
        process
    }

    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    pub(crate) fn terminate(&self) {
        self.signal("-TERM");
    }

    /// Asks again and again until it ends: signals that it hears together are one.
    pub(crate) fn terminate_at_once(&mut self) -> ExitStatus {
        let asked = Instant::now();
        loop {
            self.terminate();
            std::thread::sleep(Duration::from_millis(100));
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(asked.elapsed() < Duration::from_secs(10), "it does not end");
        }
    }

    pub(crate) fn ended(&mut self) -> ExitStatus {
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
pub(crate) struct Scene {
    _folder: TempDir,
    pub(crate) url: String,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) client: Client,
}

impl Scene {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("tasks.db").display());
        let store = windlass_stores::open(&url).await.unwrap();
        let client = Client::with_config(store.clone(), Config::parse(SHORT_LEASE).unwrap());
        Self { _folder: folder, url, store, client }
    }

    /// Starts a worker and waits until it runs a task.
    pub(crate) async fn start(&self) -> Process {
        let url = self.url.clone();
        tokio::task::spawn_blocking(move || Process::start(&url)).await.unwrap()
    }

    /// Workers of a process that are neither lost nor gone.
    pub(crate) async fn alive(&self, process: &Process) -> Vec<WorkerId> {
        let workers = self.store.workers().await.unwrap();
        let is_it = |worker: &WorkerRecord| worker.card.pid == process.child.id();
        workers.into_iter().filter(|w| !w.is_gone && is_it(w)).map(|w| w.id).collect()
    }

    /// What became of these, as soon as all are done or so much time is over; in between this is
    /// called.
    pub(crate) async fn drained_while(
        &self,
        ids: Vec<TaskId>,
        at_most: Duration,
        mut meanwhile: impl FnMut(),
    ) -> Vec<TaskRecord> {
        let submitted = Instant::now();
        let params = GetParams { ids, parts: Parts::ALL };
        loop {
            let records = self.store.get(params.clone()).await.unwrap();
            let is_done = records.iter().flatten().all(|record| record.state.is_terminal());
            if is_done || submitted.elapsed() > at_most {
                return records.into_iter().map(|r| r.expect("an acknowledged task")).collect();
            }
            meanwhile();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    pub(crate) async fn drained(&self, ids: Vec<TaskId>) -> Vec<TaskRecord> {
        self.drained_while(ids, DRAIN_MAX, || {}).await
    }
}
