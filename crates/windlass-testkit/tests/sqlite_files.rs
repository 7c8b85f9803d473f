//! What windlass says of a file that it cannot use, and that it leaves nothing half-written there.
//!
//! Full and read-only disks are real: a small tmpfs and a read-only mount in a mount namespace of
//! their own, made with `unshare` from util-linux, which every Debian has.

#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

use std::path::Path;
use std::process::Command;

use rusqlite::Connection;
use windlass_core::{Error, ErrorKind, Reason};
use windlass_stores::sqlite::{SqliteOptions, SqliteStore};

async fn open_error(path: &Path) -> Error {
    let url = format!("sqlite:{}", path.display());
    windlass_stores::open(&url).await.err().unwrap_or_else(|| panic!("{url} was opened"))
}

async fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(SqliteOptions::at(path)).await.unwrap()
}

/// Runs `store-child` in a shell inside a mount namespace of its own; answers what it printed.
fn in_namespace(mount: &str, what: &str, folder: &Path) -> String {
    in_namespace_with(mount, what, "", folder)
}

fn in_namespace_with(mount: &str, what: &str, argument: &str, folder: &Path) -> String {
    let script = format!(
        "set -e; {mount}; exec {} {what} sqlite:$FOLDER/tasks.db {argument}",
        env!("CARGO_BIN_EXE_store-child"),
    );
    let output = Command::new("unshare")
        .args(["--mount", "--map-root-user", "sh", "-c", &script])
        .env("FOLDER", folder)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.is_empty(), "the namespace could not be made: {errors}");
    text
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tasks.db");
    drop(open(&path).await);
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch("UPDATE windlass_meta SET version = 999").unwrap();
    let error = open_error(&path).await;
    assert_eq!((error.kind(), error.reason()), (ErrorKind::Unsupported, Reason::NewerSchema));
    assert!(error.to_string().contains("999") && error.to_string().contains("newer"), "{error}");
    let version: i64 = Connection::open(&path)
        .unwrap()
        .query_row("SELECT version FROM windlass_meta", [], |row| row.get(0))
        .unwrap();
    assert_eq!(version, 999);
}

#[tokio::test]
async fn an_applications_database_is_shared_and_its_own_part_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("theirs.db");
    let theirs = Connection::open(&path).unwrap();
    theirs.execute_batch("CREATE TABLE task (x); INSERT INTO task VALUES (7)").unwrap();
    theirs.pragma_update(None, "user_version", 42).unwrap();
    theirs.pragma_update(None, "application_id", 43).unwrap();
    drop(open(&path).await);
    drop(open(&path).await);
    let kept: i64 = theirs.query_row("SELECT x FROM task", [], |row| row.get(0)).unwrap();
    let pragma = |name| -> i64 { theirs.pragma_query_value(None, name, |row| row.get(0)).unwrap() };
    assert_eq!((kept, pragma("user_version"), pragma("application_id")), (7, 42, 43));
}

#[tokio::test]
async fn a_file_that_is_no_database_is_called_corrupt_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    let text = "these are my notes\n".repeat(1_000);
    std::fs::write(&path, &text).unwrap();
    let error = open_error(&path).await;
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{}", error.chain());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}

#[tokio::test]
async fn a_folder_that_is_not_there_is_a_clear_error() {
    let folder = tempfile::tempdir().unwrap();
    let error = open_error(&folder.path().join("missing").join("tasks.db")).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("missing/tasks.db"), "{error}");
}

#[tokio::test]
async fn a_reader_of_a_file_that_is_not_there_does_not_make_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tasks.db");
    let error = SqliteStore::open(SqliteOptions::at(&path).existing()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(!path.exists());
}

#[test]
fn a_full_disk_is_named_and_every_acknowledged_task_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let mount = "mount -t tmpfs -o size=3m tmpfs $FOLDER";
    let text = in_namespace(mount, "fill", folder.path());
    let acknowledged = text.lines().filter(|line| line.starts_with("inserted")).count();
    assert!(acknowledged > 100, "{text}");
    assert!(text.contains("error Unavailable StorageFull"), "{text}");
    // Whole batches only: what was not acknowledged is not there, not even in part.
    assert!(text.contains(&format!("counted {acknowledged}\n")), "{text}");
    // Whoever asks how the store does is told.
    assert!(text.contains("writable false None\nwritable false Some(Problem)\n"), "{text}");
}

#[tokio::test]
async fn a_read_only_disk_is_named() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(&folder.path().join("tasks.db")).await);
    let mount = "mount --bind $FOLDER $FOLDER; mount -o remount,bind,ro $FOLDER";
    let text = in_namespace(mount, "insert", folder.path());
    assert!(text.contains("error Unavailable ReadOnly"), "{text}");
}

#[test]
fn on_a_small_disk_the_log_leaves_room_for_the_tasks() {
    let folder = tempfile::tempdir().unwrap();
    let mount = "mount -t tmpfs -o size=24m tmpfs $FOLDER";
    // Less than 3 MB of payloads; the log of as many commits would be over 100 MB.
    let text = in_namespace_with(mount, "singles", "1000", folder.path());
    let acknowledged = text.lines().filter(|line| line.starts_with("inserted")).count();
    assert_eq!(acknowledged, 1_000, "{}", text.lines().last().unwrap_or_default());
}

#[cfg(unix)]
mod rights {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use windlass_core::Store;
    use windlass_core::store::{Depth, Severity};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[tokio::test]
    async fn a_new_file_is_for_its_user_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tasks.db");
        let store = open(&path).await;
        let files: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|f| f.unwrap().path()).collect();
        assert!(files.len() >= 2, "there is a log: {files:?}");
        for file in files {
            assert_eq!(mode(&file), 0o600, "{}", file.display());
        }
        let inspection = store.inspect(Depth::Full).await.unwrap();
        assert!(!inspection.findings.iter().any(|finding| finding.subject == "rights"));
    }

    #[tokio::test]
    async fn a_file_that_everybody_can_read_stays_so_and_the_doctor_says_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tasks.db");
        drop(open(&path).await);
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let store = open(&path).await;
        assert_eq!(mode(&path), 0o644);
        let findings = store.inspect(Depth::Full).await.unwrap().findings;
        let finding = findings.iter().find(|finding| finding.subject == "rights").unwrap();
        assert_eq!(finding.severity, Severity::Warning);
        assert!(finding.text.contains("644"), "{}", finding.text);
    }
}
