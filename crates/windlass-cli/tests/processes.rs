//! `dev`, `serve` and `worker` as processes: killed and restarted, stopped in good order, several on
//! one file.

#[path = "processes/events.rs"]
mod events;
#[path = "processes/kinds.rs"]
mod kinds;
#[path = "processes/metrics.rs"]
mod metrics;
mod support;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use support::{Place, Ran, Server, eventually, ran};

/// Short, so that what a killed process held comes back while the test waits.
const QUICK: &str = "\
[worker]
lease = \"3s\"
heartbeat = \"1s\"
[upkeep]
sweep = \"500ms\"
leader_term = \"2s\"
leader_renewal = \"500ms\"
";

fn submit(server: &Server, body: &Value) -> String {
    server.submit(body)
}

#[test]
fn what_was_acknowledged_before_a_kill_is_finished_after_the_restart() {
    let place = Place::new();
    place.file("windlass.toml", QUICK);
    let mut ids = Vec::new();
    for _ in 0..3 {
        let mut server = place.dev(&[]);
        for number in 0..40 {
            ids.push(submit(&server, &json!({"type": "echo", "payload": number})));
            ids.push(submit(&server, &json!({"type": "sleep", "payload": {"ms": 300}})));
        }
        server.signal("-KILL");
        assert_eq!(server.wait(), None);
    }
    let _server = place.dev(&[]);
    for id in &ids {
        let task = place.run(&["task", "wait", id, "--timeout", "60s"]).exits(0).json();
        assert_eq!((&task["state"], &task["attempts"]), (&json!("completed"), &json!(1)), "{task}");
    }
}

#[test]
fn a_signal_ends_dev_in_good_order_and_what_runs_is_finished() {
    let place = Place::new();
    let mut server = place.dev(&[]);
    let id = submit(&server, &json!({"type": "sleep", "payload": {"ms": 3_000}}));
    until(&place, &id, "running");
    server.signal("-TERM");
    assert_eq!(server.wait(), Some(0));
    assert!(!place.path().join("windlass.db-wal").exists(), "the file was not closed");
    let task = place.run(&["task", "show", &id]).exits(0).json();
    assert_eq!((&task["state"], &task["attempts"]), (&json!("completed"), &json!(1)));
    assert_eq!(place.run(&["workers", "list", "-o", "jsonl"]).lines()[0]["state"], "gone");
}

#[test]
fn a_second_signal_ends_a_worker_at_once() {
    let place = Place::new();
    let mut server = place.dev(&[]);
    let id = submit(&server, &json!({"type": "sleep", "payload": {"ms": 600_000}}));
    until(&place, &id, "running");
    // Those of the first moments are one with the first.
    while !server.has_ended() {
        server.signal("-INT");
    }
    assert_eq!(server.wait(), Some(130));
}

/// As `timeout` does, which signals its child and then the group.
#[test]
fn two_signals_at_once_are_one() {
    let place = Place::new();
    let mut server = place.dev(&[]);
    let id = submit(&server, &json!({"type": "sleep", "payload": {"ms": 3_000}}));
    until(&place, &id, "running");
    server.signal_with(&["-TERM", "-INT"]);
    assert_eq!(server.wait(), Some(0));
    let task = place.run(&["task", "show", &id]).exits(0).json();
    assert_eq!((&task["state"], &task["attempts"]), (&json!("completed"), &json!(1)));
    assert_eq!(place.run(&["workers", "list", "-o", "jsonl"]).lines()[0]["state"], "gone");
}

/// Asks until a task is in a state: there is no wait for the start of a task.
fn until(place: &Place, id: &str, state: &str) {
    while place.run(&["task", "show", id]).exits(0).json()["state"] != state {}
}

