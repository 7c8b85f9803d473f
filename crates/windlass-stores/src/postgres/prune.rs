//! Prune and tend in PostgreSQL.

use std::time::{Duration, Instant};

use windlass_core::store::{Duty, DutyReport, IDLE_QUEUE_KEPT};
use windlass_core::{QueueName, Result, State, Timestamp};

use super::Shared;
use super::digest::idempotency_digest;
use super::lead::check_term;
use super::pool::transaction;
use super::promote::next_due;
use super::session::Session;
use super::sql;
use crate::wakes::News;

/// Most queues that one notification of the leader names.
const RUNG_FOR_MAX: i64 = 1_000;
/// How often counts are added up, and hot tables cleared of dead rows.
const FOLD_EVERY: Duration = Duration::from_secs(1);
const VACUUM_EVERY: Duration = Duration::from_secs(5);

impl Shared {
    pub(super) async fn prune(&self, duty: Duty) -> Result<DutyReport> {
        transaction!(self.pool, session => self.prune_over(session, duty))
    }

    async fn prune_over(&self, session: &Session, duty: Duty) -> Result<DutyReport> {
        check_term(session, duty.term).await?;
        let now = self.now(session).await?;
        let limit = i64::try_from(duty.limit).unwrap_or(i64::MAX);
        let read = |rows: Vec<tokio_postgres::Row>| -> Vec<i64> {
            rows.iter().map(|row| row.get(0)).collect()
        };
        let cancelled = read(session.all(sql::PRUNE_FATES, &[&now.as_millis(), &limit]).await?);
        let room = limit - i64::try_from(cancelled.len()).unwrap_or(limit);
        let completed = match room {
            0 => Vec::new(),
            room => read(session.all(sql::PRUNE_DONE, &[&now.as_millis(), &room]).await?),
        };
        let done = (cancelled.len() + completed.len()) as u64;
        if done > 0 {
            session.all(sql::PRUNE_LOCK, &[]).await?;
        }
        self.remove(session, &cancelled, State::Cancelled).await?;
        self.remove(session, &completed, State::Completed).await?;
        let next_due = next_due(session, sql::PRUNE_NEXT).await?;
        let has_more = done > 0 && next_due.is_some_and(|at| at <= now);
        Ok(DutyReport { done, has_more, next_due, ..DutyReport::default() })
    }

    /// Lets go of tasks that stand in no place any more, with the keys that go with their records. Their
    /// rows go with their generation.
    async fn remove(&self, session: &Session, seqs: &Vec<i64>, state: State) -> Result<()> {
        if seqs.is_empty() {
            return Ok(());
        }
        let keyed = session.all(sql::KEYED, &[seqs]).await?;
        if !keyed.is_empty() {
            let digests: Vec<_> =
                keyed.iter().map(|row| idempotency_digest(row.get(1), row.get(2)).0).collect();
            let digests: Vec<&[u8]> = digests.iter().map(|digest| &digest[..]).collect();
            let holders: Vec<i64> = keyed.iter().map(|row| row.get(0)).collect();
            session.execute(sql::KEY_FREE, &[&digests, &holders]).await?;
        }
        let counts = session.all(sql::PRUNE_ROWS, &[seqs]).await?;
        let queues: Vec<i32> = counts.iter().map(|row| row.get(0)).collect();
        let priorities: Vec<i16> = counts.iter().map(|row| row.get(1)).collect();
        let minus = |row: &tokio_postgres::Row| -i32::try_from(row.get::<_, i64>(2)).unwrap_or(0);
        let of = |one: State| -> Vec<i32> {
            counts.iter().map(|row| if one == state { minus(row) } else { 0 }).collect()
        };
        let columns = State::ALL.map(of);
        session
            .execute(
                sql::PUT_DELTA,
                &[
                    &queues,
                    &priorities,
                    &columns[0],
                    &columns[1],
                    &columns[2],
                    &columns[3],
                    &columns[4],
                    &columns[5],
                    &columns[6],
                ],
            )
            .await?;
        Ok(())
    }

    pub(super) async fn tend(&self, duty: Duty) -> Result<DutyReport> {
        let mut report = transaction!(self.pool, session => self.tend_keys(session, duty))?;
        report.has_more |= self.tend_generations(duty).await?;
        if self.options.outbox.is_none() {
            let held = self.pool.get().await?;
            let dropped = held.session.all(sql::BROKER_DROP, &[]).await;
            held.back();
            if let Err(error) = dropped {
                // Someone holds the table; there will be another time.
                tracing::debug!(
                    error = error.chain(),
                    "an outbox that nobody uses was not dropped"
                );
            }
        }
        self.fold_now_and_then().await;
        Ok(report)
    }

