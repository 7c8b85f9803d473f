//! Beats, orders and leaving, on asynq's keys.

use std::collections::{BTreeMap, HashSet};

use futures_util::future::try_join_all;
use windlass_core::limits::clip;
use windlass_core::state::release;
use windlass_core::store::{
    Beat, HeldLeases, Order, Orders, ProgressReport, RunOrder, Term, WakeMark,
};
use windlass_core::task::Progress;
use windlass_core::{Epoch, Error, Lease, QueueName, Result, TaskId, Timestamp, WorkerId};

use super::moves::RunEnd;
use super::row::{Row, second_of};
use super::{AT_ONCE, Shared, damage, scripts};
use crate::redis::error::was_refused;
use crate::redis::fleet::{Registered, stale_term};
use crate::redis::reply::{Reply, next};
use crate::redis::rounds::Rounds;

/// How a worker's tasks are looked for.
#[derive(Clone, Copy)]
pub(super) struct Search {
    /// It gets nothing any more.
    pub(super) is_lost: bool,
    pub(super) term: Option<Term>,
}

/// What a queue is told by a beat, and where a long one goes on.
struct Asked<'a> {
    queue: &'a QueueName,
    cursor: String,
    reports: Vec<(&'a ProgressReport, String)>,
}

/// What a queue answers to a beat.
#[derive(Default)]
struct QueueAnswer {
    /// Where a long answer continues, or empty.
    cursor: String,
    is_paused: bool,
    /// Runs that are to stop, with the numbers of their claims.
    stopped: Vec<(TaskId, u64)>,
}

/// What all queues have answered to a beat.
struct Renewed {
    /// Runs that are to stop.
    cancels: Vec<Lease>,
    paused: HashSet<QueueName>,
}

impl Shared {
    pub(super) async fn beat(&self, beat: &Beat, mark: WakeMark) -> Result<Orders> {
        let (registered, queues) =
            futures_util::future::join(self.fleet.register(beat), self.fleet.queue_names()).await;
        if registered.as_ref().is_err_and(Error::is_lease_lost) {
            // Nobody but this process knows what it shows of a worker that others have declared lost.
            self.hide(&beat.worker).await;
        }
        let (Registered { now, order, is_known }, queues) = (registered?, queues?);
        if !is_known {
            self.register_again().await?;
        }
        let Renewed { mut cancels, paused } = self.renew(beat, &queues, now).await?;
        let paused_queues = beat.card.queues_where(|queue| paused.contains(queue));
        let (mut lost, mut given_back) = (Vec::new(), Vec::new());
        if let Some(known) = &beat.held {
            (lost, given_back) = self.compare_held(&beat.worker, known, &queues).await?;
            // What went back is not the worker's to stop any more.
            cancels.retain(|lease| !given_back.contains(&lease.task));
        }
        self.show(beat, now).await;
        Ok(Orders { order, paused_queues, cancels, lost, given_back, now, mark })
    }

    /// Renews all that a worker holds, hands its progress over, and hears which of its runs are to stop and which
    /// queues are paused: in one call, unless it holds much or the queues lie on different servers.
    async fn renew(&self, beat: &Beat, queues: &[QueueName], now: Timestamp) -> Result<Renewed> {
        let until = second_of(now.after(beat.lease).as_millis());
        let mut asked: Vec<_> = queues
            .iter()
            .map(|queue| Asked {
                queue,
                cursor: String::new(),
                // The queue of a run is not told: all are asked, and the claim's number tells them apart.
                reports: beat
                    .progress
                    .iter()
                    .map(|report| (report, self.progress_json(report, now)))
                    .collect(),
            })
            .collect();
        let (mut cancels, mut paused) = (BTreeMap::new(), HashSet::new());
        while !asked.is_empty() {
            let chunks = self.fleet.by_slot(&asked).flat_map(|group| group.chunks(AT_ONCE));
            let answers =
                try_join_all(chunks.map(|chunk| self.renew_some(beat, until, chunk))).await?;
            let mut more = Vec::new();
            for (asked, answer) in asked.iter().zip(answers.into_iter().flatten()) {
                cancels.extend(answer.stopped);
                if answer.is_paused {
                    paused.insert(asked.queue.clone());
                }
                if !answer.cursor.is_empty() {
                    let cursor = answer.cursor;
                    more.push(Asked { queue: asked.queue, cursor, reports: Vec::new() });
                }
            }
            asked = more;
        }
        let lease = |(task, number): (TaskId, u64)| Lease { task, epoch: Epoch(number.into()) };
        Ok(Renewed { cancels: cancels.into_iter().map(lease).collect(), paused })
    }

