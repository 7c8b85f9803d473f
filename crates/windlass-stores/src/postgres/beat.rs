//! Beats, orders and leaving, in PostgreSQL.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio_postgres::types::ToSql;
use windlass_core::limits::clip;
use windlass_core::state::release;
use windlass_core::store::{Beat, HeldLeases, Order, Orders, ProgressReport, RunOrder, WakeMark};
use windlass_core::task::Progress;
use windlass_core::{
    Error, ErrorKind, Lease, QueueName, Reason, Result, TaskId, Timestamp, WorkerId, duration,
};

use super::Shared;
use super::batch::Batch;
use super::id::{Id, epoch_of, numbers, token_of};
use super::pool::transaction;
use super::row::{self, Row};
use super::session::Session;
use super::sql;
use crate::wakes::News;

/// A beat may take this long, however short the lease.
const AT_MOST_MIN: Duration = Duration::from_secs(1);

/// A heartbeat that may release tasks waits for the flush of the log, unlike a mere renewal.
const COMMIT_FLUSHED: &str = "SET LOCAL synchronous_commit TO on";

/// A worker, as its beat found it.
struct SeenWorker {
    number: i32,
    holds_leases: bool,
}

/// A task that a worker holds.
struct HeldTask {
    token: i64,
    /// The token too, unless the task has a lease of its own.
    epoch: i64,
    seq: i64,
    claimed_at: i64,
    /// Someone's open transaction is about to complete it: nobody may wait for that here.
    is_busy: bool,
}

impl Shared {
    pub(super) async fn beat(&self, beat: &Beat, mark: WakeMark) -> Result<Orders> {
        // Three of them fit into a lease: where a connection hangs, the next beat, on another one,
        // comes in time.
        let at_most = (beat.lease / 3).max(AT_MOST_MIN);
        let (orders, news) = tokio::time::timeout(at_most, self.take_beat(beat, mark))
            .await
            .map_err(|cause| {
                let text = format!("beat in postgres: no answer in {at_most:?}");
                Error::new(ErrorKind::Unavailable, text).because(cause)
            })??;
        self.tell(news);
        Ok(orders)
    }

    /// Renews the worker with one statement. Only a worker that holds or reports something needs a
    /// transaction behind it: in a fleet, most are idle.
    async fn take_beat(&self, beat: &Beat, mark: WakeMark) -> Result<(Orders, News)> {
        let (seen, mut orders) = self.renew_worker(beat, mark).await?;
        if !seen.holds_leases && beat.progress.is_empty() {
            orders.lost = beat.held.iter().flat_map(|known| known.leases.iter().cloned()).collect();
            return Ok((orders, News::default()));
        }
        transaction!(self.heartbeats, session => async {
            let mut orders = orders.clone();
            for report in &beat.progress {
                self.note_progress(session, report, orders.now).await?;
            }
            let mut news = News::default();
            if let Some(known) = &beat.held {
                if self.options.is_durable {
                    session.execute(COMMIT_FLUSHED, &[]).await?;
                }
                (orders.lost, orders.given_back, news) =
                    self.compare_held(session, seen.number, known, orders.now).await?;
            }
            let cancels = session.all(sql::HELD_CANCELS, &[&seen.number]).await?;
            orders.cancels = cancels.iter().map(|row| Lease {
                task: Id { seq: row.get(0), stamp: row.get(1) }.task_id(),
                epoch: epoch_of(row.get(2)),
            }).collect();
            Ok((orders, news))
        })
    }

