//! Promote in PostgreSQL.

mod damaged;

use windlass_core::store::{Duty, DutyReport};
use windlass_core::{QueueName, Result, Timestamp};

use super::Shared;
use super::error::is_damage;
use super::lead::check_term;
use super::pool::transaction;
use super::session::{Session, Values};
use super::sql;
use crate::wakes::News;

impl Shared {
    pub(super) async fn promote(&self, duty: Duty) -> Result<DutyReport> {
        let promoted = transaction!(self.pool, session => self.promote_due(session, duty));
        let (report, news) = match promoted {
            Err(error) if is_damage(&error) => self.promote_past_damage(duty).await?,
            promoted => promoted?,
        };
        self.tell(news);
        self.fold_now_and_then().await;
        Ok(report)
    }

    async fn promote_due(&self, session: &Session, duty: Duty) -> Result<(DutyReport, News)> {
        check_term(session, duty.term).await?;
        let now = self.now(session).await?;
        let limit = i64::try_from(duty.limit).unwrap_or(i64::MAX);
        let together_max = self.options.ready_together_max();
        let values: Values<'_> = &[&now.as_millis(), &limit, &together_max];
        let rows = session.all(sql::PROMOTE, values).await?;
        let done: i64 = rows.iter().map(|row| row.get::<_, i64>(1)).sum();
        let ready = rows.iter().map(|row| QueueName::stored(row.get(0))).collect();
        let next_due = next_due(session, sql::PROMOTE_NEXT).await?;
        let report = DutyReport {
            done: done.unsigned_abs(),
            has_more: done > 0 && next_due.is_some_and(|at| at <= now),
            next_due,
            ..DutyReport::default()
        };
        Ok((report, News { ready, ..News::default() }))
    }
}

/// The earliest instant that is left to a sweep.
pub(super) async fn next_due(session: &Session, text: &'static str) -> Result<Option<Timestamp>> {
    let row = session.one(text, &[]).await?;
    Ok(row.and_then(|row| row.get::<_, Option<i64>>(0)).map(Timestamp::from_millis))
}
