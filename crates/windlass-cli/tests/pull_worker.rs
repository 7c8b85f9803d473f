//! `windlass worker --server --exec` as a process: what commands come to over HTTP, and what is left of them when the
//! worker or the server is killed, stopped or out of reach.

mod support;

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use serde_json::{Value, json};
use support::{Place, Server, eventually};

/// Short, so that what a killed process held comes back while the test waits.
const QUICK: &str = "\
[worker]
lease = \"4s\"
heartbeat = \"1s\"
[upkeep]
sweep = \"500ms\"
leader_term = \"2s\"
leader_renewal = \"500ms\"
";

/// What runs for each task. `began` and `go` in the folder of the test are how a command and the test wait for each
/// other.
const HANDLER: &str = r#"
case "$WINDLASS_TYPE" in
  echo) cat ;;
  fail) echo out; echo "no luck" >&2; exit 1 ;;
  discard) echo "no such user" >&2; exit 65 ;;
  snooze) echo "snooze 1h" >&3; exit 75 ;;
  report) echo "for people"; echo "progress 0.5 half-way" >&3; read line < go; echo 'result {"done": 1.50}' >&3 ;;
  slow) echo $$ > began; exec sleep 600 ;;
  gated) echo $$ > began; read line < go; echo "\"$line\"" ;;
  environment) echo "\"$WINDLASS_QUEUE $WINDLASS_ATTEMPT $WINDLASS_CONTROL_FD ${WINDLASS_URL-none} ${WINDLASS_TOKEN-none}\"" ;;
esac
"#;

/// A server with a folder of its own for commands.
fn scene() -> (Place, Server) {
    let place = Place::new();
    place.file("windlass.toml", QUICK);
    place.file("handle.sh", HANDLER);
    for name in ["began", "go"] {
        let status = Command::new("mkfifo").arg(place.path().join(name)).status();
        assert!(status.expect("mkfifo is there").success());
    }
    let server = place.start("serve", &[]);
    (place, server)
}

/// A worker of a server; killed when this is dropped.
struct Worker {
    child: Child,
    log: Option<JoinHandle<String>>,
}

impl Worker {
    fn start(place: &Place, server: &Server, arguments: &[&str]) -> Self {
        let mut command = place.command();
        command.args(["worker", "--server", &server.url, "--exec", "sh handle.sh"]).args(arguments);
        Self::spawn(command)
    }

    fn spawn(mut command: Command) -> Self {
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("cargo has built the binary");
        let mut log = BufReader::new(child.stderr.take().expect("it is piped"));
        let mut line = String::new();
        while !line.contains("working") {
            line.clear();
            assert!(log.read_line(&mut line).expect("text") > 0, "it ended: {:?}", child.wait());
        }
        let log = std::thread::spawn(move || {
            let _ = log.read_to_string(&mut line);
            line
        });
        Self { child, log: Some(log) }
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args([name, &self.child.id().to_string()]).status();
        assert!(status.expect("kill is there").success());
    }