    /// Registers or renews a worker; answers its orders, without those about tasks that it holds.
    async fn renew_worker(&self, beat: &Beat, mark: WakeMark) -> Result<(SeenWorker, Orders)> {
        let card = serde_json::to_string(&beat.card).expect("a card is plain JSON");
        let lease_ms = duration::as_millis_ceil(beat.lease).min(Timestamp::MAX.as_millis());
        let told = self.options.told_time();
        let queues: Vec<_> = beat.card.queues.iter().map(QueueName::as_str).collect();
        let values: [&(dyn ToSql + Sync); 5] =
            [&told, &beat.worker.as_str(), &card, &lease_ms, &queues];
        let held = self.heartbeats.get().await?;
        let row = held.session.one(sql::BEAT, &values).await;
        held.back();
        let Some(row) = row? else {
            return Err(Error::lease_lost(format!("beat of worker {}", beat.worker))
                .reason_is(Reason::WorkerLost));
        };
        let paused: HashSet<String> = row.get::<_, Vec<String>>(3).into_iter().collect();
        let orders = Orders {
            order: read_order(row.get(1)),
            paused_queues: beat.card.queues_where(|queue| paused.contains(queue.as_str())),
            cancels: Vec::new(),
            lost: Vec::new(),
            given_back: Vec::new(),
            now: Timestamp::from_millis(row.get(2)),
            mark,
        };
        Ok((SeenWorker { number: row.get(0), holds_leases: row.get(4) }, orders))
    }

    pub(super) async fn leave(&self, worker: &WorkerId) -> Result<u64> {
        let (count, news) = transaction!(self.pool, session => async {
            let now = self.now(session).await?;
            let left =
                session.one(sql::LEAVE, &[&worker.as_str(), &now.as_millis()]).await?;
            let Some(left) = left else {
                return Ok((0, News::default()));
            };
            let mut held = held_by(session, left.get(0)).await?;
            held.retain(|task| !task.is_busy);
            self.give_back(session, &leases(&held), now).await
        })?;
        self.tell(news);
        Ok(count as u64)
    }

    pub(super) async fn order(&self, order: &Order) -> Result<()> {
        let held = self.pool.get().await?;
        let given = self.give_order(&held.session, order).await;
        held.back();
        // Others were notified by the order itself.
        self.wakes.tell(given?);
        Ok(())
    }

    async fn give_order(&self, session: &Session, order: &Order) -> Result<News> {
        let mut news = News::default();
        match order {
            Order::Queue { order: RunOrder::Drain, .. } => {
                return Err(Error::invalid("a queue can run or pause, not drain"));
            }
            Order::Queue { queue, order } => {
                let is_paused = *order == RunOrder::Pause;
                match is_paused {
                    true => news.paused.push(queue.clone()),
                    false => news.ready.push(queue.clone()),
                }
                let text = self.notification(&news);
                let values: [&(dyn ToSql + Sync); 4] =
                    [&queue.as_str(), &is_paused, &self.channel, &text];
                session.all(sql::ORDER_QUEUE, &values).await?;
            }
            Order::Worker { worker, order } => {
                news.ordered.push(worker.clone());
                let text = self.notification(&news);
                let values: [&(dyn ToSql + Sync); 4] =
                    [&worker.as_str(), &write_order(*order), &self.channel, &text];
                if session.all(sql::ORDER_WORKER, &values).await?.is_empty() {
                    let text = format!("no worker {worker}");
                    return Err(Error::new(ErrorKind::NotFound, text));
                }
            }
        }
        Ok(news)
    }

