//! Where tests put what they keep in PostgreSQL.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::{ManualClock, TaskId};
use windlass_stores::postgres::tokio_postgres::{Client, Config, NoTls};
use windlass_stores::postgres::{GenerationRules, PostgresOptions};
use windlass_testkit::PostgresServer;

/// A schema of its own on the server that all tests of the process share, with a clock that only the
/// test moves.
pub(crate) struct Place {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) schema: String,
    url: String,
}

/// Every tend moves to a new generation, drops what is empty and copies what is hollow: whatever is
/// asked of the store must not notice.
const RESTLESS: GenerationRules = GenerationRules {
    used_max: 1,
    used_when_busy: 1,
    age_when_busy: Duration::ZERO,
    age_max: Duration::ZERO,
    count_max: 4,
    merged_at_once: 2,
    garbage_min: 1,
    rest: Duration::ZERO,
};

impl Place {
    /// At the URL of a schema.
    pub(crate) fn at(url: impl Fn(&str) -> String) -> Self {
        let schema = PostgresServer::shared().new_schema_apart();
        Self { clock: Arc::new(ManualClock::default()), url: url(&schema), schema }
    }

    /// On the server that all tests of the process share.
    pub(crate) fn fresh() -> Self {
        Self::at(|schema| PostgresServer::shared().url(schema))
    }

    pub(crate) fn options(&self) -> PostgresOptions {
        options_at(&self.url, &self.clock)
    }

    pub(crate) async fn spoil(&self, task: &TaskId) -> bool {
        let client = connect(&self.schema).await;
        // Broken JSON, a kind that is not there, and a priority that no task has.
        let text = "UPDATE task SET extras = '\\x7bff', kind = -1, priority = 9 WHERE seq = $1";
        let changed = client.execute(text, &[&number(task)]).await.unwrap();
        assert_eq!(changed, 1, "task {task} should be there to be spoiled");
        let text = "UPDATE fate SET history = '\\xff00' WHERE seq = $1";
        client.execute(text, &[&number(task)]).await.unwrap();
        true
    }

    pub(crate) async fn rows_kept(&self) -> Option<u64> {
        let client = connect(&self.schema).await;
        // Rows of tasks that are gone wait for their generation, which has tests of its own.
        let text = "WITH there AS (SELECT seq FROM record WHERE state IS NOT NULL),
              gone AS (SELECT seq FROM task EXCEPT SELECT seq FROM there)
            SELECT (SELECT count(*) FROM there) + (SELECT count(*) FROM uniq)
            + (SELECT count(*) FROM keyed WHERE seq NOT IN (SELECT seq FROM gone))
            + (SELECT count(*) FROM result WHERE seq NOT IN (SELECT seq FROM gone))
            + (SELECT count(*) FROM progress) + (SELECT count(*) FROM fate
                WHERE seq NOT IN (SELECT seq FROM there))";
        let count: i64 = client.query_one(text, &[]).await.unwrap().get(0);
        Some(count.unsigned_abs())
    }
}

pub(crate) fn options_at(url: &str, clock: &Arc<ManualClock>) -> PostgresOptions {
    // One id at a time: what is reserved later has the higher number. Fast: the server is careless, and
    // a store that was to be durable there would be found to be in trouble.
    let options = PostgresOptions::of_url(url).unwrap().generations(RESTLESS).fast();
    options.clock(clock.clone()).ids_at_once(1)
}

/// A connection behind the store's back.
pub(crate) async fn connect(schema: &str) -> Client {
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
