//! Beats, orders and leaving, on Redis Streams.

use std::collections::{BTreeMap, HashSet};
use std::time::Instant;

use futures_util::future::try_join_all;
use windlass_core::limits::clip;
use windlass_core::state::release;
use windlass_core::store::{
    Beat, HeldLeases, Order, Orders, ProgressReport, RunOrder, Term, WakeMark,
};
use windlass_core::task::Progress;
use windlass_core::{Error, Lease, QueueName, Result, TaskId, Timestamp, WorkerId};

use super::epoch;
use super::id::Id;
use super::moves::RunEnd;
use super::row::Row;
use super::{AT_ONCE, Shared, scripts};
use crate::redis::error::{in_queue, was_refused};
use crate::redis::fleet::{Registered, stale_term};
use crate::redis::reply::{Reply, next};
use crate::redis::rounds::Rounds;
use crate::redis::troubles::skip;

/// What an epoch tells of its run: the entry, and mostly the time of the claim.
type RunTold = (epoch::Entry, Option<Timestamp>);

/// How a worker's tasks are looked for.
#[derive(Clone, Copy)]
pub(super) struct Search {
    /// It gets nothing any more.
    pub(super) is_lost: bool,
    pub(super) term: Option<Term>,
}

/// What a queue has told a worker.
struct Told {
    queue: QueueName,
    /// The worker holds something there, if that was asked.
    holds: bool,
    is_paused: bool,
    /// Tasks whose cancellation was asked for while they run, whoever runs them.
    asked: Vec<Id>,
}

impl Told {
    fn read(queue: QueueName, told: Reply) -> Result<Self> {
        let mut parts = told.list()?;
        let holds = next(&mut parts, "beat")?.number()? > 0;
        let is_paused = next(&mut parts, "beat")?.number()? == 1;
        let ids = parts.map(|id| Ok(Id::from_stored(&id.bytes()?)));
        let asked = ids.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect();
        Ok(Self { queue, holds, is_paused, asked })
    }
}

impl Shared {
    pub(super) async fn beat(&self, beat: &Beat, mark: WakeMark) -> Result<Orders> {
        let Registered { now, order, is_known } = self.fleet.register(beat).await?;
        if !is_known {
            self.register_again().await?;
        }
        // What a worker holds without its knowledge may be anywhere.
        let mut queues = match beat.held {
            Some(_) => self.all_queues().await?,
            None => self.recent_queues(&beat.card.queues).await?,
        };
        let reported = beat.progress.iter().filter_map(|report| Id::of(&report.lease.task));
        queues.extend(reported.flat_map(|id| self.known_queues_of(id)));
        queues.sort();
        queues.dedup();

        let began = Instant::now();
        let told = self.ask_queues(beat, &queues, now).await?;
        for told in &told {
            self.recent.note_paused(&told.queue, told.is_paused);
        }
        for told in told.iter().filter(|told| told.asked.is_empty()) {
            self.recent.had_nothing(&told.queue, began);
        }
        let paused: HashSet<_> =
            told.iter().filter(|told| told.is_paused).map(|told| &told.queue).collect();
        let paused_queues = beat.card.queues_where(|queue| paused.contains(queue));
        let (mut lost, mut given_back) = (Vec::new(), Vec::new());
        if let Some(known) = &beat.held {
            let held_in: Vec<_> =
                told.iter().filter(|told| told.holds).map(|told| told.queue.clone()).collect();
            (lost, given_back) = self.compare_held(&beat.worker, known, &held_in).await?;
        }
        let cancels = self.cancels_of(&beat.worker, told).await?;
        Ok(Orders { order, paused_queues, cancels, lost, given_back, now, mark })
    }

    /// Hands progress to the queues, and asks each what it has to tell: in one call, unless they may lie on
    /// different servers.
    async fn ask_queues(
        &self,
        beat: &Beat,
        queues: &[QueueName],
        now: Timestamp,
    ) -> Result<Vec<Told>> {
        let mut reports: BTreeMap<&QueueName, Vec<(Id, RunTold, String)>> =
            queues.iter().map(|queue| (queue, Vec::new())).collect();
        for report in &beat.progress {
            let Lease { task, epoch } = &report.lease;
            let (Some(id), Some(entry)) = (Id::of(task), epoch::entry_of(*epoch)) else { continue };
            let run = (entry, epoch::claimed_at_of(*epoch));
            let json = self.progress_json(report, now);
            for (queue, reports) in &mut reports {
                if id.leads_to(queue) {
                    reports.push((id, run, json.clone()));
                }
            }
        }
        let reports: Vec<_> = reports.into_iter().collect();
        let chunks = self.fleet.by_slot(&reports).flat_map(|group| group.chunks(AT_ONCE));
        let asking = chunks.map(|chunk| async move {
            let stems: Vec<_> = chunk.iter().map(|(queue, _)| self.stem(queue)).collect();
            let mut call = scripts::BEAT
                .on(&stems)
                .arg(self.options().told_time())
                .arg(beat.worker.as_str())
                .arg(u8::from(beat.held.is_some()));
            for (_, reports) in chunk {
                call.add(reports.len());
                for (id, (entry, claimed_at), json) in reports {
                    call.add(&id.0[..]);
                    call.add(entry.text());
                    call.add(claimed_at.map(|at| at.as_millis().to_string()).unwrap_or_default());
                    call.add(json);
                }
            }
            let told = match self.ask(call).await {
                // The lease is renewed already. What a queue whose slot moves has to say waits for the next beat.
                Err(error) if beat.held.is_none() && was_refused(&error) => return Ok(Vec::new()),
                told => told?.list()?,
            };
            let queues = chunk.iter().map(|(queue, _)| (*queue).clone());
            queues
                .zip(told)
                .map(|(queue, told)| Told::read(queue, told))
                .collect::<Result<Vec<_>>>()
        });
        Ok(try_join_all(asking).await?.into_iter().flatten().collect())
    }

