//! Expire in PostgreSQL.

use windlass_core::Result;
use windlass_core::state::expire;
use windlass_core::store::{Duty, DutyReport};

use super::Shared;
use super::batch::Batch;
use super::id::numbers;
use super::lead::check_term;
use super::pool::transaction;
use super::promote::next_due;
use super::row::{self, Row};
use super::session::Session;
use super::sql;
use crate::crash_log;
use crate::wakes::News;

impl Shared {
    pub(super) async fn expire(&self, duty: Duty) -> Result<DutyReport> {
        let (report, news) = transaction!(self.pool, session => self.expire_lost(session, duty))?;
        self.tell(news);
        Ok(report)
    }

    async fn expire_lost(&self, session: &Session, duty: Duty) -> Result<(DutyReport, News)> {
        check_term(session, duty.term).await?;
        let now = self.now(session).await?;
        session.execute(sql::EXPIRE_WORKERS, &[&now.as_millis()]).await?;
        // Each lease holds at least one task; one more than the limit tells whether there is more.
        let most = i64::try_from(duty.limit).unwrap_or(i64::MAX - 1) + 1;
        let mut orphans = Vec::new();
        for row in session.all(sql::EXPIRE_ORPHANS, &[&most]).await? {
            let (token, firsts, lasts): (i64, Vec<i64>, Vec<i64>) =
                (row.get(0), row.get(1), row.get(2));
            let room = duty.limit + 1 - orphans.len().min(duty.limit + 1);
            orphans.extend(numbers(&firsts, &lasts).take(room).map(|seq| (token, seq)));
        }
        let has_more = orphans.len() > duty.limit;
        orphans.truncate(duty.limit);
        let mut batch = Batch::new(now, &self.options);
        let mut found = row::take_held(session, &orphans).await?;
        found.sort_unstable_by_key(|found| found.seq);
        let found_count = found.len();
        let rows = Row::load(session, found).await?;
        let (done, mut skipped) = (rows.len(), found_count - rows.len());
        for mut row in rows {
            match row.fault.take() {
                Some(fault) => {
                    skipped += 1;
                    row.discard(&mut batch, fault);
                }
                None => {
                    let step = expire(row.held());
                    crash_log::note(row.task_id(), &row.kind, &row.queue, &step);
                    row.end_run(&mut batch, step.state, step);
                }
            }
        }
        let news = batch.write(session).await?;
        let next_due = next_due(session, sql::EXPIRE_NEXT).await?;
        let report = DutyReport {
            done: done as u64,
            has_more: has_more && found_count > 0,
            next_due,
            skipped_bad: skipped as u64,
            ..DutyReport::default()
        };
        Ok((report, news))
    }
}
