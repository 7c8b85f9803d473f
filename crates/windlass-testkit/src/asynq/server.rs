//! What a Go server does with its tasks: dequeue, finish, and tell of itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use prost::Message;
use redis::cmd;

use super::keys::{Keys, SERVERS, WORKERS};
use super::message::{Instant, ServerInfo, TaskMessage, WorkerInfo, decode};
use super::peer::{GoError, Peer, script};

/// How long a task is leased, from its dequeue and from each beat.
pub const LEASE_S: i64 = 30;
/// How long a server's state is good for: two beats of 5 s.
const STATE_S: i64 = 10;

/// A Go server. It dies by being dropped: nothing is cleared.
#[derive(Clone)]
pub struct GoServer {
    /// Its connection and clock.
    pub peer: Peer,
    host: String,
    pid: i32,
    server_id: String,
    queues: BTreeMap<String, i32>,
    concurrency: i32,
    started: Instant,
    running: Arc<Mutex<BTreeMap<String, GoRun>>>,
}

/// A task that a Go server runs.
#[derive(Debug, Clone)]
pub struct GoRun {
    /// The message as it was dequeued.
    pub message: TaskMessage,
    /// What its worker thinks of its lease, Unix seconds.
    lease_until_s: i64,
    started: Instant,
    deadline: Instant,
}

impl GoRun {
    pub(super) fn keys(&self) -> Keys {
        Keys::of(&self.message.queue)
    }
}

impl GoServer {
    /// A server that starts now, under a host, a process and an id.
    pub fn start(peer: Peer, (host, pid, id): (&str, i32, &str), queues: &[(&str, i32)]) -> Self {
        let started = Instant::of_nanos(peer.nanos());
        Self {
            peer,
            host: host.into(),
            pid,
            server_id: id.into(),
            queues: queues.iter().map(|(name, weight)| ((*name).to_owned(), *weight)).collect(),
            concurrency: 4,
            started,
            running: Arc::default(),
        }
    }

    /// The same server while its clock stands at this instant.
    #[must_use]
    pub fn at_nanos(&self, nanos: i64) -> Self {
        Self { peer: self.peer.at_nanos(nanos), ..self.clone() }
    }

    /// Takes the next task, asking one queue after the other.
    pub async fn dequeue(&self, queues: &[&str]) -> Option<GoRun> {
        for queue in queues {
            let keys = Keys::of(queue);
            let until = self.peer.seconds() + LEASE_S;
            let script = script!("dequeue");
            let mut call = script.key(keys.key("pending"));
            call.key(keys.key("paused")).key(keys.key("active")).key(keys.key("lease"));
            call.arg(until).arg(keys.task(""));
            let found: Option<Vec<u8>> = self.peer.run(&call).await.unwrap();
            let Some(message) = found else { continue };
            let message: TaskMessage = decode(&message);
            let started = Instant::of_nanos(self.peer.nanos());
            let run =
                GoRun { deadline: end(&message, started), message, lease_until_s: until, started };
            self.running.lock().insert(run.message.id.clone(), run.clone());
            return Some(run);
        }
        None
    }

    /// The handler has returned without an error. What is written depends on retention and lock.
    pub async fn succeed(&self, run: &GoRun) -> Result<(), GoError> {
        self.check_lease(run)?;
        self.running.lock().remove(&run.message.id);
        self.peer.finish(run).await
    }

    /// The handler has failed: another try after this delay, or the archive.
    pub async fn fail(&self, run: &GoRun, error: &str, delay_s: i64) -> Result<(), GoError> {
        self.check_lease(run)?;
        self.running.lock().remove(&run.message.id);
        match run.message.retried >= run.message.retry {
            true => self.peer.archive(&run.message, error).await,
            false => self.peer.retry(&run.message, error, delay_s, true).await,
        }
    }

    /// The handler does not count its error as a failure.
    pub async fn put_off(&self, run: &GoRun, error: &str, delay_s: i64) -> Result<(), GoError> {
        self.check_lease(run)?;
        self.running.lock().remove(&run.message.id);
        self.peer.retry(&run.message, error, delay_s, false).await
    }

