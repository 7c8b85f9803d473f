//! What `windlass doctor` finds on a PostgreSQL server.

#![cfg(feature = "postgres")]
#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

use std::sync::Arc;

use windlass_core::Store;
use windlass_core::store::{Depth, Finding, Reservation, Severity};
use windlass_stores::postgres::tokio_postgres::{Client, Config, NoTls};
use windlass_stores::postgres::{PostgresOptions, PostgresStore};
use windlass_testkit::PostgresServer;
use windlass_testkit::draft::{draft, queue};
use windlass_testkit::servers::postgres::Care;

async fn connect(server: &PostgresServer, application: &str) -> Client {
    connect_as(server, "windlass", application).await
}

async fn connect_as(server: &PostgresServer, role: &str, application: &str) -> Client {
    let url = server.url("none").replace("user=windlass", &format!("user={role}"));
    let mut config: Config = url.split_once("&schema=").unwrap().0.parse().unwrap();
    let (client, connection) = config.application_name(application).connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn look(server: &PostgresServer, extra: &str) -> Vec<Finding> {
    let options = PostgresOptions::of_url(&format!("{}{extra}", server.url("windlass"))).unwrap();
    let store = PostgresStore::open(options).await.unwrap();
    store.inspect(Depth::Full).await.unwrap().findings
}

fn told<'f>(findings: &'f [Finding], subject: &str, words: &str) -> Option<&'f Finding> {
    findings.iter().find(|one| one.subject == subject && one.text.contains(words))
}

#[tokio::test]
async fn a_transaction_left_open_by_another_is_named_in_the_first_look() {
    let server = PostgresServer::start(Care::Durable);
    assert!(look(&server, "").await.iter().all(|one| one.severity == Severity::Info));
    let other = connect(&server, "forgetful").await;
    other.batch_execute("BEGIN; CREATE TABLE forgotten (x int); SELECT 'left here'").await.unwrap();
    let findings = look(&server, "").await;
    let found = told(&findings, "vacuum", "application forgetful").expect("named");
    let pid: i32 = other.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    for word in [format!("pid {pid},"), "user windlass".into(), "idle in transaction".into()] {
        assert!(found.text.contains(&word), "{word}: {found:?}");
    }
    assert!(!found.advice.is_empty());
    other.batch_execute("ROLLBACK").await.unwrap();
    assert!(told(&look(&server, "").await, "vacuum", "forgetful").is_none());
}

/// Counts and tasks are compared as they were at one moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_doctor_who_comes_while_all_work_finds_the_counts_right() {
    let server = PostgresServer::shared();
    let options = || {
        let url = server.url("doctor_at_work");
        PostgresOptions::of_url(&url).unwrap().fast()
    };
    let store = Arc::new(PostgresStore::open(options()).await.unwrap());
    let looking = PostgresStore::open(options()).await.unwrap();
    let working = tokio::spawn({
        let store = Arc::clone(&store);
        async move {
            loop {
                let reserved = vec![Reservation { queue: queue("main"), count: 20 }];
                let ids = store.reserve(reserved).await.unwrap();
                store
                    .insert(ids.into_iter().map(|id| draft().with_id(id)).collect())
                    .await
                    .unwrap();
            }
        }
    });
    for _ in 0..30 {
        let findings = looking.inspect(Depth::Full).await.unwrap().findings;
        assert_eq!(told(&findings, "counters", ""), None);
    }
    assert!(!working.is_finished());
    working.abort();
}

#[tokio::test]
async fn settings_that_break_the_promise_are_a_problem_unless_none_was_made() {
    let server = PostgresServer::start(Care::Careless);
    let findings = look(&server, "").await;
    for name in ["fsync is off", "full_page_writes is off"] {
        assert_eq!(told(&findings, "durability", name).unwrap().severity, Severity::Problem);
    }
    let findings = look(&server, "&durability=fast").await;
    assert_eq!(told(&findings, "durability", "fsync").unwrap().severity, Severity::Warning);
}

#[tokio::test]
async fn missing_rights_are_named() {
    let server = PostgresServer::start(Care::Durable);
    look(&server, "").await;
    let owner = connect(&server, "owner").await;
    let setup = "CREATE ROLE half LOGIN; GRANT USAGE ON SCHEMA windlass TO half;
        GRANT SELECT ON ALL TABLES IN SCHEMA windlass TO half;
        GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA windlass TO half;
        GRANT USAGE ON ALL SEQUENCES IN SCHEMA windlass TO half";
    owner.batch_execute(setup).await.unwrap();
    let url = server.url("windlass").replace("user=windlass", "user=half");
    let store =
        PostgresStore::open(PostgresOptions::of_url(&url).unwrap().existing()).await.unwrap();
    let findings = store.inspect(Depth::Full).await.unwrap().findings;
    let found = told(&findings, "rights", "DELETE on ").expect("named");
    assert_eq!(found.severity, Severity::Problem);
    assert!(!store.inspect(Depth::Ping).await.unwrap().is_writable(), "no right to write");
    // The right to submit alone is missing.
    let grants = "GRANT ALL ON ALL TABLES IN SCHEMA windlass TO half; REVOKE INSERT ON windlass.task FROM half";
    owner.batch_execute(grants).await.unwrap();
    let ping = store.inspect(Depth::Ping).await.unwrap();
    assert!(ping.refusal.unwrap().text.contains("rights"), "no right to submit");
    owner.batch_execute("GRANT INSERT ON windlass.task TO half").await.unwrap();
    assert!(store.inspect(Depth::Ping).await.unwrap().is_writable(), "all rights");
}

