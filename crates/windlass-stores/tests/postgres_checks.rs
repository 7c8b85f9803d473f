//! The schema refuses what no worker and no sweep could read: by its function for applications, and by constraints
//! where they do not slow down every submit.

#![cfg(feature = "postgres")]
#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

use windlass_stores::postgres::tokio_postgres::error::SqlState;
use windlass_stores::postgres::tokio_postgres::{Client, Config, NoTls};
use windlass_testkit::PostgresServer;

/// A schema, and a connection behind the store's back.
async fn schema() -> Client {
    let (server, schema) = (PostgresServer::shared(), PostgresServer::new_schema());
    windlass_stores::open(&server.url(&schema)).await.unwrap();
    let url = server.url(&schema);
    let config: Config = url.split_once("&schema=").unwrap().0.parse().unwrap();
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    let text = format!("SET search_path TO {schema}; SELECT enqueue('kind', queue => 'queue')");
    client.batch_execute(&text).await.unwrap();
    client
}

/// Calls `submit` as an application does, with some fields replaced; answers what it was refused for.
async fn submit(client: &Client, change: &str) -> Option<SqlState> {
    let text = "SELECT outcome FROM submit(jsonb_build_object(
        'identity', (SELECT id FROM identity), 'seq', nextval('task_seq'), 'stamp', 1, 'queue', 1, 'kind', 1,
        'queue_name', 'queue', 'kind_name', 'kind', 'priority', 1, 'max_retries', 3, 'max_crashes', 3,
        'timeout_ms', 1000, 'retention_ms', 1000, 'extras', '', 'is_unique', false, 'is_quiet', true
      ) || $1::text::jsonb, '\\x6e756c6c')";
    match client.query_one(text, &[&change]).await {
        Ok(row) => {
            assert_eq!(row.get::<_, &str>(0), "new");
            None
        }
        Err(error) => Some(error.code().unwrap().clone()),
    }
}

#[tokio::test]
async fn submit_refuses_what_nobody_could_read() {
    let client = schema().await;
    for good in ["{}", r#"{"priority": 3, "extras": "{\"tags\": [\"a\"]}"}"#] {
        assert_eq!(submit(&client, good).await, None, "{good}");
    }
    for bad in [
        r#"{"priority": 9}"#,
        r#"{"priority": -1}"#,
        r#"{"priority": null}"#,
        r#"{"max_retries": -1}"#,
        r#"{"max_crashes": -1}"#,
        r#"{"timeout_ms": -1}"#,
        r#"{"timeout_ms": null}"#,
        r#"{"retention_ms": -5}"#,
        r#"{"stamp": -5}"#,
        r#"{"seq": null}"#,
        r#"{"seq": -7}"#,
        r#"{"queue": 0}"#,
        r#"{"kind": null}"#,
        r#"{"kind_name": null}"#,
        r#"{"extras": "{broken"}"#,
        r#"{"extras": "[]"}"#,
        r#"{"extras": null}"#,
    ] {
        let refused = submit(&client, bad).await;
        assert_eq!(refused, Some(SqlState::INVALID_PARAMETER_VALUE), "{bad}");
    }
    let count: i64 = client.query_one("SELECT count(*) FROM task", &[]).await.unwrap().get(0);
    assert_eq!(count, 3);
}

#[tokio::test]
async fn tables_off_the_hot_path_refuse_what_nobody_could_read() {
    let client = schema().await;
    for change in [
        "INSERT INTO deferred VALUES (1, 1, 1, -1, 0, false)",
        "INSERT INTO fate (seq, state, attempts, crashes, updated_at) VALUES (1, 4, 0, 0, 0)",
        "INSERT INTO fate (seq, attempts, crashes, updated_at) VALUES (1, -1, 0, 0)",
    ] {
        let error = client.batch_execute(change).await.unwrap_err();
        assert_eq!(error.code(), Some(&SqlState::CHECK_VIOLATION), "{change}: {error}");
    }
}
