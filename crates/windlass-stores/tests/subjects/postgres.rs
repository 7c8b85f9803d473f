//! PostgreSQL as the test kit asks for it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use windlass_core::{Store, TaskId};
use windlass_stores::postgres::PostgresStore;
use windlass_testkit::{DAMAGE_RULES, Subject};

use super::schema::Place;

/// In a schema of its own, without anything in front.
pub(crate) struct PostgresSubject {
    pub(crate) place: Place,
    store: Arc<PostgresStore>,
}

impl PostgresSubject {
    /// A subject at the URL of a schema.
    pub(crate) async fn at(url: impl Fn(&str) -> String) -> Self {
        Self::on(Place::at(url)).await
    }

    async fn on(place: Place) -> Self {
        let store = PostgresStore::open(place.options()).await.unwrap();
        Self { store: Arc::new(store), place }
    }
}

#[async_trait]
impl Subject for PostgresSubject {
    async fn fresh() -> Self {
        Self::on(Place::fresh()).await
    }

    fn skipped_rules() -> &'static [&'static str] {
        &DAMAGE_RULES
    }

    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn another(&self) -> Arc<dyn Store> {
        Arc::new(PostgresStore::open(self.place.options()).await.unwrap())
    }

    fn advance(&self, by: Duration) {
        self.place.clock.advance(by);
    }

    async fn spoil(&self, task: &TaskId) -> bool {
        self.place.spoil(task).await
    }

    async fn rows_kept(&self) -> Option<u64> {
        self.place.rows_kept().await
    }
}
