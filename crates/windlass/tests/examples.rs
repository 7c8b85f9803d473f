//! Every example runs to its end, says what it promises, and leaves nothing behind.

#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

use std::process::Command;

use windlass_testkit::PostgresServer;
use windlass_testkit::servers::postgres::Care;

/// Runs an example in an empty folder; answers what it printed.
fn run(example: &str, database: Option<String>) -> String {
    let folder = tempfile::tempdir().unwrap();
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let output = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--manifest-path", manifest, "--example", example])
        .current_dir(folder.path())
        .envs(database.map(|url| ("DATABASE_URL", url)))
        .output()
        .unwrap();
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{example}: {said}\n{complained}");
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "{example} leaves files behind");
    said.into_owned()
}

fn check(example: &str, expected: &str) {
    let said = run(example, None);
    assert!(said.contains(expected), "{example} says: {said}");
}

/// The same, with a PostgreSQL of its own.
fn check_with_database(example: &str, expected: &str) {
    let server = PostgresServer::start(Care::Careless);
    let url = server.tcp_url("windlass");
    let (plain, _) = url.split_once('?').unwrap();
    let said = run(example, Some(plain.into()));
    assert!(said.contains(expected), "{example} says: {said}");
}

#[test]
fn postgres_signup() {
    let said = "ada: 201\na-name-that-is-far-too-long: 422\ngrace: 201\n\
                letters: Welcome, ada! Welcome, grace!";
    check_with_database("postgres_signup", said);
}

#[test]
fn postgres_trigger() {
    check_with_database("postgres_trigger", "order 1: a kite is on its way\n");
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