/// What the documentation has an operator grant to the role that runs everything.
fn documented_grants() -> &'static str {
    let page = include_str!("../../../docs/postgres.md");
    let (_, block) = page.split_once("## Roles and rights").unwrap();
    let (_, block) = block.split_once("```sql\n").unwrap();
    block.split_once("```").unwrap().0
}

async fn look_as(server: &PostgresServer, role: &str) -> Vec<Finding> {
    let url = server.url("windlass").replace("user=windlass", &format!("user={role}"));
    let options = PostgresOptions::of_url(&url).unwrap().existing();
    PostgresStore::open(options).await.unwrap().inspect(Depth::Full).await.unwrap().findings
}

#[tokio::test]
async fn roles_that_see_nothing_of_others_name_who_holds_a_transaction_open() {
    let server = PostgresServer::start(Care::Durable);
    let superuser = connect(&server, "superuser").await;
    superuser
        .batch_execute(
            "CREATE ROLE windlass_owner LOGIN; CREATE ROLE windlass_app LOGIN;
             CREATE ROLE guest LOGIN; CREATE SCHEMA windlass AUTHORIZATION windlass_owner",
        )
        .await
        .unwrap();
    let url = server.url("windlass").replace("user=windlass", "user=windlass_owner");
    drop(PostgresStore::open(PostgresOptions::of_url(&url).unwrap()).await.unwrap());
    superuser.batch_execute(documented_grants()).await.unwrap();
    let other = connect_as(&server, "guest", "forgetful").await;
    let open = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1";
    for role in ["windlass_app", "windlass_owner"] {
        let vacuum = |findings: &[Finding]| told(findings, "vacuum", "a transaction").cloned();
        assert_eq!(vacuum(&look_as(&server, role).await), None, "{role}");
        other.batch_execute(open).await.unwrap();
        let pid: i32 = other.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
        let found = vacuum(&look_as(&server, role).await).expect("named");
        assert_eq!(found.severity, Severity::Warning);
        for word in [format!("pid {pid},"), "user guest".into(), "hidden from this role".into()] {
            assert!(found.text.contains(&word), "{role}, {word}: {found:?}");
        }
        for word in ["pg_terminate_backend", "GRANT pg_read_all_stats"] {
            assert!(found.advice.contains(word), "{role}, {word}: {found:?}");
        }
        superuser.batch_execute(&format!("GRANT pg_read_all_stats TO {role}")).await.unwrap();
        let found = vacuum(&look_as(&server, role).await).expect("named");
        assert!(found.text.contains("idle in transaction: SELECT"), "{found:?}");
        assert!(!found.advice.contains("GRANT"), "{found:?}");
        other.batch_execute("ROLLBACK").await.unwrap();
    }
}

#[tokio::test]
async fn nobody_is_told_to_end_transactions_of_windlass() {
    let server = PostgresServer::start(Care::Durable);
    look(&server, "").await;
    let other = connect(&server, "windlass").await;
    other.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").await.unwrap();
    let findings = look(&server, "").await;
    let found = told(&findings, "vacuum", "application windlass").expect("named");
    assert!(!found.advice.contains("pg_terminate_backend"), "{found:?}");
}

#[tokio::test]
async fn no_plan_of_a_count_is_quadratic_where_the_server_knows_no_sizes() {
    let server = PostgresServer::start(Care::Careless);
    look(&server, "").await;
    let owner = connect(&server, "owner").await;
    // As after a restore: rows, and no word of how many.
    owner
        .batch_execute(
            "SET search_path TO windlass;
             ALTER TABLE done SET (autovacuum_enabled = off);
             INSERT INTO queue (name) VALUES ('q'); INSERT INTO kind (name) VALUES ('k');
             INSERT INTO task (seq, stamp, created_at, run_at, timeout_ms, retention_ms, queue, kind,
                 max_retries, max_crashes, priority, extras, payload)
               SELECT s, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, '', '' FROM generate_series(1, 20000) AS s;
             BEGIN; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off;
             SET LOCAL enable_mergejoin = off",
        )
        .await
        .unwrap();
    owner.batch_execute(include_str!("../sql/postgres/inspect_limits.sql")).await.unwrap();
    let text = format!("EXPLAIN {}", include_str!("../sql/postgres/counted.sql"));
    let rows = owner.query(&text, &[]).await.unwrap();
    let plan = rows.iter().map(|row| row.get::<_, &str>(0)).collect::<Vec<_>>().join("\n");
    assert!(plan.contains("Cond: (t.seq = ") || plan.contains(" = t.seq)"), "{plan}");
    assert!(!plan.contains("Join Filter"), "{plan}");
}

#[test]
fn a_question_ends_with_the_doctor_who_asked_it() {
    let server = PostgresServer::start(Care::Careless);
    let ours = tokio::runtime::Runtime::new().unwrap();
    ours.block_on(look(&server, ""));
    let owner = ours.block_on(connect(&server, "owner"));
    // Not the one that holds the lock: within a transaction a session sees the same others again.
    let watcher = ours.block_on(connect(&server, "watcher"));
    let wait_until = |count: i64| {
        let asked = "SELECT count(*) FROM pg_stat_activity
            WHERE application_name = 'doctor' AND wait_event_type = 'Lock'";
        ours.block_on(async {
            while watcher.query_one(asked, &[]).await.unwrap().get::<_, i64>(0) != count {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        });
    };
    ours.block_on(owner.batch_execute("BEGIN; LOCK TABLE windlass.done")).unwrap();
    let theirs = tokio::runtime::Runtime::new().unwrap();
    let url = format!("{}&application_name=doctor", server.url("windlass"));
    theirs.spawn(async move {
        let store = PostgresStore::open(PostgresOptions::of_url(&url).unwrap()).await.unwrap();
        store.inspect(Depth::Full).await
    });
    wait_until(1);
    theirs.shutdown_background();
    wait_until(0);
}
