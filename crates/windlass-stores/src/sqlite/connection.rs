//! Connections to the file: how they are opened and set up.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use windlass_core::{Error, ErrorKind, Reason, Result};

use super::SqliteOptions;
use super::error::{During, is_busy};

/// The oldest SQLite that is safe: earlier ones can corrupt a file when a reader and a reset of the
/// write-ahead log meet.
const VERSION_MIN: (i32, &str) = (3_051_003, "3.51.3");

/// How long to try for a lock that others hold before giving up.
const BUSY_MAX: Duration = Duration::from_secs(15);

/// Bytes of the write-ahead log that start a checkpoint: many, so that a page changed often is copied back seldom.
const LOG_BYTES_MAX: u64 = 64 << 20;
/// On a small disk the log takes less, but not so little that every commit is copied back.
const LOG_BYTES_MIN: u64 = 512 << 10;
/// The log may take this part of what is free on its disk. A checkpoint needs as much again, in the file itself.
const LOG_PART: u64 = 8;
const PAGE_BYTES: u32 = 8_192;
const CACHE_KIB: u32 = 65_536;
const STATEMENTS_CACHED: usize = 128;

/// Where the data is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    Memory,
    File(PathBuf),
}

/// Opens the connection that writes.
pub(super) fn open_writer(options: &SqliteOptions) -> Result<Connection> {
    check_version(rusqlite::version_number())?;
    let connection = match &options.place {
        Place::Memory => Connection::open_in_memory().during("open a database in memory")?,
        Place::File(path) => open_file(path, options.create)?,
    };
    connection.set_prepared_statement_cache_capacity(STATEMENTS_CACHED);
    connection.busy_timeout(Duration::ZERO).during("set up")?;
    // SQLite opens a file that it may not write as read-only, without a word.
    if connection.is_readonly(rusqlite::MAIN_DB).during("set up")? {
        let text = "the file of the sqlite store cannot be written";
        return Err(Error::new(ErrorKind::Unavailable, text).reason_is(Reason::ReadOnly));
    }
    let synchronous = if options.is_durable { "FULL" } else { "NORMAL" };
    let set = |name: &str, value: &dyn rusqlite::ToSql| {
        while_busy(|| connection.pragma_update(None, name, value)).during("set up")
    };
    set("page_size", &PAGE_BYTES)?;
    set("journal_mode", &"WAL")?;
    set("synchronous", &synchronous)?;
    match &options.place {
        Place::Memory => {}
        Place::File(path) => bound_log(&connection, log_bytes_max(path))?,
    }
    set("cache_size", &-i64::from(CACHE_KIB))?;
    set("temp_store", &"MEMORY")?;
    keep_plans(&connection)?;
    Ok(connection)
}

/// How large the write-ahead log may grow before it is copied back, by what is free on its disk now.
pub(super) fn log_bytes_max(path: &Path) -> u64 {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let disk = rustix::fs::statvfs(folder.unwrap_or(Path::new(".")));
    let free = disk.map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize));
    free.map_or(LOG_BYTES_MAX, |free| (free / LOG_PART).clamp(LOG_BYTES_MIN, LOG_BYTES_MAX))
}

/// Copies the write-ahead log back at this size; one that has grown larger, while a long read needed all of it, is
/// cut when it begins again.
pub(super) fn bound_log(connection: &Connection, bytes: u64) -> Result<()> {
    let pages = bytes / u64::from(PAGE_BYTES);
    let set = |name, value: u64| {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        while_busy(|| connection.pragma_update(None, name, value)).during("set up")
    };
    set("wal_autocheckpoint", pages)?;
    set("journal_size_limit", bytes)
}

/// Opens a connection that only reads.
pub(super) fn open_reader(path: &Path) -> Result<Connection> {
    let connection = open_file(path, false)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_CACHED);
    connection.busy_timeout(BUSY_MAX).during("set up a reader")?;
    connection.pragma_update(None, "query_only", true).during("set up a reader")?;
    keep_plans(&connection)?;
    Ok(connection)
}

/// Plans a statement once, whatever values it is given. Otherwise SQLite compares each value with the
/// conditions of partial indexes and prepares anew whenever one is bound: 160 µs for each claim.
fn keep_plans(connection: &Connection) -> Result<()> {
    let is_kept = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true);
    is_kept.map(drop).during("set up")
}

/// Repeats while others hold the lock, with small random pauses: SQLite's own waiting grows to
/// 100 ms a step, which starves a writer among busy ones.
pub(super) fn while_busy<T>(
    mut attempt: impl FnMut() -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let started = Instant::now();
    let mut pause_us_max = 200;
    loop {
        match attempt() {
            Err(error) if is_busy(&error) && started.elapsed() < BUSY_MAX => {
                std::thread::sleep(Duration::from_micros(fastrand::u64(50..=pause_us_max)));
                pause_us_max = (pause_us_max * 2).min(5_000);
            }
            answer => return answer,
        }
    }
}

fn open_file(path: &Path, create: bool) -> Result<Connection> {
    let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    if create {
        flags |= OpenFlags::SQLITE_OPEN_CREATE;
        make_private(path);
    } else if !path.exists() {
        let text = format!("no database at {}", path.display());
        return Err(Error::new(ErrorKind::NotFound, text));
    }
    Connection::open_with_flags(path, flags).during(&format!("open {}", path.display()))
}

/// Makes a file that is not there yet, for its user only: SQLite would make it for everybody to read. It gives the
/// files beside it the same rights. Where this fails, SQLite says why.
fn make_private(path: &Path) {
    let mut new = OpenOptions::new();
    new.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut new, 0o600);
    let _ = new.open(path);
}

fn check_version(version: i32) -> Result<()> {
    let (least, name) = VERSION_MIN;
    if version < least {
        let text = format!("SQLite {} is too old, {name} is needed", rusqlite::version());
        return Err(Error::unsupported(text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_sqlite_older_than_3_51_3_is_refused() {
        assert!(check_version(3_051_002).is_err());
        assert!(check_version(3_051_003).is_ok());
        assert!(check_version(rusqlite::version_number()).is_ok());
    }
}
