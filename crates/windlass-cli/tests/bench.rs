//! `windlass bench` as a user runs it: the real binary, its output and its exit codes.

use std::process::{Command, Output};

use serde_json::Value;

fn bench(options: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_windlass"))
        .arg("bench")
        .args(options)
        .output()
        .expect("cargo has built the binary")
}

/// Runs a small measurement and reads its lines of JSON.
fn measured(options: &[&str]) -> Vec<Value> {
    let small = ["--step-seconds", "0.2", "-o", "json"];
    let tasks = if options.contains(&"--tasks") { &[][..] } else { &["--tasks", "200"][..] };
    let output = bench(&[&small, tasks, options].concat());
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaints}");
    let text = String::from_utf8(output.stdout).expect("results are text");
    text.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}

fn assert_positive(object: &Value, fields: &[&str]) {
    for field in fields {
        let number = object[field].as_f64().unwrap_or_default();
        assert!(number > 0.0, "{field} in {object}");
    }
}

#[test]
fn mode_store_prints_one_object_per_batch_size() {
    let objects = measured(&["--store", "memory:"]);
    let batches: Vec<_> = objects.iter().map(|object| &object["batch"]).collect();
    assert_eq!(batches, [1, 10, 100, 500, 1000]);
    for object in &objects {
        assert_eq!((&object["mode"], &object["store"]), (&"store".into(), &"memory".into()));
        assert_positive(object, &["insert_per_s", "claim_per_s", "apply_per_s"]);
        assert_positive(object, &["claim_apply_per_s", "fdatasync_us", "tasks"]);
    }
}

#[test]
fn mode_enqueue_tells_rate_and_latency() {
    let objects = measured(&["--mode", "enqueue", "--producers", "8", "--store", "memory:"]);
    assert_eq!(objects.len(), 1);
    assert_positive(&objects[0], &["tasks", "tasks_per_s", "fdatasync_us"]);
    assert_positive(&objects[0]["latency_ms"], &["p50", "p95", "p99"]);
}

#[test]
fn mode_http_tells_the_rate_of_single_submits() {
    let objects = measured(&["--mode", "http", "--producers", "8", "--store", "memory:"]);
    assert_eq!(objects.len(), 1);
    assert_positive(&objects[0], &["tasks", "tasks_per_s"]);
    assert_positive(&objects[0]["latency_ms"], &["p50", "p95", "p99"]);
}

#[test]
fn mode_backlog_tells_the_ratio() {
    let stores = ["--store", "memory:", "--second-store", "memory:"];
    let lengths = ["--mode", "backlog", "--backlog", "2000", "--running", "300", "--batch", "50"];
    let objects = measured(&[&stores[..], &lengths[..]].concat());
    assert_eq!(objects[0]["long_backlog"], 2000);
    assert_eq!(
        (&objects[0]["short_running"], &objects[0]["long_running"]),
        (&10.into(), &300.into())
    );
    assert_positive(&objects[0], &["claim_ratio", "claim_apply_ratio"]);
}

#[test]
fn an_unknown_store_is_an_invalid_request() {
    let output = bench(&["--store", "abacus:"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("error: "));
}

#[test]
fn mode_drain_tells_the_rate_beside_the_stores_own() {
    let objects = measured(&["--mode", "drain", "--concurrency", "8", "--store", "memory:"]);
    assert_eq!((&objects[0]["mode"], &objects[0]["tasks"]), (&"drain".into(), &200.into()));
    assert_positive(&objects[0], &["tasks_per_s", "claim_apply_per_s", "ratio"]);
}

#[test]
fn mode_flow_tells_submits_and_completions() {
    let options = ["--mode", "flow", "--producers", "4", "--concurrency", "8"];
    let objects = measured(&[&options[..], &["--store", "sqlite::memory:"]].concat());
    assert_eq!((&objects[0]["mode"], &objects[0]["tasks"]), (&"flow".into(), &200.into()));
    assert_positive(&objects[0], &["tasks_per_s", "submits_per_s", "seconds"]);
}

#[test]
fn a_batch_larger_than_all_tasks_is_cut_to_them() {
    let options = ["--mode", "enqueue", "--batch", "500", "--tasks", "200"];
    let objects = measured(&[&options[..], &["--store", "memory:"]].concat());
    assert_eq!(objects[0]["tasks"], 200);
}

#[test]
fn mode_soak_tells_slice_by_slice() {
    let options = ["--mode", "soak", "--producers", "2", "--batch", "20", "--soak-seconds", "1"];
    let objects = measured(&[&options[..], &["--store", "memory:"]].concat());
    let slices: Vec<_> = objects.iter().map(|object| object["slice"].as_u64()).collect();
    assert_eq!(slices, (1..=10).map(Some).collect::<Vec<_>>());
    assert_positive(&objects[9], &["tasks", "seconds"]);
}

#[test]
fn mode_latency_tells_submit_and_claim_apart() {
    let objects = measured(&["--mode", "latency", "--tasks", "20", "--store", "memory:"]);
    for field in ["latency_ms", "submit_ms"] {
        assert_positive(&objects[0][field], &["p50", "p95", "p99"]);
    }
    assert!(objects[0]["claim_ms"]["p50"].is_number());
}

#[test]
fn an_interrupted_bench_leaves_nothing_behind() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let mut child = Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(["bench", "--step-seconds", "60", "--tasks", "100000000", "-o", "table"])
        .current_dir(folder.path())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("cargo has built the binary");
    // The first line is printed after its folder was made. Then nobody reads on: the end must not
    // depend on that.
    let mut line = String::new();
    let output = child.stderr.take().expect("the output is piped");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).expect("a line");
    let id = child.id().to_string();
    let status = Command::new("kill").args(["-INT", &id]).status().expect("kill is there");
    assert!(status.success());
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    let left = std::fs::read_dir(folder.path()).expect("the folder").count();
    assert_eq!(left, 0, "after {line}");
}