    async fn tend_keys(&self, session: &Session, duty: Duty) -> Result<DutyReport> {
        check_term(session, duty.term).await?;
        let now = self.now(session).await?;
        let limit = i64::try_from(duty.limit).unwrap_or(i64::MAX);
        let done = session.execute(sql::TEND_KEYS, &[&now.as_millis(), &limit]).await?;
        session.execute(sql::TEND_CANCELS, &[&limit]).await?;
        let has_more_workers = self.forget_workers(session, now, duty.limit).await?;
        let has_more_queues = self.forget_queues(session, now, duty.limit).await?;
        Ok(DutyReport {
            done,
            has_more: has_more_workers
                || has_more_queues
                || (done > 0 && done == duty.limit as u64),
            ..DutyReport::default()
        })
    }

    /// Forgets queues that are idle for long; answers whether there are more.
    async fn forget_queues(&self, session: &Session, now: Timestamp, limit: usize) -> Result<bool> {
        if !self.queue_sweep.lock().is_due(now) {
            return Ok(false);
        }
        let idle_before = now.before(IDLE_QUEUE_KEPT).as_millis();
        let most = i64::try_from(limit).unwrap_or(i64::MAX);
        let marked = session.execute(sql::QUEUE_SWEEP_MARK, &[&now.as_millis(), &most]).await?;
        let forgotten = session.execute(sql::QUEUE_SWEEP_END, &[&idle_before, &most]).await?;
        let has_more = limit > 0 && (marked == limit as u64 || forgotten == limit as u64);
        if !has_more {
            self.queue_sweep.lock().is_done(now);
        }
        Ok(has_more)
    }

    /// Adds up counts and clears hot tables, unless that was done a moment ago. Nothing is wrong
    /// where it fails.
    pub(super) async fn fold_now_and_then(&self) {
        let (folds, vacuums) = {
            let mut chores = self.chores.lock();
            let is_due = |at: &mut Instant, every| {
                let is_due = at.elapsed() >= every;
                if is_due {
                    *at = Instant::now();
                }
                is_due
            };
            // Where a test moves the time, what depends on folds must not depend on the machine's speed.
            let told = self.options.told_time().unwrap_or(0);
            let has_moved = told - chores.folded_told >= FOLD_EVERY.as_millis() as i64;
            if has_moved {
                chores.folded_told = told;
            }
            (
                is_due(&mut chores.folded_at, FOLD_EVERY) || has_moved,
                is_due(&mut chores.vacuumed_at, VACUUM_EVERY),
            )
        };
        let done = async {
            let held = self.pool.get().await?;
            let mut done = Ok(());
            if folds {
                done = held.session.execute(sql::FOLD, &[]).await.map(drop);
                self.ring_for_pending(&held.session).await?;
            }
            // Behind a pooler it would run under nobody knows which search path; the server's own
            // thresholds for these tables are low.
            if vacuums && !self.options.is_pooled() && is_owner(&held.session).await? {
                done = done.and(held.session.control(sql::TEND_VACUUM).await);
            }
            held.back();
            done
        };
        if (folds || vacuums)
            && let Err(error) = done.await
        {
            tracing::debug!(error = error.chain(), "counts or dead rows were left as they are");
        }
    }
}

impl Shared {
    /// Notifies of queues with pending tasks: those of `quiet` submits, and of whoever died between commit and
    /// notification. Workers that listen look for themselves only every few seconds.
    async fn ring_for_pending(&self, session: &Session) -> Result<()> {
        if !self.options.listens || !self.options.is_looked_for() {
            return Ok(());
        }
        let rows = session.all(sql::READY_QUEUES, &[&RUNG_FOR_MAX]).await?;
        let ready = rows.iter().map(|row| QueueName::stored(row.get::<_, &str>(0))).collect();
        self.tell(News { ready, ..News::default() });
        Ok(())
    }
}

/// Whether this role may vacuum. The server only warns others, but into its log, again and again.
async fn is_owner(session: &Session) -> Result<bool> {
    let row = session.one(sql::TEND_OWNER, &[]).await?;
    Ok(row.is_some_and(|row| row.get(0)))
}

/// When the small chores were last done.
#[derive(Debug)]
pub(super) struct Chores {
    folded_at: Instant,
    /// By the clock of a test.
    folded_told: i64,
    vacuumed_at: Instant,
}

impl Default for Chores {
    fn default() -> Self {
        Self { folded_at: Instant::now(), folded_told: 0, vacuumed_at: Instant::now() }
    }
}
