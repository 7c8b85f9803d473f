//! Promote where a row of `deferred` fails the statement for all others: such rows are set aside, and the others moved.

use std::collections::BTreeMap;
use std::time::Duration;

use windlass_core::store::{Duty, DutyReport};
use windlass_core::{Error, QueueName, Result, Timestamp};

use super::next_due;
use crate::postgres::Shared;
use crate::postgres::error::is_damage;
use crate::postgres::id::Id;
use crate::postgres::lead::check_term;
use crate::postgres::pool::transaction;
use crate::postgres::session::Session;
use crate::postgres::sql;
use crate::wakes::News;

/// When a task that cannot be made pending is tried again.
const PUT_OFF: Duration = Duration::from_secs(60);
/// Most tasks that the log names after one pass.
const NAMED_MAX: usize = 20;

/// A task as a row of `deferred` tells of it.
#[derive(Debug, Clone)]
struct DueTask {
    seq: i64,
    queue: Option<String>,
    stamp: Option<i64>,
}

/// Why a task was not promoted.
enum SetAside {
    IsReady,
    PutOff(Error),
}

#[derive(Default)]
struct Pass {
    report: DutyReport,
    ready: Vec<QueueName>,
    set_aside: Vec<(DueTask, SetAside)>,
}

impl Shared {
    /// Promotes what can be promoted and logs the rest.
    pub(super) async fn promote_past_damage(&self, duty: Duty) -> Result<(DutyReport, News)> {
        let pass = transaction!(self.pool, session => self.promote_sound(session, duty))?;
        for (task, why) in pass.set_aside.iter().take(NAMED_MAX) {
            let (id, queue) = (task.id(), task.queue.as_deref().unwrap_or_default());
            match why {
                SetAside::IsReady => {
                    tracing::error!(id, queue, "a scheduled task was pending already and stays so");
                }
                SetAside::PutOff(error) => {
                    let error = error.chain();
                    tracing::error!(id, queue, error, "a scheduled task cannot become pending");
                }
            }
        }
        Ok((pass.report, News { ready: pass.ready, ..News::default() }))
    }

    async fn promote_sound(&self, session: &Session, duty: Duty) -> Result<Pass> {
        check_term(session, duty.term).await?;
        let now = self.now(session).await?;
        let limit = i64::try_from(duty.limit).unwrap_or(i64::MAX);
        let mut pass = Pass::default();
        let twice = session.all(sql::PROMOTE_TWICE, &[&now.as_millis(), &limit]).await?;
        pass.set_aside.extend(twice.iter().map(|row| (DueTask::read(row), SetAside::IsReady)));
        // No more than were looked at.
        let left = duty.limit.saturating_sub(twice.len());
        let limit = i64::try_from(left).unwrap_or(i64::MAX);
        let due = session.all(sql::PROMOTE_DUE, &[&now.as_millis(), &limit]).await?;
        let due: Vec<_> = due.iter().map(DueTask::read).collect();
        self.promote_narrowing(session, now, due, &mut pass).await?;
        let next_due = next_due(session, sql::PROMOTE_NEXT).await?;
        let set_aside = pass.set_aside.len() as u64;
        pass.report.skipped_bad = set_aside;
        pass.report.has_more =
            pass.report.done + set_aside > 0 && next_due.is_some_and(|at| at <= now);
        pass.report.next_due = next_due;
        Ok(pass)
    }

    /// Promotes all at once; where that fails those of each queue, and in a queue where that fails each task by itself.
    async fn promote_narrowing(
        &self,
        session: &Session,
        now: Timestamp,
        due: Vec<DueTask>,
        pass: &mut Pass,
    ) -> Result<()> {
        if self.promote_some(session, now, &due, pass).await?.is_none() {
            return Ok(());
        }
        let mut queues: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for task in due {
            queues.entry(task.queue.clone()).or_default().push(task);
        }
        for tasks in queues.into_values() {
            if self.promote_some(session, now, &tasks, pass).await?.is_none() {
                continue;
            }
            for task in tasks {
                let alone = std::slice::from_ref(&task);
                if let Some(error) = self.promote_some(session, now, alone, pass).await? {
                    let until = now.after(PUT_OFF).as_millis();
                    session.execute(sql::PROMOTE_LATER, &[&task.seq, &until]).await?;
                    pass.set_aside.push((task, SetAside::PutOff(error)));
                }
            }
        }
        Ok(())
    }

    /// Promotes these tasks, or none of them where one is damaged: then answers how.
    async fn promote_some(
        &self,
        session: &Session,
        now: Timestamp,
        tasks: &[DueTask],
        pass: &mut Pass,
    ) -> Result<Option<Error>> {
        if tasks.is_empty() {
            return Ok(None);
        }
        let seqs: Vec<_> = tasks.iter().map(|task| task.seq).collect();
        let together_max = self.options.ready_together_max();
        let (now, limit) = (now.as_millis(), i64::MAX);
        session.control("SAVEPOINT promoted").await?;
        match session.all(&sql::PROMOTE_SOME, &[&now, &limit, &together_max, &seqs]).await {
            Ok(rows) => {
                session.control("RELEASE SAVEPOINT promoted").await?;
                for row in &rows {
                    pass.report.done += row.get::<_, i64>(1).unsigned_abs();
                    pass.ready.push(QueueName::stored(row.get::<_, &str>(0)));
                }
                Ok(None)
            }
            Err(error) if is_damage(&error) => {
                session.control("ROLLBACK TO SAVEPOINT promoted").await?;
                Ok(Some(error))
            }
            Err(error) => Err(error),
        }
    }
}

impl DueTask {
    fn read(row: &tokio_postgres::Row) -> Self {
        Self { seq: row.get(0), queue: row.get(1), stamp: row.get(2) }
    }

    /// The id, or the number where the row of the task is gone.
    fn id(&self) -> String {
        let id = |stamp| Id { seq: self.seq, stamp }.task_id().to_string();
        self.stamp.map_or_else(|| self.seq.to_string(), id)
    }
}
