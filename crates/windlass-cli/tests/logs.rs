//! Logs of the binary: what is in them, at which level, in which format, and no secret.

mod support;

use serde_json::{Value, json};
use support::{Place, Server};

fn lines(log: &str) -> Vec<Value> {
    let read = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    log.lines().map(read).collect()
}

fn submit(server: &Server, body: &Value) -> String {
    let (status, answer) = server.post("/api/v1/tasks", &body.to_string());
    assert_eq!(status, 201, "{answer}");
    let task: Value = serde_json::from_str(&answer).expect("JSON");
    task["id"].as_str().expect("an id").to_owned()
}

/// Runs a task to its end on a server with these settings; answers its id and the log.
fn run_one(arguments: &[&str], variables: &[(&str, &str)]) -> (String, String) {
    let place = Place::new();
    let mut process = place.command();
    process.envs(variables.iter().copied());
    let server = place.start_with(process, "dev", arguments);
    let id = submit(
        &server,
        &json!({"type": "fail", "max_retries": 0, "payload": {"message": "no luck"}}),
    );
    place.run(&["task", "wait", &id, "--timeout", "60s", "--server", &server.url]).exits(6);
    (id, server.end())
}

#[test]
fn json_lines_have_the_names_of_the_api() {
    let (id, log) = run_one(&["--log-format", "json", "-v"], &[]);
    let lines = lines(&log);
    let find = |message: &str| {
        let found = lines.iter().find(|line| line["message"] == message);
        found.unwrap_or_else(|| panic!("{message} is not in {log}"))
    };
    let started = find("server started");
    assert!(started["url"].as_str().is_some_and(|url| url.starts_with("http://")), "{started}");
    let dead = find("dead letter");
    assert_eq!((&dead["level"], &dead["task_id"]), (&"WARN".into(), &id.as_str().into()));
    assert_eq!(
        (&dead["type"], &dead["queue"], &dead["error"]),
        (&"fail".into(), &"default".into(), &"no luck".into())
    );
    let ended = find("run ended");
    assert_eq!((&ended["level"], &ended["outcome"]), (&"DEBUG".into(), &"failed".into()));
    assert!(ended["duration_ms"].is_u64(), "{ended}");
    assert_eq!(ended["spans"][0]["task_id"], id, "{ended}");
    let request =
        lines.iter().find(|line| line["message"] == "request" && line["method"] == "POST");
    let request = request.unwrap_or_else(|| panic!("no request in {log}"));
    assert_eq!((&request["path"], &request["status"]), (&"/api/v1/tasks".into(), &201.into()));
    assert!(request["duration_ms"].is_u64() && request["request_id"].is_string(), "{request}");
    let shown = lines.iter().find(|line| line["message"] == "request" && line["method"] == "GET");
    assert_eq!(shown.expect("it was waited for")["path"], "/api/v1/tasks/{id}");
}

#[test]
fn level_and_format_come_from_flag_environment_and_file() {
    let (_, log) = run_one(&[], &[]);
    assert!(log.contains(" WARN ") && !log.contains("DEBUG"), "{log}");
    let (_, log) = run_one(&[], &[("WINDLASS_LOG_LEVEL", "error")]);
    assert!(!log.contains("WARN"), "{log}");
    let (_, log) =
        run_one(&[], &[("RUST_LOG", "windlass_server=debug"), ("WINDLASS_LOG_LEVEL", "error")]);
    assert!(log.contains("request") && !log.contains("dead letter"), "{log}");
    let (_, log) = run_one(&["-v"], &[("RUST_LOG", "off")]);
    assert!(log.contains("run ended") && log.contains("dead letter"), "{log}");
    let (_, log) = run_one(&[], &[("WINDLASS_LOG_FORMAT", "json")]);
    assert!(!lines(&log).is_empty());
    let (_, log) = run_one(&["--log-format", "text"], &[("WINDLASS_LOG_FORMAT", "json")]);
    assert!(log.contains("windlass runs at"), "{log}");
    let place = Place::new();
    place.file("windlass.toml", "[log]\nlevel = \"debug\"\nformat = \"json\"");
    let server = place.start("serve", &[]);
    assert_eq!(server.get("/version").0, 200);
    let lines = lines(&server.end());
    assert!(lines.iter().any(|line| line["message"] == "request"), "{lines:?}");
    let wrong = place.run(&["stats", "--log-format", "xml"]).exits(2);
    assert!(wrong.err.contains("text") && wrong.err.contains("json"), "{wrong}");
    let mut command = place.command();
    command.args(["config", "show"]).env("WINDLASS_LOG_LEVEL", "loud");
    let wrong = support::ran(command.output().expect("it runs")).exits(2);
    assert!(wrong.err.contains("loud") && wrong.err.contains("debug"), "{wrong}");
}

#[test]
fn a_secret_in_a_path_a_query_or_a_header_is_not_logged() {
    let place = Place::new();
    let made = place.run(&["token", "create", "--name", "ann", "--scope", "admin"]).exits(0).json();
    let token = made["token"].as_str().expect("it is told once").to_owned();
    let secret = token.rsplit('_').next().expect("three parts").to_owned();
    let server = place.start("serve", &["-vv", "--log-format", "json"]);
    let bearer = format!("authorization: Bearer {token}\r\n");
    for path in [
        format!("/{token}"),
        format!("/api/v1/tasks/{token}"),
        format!("/api/v1/tasks?token={token}"),
    ] {
        let (status, _) = server.ask(&format!("GET {path} HTTP/1.1\r\n{bearer}"), "");
        assert!(status >= 400, "{path}: {status}");
    }
    let log = server.end();
    assert!(lines(&log).iter().any(|line| line["message"] == "request"), "{log}");
    assert!(!log.contains(&secret), "the log repeats it");
}
