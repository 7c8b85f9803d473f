//! Every command on the real binary, against a store and against a server: the same objects, the
//! documented exit codes.

mod support;

use serde_json::{Value, json};
use support::{Place, Ran, Server};
use windlass_testkit::PostgresServer;
use windlass_testkit::servers::postgres::Care;

/// A payload that careless programs change on its way.
const PAYLOAD: &str = r#"{"n": 9007199254740993,  "s":"\ud800", "f":1.10}"#;

#[track_caller]
fn id_of(ran: &Ran) -> String {
    ran.json()["id"].as_str().expect("a task has an id").to_owned()
}

#[test]
fn what_a_command_prints_is_what_the_api_answers() {
    let place = Place::new();
    let server = place.dev(&[]);
    place.run(&["enqueue", "echo", PAYLOAD, "--wait"]).exits(0);
    let id = id_of(&place.run(&["enqueue", "echo", "[1]", "--wait"]).exits(0));
    for (arguments, route) in [
        (&["task", "show", &id][..], format!("/api/v1/tasks/{id}")),
        (&["task", "events", &id], format!("/api/v1/tasks/{id}/events")),
        (&["task", "list"], String::from("/api/v1/tasks?limit=50")),
        (&["dlq", "list"], String::from("/api/v1/dlq?limit=50")),
    ] {
        let (status, body) = server.get(&route);
        assert_eq!(status, 200, "{body}");
        let direct = place.run(arguments).exits(0);
        let remote = place.run(&[arguments, &["--server", &server.url]].concat()).exits(0);
        assert_eq!(direct.out.trim_end(), body);
        assert_eq!(remote.out.trim_end(), body);
    }
    // Ages, rates and statistics go on meanwhile: compared without them.
    for (arguments, route) in [
        (&["queue", "list"][..], "/api/v1/queues"),
        (&["queue", "show", "default"], "/api/v1/queues/default"),
        (&["workers", "list"], "/api/v1/workers"),
        (&["stats"], "/api/v1/stats"),
    ] {
        let answer: Value = serde_json::from_str(&server.get(route).1).expect("JSON");
        for ways in [&[][..], &["--server", &server.url]] {
            let printed = place.run(&[arguments, ways].concat()).exits(0).json();
            assert_eq!(at_rest(printed), at_rest(answer.clone()), "{route}");
        }
    }
}

fn at_rest(mut value: Value) -> Value {
    match &mut value {
        Value::Object(fields) => {
            let goes_on =
                |name: &str| name.ends_with("_age") || name.ends_with("_rate") || name == "windows";
            fields.retain(|name, _| !goes_on(name));
            fields.values_mut().for_each(|inner| *inner = at_rest(inner.take()));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = at_rest(item.take())),
        _ => {}
    }
    value
}

#[test]
fn tokens_are_made_listed_and_revoked() {
    let place = Place::new();
    let create = ["token", "create", "--name", "mailer", "--scope", "work,read"];
    let limits = ["--queue", "mail*", "--queue", "post", "--rate", "9"];
    let made = place.run(&[&create[..], &limits].concat()).exits(0).json();
    assert_eq!(made["scopes"], json!(["read", "work"]));
    assert_eq!((&made["queues"], &made["rate"]), (&json!(["mail*", "post"]), &json!(9)));
    let (id, text) = (made["id"].as_str().expect("an id"), made["token"].as_str());
    assert!(text.is_some_and(|text| text.starts_with(&format!("wl_{id}_"))), "{made}");
    let listed = place.run(&["token", "list"]).exits(0).json();
    let mut expected = made.clone();
    expected.as_object_mut().expect("an object").remove("token");
    assert_eq!(listed["data"], json!([expected]));
    let table = place.run(&["token", "list", "-o", "table"]).exits(0);
    assert!(table.out.contains("mail*,post") && table.out.contains("good"), "{table}");
    place.run(&["token", "revoke", id]).exits(0);
    place.run(&["token", "revoke", "001122334455"]).exits(3);
    let table = place.run(&["token", "list", "-o", "table"]).exits(0);
    assert!(table.out.contains("revoked"), "{table}");
    let audit = place.run(&["audit", "-o", "jsonl"]).exits(0).lines();
    let told: Vec<_> = audit.iter().map(|entry| (&entry["by"], &entry["action"])).collect();
    let local = json!("local");
    assert_eq!(told, [(&local, &json!("token-create")), (&local, &json!("token-revoke"))]);
    place.run(&["token", "revoke", id, "--purge"]).exits(0);
    assert_eq!(place.run(&["token", "list"]).exits(0).json()["data"], json!([]));
    place.run(&["token", "create", "--name", "x", "--scope", "root"]).exits(2);
    place.run(&["token", "create", "--name", "x"]).exits(2);
}

