//! PostgreSQL with a Redis in front that is used as the documented user.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use windlass_core::{Store, TaskId};
use windlass_stores::redis::RedisOptions;
use windlass_testkit::{RedisServer, Subject};

use super::documented_user::{assert_not_denied, broker_url};
use super::hybrid::HybridSubject;
use super::schema::Place;

/// With one broker, under the rights that docs/hybrid.md names.
pub(crate) struct HybridUserSubject {
    on: HybridSubject,
    user: String,
}

#[async_trait]
impl Subject for HybridUserSubject {
    async fn fresh() -> Self {
        let user = RedisServer::new_prefix();
        let broker = RedisOptions::of_url(&broker_url(&user)).unwrap();
        let on = HybridSubject::with(Place::fresh(), vec![broker], |options| options).await;
        Self { on, user }
    }

    fn store(&self) -> Arc<dyn Store> {
        self.on.store()
    }

    async fn another(&self) -> Arc<dyn Store> {
        self.on.another().await
    }

    fn advance(&self, by: Duration) {
        self.on.advance(by);
    }

    async fn spoil(&self, task: &TaskId) -> bool {
        self.on.spoil(task).await
    }

    async fn rows_kept(&self) -> Option<u64> {
        self.on.rows_kept().await
    }
}

impl Drop for HybridUserSubject {
    fn drop(&mut self) {
        assert_not_denied(&self.user);
    }
}
