//! What Asynqmon and the `asynq` command line read.

use redis::cmd;

use super::keys::{Keys, SERVERS, WORKERS};
use super::message::{ServerInfo, TaskMessage, WorkerInfo, decode};
use super::operator::Shelf;
use super::peer::{GoError, Peer, script};

/// How many tasks and groups of a queue are weighed.
const SAMPLE_TASKS: i64 = 20;
const SAMPLE_GROUPS: i64 = 5;
/// A page.
const PAGE: i64 = 30;

/// A field of a hash that may be missing.
type Field = Option<Vec<u8>>;

/// The counts of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueueStats {
    /// Waiting in line.
    pub pending: i64,
    /// Running.
    pub active: i64,
    /// Due later.
    pub scheduled: i64,
    /// To be tried again.
    pub retry: i64,
    /// In the archive.
    pub archived: i64,
    /// Kept after their success.
    pub completed: i64,
    /// Runs that ended today, and those of them that failed.
    pub today: (i64, i64),
    /// The same of all days.
    pub total: (i64, i64),
    /// It gives out nothing.
    pub is_paused: bool,
    /// Groups, and tasks in them.
    pub groups: (i64, i64),
    /// How long the oldest has been pending, in nanoseconds; 0 when nothing says so.
    pub latency_ns: i64,
}

/// One task in detail.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskInfo {
    /// The message.
    pub message: TaskMessage,
    /// The state.
    pub state: String,
    /// When it is due, Unix seconds; 0 when it is not.
    pub next_process_at: i64,
    /// What its handler wrote.
    pub result: Vec<u8>,
}

/// One line of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    /// The message.
    pub message: TaskMessage,
    /// What its handler wrote.
    pub result: Vec<u8>,
    /// Where it stands in a sorted set.
    pub score: Option<i64>,
    /// It is active, and its lease is over.
    pub is_orphaned: bool,
}

impl Peer {
    /// `asynq queue inspect`.
    pub async fn stats(&self, queue: &str) -> Result<QueueStats, GoError> {
        self.check_queue(queue).await?;
        let (keys, now) = (Keys::of(queue), self.seconds());
        let script = script!("current_stats");
        let mut call = script.key(keys.key("pending"));
        for name in ["active", "scheduled", "retry", "archived", "completed"] {
            call.key(keys.key(name));
        }
        call.key(keys.of_day("processed", now)).key(keys.of_day("failed", now));
        for name in ["processed", "failed", "paused", "groups"] {
            call.key(keys.key(name));
        }
        let found: Vec<i64> = self.run(call.arg(keys.task("")).arg(keys.group(""))).await?;
        let since = found[13];
        Ok(QueueStats {
            pending: found[0],
            active: found[1],
            scheduled: found[2],
            retry: found[3],
            archived: found[4],
            completed: found[5],
            today: (found[6], found[7]),
            total: (found[8], found[9]),
            is_paused: found[10] == 1,
            groups: (found[11], found[12]),
            latency_ns: if since == 0 { 0 } else { self.nanos() - since },
        })
    }

    /// What Asynqmon's page of a queue asks for; one id without a hash, and it fails.
    pub async fn memory_usage(&self, queue: &str) -> Result<i64, GoError> {
        self.check_queue(queue).await?;
        let keys = Keys::of(queue);
        let script = script!("memory_usage");
        let mut call = script.key(keys.key("active"));
        for name in ["pending", "scheduled", "retry", "archived", "completed", "groups"] {
            call.key(keys.key(name));
        }
        call.arg(keys.task("")).arg(SAMPLE_TASKS).arg(SAMPLE_GROUPS).arg(keys.group(""));
        self.run(&call).await
    }

    /// `asynq queue history`: runs that ended in the last days, and how many of them failed, today first.
    pub async fn history(&self, queue: &str, days: i64) -> Vec<(i64, i64)> {
        let keys = Keys::of(queue);
        let mut found = Vec::new();
        for day in 0..days {
            let at = self.seconds() - day * 24 * 3_600;
            let mut get = cmd("MGET");
            get.arg(keys.of_day("processed", at)).arg(keys.of_day("failed", at));
            let (processed, failed): (Option<i64>, Option<i64>) = self.plain(&get).await;
            found.push((processed.unwrap_or(0), failed.unwrap_or(0)));
        }
        found
    }