#[test]
fn the_script_of_the_compose_files_makes_each_token_once() {
    let place = Place::new();
    let script =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/compose/tokens.sh");
    let folder = std::path::Path::new(support::BINARY).parent().expect("it is in a folder");
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").expect("a path"));
    let make = || {
        let mut shell = std::process::Command::new("sh");
        shell.arg(&script).arg(".").current_dir(place.path()).env("PATH", &path);
        support::ran(shell.env_remove("WINDLASS_STORE").output().expect("sh is there")).exits(0);
        ["admin", "metrics"].map(|name| {
            let text = std::fs::read_to_string(place.path().join(name)).expect("a token");
            text.trim_end().to_owned()
        })
    };
    let tokens = make();
    assert_eq!(make(), tokens);
    let listed = place.run(&["token", "list"]).exits(0).json();
    let scopes: Vec<_> = listed["data"].as_array().expect("a list").iter().collect();
    assert_eq!(scopes.len(), 2);
    for (token, scope) in tokens.iter().zip(["admin", "read"]) {
        let id = token.split('_').nth(1).expect("a token has an id");
        let made = scopes.iter().find(|made| made["id"] == id).expect("it is in the store");
        assert_eq!(made["scopes"], json!([scope]));
    }
}

#[test]
fn a_payload_and_its_echo_stay_byte_for_byte() {
    let place = Place::new();
    let _server = place.dev(&[]);
    let ran = place.run(&["enqueue", "echo", PAYLOAD, "--wait"]).exits(0);
    assert!(ran.out.contains(&format!("\"payload\":{PAYLOAD}")), "{ran}");
    assert!(ran.out.contains(&format!("\"result\":{PAYLOAD}")), "{ran}");
    place.file("payload.json", &format!("  {PAYLOAD}\n"));
    let ran = place.run(&["enqueue", "echo", "@payload.json", "--wait"]).exits(0);
    assert!(ran.out.contains(&format!("\"result\":{PAYLOAD}")), "{ran}");
}

