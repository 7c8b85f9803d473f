//! How an SQLite store does: for a ping, for the doctor, and its one repair, the counts.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::Connection;
use uuid::Uuid;
use windlass_core::store::{Finding, Severity, WriteRefusal};
use windlass_core::{Error, Reason, Result, Timestamp};

use super::error::During;
use super::read::{queues, read_tally};
use super::row::{task_id, text};
use super::sql;
use super::transaction::Tx;

type Tallies = BTreeMap<(String, usize), [i64; 7]>;

/// Everything that an operator should know.
pub(super) fn findings(connection: &Connection, now: Timestamp) -> Result<Vec<Finding>> {
    let mut findings = vec![check_file(connection)?, size(connection)?];
    findings.extend(connection.path().and_then(|path| check_rights(Path::new(path))));
    findings.extend(check_counts(connection)?);
    findings.extend(check_workers(connection, now)?);
    findings.extend(check_rows(connection)?);
    for queue in queues(connection)? {
        if let Some(at) = queue.oldest_pending_at {
            let (name, age) = (&queue.name, now.since(at).as_secs());
            let text = format!("the oldest pending task of queue {name} has waited {age} s");
            findings.push(finding(Severity::Info, "backlog", text, ""));
        }
    }
    Ok(findings)
}

/// Why nothing can be written.
pub(super) fn write_refusal(error: &Error) -> WriteRefusal {
    let reason = error.reason();
    let text = match reason {
        Reason::StorageFull => "the disk is full",
        _ => "the file cannot be written",
    };
    WriteRefusal { reason, text }
}

/// Nothing can be written, for this reason.
pub(super) fn refused(error: &Error) -> Finding {
    let WriteRefusal { reason, text } = write_refusal(error);
    let advice = match reason {
        Reason::StorageFull => "make room on the disk of the file",
        _ => "look at the rights of the file and of its folder",
    };
    finding(Severity::Problem, "writes", format!("{text}: {}", error.chain()), advice)
}

impl Tx<'_> {
    /// Counts the tasks anew.
    pub(super) fn repair_counts(&mut self) -> Result<()> {
        let counted = tallies(self.connection, sql::TALLY_COUNTED)?;
        self.execute(sql::TALLY_CLEAR, [])?;
        for ((queue, priority), c) in counted {
            let params = (queue, priority, c[0], c[1], c[2], c[3], c[4], c[5], c[6]);
            self.execute(sql::TALLY_ADD, params)?;
        }
        Ok(())
    }
}

fn check_file(connection: &Connection) -> Result<Finding> {
    let answer: String = connection
        .pragma_query_value(None, "quick_check", |row| row.get(0))
        .during("check the file")?;
    if answer == "ok" {
        return Ok(finding(Severity::Info, "file", "the file is sound".into(), ""));
    }
    let advice =
        "stop all windlass processes, copy the file, and recover it with `sqlite3 .recover`";
    Ok(finding(Severity::Problem, "file", format!("the file is damaged: {answer}"), advice))
}

/// Warns of a file that other users of the machine can read or write.
fn check_rights(path: &Path) -> Option<Finding> {
    #[cfg(unix)]
    let mode = std::os::unix::fs::PermissionsExt::mode(&path.metadata().ok()?.permissions());
    #[cfg(not(unix))]
    let mode = 0;
    (mode & 0o007 != 0).then(|| {
        let text =
            format!("every user of this machine can open the file (mode {:o})", mode & 0o777);
        let path = path.display();
        let advice = format!("run `chmod 600 {path} {path}-wal {path}-shm`");
        finding(Severity::Warning, "rights", text, &advice)
    })
}

fn size(connection: &Connection) -> Result<Finding> {
    let read = |name| {
        connection
            .pragma_query_value(None, name, |row| row.get::<_, i64>(0))
            .during("read the size")
    };
    let (pages, free, bytes) = (read("page_count")?, read("freelist_count")?, read("page_size")?);
    let mebibytes = |pages: i64| pages * bytes / (1 << 20);
    let text = format!("{} MiB, of which {} MiB free for reuse", mebibytes(pages), mebibytes(free));
    Ok(finding(Severity::Info, "size", text, ""))
}

fn check_counts(connection: &Connection) -> Result<Option<Finding>> {
    let kept = tallies(connection, sql::TALLY_ALL)?;
    let counted = tallies(connection, sql::TALLY_COUNTED)?;
    let is_empty = |counts: &[i64; 7]| counts.iter().all(|count| *count == 0);
    let differs = kept.iter().any(|(lane, counts)| {
        counted.get(lane).map_or(!is_empty(counts), |counted| counted != counts)
    }) || counted.keys().any(|lane| !kept.contains_key(lane));
    Ok(differs.then(|| {
        let text = "the kept counts differ from the tasks".into();
        finding(Severity::Problem, "counters", text, "run `windlass doctor --repair`")
    }))
}

fn check_workers(connection: &Connection, now: Timestamp) -> Result<Option<Finding>> {
    let name = "look for silent workers";
    let overdue: i64 = connection
        .prepare_cached(sql::INSPECT_OVERDUE)
        .and_then(|mut statement| statement.query_row([now.as_millis()], |row| row.get(0)))
        .during(name)?;
    Ok((overdue > 0).then(|| {
        let text = format!("{overdue} workers are silent and not declared lost yet");
        let advice = "start a worker or server: one of them leads and takes their tasks back";
        finding(Severity::Warning, "workers", text, advice)
    }))
}

/// Names tasks with values that windlass does not write.
fn check_rows(connection: &Connection) -> Result<Vec<Finding>> {
    let name = "look for damaged rows";
    let mut statement = connection.prepare_cached(sql::INSPECT_ROWS).during(name)?;
    let rows = statement.query_map([], |row| {
        let (id, queue) = (task_id(Uuid::from_bytes(row.get(0)?)), text(row, 1)?);
        let text = format!("task {id} of queue {queue} has values out of range");
        let advice = "windlass reads each as the nearest value in range; delete the task, or correct its row with sqlite3";
        Ok(finding(Severity::Warning, "tasks", text, advice))
    });
    rows.during(name)?.collect::<rusqlite::Result<_>>().during(name)
}

fn tallies(connection: &Connection, text: &'static str) -> Result<Tallies> {
    let name = "compare the counts";
    let mut statement = connection.prepare_cached(text).during(name)?;
    let rows = statement
        .query_map([], |row| read_tally(row).map(|(queue, priority, c)| ((queue, priority), c)))
        .during(name)?;
    rows.collect::<rusqlite::Result<_>>().during(name)
}

fn finding(severity: Severity, subject: &'static str, text: String, advice: &str) -> Finding {
    Finding { severity, subject, text, advice: advice.into() }
}