#[test]
fn a_server_and_workers_share_one_file() {
    let place = Place::new();
    place.file("windlass.toml", QUICK);
    let server = place.start("serve", &[]);
    let delayed = submit(&server, &json!({"type": "report", "queue": "mail", "delay": 0.3}));
    let ids: Vec<_> =
        (0..20).map(|_| submit(&server, &json!({"type": "report", "queue": "mail"}))).collect();
    let mut first = worker(&place, &["--queue", "mail", "--exec", "echo '\"first\"'"]);
    let mut second = worker(&place, &["--queue", "mail=2", "--exec", "echo '\"second\"'"]);
    for id in ids.iter().chain([&delayed]) {
        let task = place.run(&["task", "wait", id, "--server", &server.url]).exits(0).json();
        let result = task["result"].as_str().expect("a result");
        assert!(["first", "second"].contains(&result), "{task}");
    }
    let workers = place.run(&["workers", "list", "-o", "jsonl"]).exits(0).lines();
    assert_eq!(workers.len(), 2, "the server is no worker: {workers:?}");
    for child in [&mut first, &mut second] {
        let status = std::process::Command::new("kill").arg(child.id().to_string()).status();
        assert!(status.expect("kill is there").success());
        assert_eq!(child.wait().expect("it ends").code(), Some(0));
    }
}

#[test]
fn dev_serves_queues_that_come_later() {
    let place = Place::new();
    let _server = place.dev(&[]);
    let arguments = ["enqueue", "echo", "1", "--queue", "never-seen", "--wait"];
    assert_eq!(place.run(&arguments).exits(0).json()["result"], 1);
}

