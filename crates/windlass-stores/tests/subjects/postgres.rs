//! PostgreSQL as the test kit asks for it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use windlass_core::{ManualClock, Store, TaskId};
use windlass_stores::postgres::tokio_postgres::{Client, Config, NoTls};
use windlass_stores::postgres::{PostgresOptions, PostgresStore};
use windlass_testkit::{PgBouncer, PostgresServer, Subject};

/// A schema of its own on the server that all tests of the process share, with a clock that only the
/// test moves.
pub(crate) struct PostgresSubject {
    clock: Arc<ManualClock>,
    store: Arc<PostgresStore>,
    schema: String,
    way: Way,
}

/// How a store reaches its server.
#[derive(Clone, Copy)]
enum Way {
    Straight,
    Pooled,
}

impl PostgresSubject {
    async fn open(way: Way) -> Self {
        let clock = Arc::new(ManualClock::default());
        let schema = PostgresServer::new_schema();
        let store = PostgresStore::open(options(way, &schema, &clock)).await.unwrap();
        Self { clock, store: Arc::new(store), schema, way }
    }
}

/// The same through a pooler that gives a connection for one transaction at a time.
pub(crate) struct PgBouncerSubject(PostgresSubject);

#[async_trait]
impl Subject for PgBouncerSubject {
    async fn fresh() -> Self {
        Self(PostgresSubject::open(Way::Pooled).await)
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

fn options(way: Way, schema: &str, clock: &Arc<ManualClock>) -> PostgresOptions {
    let url = match way {
        Way::Straight => PostgresServer::shared().url(schema),
        Way::Pooled => PgBouncer::shared().url(schema),
    };
    // One id at a time: what is reserved later has the higher number. Fast: the server is careless, and
    // a store that was to be durable there would be found to be in trouble.
    PostgresOptions::of_url(&url).unwrap().fast().clock(clock.clone()).ids_at_once(1)
}

/// A connection behind the store's back.
async fn connect(schema: &str) -> Client {
    let url = PostgresServer::shared().url(schema);
    let (plain, _) = url.split_once("&schema=").unwrap();
    let config: Config = plain.parse().unwrap();
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(&format!("SET search_path TO {schema}")).await.unwrap();
    client
}

/// The number in an id.
fn number(task: &TaskId) -> i64 {
    let id = uuid::Uuid::parse_str(task.as_str()).unwrap();
    i64::try_from(id.as_u64_pair().1 & ((1 << 62) - 1)).unwrap()
}

#[async_trait]
impl Subject for PostgresSubject {
    async fn fresh() -> Self {
        Self::open(Way::Straight).await
    }

    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn another(&self) -> Arc<dyn Store> {
        Arc::new(PostgresStore::open(options(self.way, &self.schema, &self.clock)).await.unwrap())
    }

    fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn spoil(&self, task: &TaskId) -> bool {
        let client = connect(&self.schema).await;
        // Broken JSON, and a kind that is not there.
        let text = "UPDATE task SET extras = '\\x7bff', kind = -1 WHERE seq = $1";
        let changed = client.execute(text, &[&number(task)]).await.unwrap();
        assert_eq!(changed, 1, "task {task} should be there to be spoiled");
        let text = "UPDATE fate SET history = '\\xff00' WHERE seq = $1";
        client.execute(text, &[&number(task)]).await.unwrap();
        true
    }

    async fn rows_kept(&self) -> Option<u64> {
        let client = connect(&self.schema).await;
        let text = "SELECT (SELECT count(*) FROM task) + (SELECT count(*) FROM uniq)
            + (SELECT count(*) FROM keyed) + (SELECT count(*) FROM result)
            + (SELECT count(*) FROM progress) + (SELECT count(*) FROM fate AS f
                WHERE NOT EXISTS (SELECT FROM task AS t WHERE t.seq = f.seq))";
        let count: i64 = client.query_one(text, &[]).await.unwrap().get(0);
        Some(count.unsigned_abs())
    }
}