#[test]
fn waiting_tells_how_a_task_ended() {
    let place = Place::new();
    let _server = place.dev(&[]);
    place.run(&["enqueue", "noop", "--wait"]).exits(0);
    let fails = ["enqueue", "fail", r#"{"message":"no luck"}"#, "--max-retries", "0", "--wait"];
    let dead = place.run(&fails).exits(6);
    assert!(dead.err.contains("no luck"), "{dead}");
    assert_eq!(dead.json()["state"], "dead_letter");
    let id = id_of(&dead);
    place.run(&["task", "wait", &id]).exits(6);
    let later = id_of(&place.run(&["enqueue", "noop", "--delay", "1h"]).exits(0));
    let waited = place.run(&["task", "wait", &later, "--timeout", "50ms"]).exits(7);
    assert_eq!(waited.json()["state"], "scheduled", "it is shown as it is");
    place.run(&["enqueue", "noop", "--delay", "1h", "--wait", "--wait-timeout", "0s"]).exits(7);
    place.run(&["task", "wait", "no-such-task"]).exits(3);
}

#[test]
fn a_wait_says_that_nobody_is_there_to_run_the_task() {
    let place = Place::new();
    let wait = |server: &Server, kind: &str| {
        let patience = ["--wait", "--wait-timeout", "4s", "--server", &server.url];
        place.run(&[&["enqueue", kind, "{}"], &patience[..]].concat()).exits(7).err
    };
    let alone = place.dev(&["--no-worker"]);
    let told = wait(&alone, "own.type");
    assert!(told.contains("no live worker serves queue default\n"), "{told}");
    drop(alone);
    let with_worker = place.dev(&["--without-default"]);
    let told = wait(&with_worker, "own.type");
    assert!(told.contains("no live worker handles type own.type in queue default\n"), "{told}");
    assert_eq!(told.matches("no live worker").count(), 1, "once: {told}");
    let told = wait(&with_worker, "default");
    assert!(told.contains("no live worker handles type default in queue default\n"), "{told}");
    drop(with_worker);
    let with_default = place.dev(&[]);
    let server = ["--server", with_default.url.as_str()];
    place.run(&[&["enqueue", "default", "{}", "--wait"], &server[..]].concat()).exits(0);
}

#[test]
fn tasks_are_cancelled_retried_snoozed_and_deleted() {
    let place = Place::new();
    let id = id_of(&place.run(&["enqueue", "noop"]).exits(0));
    place.run(&["task", "snooze", &id, "--for", "1h"]).exits(0);
    assert_eq!(place.run(&["task", "show", &id]).json()["state"], "scheduled");
    place.run(&["task", "retry", &id]).exits(0);
    assert_eq!(place.run(&["task", "show", &id]).json()["state"], "pending");
    let cancelled = place.run(&["task", "cancel", &id]).exits(0).json();
    let expected = json!([{"id": id, "status": "done", "state": "cancelled"}]);
    assert_eq!((&cancelled["changed"], &cancelled["results"]), (&json!(1), &expected));
    place.run(&["task", "cancel", &id]).exits(4);
    place.run(&["task", "cancel", "no-such-task"]).exits(3);
    place.run(&["task", "cancel", &id, "no-such-task"]).exits(8);
    place.run(&["task", "delete", &id]).exits(2);
    place.run(&["task", "delete", &id, "--yes"]).exits(0);
    place.run(&["task", "show", &id]).exits(3);
}

#[test]
fn filters_change_many_at_once_after_a_trial() {
    let place = Place::new();
    place.run(&["enqueue", "noop", "--queue", "mail", "--count", "2500"]).exits(0);
    place.run(&["enqueue", "noop"]).exits(0);
    let trial = ["task", "cancel", "--queue", "mail", "--dry-run"];
    assert_eq!(place.run(&trial).exits(0).json()["matched"], 2500);
    let refused = place.run(&["task", "cancel", "--queue", "mail"]).exits(2);
    assert!(refused.err.contains("--yes"), "{refused}");
    let done = place.run(&["task", "cancel", "--queue", "mail", "--yes"]).exits(0);
    assert_eq!(done.json()["changed"], 2500);
    place.run(&["task", "cancel"]).exits(2);
    place.run(&["task", "cancel", "some-id", "--queue", "mail"]).exits(2);
    let counts = place.run(&["queue", "show", "mail"]).json();
    assert_eq!(
        (&counts["depth"]["cancelled"], &counts["depth"]["pending"]),
        (&json!(2500), &json!(0))
    );
}

#[test]
fn many_are_submitted_and_listed_page_by_page() {
    let place = Place::new();
    let ran = place.run(&["enqueue", "noop", "--count", "1200", "-o", "jsonl"]).exits(0);
    assert_eq!(ran.lines().len(), 1200);
    let listed = place.run(&["task", "list", "--all", "--limit", "500", "-o", "jsonl"]).exits(0);
    let mut ids: Vec<_> = listed.lines().iter().map(|task| task["id"].to_string()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 1200);
    let page = place.run(&["task", "list", "--limit", "5"]).exits(0).json();
    let cursor = page["next_cursor"].as_str().expect("there is more");
    let next = place.run(&["task", "list", "--limit", "5", "--cursor", cursor]).exits(0).json();
    assert_ne!(page["data"][0]["id"], next["data"][0]["id"]);
    let summary = place.run(&["enqueue", "noop", "--count", "3"]).exits(0).json();
    assert_eq!((&summary["created"], &summary["failed"]), (&json!(3), &json!(0)));
}

#[test]
fn queues_are_paused_resumed_and_purged() {
    let place = Place::new();
    place.run(&["enqueue", "noop"]).exits(0);
    let refused = place.run(&["queue", "pause", "mail"]).exits(3);
    assert!(refused.err.contains("--create"), "{refused}");
    place.run(&["queue", "pause", "mail", "--create"]).exits(0);
    place.run(&["queue", "pause", "mail"]).exits(0);
    assert_eq!(place.run(&["queue", "show", "mail"]).exits(0).json()["paused"], true);
    place.run(&["enqueue", "noop", "--queue", "mail"]).exits(0);
    place.run(&["queue", "resume", "mail"]).exits(0);
    place.run(&["queue", "purge", "mail"]).exits(2);
    assert_eq!(place.run(&["queue", "purge", "mail", "--yes"]).exits(0).json()["changed"], 1);
    place.run(&["queue", "show", "no-such-queue"]).exits(3);
    place.run(&["queue", "pause", "bad name"]).exits(2);
    // An unset variable: it would complete every task.
    place.run(&["worker", "--exec", " "]).exits(2);
}

#[test]
fn dead_letters_are_run_again_and_removed() {
    let place = Place::new();
    let server = place.dev(&[]);
    let payload = r#"{"message":"no luck"}"#;
    let fails = ["enqueue", "fail", payload, "--max-retries", "0", "--count", "3", "--wait"];
    place.run(&fails).exits(6);
    let dead = place.run(&["dlq", "list", "-o", "jsonl"]).exits(0).lines();
    assert_eq!((dead.len(), dead[0]["error"].as_str()), (3, Some("no luck")));
    let id = dead[0]["id"].as_str().expect("an id");
    assert_eq!(place.run(&["dlq", "retry", id]).exits(0).json()["changed"], 1);
    place.run(&["task", "wait", id]).exits(6);
    assert_eq!(place.run(&["dlq", "retry", "--all"]).exits(0).json()["changed"], 3);
    for task in &dead {
        place.run(&["task", "wait", task["id"].as_str().expect("an id")]).exits(6);
    }
    place.run(&["dlq", "retry"]).exits(2);
    place.run(&["dlq", "purge", "--server", &server.url]).exits(2);
    let purged = place.run(&["dlq", "purge", "--yes", "--server", &server.url]).exits(0);
    assert_eq!(purged.json()["changed"], 3);
    assert_eq!(place.run(&["dlq", "list"]).json()["data"], json!([]));
}

#[test]
fn who_only_reads_makes_no_file_and_says_what_would() {
    let place = Place::new();
    for arguments in [
        &["task", "list"][..],
        &["task", "show", "x"],
        &["queue", "list"],
        &["dlq", "list"],
        &["workers", "list"],
        &["stats"],
        &["doctor"],
        &["migrate", "status"],
    ] {
        let ran = place.run(arguments).exits(3);
        assert!(ran.err.contains("windlass.db"), "{ran}");
    }
    assert!(!place.path().join("windlass.db").exists());
    place.run(&["migrate", "up"]).exits(0);
    assert_eq!(place.run(&["migrate", "status"]).exits(0).json()["migrations"][0]["applied"], true);
    assert!(place.run(&["migrate", "sql"]).exits(0).out.contains("CREATE TABLE"));
    assert_eq!(place.run(&["doctor"]).exits(0).json()["writable"], true);
    place.run(&["health", "--store", "sqlite:windlass.db"]).exits(0);
}

#[test]
fn someone_else_s_database_is_not_touched_by_who_only_looks() {
    let place = Place::new();
    let foreign = place.file("theirs.db", "");
    for arguments in [&["stats"][..], &["task", "list"], &["doctor"]] {
        place.run(&[arguments, &["--store", "sqlite:theirs.db"]].concat()).exits(3);
    }
    assert_eq!(std::fs::metadata(foreign).expect("it is still there").len(), 0);
}

#[test]
fn an_endless_input_is_refused_when_it_is_too_long() {
    let place = Place::new();
    let told = place.run(&["enqueue", "echo", "@/dev/zero"]).exits(2);
    assert!(told.err.contains("more than 1048576 bytes"), "{told}");
    place.run(&["stats", "--config", "/dev/zero"]).exits(2);
}

#[test]
fn a_few_among_many_are_found() {
    let place = Place::new();
    place.run(&["enqueue", "rare"]).exits(0);
    // More than a store looks at in one go.
    place.run(&["enqueue", "noop", "--count", "12000"]).exits(0);
    let found = place.run(&["task", "list", "--type", "rare"]).exits(0).json();
    assert_eq!(found["data"].as_array().map(Vec::len), Some(1), "{found}");
    assert_eq!(found["next_cursor"], Value::Null);
}

#[test]
fn a_rehearsal_says_that_nothing_was_changed() {
    let place = Place::new();
    let id = id_of(&place.run(&["enqueue", "noop"]).exits(0));
    let told = place.run(&["task", "delete", &id, "--dry-run"]).exits(0).json();
    assert_eq!((&told["changed"], &told["matched"]), (&json!(0), &json!(1)), "{told}");
    place.run(&["task", "show", &id]).exits(0);
}

#[test]
fn bad_requests_are_told_apart_by_their_exit_codes() {
    let place = Place::new();
    for (arguments, code) in [
        (&["enqueue", "bad type"][..], 2),
        (&["enqueue", "noop", "not json"], 2),
        (&["enqueue", "noop", "@missing.json"], 2),
        (&["enqueue", "noop", "--priority", "urgent"], 2),
        (&["enqueue", "noop", "--delay", "-5s"], 2),
        (&["enqueue", "noop", "--delay", "1s", "--at", "2026-01-01T00:00:00Z"], 2),
        (&["enqueue"], 2),
        (&["task", "list", "--state", "lost"], 2),
        (&["task", "list", "--limit", "501"], 2),
        (&["serve", "--bind", "0.0.0.0", "--port", "0"], 2),
        (&["worker", "--queue", "mail=0"], 2),
        (&["stats", "--store", "abacus:"], 2),
        (&["stats", "--server", "127.0.0.1:1"], 2),
        (&["stats", "--server", "http://127.0.0.1:1"], 69),
        (&["health", "--server", "http://127.0.0.1:1"], 69),
        (&["doctor", "--server", "http://127.0.0.1:1"], 2),
    ] {
        let ran = place.run(arguments).exits(code);
        assert!(ran.out.is_empty() && ran.err.starts_with("error"), "{arguments:?} {ran}");
    }
    for delay in ["-5s", "-5"] {
        let ran = place.run(&["enqueue", "noop", "--delay", delay]).exits(2);
        assert!(ran.err.contains("negative duration"), "{ran}");
    }
    let ran = place.run(&["worker", "--queue", "no queue"]).exits(2);
    assert!(!ran.err.contains("working"), "it has not begun: {ran}");
    place.run(&["enqueue", "noop", "--unique-for", "1h"]).exits(0);
    place.run(&["enqueue", "noop", "--unique-for", "1h"]).exits(4);
    place.run(&["enqueue", "noop", "--idempotency-key", "k"]).exits(0);
    place.run(&["enqueue", "noop", "1", "--idempotency-key", "k"]).exits(2);
}

#[test]
fn a_table_is_printed_when_it_is_asked_for() {
    let place = Place::new();
    place.run(&["enqueue", "noop", "--tag", "a", "--meta", "who=me"]).exits(0);
    let ran = place.run(&["task", "list", "-o", "table"]).exits(0);
    assert!(ran.out.starts_with("ID"), "{ran}");
    assert!(!ran.out.contains('\u{1b}'), "no colours off a terminal: {ran}");
    place.run(&["queue", "list", "-o", "table"]).exits(0);
    place.run(&["completion", "bash"]).exits(0);
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_lacks_a_right_is_told_and_exits_with_5() {
    use windlass::tokio_postgres::{Config, NoTls};

    let place = Place::new();
    let url = PostgresServer::shared().url("rights");
    place.run(&["migrate", "up", "--store", &url]).exits(0);
    let config: Config =
        url.split_once("&schema=").expect("a schema").0.parse().expect("a URL of the driver's");
    let (owner, connection) = config.connect(NoTls).await.expect("a connection");
    tokio::spawn(connection);
    owner.batch_execute("CREATE ROLE lowly LOGIN").await.expect("a role");
    let lowly = url.replace("user=windlass", "user=lowly");
    let submit = ["enqueue", "echo", "--store", &lowly];
    for arguments in [&submit, &["migrate", "status", "--store", &lowly]] {
        let told = place.run(arguments).exits(5);
        assert!(told.err.contains("USAGE") && told.err.contains("rights"), "{told}");
    }
    let told = place.run(&["doctor", "--store", &lowly]).exits(5);
    assert!(told.err.contains("USAGE"), "{told}");
    let look = "GRANT USAGE ON SCHEMA rights TO lowly;
        GRANT SELECT ON ALL TABLES IN SCHEMA rights TO lowly";
    owner.batch_execute(look).await.expect("the owner grants");
    let told = place.run(&submit).exits(5);
    assert!(told.err.contains("windlass doctor"), "{told}");
    let elsewhere = lowly.replace("schema=rights", "schema=none");
    for arguments in [["enqueue", "echo"], ["task", "list"]] {
        let told = place.run(&[&arguments[..], &["--store", &elsewhere]].concat());
        assert!(told.err.contains("`windlass migrate up` as its owner"), "{told}");
        assert!(!told.err.contains("windlass dev"), "{told}");
    }
}

#[test]
fn a_list_goes_on_until_it_has_found_something() {
    let place = Place::new();
    let id = id_of(&place.run(&["enqueue", "wanted"]).exits(0));
    // More than a store looks through for one page.
    for _ in 0..2 {
        place.run(&["enqueue", "noop", "--count", "6000"]).exits(0);
    }
    let found = place.run(&["task", "list", "--type", "wanted"]).exits(0).json();
    assert_eq!(found["data"][0]["id"], id.as_str());
    let found = place.run(&["task", "list", "--type", "nobody-knows"]).exits(0).json();
    assert_eq!((&found["data"], &found["next_cursor"]), (&json!([]), &Value::Null));
}

#[test]
fn a_store_that_only_reads_is_a_problem_and_nothing_else_is_said_of_it() {
    let (place, server) = (Place::new(), PostgresServer::start(Care::Durable));
    let store = server.url("windlass");
    place.run(&["migrate", "up", "--store", &store]).exits(0);
    let content = place.run(&["doctor", "--store", &store, "-o", "table"]).exits(0);
    assert!(content.out.contains("nothing is wrong"), "{content}");
    let reading = format!("{store}&options=-c%20default_transaction_read_only%3Don");
    let told = place.run(&["doctor", "--store", &reading, "-o", "table"]).exits(1);
    assert!(told.out.contains("problem  store: it accepts no writes"), "{told}");
    assert!(!told.out.contains("nothing is wrong"), "{told}");
}

#[test]
fn the_migrations_of_a_postgres_are_printed_as_a_script_for_its_schema() {
    let (place, server) = (Place::new(), PostgresServer::start(Care::Careless));
    let store = server.url("elsewhere");
    let script = place.run(&["migrate", "sql", "--store", &store]).exits(0).out;
    assert!(script.contains("'elsewhere'") && script.contains("BEGIN;"), "{script}");
    assert!(script.trim_end().ends_with("COMMIT;"), "{script}");
    place.run(&["migrate", "up", "--store", &store]).exits(0);
    let script = place.run(&["migrate", "sql", "--store", &store]).exits(0).out;
    assert!(script.contains("nothing to do") && !script.contains("BEGIN"), "{script}");
}

#[test]
fn a_task_is_found_by_the_beginning_or_the_end_of_its_id() {
    let place = Place::new();
    let ids: Vec<_> = (0..3).map(|_| id_of(&place.run(&["enqueue", "noop"]).exits(0))).collect();
    let end = &ids[1][ids[1].len() - 12..];
    assert_eq!(place.run(&["task", "show", end]).exits(0).json()["id"], ids[1].as_str());
    place.run(&["task", "events", end]).exits(0);
    place.run(&["task", "snooze", end, "--for", "1d"]).exits(0);
    assert_eq!(place.run(&["task", "cancel", &end.to_uppercase()]).exits(0).json()["changed"], 1);
    // Ids of one moment begin alike.
    let many = place.run(&["task", "show", &ids[0][..6]]).exits(2);
    assert!(ids.iter().all(|id| many.err.contains(id)), "{many}");
    let none = place.run(&["task", "show", "ffffffff"]).exits(3);
    assert!(none.err.contains("among all tasks"), "{none}");
    let server = place.dev(&[]);
    let worker = place.run(&["workers", "list", "-o", "jsonl"]).exits(0).lines()[0]["id"].clone();
    let worker = worker.as_str().expect("an id");
    let shown = place.run(&["workers", "show", &worker[..8], "--server", &server.url]).exits(0);
    assert_eq!(shown.json()["id"], worker);
}

#[test]
fn many_that_are_awaited_are_summed_up_by_their_ends() {
    let place = Place::new();
    let _server = place.dev(&[]);
    let noop = ["enqueue", "noop", "--count", "20", "--wait"];
    let summary = place.run(&noop).exits(0).json();
    assert_eq!(
        summary,
        json!({"created": 20, "existing": 0, "failed": 0, "states": {"completed": 20}})
    );
    let ended = place.run(&[&noop[..], &["-o", "jsonl"]].concat()).exits(0).lines();
    assert!(
        ended.len() == 20 && ended.iter().all(|task| task["state"] == "completed"),
        "{ended:?}"
    );
    let table = place.run(&[&noop[..], &["-o", "table"]].concat()).exits(0).out;
    assert!(table.contains("20 tasks submitted, 20 completed"), "{table}");
}

#[test]
fn a_file_that_is_no_text_is_a_payload_of_bytes() {
    let place = Place::new();
    let bytes = [0_u8, 255, 128, 10];
    std::fs::write(place.path().join("picture"), bytes).expect("a file for the test");
    let task = place.run(&["enqueue", "noop", "@picture"]).exits(0).json();
    assert_eq!((&task["payload"], &task["payload_base64"]), (&Value::Null, &"AP+ACg==".into()));
    std::fs::write(place.path().join("note"), "no JSON").expect("a file for the test");
    place.run(&["enqueue", "noop", "@note"]).exits(2);
}

#[test]
fn errors_say_what_to_do() {
    let place = Place::new();
    let delay = place.run(&["enqueue", "noop", "--delay", "5x"]).exits(2);
    assert!(delay.err.contains("7d") && delay.err.matches("5x").count() <= 2, "{delay}");
    let token = place.run(&["token", "create", "--name", "ann", "--scope", "read"]).exits(0).json();
    let server = place.start("serve", &[]);
    let refused = place.run(&["stats", "--server", &server.url]).exits(5);
    assert!(refused.err.contains("WINDLASS_TOKEN"), "{refused}");
    let mut command = place.command();
    command.args(["stats", "--server", &server.url]);
    command.env("WINDLASS_TOKEN", token["token"].as_str().expect("a token"));
    support::ran(command.output().expect("it runs")).exits(0);
    let plain = server.url.replace("http://", "https://");
    let told = place.run(&["stats", "--server", &plain]).exits(69);
    assert!(told.err.contains("http://"), "{told}");
    let away = place.run(&["stats", "--server", "http://127.0.0.1:1"]).exits(69);
    assert!(away.err.contains("127.0.0.1:1"), "{away}");
}
