//! What asynq leaves half done is put right, and counted.

use windlass_core::store::{Depth, Severity};
use windlass_core::{State, TaskId};
use windlass_testkit::draft::draft;
use windlass_testkit::scene::SECOND;

use crate::stage::{START, Stage, go_message};

async fn problems(stage: &Stage, depth: Depth) -> usize {
    let findings = stage.scene.store.inspect(depth).await.unwrap().findings;
    findings.iter().filter(|finding| finding.severity == Severity::Problem).count()
}

/// Checks that one tend repairs so many things, that the next finds nothing, and that a doctor agrees.
async fn check_mended(stage: &Stage, count: u64) {
    assert_eq!(problems(stage, Depth::Full).await, 1, "a doctor sees it");
    assert_eq!(stage.scene.tend().await.repaired, count);
    assert_eq!(stage.scene.tend().await.repaired, 0, "once");
    assert_eq!(problems(stage, Depth::Full).await, 0);
    stage.scene.books_balance("afterwards").await;
}

#[tokio::test]
async fn an_active_task_without_a_lease_runs_again() {
    let stage = Stage::new().await;
    stage.enqueue_as_go("a").await;
    stage.dequeue_as_go(START + 30).await;
    let _: i64 = stage.send("ZREM", "lease", &["a"]).await;
    check_mended(&stage, 1).await;
    stage.scene.advance(SECOND * 31);
    stage.scene.expire().await;
    stage.scene.expect(&TaskId::new("a"), State::Pending, "it was found").await;
}

#[tokio::test]
async fn a_lease_of_a_task_that_is_not_among_the_active_ones_leads_to_it_again() {
    let stage = Stage::new().await;
    stage.enqueue_as_go("a").await;
    stage.dequeue_as_go(START + 30).await;
    let _: i64 = stage.send("LREM", "active", &["0", "a"]).await;
    let _: i64 = stage.send("ZADD", "lease", &["1", "nobody"]).await;
    check_mended(&stage, 2).await;
    let active: Vec<String> = stage.send("LRANGE", "active", &["0", "-1"]).await;
    let leases: Vec<String> = stage.send("ZRANGE", "lease", &["0", "-1"]).await;
    assert_eq!((active, leases), (vec!["a".to_owned()], vec!["a".to_owned()]));
}

#[tokio::test]
async fn ids_without_a_task_are_taken_out_of_every_place() {
    let stage = Stage::new().await;
    let kept = stage.scene.submit(draft()).await;
    let _: i64 = stage.send("LPUSH", "pending", &["ghost-1"]).await;
    // What Go's dequeue leaves of one: an active id with a lease and a stub of a hash.
    let _: i64 = stage.send("LPUSH", "active", &["ghost-2"]).await;
    let _: i64 = stage.send("ZADD", "lease", &[&START.to_string(), "ghost-2"]).await;
    let _: i64 = stage.send("HSET", "t:ghost-2", &["state", "active"]).await;
    for place in ["scheduled", "retry", "archived", "completed"] {
        let _: i64 = stage.send("ZADD", place, &["9999999999", &format!("ghost-{place}")]).await;
    }
    check_mended(&stage, 6).await;
    let stub: i64 = stage.send("EXISTS", "t:ghost-2", &[]).await;
    assert_eq!(stub, 0);
    stage.scene.expect(&kept, State::Pending, "a task of its own").await;
}

#[tokio::test]
async fn a_claim_is_not_stopped_by_an_id_without_a_task() {
    let stage = Stage::new().await;
    let _: i64 = stage.send("LPUSH", "pending", &["ghost"]).await;
    let ids = stage.scene.submit_many(2).await;
    let worker = stage.scene.worker().await;
    assert_eq!(stage.scene.claim_ids(&worker, 9).await, ids);
    assert_eq!(stage.scene.tend().await.repaired, 1, "told once it is gone");
}

#[tokio::test]
async fn an_id_that_stands_in_the_line_twice_is_given_once() {
    let stage = Stage::new().await;
    let id = stage.scene.submit(draft()).await;
    let _: i64 = stage.send("LPUSH", "pending", &[id.as_str()]).await;
    let worker = stage.scene.worker().await;
    assert_eq!(stage.scene.claim_ids(&worker, 9).await, [id]);
    assert_eq!(stage.scene.claim(&worker, 9).await, []);
    assert_eq!(stage.scene.tend().await.repaired, 1);
}

#[tokio::test]
async fn a_group_that_nobody_names_is_named_again() {
    let stage = Stage::new().await;
    stage.put_hash(&go_message("part-1"), "aggregating").await;
    let _: i64 = stage.send("HSET", "t:part-1", &["group", "digest:7"]).await;
    let _: i64 = stage.send("ZADD", "g:digest:7", &[&START.to_string(), "part-1"]).await;
    // The search goes through all keys of a server that others share, a piece at a time.
    let mut repaired = 0;
    for _ in 0..1_000 {
        repaired += stage.scene.tend().await.repaired;
        if repaired > 0 {
            break;
        }
    }
    let groups: Vec<String> = stage.send("SMEMBERS", "groups", &[]).await;
    assert_eq!((repaired, groups), (1, vec!["digest:7".to_owned()]));
}

#[tokio::test]
async fn a_lock_and_a_key_of_a_task_that_others_have_removed_are_free() {
    let stage = Stage::new().await;
    let s = &stage.scene;
    let once = || draft().idempotency("once").unique(windlass_testkit::draft::until_finished("k"));
    let id = s.submit(once()).await;
    // As Go's inspector deletes all pending tasks: it forgets their locks.
    let _: i64 = stage.send("DEL", "pending", &[]).await;
    let _: i64 = stage.send("DEL", &format!("t:{id}"), &[]).await;
    check_mended(&stage, 2).await;
    s.submit(once()).await;
}
