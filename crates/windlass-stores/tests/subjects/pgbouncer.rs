//! PostgreSQL behind a pooler that gives a connection for one transaction at a time.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use windlass_core::{Store, TaskId};
use windlass_testkit::{PgBouncer, Subject};

use super::PostgresSubject;

/// The same store through the pooler.
pub(crate) struct PgBouncerSubject(PostgresSubject);

#[async_trait]
impl Subject for PgBouncerSubject {
    async fn fresh() -> Self {
        Self(PostgresSubject::at(|schema| PgBouncer::shared().url(schema)).await)
    }

    fn skipped_rules() -> &'static [&'static str] {
        &["wait::a_pause_elsewhere_wakes_the_workers_that_serve_the_queue"]
    }

    fn store(&self) -> Arc<dyn Store> {
        self.0.store()
    }

    async fn another(&self) -> Arc<dyn Store> {
        self.0.another().await
    }

    fn advance(&self, by: Duration) {
        self.0.advance(by);
    }

    async fn spoil(&self, task: &TaskId) -> bool {
        self.0.spoil(task).await
    }

    async fn rows_kept(&self) -> Option<u64> {
        self.0.rows_kept().await
    }
}