    /// Compares what a worker knows with what it holds: which of its leases are lost, and what is
    /// given back since it does not know of it.
    async fn compare_held(
        &self,
        session: &Session,
        worker: i32,
        known: &HeldLeases,
        now: Timestamp,
    ) -> Result<(Vec<Lease>, Vec<TaskId>, News)> {
        let held = held_by(session, worker).await?;
        let stamps = stamps(session, held.iter().map(|task| task.seq)).await?;
        let parts = |lease: &Lease| Some((token_of(lease.epoch)?, Id::of(&lease.task)?));
        let named: HashSet<_> = known.leases.iter().filter_map(parts).collect();
        let id = |task: &HeldTask| {
            stamps.get(&task.seq).map(|stamp| Id { seq: task.seq, stamp: *stamp })
        };
        let older_than_ms = duration::as_millis_ceil(known.older_than);
        let is_unknown = |task: &HeldTask| {
            let is_named = id(task).is_some_and(|id| named.contains(&(task.epoch, id)));
            !is_named && !task.is_busy && now.as_millis() - task.claimed_at > older_than_ms
        };
        let (unknown, kept): (Vec<_>, Vec<_>) = held.into_iter().partition(is_unknown);
        let given_back = unknown.iter().filter_map(&id).map(Id::task_id).collect();
        let valid: HashSet<_> =
            kept.iter().filter_map(|task| Some((task.epoch, id(task)?))).collect();
        let mut lost = known.leases.clone();
        lost.retain(|lease| !parts(lease).is_some_and(|parts| valid.contains(&parts)));
        let (_, news) = self.give_back(session, &leases(&unknown), now).await?;
        Ok((lost, given_back, news))
    }

    /// Gives tasks back, by token and number; answers how many.
    pub(super) async fn give_back(
        &self,
        session: &Session,
        leases: &[(i64, i64)],
        now: Timestamp,
    ) -> Result<(usize, News)> {
        if leases.is_empty() {
            return Ok((0, News::default()));
        }
        let mut found = row::take_held(session, leases).await?;
        found.sort_unstable_by_key(|found| found.seq);
        let rows = Row::load(session, found).await?;
        let count = rows.len();
        let mut batch = Batch::new(now, &self.options);
        for row in rows {
            let step = release(row.held());
            row.end_run(&mut batch, step.state, step);
        }
        Ok((count, batch.write(session).await?))
    }

    async fn note_progress(
        &self,
        session: &Session,
        report: &ProgressReport,
        now: Timestamp,
    ) -> Result<()> {
        let (Some(id), Some(token)) = (Id::of(&report.lease.task), token_of(report.lease.epoch))
        else {
            return Ok(());
        };
        let progress = Progress {
            fraction: Progress::part(report.fraction),
            note: clip(&report.note, self.options.limits.error_bytes_max).into(),
            at: now,
        };
        let json = serde_json::to_string(&progress).expect("progress is plain JSON");
        session.execute(sql::PROGRESS, &[&token, &id.seq, &json]).await?;
        Ok(())
    }
}

async fn held_by(session: &Session, worker: i32) -> Result<Vec<HeldTask>> {
    let mut held = Vec::new();
    for row in session.all(sql::HELD_BY, &[&worker]).await? {
        let (token, claimed_at): (i64, i64) = (row.get(0), row.get(1));
        let (firsts, lasts): (Vec<i64>, Vec<i64>) = (row.get(2), row.get(3));
        let (epoch, is_busy): (i64, bool) = (row.get(4), row.get(5));
        held.extend(numbers(&firsts, &lasts).map(|seq| HeldTask {
            token,
            epoch,
            seq,
            claimed_at,
            is_busy,
        }));
    }
    Ok(held)
}

fn leases(held: &[HeldTask]) -> Vec<(i64, i64)> {
    held.iter().map(|task| (task.token, task.seq)).collect()
}

/// What makes ids of numbers.
pub(super) async fn stamps(
    session: &Session,
    seqs: impl Iterator<Item = i64>,
) -> Result<HashMap<i64, i64>> {
    let seqs: Vec<_> = seqs.collect();
    let rows = session.all(sql::STAMPS, &[&seqs]).await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

const fn write_order(order: RunOrder) -> &'static str {
    match order {
        RunOrder::Run => "run",
        RunOrder::Pause => "pause",
        RunOrder::Drain => "drain",
    }
}

/// An order that cannot be read counts as "run": a worker must not stop for a reason nobody gave.
pub(super) fn read_order(stored: &str) -> RunOrder {
    match stored {
        "pause" => RunOrder::Pause,
        "drain" => RunOrder::Drain,
        _ => RunOrder::Run,
    }
}