    /// Its exit code, nothing when a signal ended it, and all that it logged since it worked.
    fn end(&mut self) -> (Option<i32>, String) {
        let code = self.child.wait().expect("it can be waited for").code();
        let log = self.log.take().expect("a worker ends once");
        (code, log.join().expect("its log can be read"))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The process id of a command that has begun.
fn began(place: &Place) -> u32 {
    let read = std::fs::read_to_string(place.path().join("began")).expect("a command writes it");
    read.trim().parse().expect("a process id")
}

/// Lets a command go on, which reads this line.
fn go(place: &Place, line: &str) {
    place.file("go", &format!("{line}\n"));
}

fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// State, attempts and crashes.
fn counts(task: &Value) -> (&str, u64, u64) {
    let number = |name: &str| task[name].as_u64().expect("a number");
    (task["state"].as_str().expect("a state"), number("attempts"), number("crashes"))
}

fn workers(server: &Server) -> Vec<Value> {
    let (status, workers) = server.get("/api/v1/workers");
    assert_eq!(status, 200, "{workers}");
    let workers: Value = serde_json::from_str(&workers).expect("JSON");
    workers["data"].as_array().expect("a list").clone()
}

#[test]
fn the_end_of_a_command_is_the_end_of_its_run() {
    let (place, server) = scene();
    let mut worker = Worker::start(&place, &server, &["--name", "shell", "--concurrency", "3"]);
    let listed = &workers(&server)[0];
    assert_eq!((&listed["name"], &listed["slots"]), (&json!("shell"), &json!(3)), "{listed}");
    let run = |kind: &str, payload: Value| {
        server.submit(&json!({"type": kind, "payload": payload, "max_retries": 0}))
    };
    let echo = server.finished(&run("echo", json!({"n": 9_007_199_254_740_993_u64})));
    assert_eq!(echo["result"].to_string(), r#"{"n":9007199254740993}"#);
    let failed = server.finished(&run("fail", json!(null)));
    assert_eq!((counts(&failed), &failed["error"]), (("dead_letter", 1, 0), &json!("no luck")));
    let discarded = server.finished(&server.submit(&json!({"type": "discard"})));
    let reason = json!("no such user");
    assert_eq!((counts(&discarded), &discarded["error"]), (("dead_letter", 1, 0), &reason));
    let snoozed = run("snooze", json!(null));
    eventually("it is snoozed", || server.task(&snoozed)["state"] == "scheduled");
    let task = server.task(&snoozed);
    assert_eq!(counts(&task), ("scheduled", 0, 0));
    assert!(task["run_at"].as_str() > task["updated_at"].as_str(), "{task}");
    let environment = server.finished(&run("environment", json!(null)));
    assert_eq!(environment["result"], "default 1 3 none none");
    worker.signal("-TERM");
    let (code, log) = worker.end();
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(workers(&server)[0]["state"], "gone");
}

#[test]
fn a_command_reports_its_progress_and_its_result() {
    let (place, server) = scene();
    let _worker = Worker::start(&place, &server, &[]);
    let id = server.submit(&json!({"type": "report"}));
    eventually("its progress is told", || server.task(&id)["progress"]["fraction"] == 0.5);
    assert_eq!(server.task(&id)["progress"]["note"], "half-way");
    go(&place, "");
    assert_eq!(server.finished(&id)["result"].to_string(), r#"{"done":1.5}"#);
}

#[test]
fn a_run_is_ended_by_its_timeout_and_by_a_cancel() {
    let (place, server) = scene();
    let _worker = Worker::start(&place, &server, &["--concurrency", "1"]);
    let late = server.submit(&json!({"type": "slow", "timeout": "1s", "max_retries": 0}));
    let pid = began(&place);
    let task = server.finished(&late);
    assert_eq!(counts(&task), ("dead_letter", 1, 0), "{task}");
    assert!(task["error"].to_string().contains("timeout of 1s"), "{task}");
    assert!(!is_alive(pid));
    let cancelled = server.submit(&json!({"type": "slow"}));
    let pid = began(&place);
    server.send(&format!("/api/v1/tasks/{cancelled}/cancel"), &json!({}), 202);
    assert_eq!(counts(&server.finished(&cancelled)), ("cancelled", 1, 0));
    assert!(!is_alive(pid));
}

#[test]
fn a_slow_command_holds_up_no_other() {
    let (place, server) = scene();
    let _worker = Worker::start(&place, &server, &["--concurrency", "2"]);
    let slow = server.submit(&json!({"type": "slow"}));
    let _ = began(&place);
    for number in 0..50 {
        let id = server.submit(&json!({"type": "echo", "payload": number}));
        assert_eq!(server.finished(&id)["result"], number);
    }
    assert_eq!(server.task(&slow)["state"], "running");
}

#[test]
fn a_worker_that_is_stopped_finishes_what_it_runs_or_gives_it_back() {
    let (place, server) = scene();
    let mut worker = Worker::start(&place, &server, &[]);
    let id = server.submit(&json!({"type": "gated"}));
    let _ = began(&place);
    worker.signal("-TERM");
    go(&place, "last");
    let (code, log) = worker.end();
    assert_eq!(code, Some(0), "{log}");
    let task = server.task(&id);
    assert_eq!((counts(&task), &task["result"]), (("completed", 1, 0), &json!("last")));
    place.file(
        "windlass.toml",
        &QUICK.replace("heartbeat", "shutdown_timeout = \"100ms\"\nheartbeat"),
    );
    let mut worker = Worker::start(&place, &server, &[]);
    let id = server.submit(&json!({"type": "slow"}));
    let pid = began(&place);
    worker.signal("-TERM");
    let (code, log) = worker.end();
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(counts(&server.task(&id)), ("pending", 0, 0));
    assert!(!is_alive(pid));
}

#[test]
fn a_second_signal_ends_a_worker_at_once() {
    let (place, server) = scene();
    let mut worker = Worker::start(&place, &server, &[]);
    server.submit(&json!({"type": "slow"}));
    let pid = began(&place);
    // Those of the first moments are one with the first.
    while worker.child.try_wait().expect("it can be asked").is_none() {
        worker.signal("-INT");
    }
    assert_eq!(worker.end().0, Some(130));
    eventually("its command is gone", || !is_alive(pid));
}

#[test]
fn what_a_killed_worker_ran_runs_again_without_a_retry_spent() {
    let (place, server) = scene();
    let worker = Worker::start(&place, &server, &[]);
    let id = server.submit(&json!({"type": "gated", "max_retries": 0}));
    let orphan = began(&place);
    drop(worker);
    // Nobody ends the commands of a worker that was killed.
    let _ = Command::new("kill").args(["-KILL", &orphan.to_string()]).status();
    let _worker = Worker::start(&place, &server, &[]);
    let _ = began(&place);
    go(&place, "again");
    let task = server.finished(&id);
    assert_eq!((counts(&task), &task["result"]), (("completed", 1, 1), &json!("again")));
}

#[test]
fn a_server_that_is_killed_and_started_again_loses_no_run() {
    let (place, mut server) = scene();
    let mut worker = Worker::start(&place, &server, &[]);
    let id = server.submit(&json!({"type": "gated"}));
    let _ = began(&place);
    server.signal("-KILL");
    assert_eq!(server.wait(), None);
    // It ends while nobody can hear of it.
    go(&place, "kept");
    let server = place.restart(server, "serve");
    let task = server.finished(&id);
    assert_eq!((counts(&task), &task["result"]), (("completed", 1, 0), &json!("kept")));
    let next = server.submit(&json!({"type": "echo", "payload": 7}));
    assert_eq!(server.finished(&next)["result"], 7);
    worker.signal("-TERM");
    let (code, log) = worker.end();
    assert_eq!(code, Some(0), "{log}");
}

#[test]
fn a_worker_without_its_server_ends_its_commands_before_the_lease_is_over() {
    let (place, server) = scene();
    let worker = Worker::start(&place, &server, &[]);
    let id = server.submit(&json!({"type": "gated"}));
    let pid = began(&place);
    server.signal("-STOP");
    eventually("the command is ended", || !is_alive(pid));
    server.signal("-CONT");
    let _ = began(&place);
    go(&place, "second");
    let task = server.finished(&id);
    let (state, attempts, _) = counts(&task);
    assert_eq!((state, attempts, &task["result"]), ("completed", 1, &json!("second")), "{task}");
    drop(worker);
}

#[test]
fn a_worker_that_was_declared_lost_goes_on_under_another_id() {
    let (place, server) = scene();
    let worker = Worker::start(&place, &server, &[]);
    let first = workers(&server)[0]["id"].clone();
    worker.signal("-STOP");
    eventually("it is declared lost", || workers(&server)[0]["state"] == "gone");
    worker.signal("-CONT");
    let id = server.submit(&json!({"type": "echo", "payload": 1}));
    let task = server.finished(&id);
    assert_eq!(task["result"], 1);
    assert_ne!(task["worker_id"], first);
}

#[test]
fn a_worker_obeys_its_operator() {
    let (place, server) = scene();
    let mut worker = Worker::start(&place, &server, &[]);
    let id = workers(&server)[0]["id"].as_str().expect("an id").to_owned();
    let order =
        |order: &str| server.send(&format!("/api/v1/workers/{id}/{order}"), &json!({}), 200);
    order("pause");
    let task = server.submit(&json!({"type": "echo", "payload": 1}));
    eventually("it pauses", || workers(&server)[0]["state"] == "pause");
    assert_eq!(server.task(&task)["state"], "pending");
    order("resume");
    assert_eq!(server.finished(&task)["result"], 1);
    order("drain");
    let (code, log) = worker.end();
    assert_eq!(code, Some(0), "{log}");
}

#[test]
fn queues_are_served_strictly_or_by_weight() {
    let (place, server) = scene();
    let body = |queue: &str| json!({"type": "echo", "payload": queue, "queue": queue});
    let ids: Vec<_> =
        ["bulk", "urgent", "bulk", "urgent"].iter().map(|q| server.submit(&body(q))).collect();
    let strict = ["--queue", "urgent", "--queue", "bulk=5", "--strict", "--concurrency", "1"];
    let worker = Worker::start(&place, &server, &strict);
    assert_eq!(workers(&server)[0]["queues"], json!(["urgent", "bulk"]));
    let claimed =
        |at: usize| server.finished(&ids[at])["claimed_at"].as_str().expect("a time").to_owned();
    let (bulk, urgent) = (claimed(0).min(claimed(2)), claimed(1).max(claimed(3)));
    assert!(urgent <= bulk, "{urgent} {bulk}");
    drop(worker);
    let _worker = Worker::start(&place, &server, &["--queue", "mail=3", "--queue", "other"]);
    assert_eq!(server.finished(&server.submit(&body("mail")))["result"], "mail");
    assert_eq!(server.finished(&server.submit(&body("other")))["result"], "other");
}

#[test]
fn the_environment_names_the_server_and_no_store_is_made() {
    let (place, server) = scene();
    let token = place.run(&["token", "create", "--name", "w", "--scope", "work"]).exits(0).json();
    let token = token["token"].as_str().expect("it is told once");
    let elsewhere = Place::new();
    let mut command = elsewhere.command();
    command.args(["worker", "--exec", "cat"]).env("WINDLASS_URL", &server.url);
    let mut refused = command;
    refused.env("WINDLASS_TOKEN", "wl_0_0");
    eventually("the server asks for a token", || server.get("/api/v1/stats").0 == 401);
    let refused = support::ran(refused.output().expect("it runs")).exits(5);
    assert!(!refused.err.contains("wl_0_0"), "{refused}");
    let mut command = elsewhere.command();
    command.args(["worker", "--exec", "cat"]).env("WINDLASS_URL", &server.url);
    let _worker = {
        command.env("WINDLASS_TOKEN", token);
        Worker::spawn(command)
    };
    let submitted = place.run(&["enqueue", "any", "[1]", "--wait"]).exits(0).json();
    assert_eq!(submitted["result"], json!([1]));
    let files: Vec<PathBuf> = std::fs::read_dir(elsewhere.path())
        .expect("a folder")
        .map(|file| file.expect("a file").path())
        .collect();
    assert_eq!(files, Vec::<PathBuf>::new(), "nothing is made there");
}

#[test]
fn what_a_server_cannot_do_is_refused_with_a_hint() {
    let place = Place::new();
    let refused = |arguments: &[&str], code: i32, text: &str| {
        let words = [&["worker", "--server", "http://127.0.0.1:1"], arguments].concat();
        let ran = place.run(&words).exits(code);
        assert!(ran.err.contains(text), "{ran}");
    };
    refused(&[], 2, "--exec");
    refused(&["--exec", "cat", "--priority", "low"], 2, "--priority");
    refused(&["--exec", "cat", "--metrics-port", "0"], 2, "--metrics-port");
    refused(&["--exec", "cat", "--concurrency", "1001"], 2, "1000");
    refused(&["--exec", "cat", "--queue", "a b"], 2, "queue name");
    refused(&["--exec", "cat"], 69, "cannot reach http://127.0.0.1:1");
}