    async fn renew_some(
        &self,
        beat: &Beat,
        until: i64,
        chunk: &[Asked<'_>],
    ) -> Result<Vec<QueueAnswer>> {
        let stems: Vec<_> = chunk.iter().map(|asked| self.stem(asked.queue)).collect();
        let mut call = scripts::BEAT
            .on(&stems)
            .arg(self.options().told_time())
            .arg(beat.worker.as_str())
            .arg(until);
        for asked in chunk {
            call.add(&asked.cursor);
            call.add(asked.reports.len());
            for (report, json) in &asked.reports {
                call.add(report.lease.task.as_str());
                call.add(report.lease.epoch.to_string());
                call.add(json);
            }
        }
        let read = |(asked, told): (&Asked<'_>, Reply)| {
            let mut parts = match damage::damage_in(told)? {
                Ok(told) => told.list()?,
                Err(why) => {
                    damage::log(asked.queue, &why);
                    return Ok(QueueAnswer::default());
                }
            };
            let cursor = next(&mut parts, "beat")?.text()?;
            let is_paused = next(&mut parts, "beat")?.number()? == 1;
            let mut stopped = Vec::new();
            while let (Some(id), Some(number)) = (parts.next(), parts.next()) {
                stopped.push((TaskId::new(id.text()?), number.number()?.unsigned_abs()));
            }
            Ok(QueueAnswer { cursor, is_paused, stopped })
        };
        match self.ask(call).await {
            // Its slot moves, and nobody can take its tasks meanwhile: the next beat renews them.
            Err(error) if was_refused(&error) => {
                Ok(chunk.iter().map(|_| QueueAnswer::default()).collect())
            }
            reply => chunk.iter().zip(reply?.list()?).map(read).collect(),
        }
    }

    fn progress_json(&self, report: &ProgressReport, now: Timestamp) -> String {
        let progress = Progress {
            fraction: Progress::part(report.fraction),
            note: clip(&report.note, self.options().limits.error_bytes_max).into(),
            at: now,
        };
        serde_json::to_string(&progress).expect("progress is plain JSON")
    }

    /// Compares what a worker knows with what it holds: which of its leases are lost, and what is given
    /// back since it does not know of it.
    async fn compare_held(
        &self,
        worker: &WorkerId,
        known: &HeldLeases,
        queues: &[QueueName],
    ) -> Result<(Vec<Lease>, Vec<TaskId>)> {
        let named: HashSet<_> = known.leases.iter().collect();
        let (mut valid, mut given_back, mut has_damage) = (HashSet::new(), Vec::new(), false);
        let search = Search { is_lost: false, term: None };
        for queue in queues {
            let mut cursor = String::new();
            loop {
                let page = self.held_page(queue, worker, &cursor, AT_ONCE, search).await;
                // What a damaged queue holds is not known: nothing there counts as lost.
                let Some((now, next_cursor, rows)) = damage::skip(queue, page)? else {
                    has_damage = true;
                    break;
                };
                let is_unknown = |row: &Row| {
                    let is_named = row.lease().is_some_and(|lease| named.contains(&lease));
                    let age = row.claim.as_ref().map(|claim| now.since(claim.claimed_at));
                    !is_named && age.is_some_and(|age| age > known.older_than)
                };
                let (unknown, kept): (Vec<_>, Vec<_>) = rows.into_iter().partition(is_unknown);
                valid.extend(kept.iter().filter_map(Row::lease));
                given_back.extend(self.give_back(now, unknown, worker).await?);
                cursor = next_cursor;
                if cursor.is_empty() {
                    break;
                }
            }
        }
        let is_lost = |lease: &&Lease| !has_damage && !valid.contains(*lease);
        let lost = known.leases.iter().filter(is_lost).cloned().collect();
        Ok((lost, given_back))
    }

    /// Gives tasks back that a worker still holds by these claims.
    async fn give_back(
        &self,
        now: Timestamp,
        rows: Vec<Row>,
        worker: &WorkerId,
    ) -> Result<Vec<TaskId>> {
        let leases: HashSet<_> = rows.iter().filter_map(Row::lease).collect();
        let placed = self
            .decide_at(now, rows, None, |row, now, error_bytes_max| {
                let is_its = row.claim.as_ref().is_some_and(|claim| claim.worker == *worker);
                let is_known = row.lease().is_some_and(|lease| leases.contains(&lease));
                if !is_its || !is_known || !row.is_own_run() {
                    return None;
                }
                let step = release(row.held());
                let end = RunEnd { state: step.state, step, applied: None };
                Some(row.end_run(now, end, error_bytes_max))
            })
            .await?;
        let is_done = |placed: &super::place::Placed| placed.state.is_some();
        Ok(placed.into_iter().filter(is_done).map(|placed| placed.id).collect())
    }

    /// A page of what a worker holds in a queue.
    pub(super) async fn held_page(
        &self,
        queue: &QueueName,
        worker: &WorkerId,
        cursor: &str,
        limit: usize,
        search: Search,
    ) -> Result<(Timestamp, String, Vec<Row>)> {
        let call = scripts::HELD
            .on(&[self.stem(queue)])
            .arg(self.options().told_time())
            .arg(worker.as_str())
            .arg(cursor)
            .arg(limit)
            .arg(if search.is_lost { "lost" } else { "" })
            .arg(search.term.map(|term| term.to_string()).unwrap_or_default());
        let reply = self.ask(call).await?;
        if reply.is_zero() {
            return Err(stale_term(search.term));
        }
        let mut parts = reply.list()?;
        let now = next(&mut parts, "held")?.time()?;
        let cursor = next(&mut parts, "held")?.text()?;
        let mut rows = Vec::new();
        for found in parts {
            rows.extend(Row::read(queue, found.list()?, now)?);
        }
        Ok((now, cursor, rows))
    }

    pub(super) async fn leave(&self, worker: &WorkerId) -> Result<u64> {
        let queues = self.fleet.end_worker(worker).await?;
        let (mut count, mut is_clean) = (0, true);
        for queue in queues {
            let given_back = self.leave_queue(&queue, worker).await;
            match damage::skip(&queue, given_back)? {
                Some(given_back) => count += given_back,
                None => is_clean = false,
            }
        }
        // What it holds in a damaged queue is taken back by the leader, when that queue is repaired.
        if is_clean {
            self.fleet.forget_unclean(worker).await?;
        }
        self.hide(worker).await;
        Ok(count)
    }

    /// Gives back what a worker holds in a queue, and refuses it everything there from now on.
    async fn leave_queue(&self, queue: &QueueName, worker: &WorkerId) -> Result<u64> {
        let search = Search { is_lost: true, term: None };
        let (mut rounds, mut count) = (Rounds::default(), 0);
        loop {
            let (now, next_cursor, rows) =
                self.held_page(queue, worker, &rounds.cursor, AT_ONCE, search).await?;
            if rounds.is_clean_after(next_cursor, !rows.is_empty()) {
                return Ok(count);
            }
            count += self.give_back(now, rows, worker).await?.len() as u64;
        }
    }

    pub(super) async fn order(&self, order: &Order) -> Result<()> {
        match order {
            Order::Queue { order: RunOrder::Drain, .. } => {
                Err(Error::invalid("a queue can run or pause, not drain"))
            }
            Order::Queue { queue, order } => {
                self.register_queues([queue]).await?;
                let call = scripts::ORDER.on(&[self.stem(queue)]);
                self.fleet.order_queue(call, queue, *order).await
            }
            Order::Worker { worker, order } => self.order_worker(worker, *order).await,
        }
    }
}
