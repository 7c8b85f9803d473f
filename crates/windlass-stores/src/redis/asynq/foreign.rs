//! Go servers among the workers: as they tell of themselves every 5 s. They are only shown; windlass has no say
//! in what they do.

use std::time::Duration;

use futures_util::future::try_join_all;
use prost::Message;
use windlass_core::store::{RunOrder, WorkerCard, WorkerRecord};
use windlass_core::{Error, ErrorKind, QueueName, Result, Timestamp, WorkerId};

use super::message::{ServerInfo, WorkerInfo};
use super::row::{GoRun, Row};
use super::{Shared, keys};
use crate::redis::error::strange;

/// What a Go server is called, having no name of its own.
const NAME: &str = "asynq";
/// How long what a Go server has told counts.
const TOLD_FOR: Duration = Duration::from_secs(10);
const READ: &str = "read the servers of asynq";

impl Shared {
    /// The servers that are none of windlass's: all but those of these ids.
    pub(super) async fn go_servers(
        &self,
        is_own: impl Fn(&WorkerId) -> bool,
    ) -> Result<Vec<WorkerRecord>> {
        let now = self.fleet.now().await?.as_millis().div_euclid(1_000);
        let mut live = redis::cmd("ZRANGEBYSCORE");
        live.arg(keys::servers(self.options().key_prefix())).arg(now).arg("+inf");
        live.arg("WITHSCORES");
        let live = self.fleet.link.command(READ, &live).await?;
        let live: Vec<(String, f64)> =
            redis::FromRedisValue::from_redis_value(live).map_err(|_| strange(READ))?;
        let read = live.iter().map(|(key, until)| async move {
            let mut get = redis::cmd("GET");
            get.arg(key);
            let told = self.fleet.link.command(READ, &get).await?;
            let told: Option<Vec<u8>> =
                redis::FromRedisValue::from_redis_value(told).map_err(|_| strange(READ))?;
            // Gone meanwhile, or in a form that a later asynq may have.
            let info = told.and_then(|bytes| ServerInfo::decode(&bytes[..]).ok());
            Ok(info.map(|info| record(info, Timestamp::from_millis((*until * 1_000.0) as i64))))
        });
        let found = try_join_all(read).await?;
        Ok(found.into_iter().flatten().filter(|worker| !is_own(&worker.id)).collect())
    }
}

impl Shared {
    /// Adds to tasks that Go servers run which of them does, and since when. Tasks of windlass cost nothing.
    pub(super) async fn add_go_runs<'a>(
        &self,
        now: Timestamp,
        rows: impl IntoIterator<Item = &'a mut Row>,
    ) -> Result<()> {
        let mut rows: Vec<_> = rows.into_iter().filter(|row| row.is_go_run()).collect();
        if rows.is_empty() {
            return Ok(());
        }
        let mut live = redis::cmd("ZRANGEBYSCORE");
        let second = now.as_millis().div_euclid(1_000);
        live.arg(keys::workers(self.options().key_prefix())).arg(second).arg("+inf");
        let live = self.fleet.link.command(READ, &live).await?;
        let live: Vec<String> =
            redis::FromRedisValue::from_redis_value(live).map_err(|_| strange(READ))?;
        for key in live {
            let mut get = redis::cmd("HMGET");
            get.arg(key);
            for row in &rows {
                get.arg(&row.key);
            }
            let told = self.fleet.link.command(READ, &get).await?;
            let told: Vec<Option<Vec<u8>>> =
                redis::FromRedisValue::from_redis_value(told).map_err(|_| strange(READ))?;
            for (row, told) in rows.iter_mut().zip(told) {
                let info = told.and_then(|bytes| WorkerInfo::decode(&bytes[..]).ok());
                // Ids are unique in their queue only.
                let info = info.filter(|info| info.queue == row.queue.as_str());
                if let Some(WorkerInfo { server_id, start_time: Some(at), .. }) = info {
                    let started_at = at.as_timestamp();
                    row.go_run = Some(GoRun { server: WorkerId::new(server_id), started_at });
                }
            }
        }
        Ok(())
    }

    /// Gives an order to a worker. Go servers take none.
    pub(super) async fn order_worker(&self, worker: &WorkerId, order: RunOrder) -> Result<()> {
        let ordered = self.fleet.order_worker(worker, order).await;
        let is_unknown = ordered.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound);
        // A worker of windlass that has left may still be shown to asynq's tools for some seconds.
        if is_unknown
            && !self.fleet.known_workers().await?.contains_key(worker)
            && !self.go_servers(|id| id != worker).await?.is_empty()
        {
            return Err(Error::unsupported(format!(
                "worker {worker} is a server of Go's asynq, which takes no orders from windlass: pause its queues, \
                 or send its process SIGTSTP to have it take no more tasks"
            )));
        }
        ordered
    }
}

fn record(info: ServerInfo, until: Timestamp) -> WorkerRecord {
    let mut queues: Vec<_> = info.queues.into_iter().collect();
    // Where weights are an order, the heaviest comes first.
    queues.sort_by_key(|(_, weight)| std::cmp::Reverse(*weight));
    let number = |count: i32| u32::try_from(count).unwrap_or(0);
    let card = WorkerCard {
        host: info.host,
        pid: number(info.pid),
        name: NAME.into(),
        version: String::new(),
        queues: queues.iter().map(|(queue, _)| QueueName::stored(queue)).collect(),
        weights: queues.iter().map(|(_, weight)| number(*weight)).collect(),
        is_strict: info.strict_priority,
        slots: number(info.concurrency),
        slots_used: number(info.active_worker_count),
        doing: match info.status.as_str() {
            "stopped" | "closed" => RunOrder::Drain,
            _ => RunOrder::Run,
        },
        is_leader: false,
        // A Go server does not say what its mux handles.
        kinds: None,
    };
    let started = info.start_time.map_or(0, |at| at.seconds.saturating_mul(1_000));
    WorkerRecord {
        id: WorkerId::new(info.server_id),
        running_count: u64::from(card.slots_used),
        card,
        order: RunOrder::Run,
        started_at: Timestamp::from_millis(started),
        beat_at: until.before(TOLD_FOR),
        lease_until: until,
        is_gone: false,
    }
}
