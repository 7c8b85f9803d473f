//! How a PostgreSQL store does: for a ping, for the doctor, and its repairs: places and counts.

mod holders;
mod places;
mod server;

use std::collections::BTreeMap;

use windlass_core::store::{Depth, Finding, Inspection, Severity, WriteRefusal};
use windlass_core::{Error, Reason, Result, Timestamp};

use super::Shared;
use super::pool::transaction;
use super::read::{queues, read_counts};
use super::session::Session;
use super::sql;
use crate::wakes::News;

type Counts = BTreeMap<(String, usize), [i64; 7]>;

impl Shared {
    pub(super) async fn inspect(&self, depth: Depth) -> Result<Inspection> {
        let mut repaired = None;
        if depth == Depth::Repair {
            let (news, finding) = transaction!(self.pool, session => self.repair(session))?;
            self.tell(news);
            repaired = finding;
        }
        if depth == Depth::Ping {
            // On the shared connection: every process asks all the time, and most have no other open.
            return self.look(&*self.work.session().await?, depth).await;
        }
        let held = self.pool.get().await?;
        let inspection = self.look(&held.session, depth).await;
        held.back();
        let mut inspection = inspection?;
        inspection.findings.extend(repaired);
        Ok(inspection)
    }

    async fn look(&self, session: &Session, depth: Depth) -> Result<Inspection> {
        let row = session.one(sql::PING, &[&self.options.told_time()]).await?;
        let row = row.ok_or_else(|| Error::corrupt("a ping had no answer"))?;
        let now = Timestamp::from_millis(row.get(0));
        let findings = match depth {
            Depth::Ping => Vec::new(),
            Depth::Full | Depth::Repair => {
                session.wait_patiently(true);
                let looked = async {
                    let mut findings = findings(session, now).await?;
                    findings.extend(server::findings(session, self.options.is_durable).await?);
                    Ok(findings)
                };
                let mut findings = within_limits(session, looked).await?;
                findings.extend(holders::findings(session).await?);
                // Not within limits: there the doctor has set a level of its own.
                findings.extend(server::isolation(session).await?);
                findings
            }
        };
        let version = format!("PostgreSQL {}", row.get::<_, &str>(2));
        let refused = |text| Some(WriteRefusal { reason: Reason::ReadOnly, text });
        let refusal = match (row.get(1), row.get(3)) {
            (true, _) => refused(
                "the database is read-only: a standby, or default_transaction_read_only is on",
            ),
            (false, true) => {
                refused("the role lacks rights that windlass needs; `windlass doctor` names them")
            }
            (false, false) => None,
        };
        Ok(Inspection { now, refusal, version, findings, brokers: Vec::new() })
    }

    /// Puts tasks without a place back and counts all anew, while nobody else writes.
    async fn repair(&self, session: &Session) -> Result<(News, Option<Finding>)> {
        session.wait_patiently(true);
        session.control(sql::INSPECT_LIMITS).await?;
        session.control(sql::LOCK_ALL).await?;
        let repaired = self.put_back_lost(session).await?;
        self.repair_counts(session).await?;
        Ok(repaired)
    }

    async fn repair_counts(&self, session: &Session) -> Result<()> {
        let counted = counts(session, sql::COUNTED).await?;
        session.all(sql::COUNTS_CLEAR, &[]).await?;
        let names = counted.keys().map(|(queue, _)| queue.as_str());
        let (queues, _) = self.queues.find(session, names).await?;
        let rows: Vec<_> = counted
            .iter()
            .filter_map(|((queue, priority), counts)| {
                Some((queues.id(queue)?, i16::try_from(*priority).ok()?, *counts))
            })
            .collect();
        let queues: Vec<_> = rows.iter().map(|row| row.0).collect();
        let priorities: Vec<_> = rows.iter().map(|row| row.1).collect();
        let of = |state: usize| -> Vec<i32> {
            rows.iter().map(|row| i32::try_from(row.2[state]).unwrap_or(i32::MAX)).collect()
        };
        session
            .execute(
                sql::PUT_DELTA,
                &[&queues, &priorities, &of(0), &of(1), &of(2), &of(3), &of(4), &of(5), &of(6)],
            )
            .await?;
        Ok(())
    }
}

