//! SQLite as the test kit asks for it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tempfile::TempDir;
use windlass_core::{ManualClock, Store, TaskId};
use windlass_stores::sqlite::{SqliteOptions, SqliteStore};
use windlass_testkit::{DAMAGE_RULES, Subject};

/// A SQLite file of its own, with a clock that only the test moves.
pub(crate) struct SqliteSubject {
    clock: Arc<ManualClock>,
    store: Arc<SqliteStore>,
    folder: TempDir,
}

impl SqliteSubject {
    fn path(&self) -> PathBuf {
        self.folder.path().join("tasks.db")
    }
}

fn options(path: PathBuf, clock: &Arc<ManualClock>) -> SqliteOptions {
    SqliteOptions::at(path).clock(clock.clone())
}

#[async_trait]
impl Subject for SqliteSubject {
    async fn fresh() -> Self {
        let clock = Arc::new(ManualClock::default());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tasks.db");
        let store = SqliteStore::open(options(path, &clock)).await.unwrap();
        Self { clock, store: Arc::new(store), folder }
    }

    fn skipped_rules() -> &'static [&'static str] {
        &DAMAGE_RULES
    }

    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn another(&self) -> Arc<dyn Store> {
        Arc::new(SqliteStore::open(options(self.path(), &self.clock)).await.unwrap())
    }

    fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn spoil(&self, task: &TaskId) -> bool {
        let connection = rusqlite::Connection::open(self.path()).unwrap();
        connection.busy_timeout(Duration::from_secs(10)).unwrap();
        let id = uuid::Uuid::parse_str(task.as_str()).unwrap();
        // Broken JSON, and text that is not UTF-8.
        let text = "UPDATE windlass_task SET extras = CAST(x'7bff' AS TEXT), history = x'ff00',
            kind = CAST(x'ff' AS TEXT), idempotency_key = CAST(x'ff' AS TEXT) WHERE id = ?1";
        let changed = connection.execute(text, [id.as_bytes()]).unwrap();
        assert_eq!(changed, 1, "task {task} should be there to be spoiled");
        true
    }

    async fn rows_kept(&self) -> Option<u64> {
        let connection = rusqlite::Connection::open(self.path()).unwrap();
        let text = "SELECT (SELECT count(*) FROM windlass_task) + (SELECT count(*) FROM windlass_unique_key)
            + (SELECT count(*) FROM windlass_blob)";
        Some(connection.query_row(text, [], |row| row.get(0)).unwrap())
    }
}
