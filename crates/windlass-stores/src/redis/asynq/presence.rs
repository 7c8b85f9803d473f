//! How workers of windlass show in asynq's tools: as servers, with what they run.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{try_join, try_join_all};
use parking_lot::Mutex;
use prost::Message;
use redis::Cmd;
use windlass_core::store::{Beat, RunOrder, WorkerCard};
use windlass_core::{Claimed, QueueName, Result, Timestamp, WorkerId};

use super::message::{Instant, ServerInfo, WorkerInfo};
use super::{Shared, keys, scripts};

/// How long what is shown counts, at least: two of asynq's own beats.
const SHOWN_MIN: Duration = Duration::from_secs(10);
/// Most tasks of one worker that are shown, and most bytes of their payloads.
const TASKS_SHOWN: usize = 200;
const PAYLOAD_SHOWN: usize = 4_096;

/// What the workers of this process run, and how they are shown.
#[derive(Default)]
pub(super) struct Presence(Mutex<State>);

#[derive(Default)]
struct State {
    running: HashMap<(QueueName, String), (WorkerId, Task)>,
    shown: HashMap<WorkerId, Shown>,
}

/// What is shown of a task.
struct Task {
    kind: String,
    payload: Bytes,
    started_at: Timestamp,
    deadline: Timestamp,
}

/// A worker as it is shown.
#[derive(Clone)]
struct Shown {
    /// `<host>:<pid>:<id>`.
    server: String,
    since: Timestamp,
}

impl Presence {
    /// Notes that a worker of this process has a task.
    pub(super) fn began(&self, worker: &WorkerId, task: &Claimed) {
        let limit = task.claimed_at.after(task.spec.timeout);
        let shown = Task {
            kind: task.kind.as_str().into(),
            payload: match task.payload.len() <= PAYLOAD_SHOWN {
                true => task.payload.clone(),
                false => Bytes::new(),
            },
            started_at: task.claimed_at,
            deadline: task.spec.extras.deadline.map_or(limit, |deadline| deadline.min(limit)),
        };
        let key = (task.queue.clone(), task.id.to_string());
        self.0.lock().running.insert(key, (worker.clone(), shown));
    }

    /// Notes that a task has ended, or was given back.
    pub(super) fn ended(&self, queue: &QueueName, key: &str) {
        self.0.lock().running.remove(&(queue.clone(), key.to_owned()));
    }
}

/// The queues of a worker with their weights. Where they are served in order, asynq's tools take the heavier
/// for the earlier.
fn weights(card: &WorkerCard) -> BTreeMap<String, i32> {
    let weight = |at: usize| match card.is_strict {
        true => card.queues.len() - at,
        false => card.weights.get(at).map_or(1, |weight| *weight as usize),
    };
    let weight = |at| i32::try_from(weight(at)).unwrap_or(i32::MAX);
    card.queues.iter().enumerate().map(|(at, queue)| (queue.to_string(), weight(at))).collect()
}

impl Shared {
    /// Shows a worker that has given a sign of life. What fails here hurts only the view.
    pub(super) async fn show(&self, beat: &Beat, now: Timestamp) {
        if let Err(error) = self.try_to_show(beat, now).await {
            tracing::debug!(error = error.chain(), "a worker is not shown in asynq's tools");
        }
    }

    async fn try_to_show(&self, beat: &Beat, now: Timestamp) -> Result<()> {
        let card = &beat.card;
        let ttl = SHOWN_MIN.max(beat.lease.mul_f64(2.0 / 3.0)).as_secs_f64().ceil() as u64;
        let (shown, tasks) = self.collect(beat, now);
        let prefix = self.options().key_prefix();
        let (server, workers) =
            (keys::server(prefix, &shown.server), keys::workers_of(prefix, &shown.server));
        let info = ServerInfo {
            host: card.host.clone(),
            pid: i32::try_from(card.pid).unwrap_or(0),
            server_id: beat.worker.as_str().into(),
            concurrency: i32::try_from(card.slots).unwrap_or(i32::MAX),
            queues: weights(card),
            strict_priority: card.is_strict,
            status: match card.doing {
                RunOrder::Run => "active".into(),
                RunOrder::Pause | RunOrder::Drain => "stopped".into(),
            },
            start_time: Some(Instant::of(shown.since)),
            active_worker_count: i32::try_from(card.slots_used).unwrap_or(i32::MAX),
        };
        let until = now.as_millis().div_euclid(1_000) + i64::try_from(ttl).unwrap_or(10);
        let mut commands = Vec::new();
        for (set, key) in [(keys::servers(prefix), &server), (keys::workers(prefix), &workers)] {
            let mut add = redis::cmd("ZADD");
            add.arg(set).arg(until).arg(key);
            commands.push(add);
        }
        let mut call = scripts::SHOW
            .on(&[&server, &workers])
            .arg(self.options().told_time())
            .arg(ttl)
            .arg(info.encode_to_vec());
        for (id, task) in tasks {
            call.add(id);
            call.add(task.encode_to_vec());
        }
        // One behind the other, without waiting for answers.
        let sent = commands.iter().map(|command| self.fleet.link.command("show a worker", command));
        try_join(try_join_all(sent), self.ask(call)).await.map(drop)
    }

    /// What is to be shown of a worker, and of what it runs.
    fn collect(&self, beat: &Beat, now: Timestamp) -> (Shown, BTreeMap<String, WorkerInfo>) {
        let card = &beat.card;
        let mut state = self.presence.0.lock();
        let server = format!("{}:{}:{}", card.host, card.pid, beat.worker);
        let since = state.shown.get(&beat.worker).map_or(now, |shown| shown.since);
        let shown = Shown { server, since };
        state.shown.insert(beat.worker.clone(), shown.clone());
        let own = state.running.iter().filter(|(_, (worker, _))| *worker == beat.worker);
        let tasks = own.take(TASKS_SHOWN).map(|((queue, id), (_, task))| {
            let info = WorkerInfo {
                host: card.host.clone(),
                pid: i32::try_from(card.pid).unwrap_or(0),
                server_id: beat.worker.as_str().into(),
                task_id: id.clone(),
                task_type: task.kind.clone(),
                task_payload: task.payload.clone(),
                queue: queue.to_string(),
                start_time: Some(Instant::of(task.started_at)),
                deadline: Some(Instant::of(task.deadline)),
            };
            (id.clone(), info)
        });
        (shown, tasks.collect())
    }

    /// Shows a worker no longer that is gone.
    pub(super) async fn hide(&self, worker: &WorkerId) {
        let shown = {
            let mut state = self.presence.0.lock();
            state.running.retain(|_, (other, _)| other != worker);
            state.shown.remove(worker)
        };
        // What another process shows ends by itself within seconds.
        let Some(Shown { server, .. }) = shown else { return };
        let prefix = self.options().key_prefix();
        let (info, workers) = (keys::server(prefix, &server), keys::workers_of(prefix, &server));
        for (set, key) in [(keys::servers(prefix), &info), (keys::workers(prefix), &workers)] {
            let mut remove = redis::cmd("ZREM");
            remove.arg(set).arg(key);
            for command in [remove, delete(key)] {
                if let Err(error) = self.fleet.link.command("hide a worker", &command).await {
                    tracing::debug!(error = error.chain(), "a worker is still shown");
                }
            }
        }
    }
}

fn delete(key: &str) -> Cmd {
    let mut command = redis::cmd("DEL");
    command.arg(key);
    command
}
