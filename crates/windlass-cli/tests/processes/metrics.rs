//! Metrics after a run of known tasks: these numbers, these labels, and nothing else. And what systemd is
//! told.

use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use windlass::core::metric::TABLE;

use super::{QUICK, submit, until};
use crate::support::scrape::Scrape;
use crate::support::{Place, Server, eventually};

/// A server and a worker on one file, and tasks that have come to every sort of end.
struct Scene {
    place: Place,
    server: Server,
    worker: Server,
}

impl Scene {
    fn new() -> Self {
        let place = Place::new();
        place.file("windlass.toml", QUICK);
        let server = place.start("serve", &[]);
        let queues = ["--queue", "default", "--queue", "mail", "--concurrency", "4"];
        let worker = place.start("worker", &queues);
        Self { place, server, worker }
    }

    fn submit(&self, task: Value) -> String {
        submit(&self.server, &task)
    }

    /// Submits, and waits until it is in this state at its end.
    fn finish(&self, task: Value, state: &str) {
        let id = self.submit(task);
        let told = self.place.run(&["task", "wait", &id, "--timeout", "60s"]);
        assert_eq!(told.json()["state"], state, "{told}");
    }

    fn run_all(&self) {
        for _ in 0..3 {
            self.finish(json!({"type": "echo", "payload": 1}), "completed");
        }
        for _ in 0..2 {
            let task = json!({"type": "echo", "queue": "mail", "priority": "high"});
            self.finish(task, "completed");
        }
        let soon = json!({"shape": "fixed", "initial": 0.01, "jitter": 0.0});
        let again = json!({"type": "fail", "payload": {"times": 1}, "retry": soon});
        self.finish(again, "completed");
        self.finish(json!({"type": "fail", "max_retries": 0}), "dead_letter");
        let called_off = self.submit(json!({"type": "sleep", "payload": {"ms": 600_000}}));
        until(&self.place, &called_off, "running");
        self.place.run(&["task", "cancel", &called_off]).exits(0);
        until(&self.place, &called_off, "cancelled");
        // Those that wait; and one that is not new.
        self.submit(json!({"type": "noop", "delay": 3600}));
        let nobodys = json!({"type": "noop", "queue": "idle", "priority": "critical",
            "idempotency_key": "once"});
        self.submit(nobodys.clone());
        let (status, answer) = self.server.post("/api/v1/tasks", &nobodys.to_string());
        assert_eq!(status, 200, "{answer}");
    }
}

/// Asks until all of a metric is as expected: what is counted right behind an answer may come a moment later.
#[track_caller]
fn check(server: &Server, metric: &str, expected: &[(&str, f64)]) {
    let expected: Vec<_> =
        expected.iter().map(|(labels, n)| (format!("{metric}{labels}"), *n)).collect();
    let mut told = String::new();
    eventually(&format!("{metric} is {expected:?}"), || {
        let scrape = Scrape::of(server);
        let all = scrape.all(metric);
        told = format!("{all:?}");
        all.iter().map(|(name, n)| (String::from(*name), *n)).collect::<Vec<_>>() == expected
    });
}

/// Has Prometheus' own tool look at the exposition of a process.
#[track_caller]
fn check_with_promtool(process: &Server) {
    let (status, exposition) = process.get("/metrics");
    assert_eq!(status, 200);
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool, which cargo xtask setup installs");
    let mut input = promtool.stdin.take().expect("a pipe");
    input.write_all(exposition.as_bytes()).expect("promtool reads it all");
    drop(input);
    let output = promtool.wait_with_output().expect("promtool ends");
    let findings = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && findings.is_empty(), "{findings}");
}

#[test]
fn a_run_of_known_tasks_is_counted_exactly() {
    let scene = Scene::new();
    scene.run_all();
    let Scene { place, server, worker } = &scene;
    check_tasks(server, worker);
    check_with_promtool(server);
    check_with_promtool(worker);
    check_store(server);
    check_store(worker);
    for process in [server, worker] {
        let none = ["leases_lost", "stale_writes_refused", "repairs"];
        for name in none.map(|name| format!("windlass_{name}_total")) {
            check(process, &name, &[("", 0.0)]);
        }
        let version = format!("{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"));
        check(process, "windlass_build_info", &[(&version, 1.0)]);
    }
    eventually("one of them leads", || {
        let leads = |process| Scrape::of(process).get("windlass_leader");
        leads(server).zip(leads(worker)).is_some_and(|(one, other)| one + other == 1.0)
    });
    let (told, its) = (Scrape::of(server), Scrape::of(worker));
    let told: BTreeSet<_> = told.names().union(&its.names()).copied().collect();
    let all: BTreeSet<_> = TABLE.iter().map(|metric| metric.name).collect();
    let missing: Vec<_> = all.difference(&told).collect();
    assert_eq!(missing, [&"windlass_broker_refused_total", &"windlass_broker_up"], "no broker");
    // A worker that stands still loses what it runs, and hears that when it goes on.
    let held = scene.submit(json!({"type": "sleep", "payload": {"ms": 600_000}}));
    until(place, &held, "running");
    worker.signal("-STOP");
    check(server, "windlass_leases_lost_total", &[("", 1.0)]);
    check(server, "windlass_leader", &[("", 1.0)]);
    check(server, "windlass_workers", &[("", 0.0)]);
    worker.signal("-CONT");
    check(worker, "windlass_stale_writes_refused_total", &[("", 1.0)]);
}

