//! The workers in `examples/workers` against a real server, in each of their languages.

mod support;

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{Place, Server, eventually};

/// Short, so that what a killed worker held comes back while the test waits.
const QUICK: &str = "\
[worker]
lease = \"3s\"
heartbeat = \"1s\"
[upkeep]
sweep = \"500ms\"
leader_term = \"2s\"
leader_renewal = \"500ms\"
";
/// Where no worker is lost: a busy machine must not cost it its runs.
const STEADY: &str = "[worker]\nlease = \"20s\"\nheartbeat = \"1s\"\n";

/// A sample worker; killed when this is dropped.
struct Sample(Child);

impl Sample {
    fn start(place: &Place, server: &Server, program: &str, script: &str) -> Self {
        let path = format!("{}/../../examples/workers/{script}", env!("CARGO_MANIFEST_DIR"));
        let mut command = Command::new(program);
        command.arg(path).env("WINDLASS_URL", &server.url).current_dir(place.path());
        Self(command.spawn().unwrap_or_else(|error| panic!("{program}: {error}")))
    }

    /// Asks it to end; it ends well.
    fn terminate(&mut self) {
        let asked = Command::new("kill").arg(self.0.id().to_string()).status();
        assert!(asked.expect("kill is there").success());
        assert!(self.0.wait().expect("it ends").success());
    }
}

impl Drop for Sample {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn state(server: &Server, id: &str) -> String {
    server.task(id)["state"].as_str().expect("a state").to_owned()
}

/// State, attempts and crashes.
fn counts(task: &Value) -> (&str, u64, u64) {
    let number = |name: &str| task[name].as_u64().expect("a number");
    (task["state"].as_str().expect("a state"), number("attempts"), number("crashes"))
}

/// Everything that a worker should show to whoever copies it.
fn check_practice(program: &str, script: &str) {
    let place = Place::new();
    place.file("windlass.toml", STEADY);
    let mut server = place.start("serve", &[]);
    // Nobody needs all slots at once but these: one slow task beside nine instant ones.
    let sleep = |ms: u64| json!({"type": "sleep", "payload": {"ms": ms}});
    let slow = server.submit(&sleep(600_000));
    let instant: Vec<_> = (0..9).map(|number| json!({"type": "echo", "payload": number})).collect();
    let instant: Vec<_> = instant.iter().map(|body| server.submit(body)).collect();
    let mut sample = Sample::start(&place, &server, program, script);
    for (number, id) in instant.iter().enumerate() {
        assert_eq!(server.finished(id)["result"], number);
    }
    // And those that come later get the slots that are free.
    for number in 0..20 {
        let id = server.submit(&json!({"type": "echo", "payload": number}));
        assert_eq!(server.finished(&id)["result"], number);
    }
    assert_eq!(state(&server, &slow), "running");
    eventually("its progress is told", || server.task(&slow)["progress"]["note"].is_string());
    server.send(&format!("/api/v1/tasks/{slow}/cancel"), &json!({}), 202);
    assert_eq!(counts(&server.finished(&slow)), ("cancelled", 1, 0));
    // Each outcome.
    let greet = |payload: Value| server.submit(&json!({"type": "greet", "payload": payload}));
    assert_eq!(server.finished(&greet(json!({"name": "ann"})))["result"], "hello, ann");
    let discarded = server.finished(&greet(json!({})));
    let told = (counts(&discarded), &discarded["error"]);
    assert_eq!(told, (("dead_letter", 1, 0), &json!("there is no name")));
    let snoozed = greet(json!({"name": "bob", "asleep": true}));
    eventually("it is snoozed", || state(&server, &snoozed) == "scheduled");
    assert_eq!(counts(&server.task(&snoozed)), ("scheduled", 0, 0));
    let failed = server.submit(&json!({"type": "sleep", "payload": null, "max_retries": 0}));
    assert_eq!(counts(&server.finished(&failed)), ("dead_letter", 1, 0));
    let unknown = server.submit(&json!({"type": "of.another.worker", "max_retries": 0}));
    let mut late = sleep(600_000);
    (late["timeout"], late["max_retries"]) = (json!("1s"), json!(0));
    let late = server.finished(&server.submit(&late));
    assert_eq!(counts(&late), ("dead_letter", 1, 0));
    assert!(late["error"].to_string().contains("timeout of 1s"), "{late}");
    let task = server.task(&unknown);
    assert!(task["state"] != "dead_letter" && task["crashes"] == 0, "{task}");
    // A run outlives its server.
    let outliving = server.submit(&sleep(2_000));
    eventually("it runs", || state(&server, &outliving) == "running");
    server.signal("-KILL");
    assert_eq!(server.wait(), None);
    let server = place.restart(server, "serve");
    let task = server.finished(&outliving);
    assert_eq!(counts(&task), ("completed", 1, 0), "{task}");
    // What runs is finished before the end.
    let last = server.submit(&sleep(1_500));
    eventually("it runs", || state(&server, &last) == "running");
    sample.terminate();
    assert_eq!(counts(&server.task(&last)), ("completed", 1, 0));
}

/// Killed and restarted while it works: every task comes to its end, once.
fn check_kills(program: &str, script: &str) {
    const TASKS: usize = 1_500;
    let place = Place::new();
    place.file("windlass.toml", QUICK);
    let server = place.start("serve", &[]);
    let count = TASKS.to_string();
    let submitted = ["enqueue", "echo", r#"{"n":1}"#, "--count", &count, "-o", "jsonl"];
    let ids = place.run(&submitted).exits(0).lines();
    let finished = |id: &Value| server.finished(id["id"].as_str().expect("an id"));
    for from in [100, 500, 900] {
        let sample = Sample::start(&place, &server, program, script);
        finished(&ids[from]);
        drop(sample);
    }
    let mut sample = Sample::start(&place, &server, program, script);
    for id in &ids {
        let task = finished(id);
        let told = (&task["state"], &task["attempts"], &task["result"]);
        assert_eq!(told, (&json!("completed"), &json!(1), &json!({"n": 1})), "{task}");
        assert!(task["crashes"].as_u64() <= Some(3), "{task}");
    }
    // It has reported its last results, and waits up to 20 s for more.
    let started = Instant::now();
    sample.terminate();
    assert!(started.elapsed() < Duration::from_secs(10), "who is idle ends at once");
    // Those that were killed may still be thought to live.
    let workers = place.run(&["workers", "list"]).exits(0).json();
    let workers = workers["data"].as_array().expect("a list");
    let last = workers.iter().max_by_key(|worker| worker["started_at"].as_str()).expect("a worker");
    assert_eq!(last["state"], "gone", "it has said goodbye");
}

#[test]
fn the_sample_worker_in_python_is_good_practice() {
    check_practice("python3", "worker.py");
}

#[test]
fn the_sample_worker_in_javascript_is_good_practice() {
    check_practice("node", "worker.mjs");
}

#[test]
fn the_sample_worker_in_python_loses_nothing_when_it_is_killed() {
    check_kills("python3", "worker.py");
}

#[test]
fn the_sample_worker_in_javascript_loses_nothing_when_it_is_killed() {
    check_kills("node", "worker.mjs");
}