/// Asks in a transaction of its own, with a doctor's plans, and not for ever. All that is compared is seen at one moment,
/// whatever others do meanwhile.
async fn within_limits<T>(session: &Session, asked: impl Future<Output = Result<T>>) -> Result<T> {
    session.control("BEGIN ISOLATION LEVEL REPEATABLE READ").await?;
    let answer = match session.control(sql::INSPECT_LIMITS).await {
        Ok(()) => asked.await,
        Err(error) => Err(error),
    };
    // Nothing was written; and after an error a rollback is all that the server takes.
    let ended = session.control("ROLLBACK").await;
    let answer = answer?;
    ended.map(|()| answer)
}

/// Everything that an operator should know.
async fn findings(session: &Session, now: Timestamp) -> Result<Vec<Finding>> {
    let mut findings = vec![sizes(session).await?];
    findings.extend(check_counts(session).await?);
    findings.extend(places::findings(session).await?);
    findings.extend(check_workers(session, now).await?);
    for queue in queues(session).await? {
        if let Some(at) = queue.oldest_pending_at {
            let (name, age) = (&queue.name, now.since(at).as_secs());
            let text = format!("the oldest pending task of queue {name} has waited {age} s");
            findings.push(finding(Severity::Info, "backlog", text, ""));
        }
    }
    Ok(findings)
}

async fn sizes(session: &Session) -> Result<Finding> {
    let rows = session.all(sql::INSPECT_SIZES, &[]).await?;
    let total: i64 = rows.iter().map(|row| row.get::<_, i64>(1)).sum();
    let largest: Vec<_> = rows
        .iter()
        .take(3)
        .map(|row| format!("{} {} MiB", row.get::<_, &str>(0), row.get::<_, i64>(1) >> 20))
        .collect();
    let text = format!("{} MiB, most of it in {}", total >> 20, largest.join(", "));
    Ok(finding(Severity::Info, "size", text, ""))
}

async fn check_counts(session: &Session) -> Result<Option<Finding>> {
    let kept = counts(session, sql::COUNTS).await?;
    let counted = counts(session, sql::COUNTED).await?;
    let is_empty = |counts: &[i64; 7]| counts.iter().all(|count| *count == 0);
    let differs = kept.iter().any(|(lane, counts)| {
        counted.get(lane).map_or(!is_empty(counts), |counted| counted != counts)
    }) || counted.keys().any(|lane| !kept.contains_key(lane));
    Ok(differs.then(|| {
        let text = "the kept counts differ from the tasks".into();
        finding(Severity::Problem, "counters", text, "run `windlass doctor --repair`")
    }))
}

async fn check_workers(session: &Session, now: Timestamp) -> Result<Option<Finding>> {
    let row = session.one(sql::INSPECT_OVERDUE, &[&now.as_millis()]).await?;
    let overdue: i64 = row.map_or(0, |row| row.get(0));
    Ok((overdue > 0).then(|| {
        let text = format!("{overdue} workers are silent and not declared lost yet");
        let advice = "start a worker or server: one of them leads and takes their tasks back";
        finding(Severity::Warning, "workers", text, advice)
    }))
}

async fn counts(session: &Session, text: &'static str) -> Result<Counts> {
    let rows = session.all(text, &[]).await?;
    let read = |row: &tokio_postgres::Row| {
        let (queue, priority, counts) = read_counts(row);
        ((queue, priority), counts)
    };
    Ok(rows.iter().map(read).collect())
}

fn finding(severity: Severity, subject: &'static str, text: String, advice: &str) -> Finding {
    Finding { severity, subject, text, advice: advice.into() }
}