fn check_tasks(server: &Server, worker: &Server) {
    let submitted = [
        ("{priority=\"critical\",type=\"noop\"}", 1.0),
        ("{priority=\"high\",type=\"echo\"}", 2.0),
        ("{priority=\"normal\",type=\"echo\"}", 3.0),
        ("{priority=\"normal\",type=\"fail\"}", 2.0),
        ("{priority=\"normal\",type=\"noop\"}", 1.0),
        ("{priority=\"normal\",type=\"sleep\"}", 1.0),
    ];
    check(server, "taskqueue_tasks_submitted_total", &submitted);
    check(worker, "taskqueue_tasks_submitted_total", &[]);
    let completed = [
        ("{status=\"cancelled\",type=\"sleep\"}", 1.0),
        ("{status=\"completed\",type=\"echo\"}", 5.0),
        ("{status=\"completed\",type=\"fail\"}", 1.0),
        ("{status=\"dead_letter\",type=\"fail\"}", 1.0),
        ("{status=\"retrying\",type=\"fail\"}", 1.0),
    ];
    check(worker, "taskqueue_tasks_completed_total", &completed);
    check(server, "taskqueue_tasks_completed_total", &[]);
    let runs = [("{type=\"echo\"}", 5.0), ("{type=\"fail\"}", 3.0), ("{type=\"sleep\"}", 1.0)];
    check(worker, "taskqueue_task_duration_seconds_count", &runs);
    let claims = [("{queue=\"default\"}", 7.0), ("{queue=\"mail\"}", 2.0)];
    check(worker, "windlass_task_wait_seconds_count", &claims);
    let waited = Scrape::of(worker).get("windlass_task_wait_seconds_sum{queue=\"default\"}");
    assert!(waited.is_some_and(|seconds| seconds < 60.0), "not the hour of the delayed one");
    let inserts = "windlass_store_op_seconds_count{op=\"insert\",store=\"sqlite\"}";
    assert_eq!(Scrape::of(server).get(inserts), Some(11.0), "one for each submit");
}

/// What the store has is the same, whoever tells it.
fn check_store(process: &Server) {
    let pending = [
        ("{priority=\"critical\"}", 1.0),
        ("{priority=\"high\"}", 0.0),
        ("{priority=\"low\"}", 0.0),
        ("{priority=\"normal\"}", 0.0),
    ];
    check(process, "taskqueue_queue_depth", &pending);
    check(process, "taskqueue_dlq_size", &[("", 1.0)]);
    check(process, "taskqueue_active_workers", &[("", 1.0)]);
    check(process, "windlass_workers", &[("", 1.0)]);
    let slots = [("{state=\"free\"}", 4.0), ("{state=\"paused\"}", 0.0), ("{state=\"used\"}", 0.0)];
    check(process, "windlass_worker_slots", &slots);
    let mut depths = Vec::new();
    for (queue, counts) in [
        (
            "default",
            [("cancelled", 1.0), ("completed", 4.0), ("dead_letter", 1.0), ("scheduled", 1.0)],
        ),
        ("idle", [("pending", 1.0); 4]),
        ("mail", [("completed", 2.0); 4]),
    ] {
        let states = [
            "cancelled",
            "completed",
            "dead_letter",
            "pending",
            "retrying",
            "running",
            "scheduled",
        ];
        for state in states {
            let count = counts.iter().find(|(its, _)| *its == state).map_or(0.0, |(_, n)| *n);
            depths.push((format!("{{queue=\"{queue}\",state=\"{state}\"}}"), count));
        }
    }
    let depths: Vec<_> = depths.iter().map(|(labels, n)| (labels.as_str(), *n)).collect();
    check(process, "windlass_queue_depth", &depths);
    let scrape = Scrape::of(process);
    let ages = scrape.all("windlass_queue_oldest_age_seconds");
    let is_old = |(name, age): &(&str, f64)| name.contains("idle") == (*age > 0.0);
    assert!(ages.len() == 3 && ages.iter().all(is_old), "{ages:?}");
}

#[test]
fn a_worker_tells_its_metrics_elsewhere_only_with_a_token_or_when_told_that_it_is_insecure() {
    let place = Place::new();
    let elsewhere = ["--metrics-bind", "0.0.0.0"];
    let refused =
        place.run(&[&["worker", "--metrics-port", "0"][..], &elsewhere].concat()).exits(2);
    assert!(refused.err.contains("windlass token create"), "{refused}");
    let insecure = place.start("worker", &[&elsewhere[..], &["--insecure"]].concat());
    assert_eq!((insecure.get("/metrics").0, insecure.get("/readyz").0), (200, 200));
    assert_eq!(insecure.get("/api/v1/tasks").0, 404, "nothing else is told");
    place.run(&["health", "--server", &insecure.url]).exits(0);
    super::new_token(&place, "read");
    let worker = place.start("worker", &elsewhere);
    assert_eq!((worker.get("/metrics").0, worker.get("/readyz").0), (401, 200));
}

/// What a process tells systemd, as systemd would hear it.
#[test]
fn systemd_hears_that_a_service_is_ready_goes_on_and_stops() {
    for command in ["serve", "worker"] {
        let place = Place::new();
        let path = place.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        let mut process = place.command();
        process
            .env("NOTIFY_SOCKET", &path)
            .env("WATCHDOG_USEC", "100000")
            .env_remove("WATCHDOG_PID");
        let mut server = place.start_with(process, command, &[]);
        let heard = || {
            let mut bytes = [0; 256];
            let length = socket.recv(&mut bytes).expect("it is told");
            String::from_utf8_lossy(&bytes[..length]).trim().to_owned()
        };
        assert_eq!(heard(), "READY=1", "{command}");
        for _ in 0..3 {
            assert_eq!(heard(), "WATCHDOG=1", "{command}");
        }
        server.signal("-TERM");
        let mut last = heard();
        while last == "WATCHDOG=1" {
            last = heard();
        }
        assert_eq!(last, "STOPPING=1", "{command}");
        assert_eq!(server.wait(), Some(0));
    }
}