#[test]
fn a_type_that_no_worker_knows_waits_for_one_that_does() {
    let place = Place::new();
    let mut server = place.dev(&[]);
    let id = submit(&server, &json!({"type": "from.the.future"}));
    let told = place.run(&["task", "wait", &id, "--timeout", "1s"]).exits(7);
    assert!(told.err.contains("still"), "{told}");
    // The worker claims it again and again, to look for a handler.
    eventually("it waits, and no attempt is spent", || {
        let task = place.run(&["task", "show", &id]).exits(0).json();
        (&task["state"], &task["attempts"]) == (&json!("scheduled"), &json!(0))
    });
    server.signal("-TERM");
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn a_port_in_use_is_told_with_a_way_out() {
    let place = Place::new();
    let server = place.dev(&[]);
    let port = server.url.rsplit(':').next().expect("a port").to_owned();
    let told = place.run(&["dev", "--port", &port, "--store", "sqlite:other.db"]).exits(1);
    assert!(told.err.contains("--port 0"), "{told}");
    assert!(!place.path().join("other.db").exists(), "nothing was made");
}

#[test]
fn health_follows_the_server() {
    let place = Place::new();
    let mut server = place.dev(&[]);
    assert_eq!(place.run(&["health", "--server", &server.url]).exits(0).json()["status"], "ok");
    server.signal("-TERM");
    assert_eq!(server.wait(), Some(0));
    place.run(&["health", "--server", &server.url]).exits(69);
}

/// A worker, once it says that it works.
#[test]
fn a_worker_is_paused_resumed_and_drained_by_its_operator() {
    let place = Place::new();
    let mut process = worker(&place, &["--concurrency", "1"]);
    let workers = place.run(&["workers", "list", "-o", "jsonl"]).exits(0).lines();
    let id = workers[0]["id"].as_str().expect("an id").to_owned();
    assert_eq!(place.run(&["workers", "pause", &id]).exits(0).json()["order"], "pause");
    place.run(&["workers", "pause", "nobody"]).exits(3);
    place.run(&["workers", "resume", &id]).exits(0);
    let task = place.run(&["enqueue", "echo", "1"]).exits(0).json();
    place.run(&["task", "wait", task["id"].as_str().expect("an id")]).exits(0);
    assert_eq!(place.run(&["workers", "drain", &id]).exits(0).json()["order"], "drain");
    assert!(process.wait().expect("it ends").success(), "a drained worker ends well");
    place.run(&["workers", "pause", &id]).exits(4);
}

/// The sample receiver, and where it listens.
fn receiver(place: &Place, server: &Server, secret: &str) -> (Child, String) {
    let path = format!("{}/../../examples/webhooks/receiver.py", env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new("python3");
    command.arg(path).env("WINDLASS_URL", &server.url).env("WEBHOOK_SECRET", secret);
    let mut child = command
        .current_dir(place.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("python3 is there");
    let mut url = String::new();
    let out = child.stdout.as_mut().expect("it is piped");
    BufReader::new(out).read_line(&mut url).expect("it says where it listens");
    (child, url.trim().to_owned())
}

#[test]
fn a_webhook_is_signed_answered_now_or_later_and_never_sent_where_it_may_not_go() {
    let place = Place::new();
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    std::fs::create_dir(place.path().join("secrets")).expect("a folder");
    let server = place.start("serve", &[]);
    let (mut receiver, url) = receiver(&place, &server, secret);
    place.file("secrets/shop", &format!("host {url}\n{secret}\n"));
    let allowed = ["--webhook-allow", "127.0.0.1", "--webhook-secrets", "secrets"];
    let arguments = [&allowed[..], &["--concurrency", "1"]].concat();
    let mut worker = worker(&place, &arguments);
    let finished = |path: &str, secret: Option<&str>| {
        let payload = json!({"url": format!("{url}{path}"), "body": {"n": 7}, "secret": secret});
        let body = json!({"type": "http.webhook", "payload": payload, "max_retries": 0});
        let id = submit(&server, &body);
        let (status, task) = server.get(&format!("/api/v1/tasks/{id}?wait=60s"));
        assert_eq!(status, 200, "{task}");
        serde_json::from_str::<Value>(&task).expect("JSON")
    };
    let received = json!({"received": {"n": 7}});
    // With one slot: a run that was reported must let go of it, or the next would not start.
    for path in ["/later", "/now", "/later", "/now"] {
        let task = finished(path, Some("shop"));
        assert_eq!((&task["state"], &task["result"]), (&json!("completed"), &received), "{task}");
    }
    let gone = finished("/elsewhere", Some("shop"));
    assert_eq!(gone["state"], "dead_letter", "{gone}");
    let unsigned = finished("/now", None);
    assert!(unsigned["error"].to_string().contains("401"), "{unsigned}");
    worker.kill().expect("it runs");
    worker.wait().expect("it was killed");
    let mut strict = self::worker(&place, &["--webhook-secrets", "secrets"]);
    let refused = finished("/now", Some("shop"));
    assert_eq!(refused["state"], "dead_letter", "{refused}");
    assert!(refused["error"].to_string().contains("loopback"), "{refused}");
    for child in [&mut strict, &mut receiver] {
        child.kill().expect("it runs");
        child.wait().expect("it was killed");
    }
}

#[test]
fn a_server_speaks_tls_and_takes_a_new_certificate_on_a_hangup() {
    let place = Place::new();
    let certify = || {
        let key = rcgen::KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new(vec![String::from("localhost")]);
        let certificate = params.expect("a name").self_signed(&key).expect("a certificate");
        place.file("key.pem", &key.serialize_pem());
        place.file("cert.pem", &certificate.pem());
    };
    certify();
    std::fs::copy(place.path().join("cert.pem"), place.path().join("old.pem")).expect("a copy");
    let server = place.start("serve", &["--tls-cert", "cert.pem", "--tls-key", "key.pem"]);
    let url = server.url.replace("127.0.0.1", "localhost");
    assert!(url.starts_with("https://"), "{url}");
    let ask = |trusted: &str| place.run(&["health", "--server", &url, "--ca-cert", trusted]);
    ask("cert.pem").exits(0);
    place.run(&["health", "--server", &url]).exits(69);
    let told = place.run(&["health", "--server", &url.replace("https", "http")]).exits(69);
    assert!(told.err.contains("https://"), "{told}");
    ask("missing.pem").exits(2);
    certify();
    server.signal("-HUP");
    eventually("there is a new certificate", || ask("cert.pem").code == 0);
    ask("old.pem").exits(69);
    place.run(&["serve", "--tls-cert", "cert.pem"]).exits(2);
    place.run(&["serve", "--tls-cert", "none.pem", "--tls-key", "key.pem"]).exits(2);
}

#[test]
fn a_certificate_that_is_an_authority_is_explained() {
    let place = Place::new();
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params =
        rcgen::CertificateParams::new(vec![String::from("localhost")]).expect("a name");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).expect("a certificate");
    place.file("key.pem", &key.serialize_pem());
    place.file("cert.pem", &certificate.pem());
    let server = place.start("serve", &["--tls-cert", "cert.pem", "--tls-key", "key.pem"]);
    let url = server.url.replace("127.0.0.1", "localhost");
    for command in ["health", "events"] {
        let told = place.run(&[command, "--server", &url, "--ca-cert", "cert.pem"]).exits(69);
        assert!(told.err.contains("CA:FALSE") && told.err.contains("subjectAltName"), "{told}");
    }
}

fn worker(place: &Place, arguments: &[&str]) -> Child {
    let mut child = place
        .command()
        .arg("worker")
        .args(arguments)
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("cargo has built the binary");
    let mut log = BufReader::new(child.stderr.take().expect("it is piped"));
    let mut line = String::new();
    while !line.contains("working") {
        line.clear();
        assert!(log.read_line(&mut line).expect("text") > 0, "it ended: {:?}", child.wait());
    }
    // Nobody reads on: a worker whose log goes nowhere works on, and ends in good order.
    child
}

#[test]
fn serve_listens_elsewhere_only_with_a_token_or_when_told_that_it_is_insecure() {
    let place = Place::new();
    for command in ["serve", "dev"] {
        let refused = place.run(&[command, "--port", "0", "--bind", "0.0.0.0"]).exits(2);
        assert!(refused.err.contains("windlass token create"), "{refused}");
    }
    let insecure = place.start("serve", &["--bind", "0.0.0.0", "--insecure"]);
    assert_eq!(insecure.get("/api/v1/stats").0, 200);
    let token = new_token(&place, "admin");
    let server = place.start("serve", &["--bind", "0.0.0.0"]);
    assert_eq!(server.get("/api/v1/stats").0, 401);
    assert_eq!(server.get("/healthz").0, 200);
    with_token(&place, &server, &token, &["stats"]).exits(0);
}

fn new_token(place: &Place, scope: &str) -> String {
    let made = place.run(&["token", "create", "--name", "ann", "--scope", scope]).exits(0);
    made.json()["token"].as_str().expect("it is told once").to_owned()
}

fn with_token(place: &Place, server: &Server, token: &str, arguments: &[&str]) -> Ran {
    let mut command = place.command();
    // Whatever any library says at its loudest.
    command.env("WINDLASS_TOKEN", token).env("RUST_LOG", "trace");
    command.args(arguments).args(["--server", &server.url]);
    ran(command.output().expect("it runs"))
}

#[test]
fn the_secret_of_a_token_appears_nowhere() {
    let place = Place::new();
    let token = new_token(&place, "admin");
    let secret = token.rsplit('_').next().expect("three parts");
    let mut process = place.command();
    process.env("RUST_LOG", "trace");
    let server = place.start_with(process, "serve", &[]);
    let task = with_token(&place, &server, &token, &["enqueue", "noop"]).exits(0);
    let id = task.json()["id"].as_str().expect("an id").to_owned();
    let mut told = vec![task];
    let hidden = |ran: &Ran| !ran.out.contains(secret) && !ran.err.contains(secret);
    // The one place where it is told: as it is made, by a server, at the loudest log level.
    let made = with_token(
        &place,
        &server,
        &token,
        &["token", "create", "--name", "bob", "--scope", "read"],
    );
    let made = made.exits(0).json()["token"].as_str().expect("it is told once").to_owned();
    let bob = made.rsplit('_').next().expect("three parts").to_owned();
    for (arguments, code) in [
        (&["token", "list"][..], 0),
        (&["audit"], 0),
        (&["task", "show", &id], 0),
        (&["task", "show", "no-such-task"], 3),
        (&["config", "show"], 0),
    ] {
        told.push(with_token(&place, &server, &token, arguments).exits(code));
    }
    // A letter too many: what is refused is not repeated either.
    told.push(with_token(&place, &server, &format!("{token}0"), &["stats"]).exits(5));
    told.push(with_token(&place, &server, &token.replace("wl_", "wl-"), &["stats"]).exits(5));
    let mut waiting = place.command();
    waiting.args(["task", "wait", &id, "--server", &server.url]).env("WINDLASS_TOKEN", &token);
    let mut waiting = waiting.stdout(Stdio::null()).spawn().expect("it starts");
    for process in std::fs::read_dir("/proc").expect("a list of processes").flatten() {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&line).contains(secret), "{:?}", process.path());
    }
    waiting.kill().and_then(|()| waiting.wait()).expect("it ends");
    // What goes wrong repeats nothing of the head either: bad bodies, bad heads, bad tokens, no such path.
    let bearer = format!("authorization: Bearer {token}\r\n");
    for request in [
        format!(
            "POST /api/v1/tasks HTTP/1.1\r\n{bearer}content-type: application/json\r\ncontent-length: 1\r\n"
        ),
        format!("GET /none HTTP/1.1\r\n{bearer}"),
        format!("PATCH /api/v1/tasks HTTP/1.1\r\n{bearer}"),
        format!("GET /metrics HTTP/1.1\r\n{bearer}"),
        format!("GET /api/v1/stats HTTP/1.1\r\n{bearer}x-api-key: {made}\r\n"),
        format!("GET /api/v1/stats HTTP/1.1\r\nauthorization: Basic {token}\r\n"),
    ] {
        let (_, body) = server.ask(&request, "{");
        assert!(!body.contains(secret), "{request}: {body}");
    }
    let log = server.end();
    assert!(log.contains("INFO"), "there is a log: {log}");
    for secret in [secret, &bob] {
        let line = log.lines().find(|line| line.contains(secret));
        assert_eq!(line, None, "the log repeats it");
    }
    for ran in told {
        assert!(hidden(&ran), "{ran}");
        assert!(!ran.out.contains(&bob), "it is told once: {ran}");
    }
    for file in std::fs::read_dir(place.path()).expect("its folder").flatten() {
        let kept = std::fs::read(file.path()).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&kept).contains(secret), "{:?}", file.path());
    }
}

