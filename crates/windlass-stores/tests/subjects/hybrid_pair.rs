//! PostgreSQL with two Redis in front, as the test kit asks for it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use windlass_core::{Store, TaskId};
use windlass_testkit::servers::redis::Keeping;
use windlass_testkit::{DAMAGE_RULES, RedisServer, Subject};

use super::hybrid::HybridSubject;

/// With a broker for urgent tasks and one for the others.
pub(crate) struct HybridPairSubject(HybridSubject);

/// The second server of this process.
fn second_server() -> &'static RedisServer {
    static SECOND: OnceLock<RedisServer> = OnceLock::new();
    SECOND.get_or_init(|| RedisServer::start(Keeping::Nothing))
}

#[async_trait]
impl Subject for HybridPairSubject {
    async fn fresh() -> Self {
        Self(HybridSubject::on(&[RedisServer::shared(), second_server()]).await)
    }

    fn skipped_rules() -> &'static [&'static str] {
        &DAMAGE_RULES
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