    /// `asynq task inspect`.
    pub async fn task_info(&self, queue: &str, id: &str) -> Result<TaskInfo, GoError> {
        self.check_queue(queue).await?;
        let keys = Keys::of(queue);
        let script = script!("get_task_info");
        let mut call = script.key(keys.task(id));
        call.arg(id).arg(self.seconds()).arg(keys.key(""));
        type Found = (Vec<u8>, String, i64, Field);
        let (message, state, next_process_at, result): Found = self.run(&call).await?;
        let result = result.unwrap_or_default();
        Ok(TaskInfo { message: decode(&message), state, next_process_at, result })
    }

    /// `asynq task list`: the first page.
    pub async fn list(&self, queue: &str, shelf: Shelf<'_>) -> Result<Vec<Listed>, GoError> {
        self.check_queue(queue).await?;
        let keys = Keys::of(queue);
        match shelf {
            Shelf::Pending | Shelf::Active => self.list_messages(&keys, shelf).await,
            _ => self.list_entries(&keys, shelf).await,
        }
    }

    async fn list_messages(&self, keys: &Keys, shelf: Shelf<'_>) -> Result<Vec<Listed>, GoError> {
        let script = script!("list_messages");
        let mut call = script.key(shelf.key(keys));
        // The oldest stands at the right end and comes first.
        call.arg(-PAGE).arg(-1).arg(keys.task(""));
        let page: Vec<(Field, Field)> = self.run(&call).await?;
        let mut expired = cmd("ZRANGEBYSCORE");
        expired.arg(keys.key("lease")).arg("-inf").arg(self.seconds());
        let expired: Vec<String> = self.plain(&expired).await;
        let is_active = matches!(shelf, Shelf::Active);
        let listed = page.into_iter().rev().filter_map(|(message, result)| {
            // A task that cannot be read is left out.
            let message: TaskMessage = decode(&message?);
            let is_orphaned = is_active && expired.contains(&message.id);
            Some(Listed { message, result: result.unwrap_or_default(), score: None, is_orphaned })
        });
        Ok(listed.collect())
    }

    async fn list_entries(&self, keys: &Keys, shelf: Shelf<'_>) -> Result<Vec<Listed>, GoError> {
        let script = script!("list_zset_entries");
        let mut call = script.key(shelf.key(keys));
        call.arg(0).arg(PAGE - 1).arg(keys.task(""));
        let page: Vec<(Field, Field, i64)> = self.run(&call).await?;
        let listed = page.into_iter().filter_map(|(message, result, score)| {
            let (message, result) = (decode(&message?), result.unwrap_or_default());
            Some(Listed { message, result, score: Some(score), is_orphaned: false })
        });
        Ok(listed.collect())
    }

    /// `asynq server list`: live servers, each with what it runs, joined by the servers' ids.
    pub async fn servers(&self) -> Vec<(ServerInfo, Vec<WorkerInfo>)> {
        let mut servers = Vec::new();
        for key in self.info_keys(SERVERS).await {
            // A key that is gone already is passed over.
            let found: Option<Vec<u8>> = self.plain(cmd("GET").arg(key)).await;
            servers.extend(found.map(|info| (decode::<ServerInfo>(&info), Vec::new())));
        }
        for worker in self.workers().await {
            let of = servers.iter_mut().find(|(server, _)| server.server_id == worker.server_id);
            if let Some((_, runs)) = of {
                runs.push(worker);
            }
        }
        servers
    }

    /// All runs of live servers.
    pub async fn workers(&self) -> Vec<WorkerInfo> {
        let mut workers = Vec::new();
        for key in self.info_keys(WORKERS).await {
            let found: Vec<Vec<u8>> = self.plain(cmd("HVALS").arg(key)).await;
            workers.extend(found.iter().map(|info| decode::<WorkerInfo>(info)));
        }
        workers
    }

    async fn info_keys(&self, all: &str) -> Vec<String> {
        let script = script!("list_info_keys");
        let mut call = script.key(all);
        self.run(call.arg(self.seconds())).await.unwrap()
    }
}
