//! PostgreSQL with a Redis in front, as the test kit asks for it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use windlass_core::{Store, TaskId};
use windlass_stores::hybrid::{HybridOptions, HybridStore};
use windlass_stores::postgres::PostgresOptions;
use windlass_stores::redis::RedisOptions;
use windlass_testkit::{DAMAGE_RULES, RedisServer, Subject};

use super::schema::Place;

/// With one broker for all priorities.
pub(crate) struct HybridSubject {
    pub(crate) ledger: Place,
    brokers: Vec<RedisOptions>,
    pub(crate) store: Arc<HybridStore>,
}

impl HybridSubject {
    /// With these servers as brokers, which are compared with the ledger in every sweep.
    pub(crate) async fn on(servers: &[&RedisServer]) -> Self {
        Self::at(Place::fresh(), servers, |options| options).await
    }

    /// The same in this schema, opened as someone wants it.
    pub(crate) async fn at(
        ledger: Place,
        servers: &[&RedisServer],
        wanted: impl Fn(PostgresOptions) -> PostgresOptions,
    ) -> Self {
        let prefix = RedisServer::new_prefix();
        let options = |server: &&RedisServer| RedisOptions::of_url(&server.url(&prefix)).unwrap();
        Self::with(ledger, servers.iter().map(options).collect(), wanted).await
    }

    /// The same with these brokers.
    pub(crate) async fn with(
        ledger: Place,
        brokers: Vec<RedisOptions>,
        wanted: impl Fn(PostgresOptions) -> PostgresOptions,
    ) -> Self {
        let store = open(wanted(ledger.options()), &brokers).await;
        Self { ledger, brokers, store }
    }
}

async fn open(ledger: PostgresOptions, brokers: &[RedisOptions]) -> Arc<HybridStore> {
    let options = match brokers {
        [high, low] => HybridOptions::two(ledger, high.clone(), low.clone()),
        [all] => HybridOptions::one(ledger, all.clone()),
        _ => panic!("one broker or two"),
    };
    let options = options.unwrap().sweep_every(Duration::ZERO);
    Arc::new(HybridStore::open(options).await.unwrap())
}

#[async_trait]
impl Subject for HybridSubject {
    async fn fresh() -> Self {
        Self::on(&[RedisServer::shared()]).await
    }

    fn skipped_rules() -> &'static [&'static str] {
        &DAMAGE_RULES
    }

    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn another(&self) -> Arc<dyn Store> {
        open(self.ledger.options(), &self.brokers).await
    }

    fn advance(&self, by: Duration) {
        self.ledger.clock.advance(by);
    }

    async fn spoil(&self, task: &TaskId) -> bool {
        self.ledger.spoil(task).await
    }

    async fn rows_kept(&self) -> Option<u64> {
        self.ledger.rows_kept().await
    }
}
