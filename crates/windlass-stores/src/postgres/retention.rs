//! Generations of task numbers in PostgreSQL: opens new ones, drops old ones, and replaces those in
//! which little is left by copies. One small step per call; a step that another's lock keeps from
//! being done is tried again later, and nobody waits for it longer than a moment.

use std::time::{Duration, Instant};

use tokio_postgres::Row as SqlRow;
use windlass_core::store::Duty;
use windlass_core::{Error, Result, Timestamp, duration};

use super::Shared;
use super::error::{is_lock_timeout, is_missing_partition};
use super::generation::{Generation, Step, next};
use super::lead::check_term;
use super::pool::transaction;
use super::session::Session;
use super::sql;

/// Numbers that are looked at for a copy in one step; blocks of 1,024.
const COPIED_AT_ONCE: i64 = 16 * 1_024;
/// Changes that are brought into a copy in one step.
const MENDED_AT_ONCE: i64 = 10_000;
/// Changes that may be left when the copy takes its place: others wait meanwhile.
const MENDED_LAST: i64 = 1_000;
/// How long a lock that was not obtained is left alone; doubled each time.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// When the next try to get the locks may be made.
#[derive(Debug, Default)]
pub(super) struct Patience {
    until: Option<Instant>,
    pause: Duration,
}

/// What a call has done.
enum Done {
    Nothing,
    Step,
    /// Something for which the locks were needed.
    StepUnderLock,
}

impl Shared {
    /// Does one step for the generations; answers whether there is another one to do now.
    pub(super) async fn tend_generations(&self, duty: Duty) -> Result<bool> {
        let may_lock = self.patience.lock().until.is_none_or(|until| Instant::now() >= until);
        match transaction!(self.pool, session => self.step_generations(session, duty, may_lock)) {
            Ok(Done::Nothing) => Ok(false),
            Ok(Done::Step) => Ok(true),
            Ok(Done::StepUnderLock) => {
                *self.patience.lock() = Patience::default();
                Ok(true)
            }
            Err(error) if is_lock_timeout(&error) => {
                let mut patience = self.patience.lock();
                patience.pause = (patience.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
                patience.until = Some(Instant::now() + patience.pause);
                tracing::debug!(error = error.chain(), "old tasks are dropped later");
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    async fn step_generations(
        &self,
        session: &Session,
        duty: Duty,
        may_lock: bool,
    ) -> Result<Done> {
        check_term(session, duty.term).await?;
        let copying = session.one(sql::REWRITE, &[]).await?.map(|row| row.get(0));
        let now = self.now(session).await?;
        let rows = session.all(sql::GENERATIONS, &[&now.as_millis()]).await?;
        let alive = rows.first().map_or(0, |row| row.get(7));
        let generations: Vec<_> = rows.iter().map(|row| read(row, now)).collect();
        match (next(&self.options.generation_rules, &generations, alive), copying) {
            (Some(Step::Open), _) => {
                session.all(sql::GENERATION_OPEN, &[&now.as_millis()]).await?;
                Ok(Done::Step)
            }
            (_, Some(is_copied)) => go_on(session, is_copied, may_lock).await,
            (Some(Step::Drop(los)), None) if may_lock => {
                session.all(sql::GENERATION_DROP, &[&los]).await?;
                Ok(Done::StepUnderLock)
            }
            (Some(Step::Rewrite { lo, hi }), None) if may_lock => {
                session.all(sql::REWRITE_BEGIN, &[&lo, &hi]).await?;
                Ok(Done::StepUnderLock)
            }
            (Some(Step::Drop(_) | Step::Rewrite { .. }) | None, None) => Ok(Done::Nothing),
        }
    }

    /// Makes the partitions that numbers lack; answers those generations (as number >> 32) that this
    /// store has never reserved a number of.
    pub(super) async fn make_generations(&self, seqs: &Vec<i64>) -> Result<Vec<i64>> {
        let held = self.pool.get().await?;
        let told = self.options.told_time();
        let rows = held.session.all(sql::GENERATION_MAKE, &[seqs, &told]).await;
        held.back();
        Ok(rows?.iter().map(|row| row.get(0)).collect())
    }
}

/// True when an insert has failed since there is no partition for a number.
pub(super) fn lacks_partition<T>(answer: &Result<T>) -> bool {
    answer.as_ref().is_err_and(is_missing_partition)
}

/// Goes on with a copy that was begun, by whomever.
async fn go_on(session: &Session, is_copied: bool, may_lock: bool) -> Result<Done> {
    let ask = async |text: &'static str, most: i64| -> Result<bool> {
        let row = session.one(text, &[&most]).await?;
        row.map(|row| row.get(0)).ok_or_else(|| Error::corrupt("a copy had no answer"))
    };
    if !is_copied {
        ask(sql::REWRITE_COPY, COPIED_AT_ONCE).await?;
        return Ok(Done::Step);
    }
    match ask(sql::REWRITE_MEND, MENDED_AT_ONCE).await? {
        true if may_lock => {
            ask(sql::REWRITE_END, MENDED_LAST).await?;
            Ok(Done::StepUnderLock)
        }
        true => Ok(Done::Nothing),
        false => Ok(Done::Step),
    }
}

fn read(row: &SqlRow, now: Timestamp) -> Generation {
    let since = |at: i64| duration::from_millis((now.as_millis() - at).max(0));
    Generation {
        lo: row.get(0),
        hi: row.get(1),
        age: since(row.get(2)),
        closed: row.get::<_, Option<i64>>(3).map(since),
        used: row.get(4),
        pruned: row.get(5),
        is_empty: row.get(6),
    }
}