    fn progress_json(&self, report: &ProgressReport, now: Timestamp) -> String {
        let progress = Progress {
            fraction: Progress::part(report.fraction),
            note: clip(&report.note, self.options().limits.error_bytes_max).into(),
            at: now,
        };
        serde_json::to_string(&progress).expect("progress is plain JSON")
    }

    /// The runs of a worker among tasks whose cancellation was asked for.
    async fn cancels_of(&self, worker: &WorkerId, told: Vec<Told>) -> Result<Vec<Lease>> {
        let mut cancels = Vec::new();
        for Told { queue, asked, .. } in told.into_iter().filter(|told| !told.asked.is_empty()) {
            let (_, rows) = self.look(&queue, &asked).await?;
            let is_own = |row: &&Row| {
                let runs_it = row.running.as_ref().is_some_and(|running| running.worker == *worker);
                runs_it && row.record.head.is_cancel_requested
            };
            cancels.extend(rows.iter().filter(is_own).filter_map(lease_of));
        }
        Ok(cancels)
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
                // What a damaged queue holds is not known: nothing counts as lost.
                let Some((now, next_cursor, rows)) = skip(queue, page)? else {
                    has_damage = true;
                    break;
                };
                let is_unknown = |row: &Row| {
                    let is_named = lease_of(row).is_some_and(|lease| named.contains(&lease));
                    let age = row.running.as_ref().map(|running| now.since(running.claimed_at));
                    !is_named && age.is_some_and(|age| age > known.older_than)
                };
                let (unknown, kept): (Vec<_>, Vec<_>) = rows.into_iter().partition(is_unknown);
                valid.extend(kept.iter().filter_map(lease_of));
                let entries: HashSet<_> =
                    unknown.iter().filter_map(|row| Some((row.id, row.record.entry?))).collect();
                let back = self.give_back(now, unknown, worker, &entries).await;
                let Some(back) = skip(queue, back)? else {
                    has_damage = true;
                    break;
                };
                given_back.extend(back.into_iter().map(Id::task_id));
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

    /// Gives tasks back that a worker still holds under these entries.
    async fn give_back(
        &self,
        now: Timestamp,
        rows: Vec<Row>,
        worker: &WorkerId,
        entries: &HashSet<(Id, epoch::Entry)>,
    ) -> Result<Vec<Id>> {
        let placed = self
            .decide_at(now, rows, None, |row, now, error_bytes_max| {
                let is_its = row.running.as_ref().is_some_and(|running| running.worker == *worker);
                let entry = row.record.entry?;
                if !is_its || !entries.contains(&(row.id, entry)) {
                    return None;
                }
                let step = release(row.held());
                let end = RunEnd { state: step.state, step, applied: None };
                Some(row.end_run(now, end, error_bytes_max))
            })
            .await?;
        Ok(placed
            .into_iter()
            .filter(|placed| placed.state.is_some())
            .map(|placed| placed.id)
            .collect())
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
        self.read_held(queue, reply)
    }

    pub(super) async fn leave(&self, worker: &WorkerId) -> Result<u64> {
        let queues = self.fleet.end_worker(worker).await?;
        let (mut count, mut is_clean) = (0, true);
        for queue in queues {
            let given_back = self.leave_queue(&queue, worker).await;
            match skip(&queue, given_back)? {
                Some(given_back) => count += given_back,
                None => is_clean = false,
            }
        }
        // What it holds in a damaged queue is taken back by the leader, when that queue is repaired.
        if is_clean {
            self.fleet.forget_unclean(worker).await?;
        }
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
            let entries: HashSet<_> =
                rows.iter().filter_map(|row| Some((row.id, row.record.entry?))).collect();
            count += self.give_back(now, rows, worker, &entries).await?.len() as u64;
        }
    }

    pub(super) async fn order(&self, order: &Order) -> Result<()> {
        match order {
            Order::Queue { order: RunOrder::Drain, .. } => {
                Err(Error::invalid("a queue can run or pause, not drain"))
            }
            Order::Queue { queue, order } => {
                self.announce_writes([queue]).await?;
                let call = scripts::ORDER.on(&[self.stem(queue)]);
                let ordered = self.fleet.order_queue(call, queue, *order).await;
                ordered.map_err(|error| in_queue(queue, error))
            }
            Order::Worker { worker, order } => self.fleet.order_worker(worker, *order).await,
        }
    }
}

fn lease_of(row: &Row) -> Option<Lease> {
    Some(Lease { task: row.task_id(), epoch: row.epoch()? })
}
