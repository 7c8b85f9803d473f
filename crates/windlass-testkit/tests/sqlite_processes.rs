//! Several processes on one SQLite file: they start at once, share the work, wake each other up, and
//! die without harm.

#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use windlass_core::State;
use windlass_core::store::{Depth, Severity};

/// A process that uses the store at a path.
fn child(what: &str, path: &Path, count: usize) -> Child {
    Command::new(env!("CARGO_BIN_EXE_store-child"))
        .args([what, &format!("sqlite:{}", path.display()), &count.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The last words of all lines that begin so.
fn words(child: Child, first: &str) -> Vec<String> {
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    text.lines().filter_map(|line| line.strip_prefix(first)).map(|w| w.trim().into()).collect()
}

#[test]
fn eight_processes_may_start_at_once() {
    for _ in 0..5 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tasks.db");
        let children: Vec<_> = (0..8).map(|_| child("insert", &path, 10)).collect();
        let ids: BTreeSet<_> = children.into_iter().flat_map(|c| words(c, "inserted")).collect();
        assert_eq!(ids.len(), 80);
    }
}

#[tokio::test]
async fn processes_share_one_file_and_no_task_is_completed_twice() {
    const TASKS: usize = 1_000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tasks.db");
    let drains: Vec<_> = (0..3).map(|_| child("drain", &path, TASKS)).collect();
    let inserts: Vec<_> = (0..2).map(|_| child("insert", &path, TASKS / 2)).collect();
    let inserted: BTreeSet<_> = inserts.into_iter().flat_map(|c| words(c, "inserted")).collect();
    let completed: Vec<_> = drains
        .into_iter()
        .flat_map(|c| words(c, "completed"))
        .map(|line| line.split(' ').next().unwrap().to_owned())
        .collect();
    assert_eq!(inserted.len(), TASKS);
    assert_eq!(completed.len(), TASKS, "each exactly once");
    assert_eq!(completed.into_iter().collect::<BTreeSet<_>>(), inserted);
    let store = windlass_stores::open(&format!("sqlite:{}", path.display())).await.unwrap();
    let queues = store.queues().await.unwrap();
    assert_eq!(queues[0].counts.get(State::Completed), TASKS as u64);
}

#[tokio::test]
async fn a_worker_is_woken_by_work_from_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tasks.db");
    let mut waiting = child("wait", &path, 0);
    let mut lines = BufReader::new(waiting.stdout.take().unwrap()).lines();
    while lines.next().unwrap().unwrap() != "waiting" {}
    words(child("insert", &path, 1), "inserted");
    assert_eq!(lines.next().unwrap().unwrap(), "woken Work 1");
    waiting.wait().unwrap();
}

#[tokio::test]
async fn a_killed_process_leaves_every_acknowledged_task_and_a_sound_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tasks.db");
    for round in 1..=5 {
        let mut inserting = child("insert", &path, 1_000_000);
        let mut lines = BufReader::new(inserting.stdout.take().unwrap()).lines();
        for _ in 0..round * 50 {
            lines.next().unwrap().unwrap();
        }
        inserting.kill().unwrap();
        inserting.wait().unwrap();
        let acknowledged: Vec<_> = lines
            .map_while(Result::ok)
            .filter_map(|line| line.strip_prefix("inserted ").map(windlass_core::TaskId::new))
            .collect();
        let store = windlass_stores::open(&format!("sqlite:{}", path.display())).await.unwrap();
        let parts = windlass_core::store::Parts::NONE;
        let params = windlass_core::store::GetParams { ids: acknowledged, parts };
        let found = store.get(params).await.unwrap();
        assert!(found.iter().all(Option::is_some), "an acknowledged task is lost");
        let inspection = store.inspect(Depth::Full).await.unwrap();
        let worst = inspection.findings.iter().map(|finding| finding.severity).max();
        assert!(worst < Some(Severity::Problem), "{:?}", inspection.findings);
    }
}
