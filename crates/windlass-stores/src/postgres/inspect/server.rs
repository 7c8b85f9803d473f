//! What the doctor finds about the server: dead rows, settings, rights, partitions.

use windlass_core::Result;
use windlass_core::store::{Finding, Severity};

use super::super::session::Session;
use super::super::sql;
use super::finding;

/// So many dead rows in a table are worth a word.
const DEAD_ROWS_MIN: i64 = 50_000;

/// Everything that an operator should know about the server.
pub(super) async fn findings(session: &Session, is_durable: bool) -> Result<Vec<Finding>> {
    let mut findings = dead_rows(session).await?;
    findings.extend(settings(session, is_durable).await?);
    findings.extend(rights(session).await?);
    findings.extend(partitions(session).await?);
    Ok(findings)
}

async fn dead_rows(session: &Session) -> Result<Vec<Finding>> {
    let rows = session.all(sql::INSPECT_DEAD, &[&DEAD_ROWS_MIN]).await?;
    let read = |row: &tokio_postgres::Row| {
        let (table, dead, living): (&str, i64, i64) = (row.get(0), row.get(1), row.get(2));
        let text = format!("table {table} has {dead} dead rows beside {living} living ones");
        let advice = "see who holds back vacuum; is autovacuum on, and does somebody lead?";
        finding(Severity::Warning, "vacuum", text, advice)
    };
    Ok(rows.iter().map(read).collect())
}

/// Settings of the server that break the promise of a durable store.
async fn settings(session: &Session, is_durable: bool) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let names = ["fsync", "full_page_writes", "autovacuum"];
    for row in session.all(sql::INSPECT_SETTINGS, &[&&names[..]]).await? {
        let (name, value): (&str, &str) = (row.get(0), row.get(1));
        if value != "off" {
            continue;
        }
        let (severity, effect) = match name {
            "autovacuum" => (Severity::Warning, "tables grow without end"),
            _ if is_durable => {
                (Severity::Problem, "a crash of the machine loses what was acknowledged")
            }
            _ => (Severity::Warning, "a crash of the machine may destroy the database"),
        };
        let text = format!("{name} is off on the server: {effect}");
        findings.push(finding(severity, "durability", text, "switch it on in postgresql.conf"));
    }
    let commit = session.one(sql::INSPECT_COMMIT, &[]).await?;
    let commit: String = commit.map(|row| row.get(0)).unwrap_or_default();
    if is_durable && matches!(commit.as_str(), "off" | "local") {
        let text = format!("synchronous_commit is {commit} although the store is to be durable");
        let advice = "let nothing between windlass and the server change it";
        findings.push(finding(Severity::Problem, "durability", text, advice));
    }
    Ok(findings)
}

/// The level of transactions. Claims and endings lock first and read after, which only `read committed` lets see what was
/// committed meanwhile.
pub(super) async fn isolation(session: &Session) -> Result<Option<Finding>> {
    let Some(row) = session.one(sql::INSPECT_ISOLATION, &[]).await? else { return Ok(None) };
    let (default, level): (&str, &str) = (row.get(0), row.get(1));
    if level != "read committed" {
        let text = format!("transactions of windlass are {level} although it sets read committed");
        let advice =
            "let nothing between windlass and the server change it: claims fail with 40001";
        return Ok(Some(finding(Severity::Problem, "isolation", text, advice)));
    }
    Ok((default != "read committed").then(|| {
        let text = format!(
            "default_transaction_isolation is {default}; windlass sets read committed for its own \
             transactions"
        );
        let advice =
            "transactions of applications that submit tasks may fail with 40001: begin them again";
        finding(Severity::Info, "isolation", text, advice)
    }))
}

async fn rights(session: &Session) -> Result<Option<Finding>> {
    let rows = session.all(sql::INSPECT_RIGHTS, &[]).await?;
    let missing: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
    Ok((!missing.is_empty()).then(|| {
        let first = missing.iter().take(5).copied().collect::<Vec<_>>().join(", ");
        let text = format!("the role lacks {} rights, among them {first}", missing.len());
        finding(
            Severity::Problem,
            "rights",
            text,
            "grant them: docs/postgres.md lists what a role needs",
        )
    }))
}

async fn partitions(session: &Session) -> Result<Vec<Finding>> {
    let rows = session.all(sql::INSPECT_PARTITIONS, &[]).await?;
    let read = |row: &tokio_postgres::Row| {
        let (table, parts): (&str, i64) = (row.get(0), row.get(1));
        let text = format!("table {table} has {parts} partitions");
        let (severity, advice) = match parts {
            0 => (Severity::Problem, "start a worker or server: whoever leads makes them"),
            1..200 => (Severity::Info, ""),
            _ => (Severity::Warning, "shorten retention, or see why the oldest cannot be dropped"),
        };
        finding(severity, "partitions", text, advice)
    };
    Ok(rows.iter().map(read).collect())
}
