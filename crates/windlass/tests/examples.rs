//! Every example runs to its end, says what it promises, and leaves nothing behind.

#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use windlass::tokio_postgres::{self, NoTls};
use windlass_testkit::PostgresServer;
use windlass_testkit::servers::postgres::Care;

/// The folder of the examples, built by the very command that builds the tests: with any other, the features
/// of what they stand on would be others, and all of that would be built anew.
fn built() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
        let built = windlass_testkit::cargo()
            .args(["test", "--quiet", "--workspace", "--no-run"])
            .current_dir(root)
            .status();
        assert!(built.unwrap().success(), "the examples should build");
        let this = std::env::current_exe().unwrap();
        this.ancestors().nth(2).expect("target/debug/deps/examples").join("examples")
    })
}

/// Runs an example in an empty folder.
fn start(example: &str, database: Option<&str>) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(built().join(example))
        .current_dir(folder.path())
        .env_remove("DATABASE_URL")
        .envs(database.map(|url| ("DATABASE_URL", url)))
        .output()
        .unwrap();
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "{example} leaves files behind");
    output
}

/// Runs an example to its end; answers what it printed.
fn run(example: &str, database: Option<&str>) -> String {
    let output = start(example, database);
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{example}: {said}\n{complained}");
    said.into_owned()
}

fn check(example: &str, expected: &str) {
    let said = run(example, None);
    assert!(said.contains(expected), "{example} says: {said}");
}

/// The same, with a PostgreSQL of its own; run twice, since a reader will. Tables of the user's stay as
/// they are, and what cannot be is explained.
fn check_with_database(example: &str, expected: [&str; 2]) {
    let server = PostgresServer::start(Care::Careless);
    let url = server.tcp_url("windlass");
    let (plain, _) = url.split_once('?').unwrap();
    let operate = |text: &str| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(plain, NoTls).await.unwrap();
            tokio::spawn(connection);
            client.batch_execute(text).await.unwrap();
        });
    };
    for table in ["orders", "users", "letters"] {
        operate(&format!("CREATE TABLE {table} (precious int); INSERT INTO {table} VALUES (1)"));
    }
    for expected in expected {
        let said = run(example, Some(plain));
        assert!(said.contains(expected), "{example} says: {said}");
    }
    for table in ["orders", "users", "letters"] {
        operate(&format!("SELECT 1 / (SELECT count(precious) FROM {table})"));
    }
    for (database, reason) in
        [(None, "say which database to use"), (Some(url.as_str()), "leave ?schema= away")]
    {
        let output = start(example, database);
        let complained = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && complained.contains(reason), "{complained}");
    }
}

#[test]
fn postgres_signup() {
    let said = "ada: 201\na-name-that-is-far-too-long: 422\ngrace: 201\n\
                letters: Welcome, ada! Welcome, grace!\n";
    check_with_database("postgres_signup", [said, said]);
}

#[test]
fn postgres_trigger() {
    let said = ["order 1: a kite is on its way\n", "order 3: a kite is on its way\n"];
    check_with_database("postgres_trigger", said);
}

#[test]
fn hello() {
    check("hello", "hello, world! (run 1 of task ");
}

#[test]
fn retries_and_outcomes() {
    check("retries_and_outcomes", "Broken: dead_letter after 3 attempts; last: still broken");
}

#[test]
fn priorities_and_queues() {
    check("priorities_and_queues", "one queue: critical, high, normal, low");
}

#[test]
fn testing_handlers() {
    check("testing_handlers", "three tests, no database, no waiting");
}

#[test]
fn transactional_enqueue() {
    check("transactional_enqueue", "committed: 1 order, 1 invoice, number 1");
}

#[test]
fn axum_app() {
    check("axum_app", "state: completed\nstopped");
}