    /// The server shuts down before the handler is done.
    pub async fn abort(&self, run: &GoRun) -> Result<(), GoError> {
        self.check_lease(run)?;
        self.running.lock().remove(&run.message.id);
        let keys = run.keys();
        let script = script!("requeue");
        let mut call = script.key(keys.key("active"));
        call.key(keys.key("lease")).key(keys.key("pending")).key(keys.task(&run.message.id));
        self.peer.run(call.arg(&run.message.id)).await
    }

    /// The handler writes its result, at any time.
    pub async fn write_result(&self, run: &GoRun, result: &[u8]) {
        let mut call = cmd("HSET");
        call.arg(run.keys().task(&run.message.id)).arg("result").arg(result);
        self.peer.plain::<i64>(&call).await;
    }

    /// A beat: leases that are good by the worker's own idea are renewed, the state is written.
    pub async fn beat(&self) {
        let now = self.peer.seconds();
        let runs: Vec<GoRun> = {
            let mut running = self.running.lock();
            for run in running.values_mut().filter(|run| run.lease_until_s > now) {
                run.lease_until_s = now + LEASE_S;
            }
            running.values().cloned().collect()
        };
        for run in runs.iter().filter(|run| run.lease_until_s == now + LEASE_S) {
            let mut extend = cmd("ZADD");
            extend.arg(run.keys().key("lease")).arg("XX");
            self.peer.plain::<i64>(extend.arg(now + LEASE_S).arg(&run.message.id)).await;
        }
        self.write_state(&runs).await;
    }

    /// Clears the state, as a server does at its graceful end.
    pub async fn leave(&self) {
        for (all, key) in [(SERVERS, self.key(SERVERS)), (WORKERS, self.key(WORKERS))] {
            self.peer.plain::<i64>(cmd("ZREM").arg(all).arg(&key)).await;
            self.peer.plain::<i64>(cmd("DEL").arg(&key)).await;
        }
    }

    async fn write_state(&self, runs: &[GoRun]) {
        for (all, key) in [(SERVERS, self.key(SERVERS)), (WORKERS, self.key(WORKERS))] {
            let end = self.peer.seconds() + STATE_S;
            self.peer.plain::<i64>(cmd("ZADD").arg(all).arg(end).arg(key)).await;
        }
        let server = ServerInfo {
            host: self.host.clone(),
            pid: self.pid,
            server_id: self.server_id.clone(),
            concurrency: self.concurrency,
            queues: self.queues.clone(),
            strict_priority: false,
            status: "active".into(),
            start_time: Some(self.started),
            active_worker_count: i32::try_from(runs.len()).unwrap(),
        };
        let script = script!("write_server_state");
        let mut call = script.key(self.key(SERVERS));
        call.key(self.key(WORKERS)).arg(STATE_S).arg(server.encode_to_vec());
        for run in runs {
            let worker = WorkerInfo {
                host: self.host.clone(),
                pid: self.pid,
                server_id: self.server_id.clone(),
                task_id: run.message.id.clone(),
                task_type: run.message.kind.clone(),
                task_payload: run.message.payload.clone(),
                queue: run.message.queue.clone(),
                start_time: Some(run.started),
                deadline: Some(run.deadline),
            };
            call.arg(&run.message.id).arg(worker.encode_to_vec());
        }
        self.peer.run::<()>(&call).await.unwrap();
    }

    fn key(&self, all: &str) -> String {
        format!("{all}:{{{}:{}:{}}}", self.host, self.pid, self.server_id)
    }

    /// A worker whose own idea of its lease says that it is over writes nothing. This is all that asynq has
    /// against late reports: nothing is compared in the store.
    fn check_lease(&self, run: &GoRun) -> Result<(), GoError> {
        let running = self.running.lock();
        let until = running.get(&run.message.id).map_or(run.lease_until_s, |run| run.lease_until_s);
        if until > self.peer.seconds() { Ok(()) } else { Err(GoError::LeaseOver) }
    }
}

/// When a run must be over: its timeout or its deadline, whichever comes first.
fn end(message: &TaskMessage, started: Instant) -> Instant {
    let timed_out = Instant { seconds: started.seconds + message.timeout, ..started };
    match (message.timeout, message.deadline) {
        (_, 0) => timed_out,
        (0, deadline) => Instant { seconds: deadline, nanos: 0 },
        (_, deadline) if deadline < timed_out.seconds => Instant { seconds: deadline, nanos: 0 },
        (..) => timed_out,
    }
}
