//! An empty database under full load at once: no plan that was made on empty tables walks through a
//! whole one later.

use std::time::Duration;

use windlass_testkit::servers::PostgresServer;
use windlass_testkit::servers::postgres::Care;

use crate::{load, operator};

/// Tables that hot statements read; `delta` has no index, it is read as a whole on purpose.
const SCANS: &str = "SELECT relname::text, seq_scan, coalesce(idx_scan, 0),
        coalesce(idx_tup_fetch, 0), n_tup_ins
    FROM pg_stat_user_tables WHERE schemaname = 'fresh'
        AND relname IN ('task', 'ready', 'lease', 'deferred', 'done', 'fate', 'keyed', 'uniq')";

const OTHERS: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_hot_table_is_walked_through_as_a_whole() {
    let server = PostgresServer::start(Care::Careless);
    let url = server.tcp_url("fresh");
    // The building of indexes is a walk too.
    drop(windlass_stores::open(&url).await.unwrap());
    let operator = operator(&server).await;
    // It is told when the connection that did it ends.
    while operator.query_one(OTHERS, &[]).await.unwrap().get::<_, i64>(0) > 0 {
        tokio::task::yield_now().await;
    }
    operator.batch_execute("SELECT pg_stat_reset()").await.unwrap();
    let load = load(&url).await;
    // The server adds up at most once a second, and when it does not work.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let rows = operator.query(SCANS, &[]).await.unwrap();
    load.end().await;
    let mut scanned = Vec::new();
    for row in &rows {
        let (table, walks): (String, i64) = (row.get(0), row.get(1));
        let (looks, rows_read, rows_new): (i64, i64, i64) = (row.get(2), row.get(3), row.get(4));
        eprintln!(
            "{table}: {walks} walks, {looks} looks that read {rows_read} rows, {rows_new} new"
        );
        if walks > 0 {
            scanned.push(table);
        }
    }
    assert_eq!(scanned, [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_may_make_a_schema_at_once() {
    let server = PostgresServer::shared();
    for _ in 0..5 {
        let url = server.tcp_url(&PostgresServer::new_schema());
        let open = |_| {
            let url = url.clone();
            tokio::spawn(async move { windlass_stores::open(&url).await.map(drop) })
        };
        let opening: Vec<_> = (0..8).map(open).collect();
        for opened in opening {
            opened.await.unwrap().unwrap();
        }
    }
}
