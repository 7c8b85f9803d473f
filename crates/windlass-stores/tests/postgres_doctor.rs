//! What `windlass doctor` finds on a PostgreSQL server.

#![cfg(feature = "postgres")]
#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

use windlass_core::Store;
use windlass_core::store::{Depth, Finding, Severity};
use windlass_stores::postgres::tokio_postgres::{Client, Config, NoTls};
use windlass_stores::postgres::{PostgresOptions, PostgresStore};
use windlass_testkit::PostgresServer;
use windlass_testkit::servers::postgres::Care;

async fn connect(server: &PostgresServer, application: &str) -> Client {
    let url = server.url("none");
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
}