#[test]
fn a_token_made_or_revoked_in_the_store_counts_at_a_running_server() {
    let place = Place::new();
    let server = place.start("serve", &[]);
    assert_eq!(server.get("/api/v1/stats").0, 200);
    let token = new_token(&place, "read");
    // Within 5 s; how long it may take here is up to the machine.
    eventually("it asks for a token", || server.get("/api/v1/stats").0 == 401);
    with_token(&place, &server, &token, &["stats"]).exits(0);
    let told = with_token(&place, &server, &token, &["queue", "pause", "q", "--create"]).exits(5);
    assert!(told.err.contains("operate"), "{told}");
    let id = token.split('_').nth(1).expect("three parts");
    place.run(&["token", "revoke", id]).exits(0);
    eventually("it is refused", || with_token(&place, &server, &token, &["stats"]).code != 0);
    with_token(&place, &server, &token, &["stats"]).exits(5);
}

/// The binary as a user without rights: root could read everything.
fn as_nobody(place: &Place) -> std::process::Command {
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65_534;
    let mut command = place.command();
    if nix::unistd::geteuid().is_root() {
        std::os::unix::fs::chown(place.path(), Some(NOBODY), Some(NOBODY)).expect("as root");
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

#[test]
fn a_command_cannot_read_the_environment_of_its_worker() {
    let place = Place::new();
    let said = |word: &str| format!("echo '\"{word}\"'");
    let command = format!(
        "cat /proc/self/environ > /dev/null && cat /proc/$PPID/environ > /dev/null 2>&1 && {} || {}",
        said("read"),
        said("denied"),
    );
    let mut process = as_nobody(&place);
    process.env("PGPASSWORD", "secret");
    let _worker = place.start_with(process, "worker", &["--exec", &command]);
    let enqueued = as_nobody(&place).args(["enqueue", "any", "--wait"]).output();
    let task = support::ran(enqueued.expect("cargo has built the binary")).exits(0).json();
    assert_eq!(task["result"], "denied", "{task}");
}
