//! What windlass writes is what asynq reads.

use std::collections::BTreeMap;
use std::time::Duration;

use windlass_core::store::Inserted;
use windlass_core::unique::{Hold, OnConflict, Unique};
use windlass_core::{Ending, State};
use windlass_testkit::draft::draft;
use windlass_testkit::scene::{HOUR, SECOND, completed, discarded, failed};

use crate::stage::{START, Stage};

type Hash = BTreeMap<String, Vec<u8>>;

async fn names_of_fields(stage: &Stage, id: &str) -> Vec<String> {
    let hash: Hash = stage.send("HGETALL", &format!("t:{id}"), &[]).await;
    hash.into_keys().collect()
}

#[tokio::test]
async fn a_plain_task_has_the_fields_that_go_writes_and_no_others() {
    let stage = Stage::new().await;
    let plain = draft().retention(Duration::ZERO).max_retries(7);
    let id = stage.scene.submit(plain).await;
    assert_eq!(names_of_fields(&stage, id.as_str()).await, ["msg", "pending_since", "state"]);
    let hash: Hash = stage.send("HGETALL", &format!("t:{id}"), &[]).await;
    assert_eq!(hash["pending_since"], format!("{START}000000000").into_bytes());
    let message = stage.message(id.as_str()).await;
    assert_eq!((message.r#type.as_str(), &message.payload[..]), ("work", &b"{}"[..]));
    assert_eq!((message.retry, message.timeout, message.queue.as_str()), (7, 300, "main"));
    let queues = format!("{}:queues", stage.prefix);
    let known: i64 = stage.send_all("SISMEMBER", &[queues.as_bytes(), b"main"]).await;
    assert_eq!(known, 1, "asynq's tools see no queue that is not on record");
}

#[tokio::test]
async fn a_success_is_removed_or_kept_with_its_time_and_its_result() {
    let stage = Stage::new().await;
    let gone = stage.scene.start(draft().retention(Duration::ZERO)).await;
    stage.scene.finish_as(&gone, completed(), State::Completed).await;
    let left: i64 = stage.send("EXISTS", &format!("t:{}", gone.id), &[]).await;
    assert_eq!(left, 0, "as Go does without retention");
    let kept = stage.scene.start(draft().retention(HOUR)).await;
    let result = Some("sent".into());
    stage.scene.finish_as(&kept, Ending::Completed { result }, State::Completed).await;
    let message = stage.message(kept.id.as_str()).await;
    assert_eq!((message.completed_at, message.retention), (START, 3_600));
    let until: i64 = stage.send("ZSCORE", "completed", &[kept.id.as_str()]).await;
    assert_eq!(until, START + 3_600);
    let stored: String = stage.send("HGET", &format!("t:{}", kept.id), &["result"]).await;
    assert_eq!(stored, "sent");
    for left in ["active", "lease"] {
        let there: i64 = stage.send("EXISTS", left, &[]).await;
        assert_eq!(there, 0, "{left}");
    }
    let counted: (i64, i64) = (
        stage.send("GET", "processed", &[]).await,
        stage.send("GET", "processed:2026-01-01", &[]).await,
    );
    assert_eq!(counted, (2, 2), "of all days and of today");
}

#[tokio::test]
async fn failures_are_told_in_the_message() {
    let stage = Stage::new().await;
    let run = stage.scene.start(draft().max_retries(1)).await;
    stage.scene.finish_as(&run, failed("boom"), State::Retrying).await;
    let message = stage.message(run.id.as_str()).await;
    assert_eq!((message.retried, message.error_msg.as_str()), (1, "boom"));
    assert_eq!(message.last_failed_at, START);
    let due: i64 = stage.send("ZSCORE", "retry", &[run.id.as_str()]).await;
    assert_eq!(due, START + 10);
    let dead = stage.scene.start(draft()).await;
    stage.scene.finish_as(&dead, discarded("no use"), State::DeadLetter).await;
    let died: i64 = stage.send("ZSCORE", "archived", &[dead.id.as_str()]).await;
    assert_eq!((died, stage.message(dead.id.as_str()).await.retried), (START, 0));
    let failures: i64 = stage.send("GET", "failed", &[]).await;
    assert_eq!(failures, 2);
}

/// Near the head, near the tail, and in between, where many are struck out together.
#[tokio::test]
async fn runs_that_end_in_any_order_leave_the_list_of_active_tasks() {
    let stage = Stage::new().await;
    let (s, worker) = (&stage.scene, stage.scene.worker().await);
    s.submit_many(1_000).await;
    let mut running = s.claim(&worker, 1_000).await;
    let newest = running.split_off(900);
    let oldest = running.drain(..100).collect::<Vec<_>>();
    fastrand::shuffle(&mut running);
    let scattered = running.split_off(400);
    for ended in [newest, oldest, scattered] {
        for batch in ended.chunks(50) {
            let reports = batch.iter().map(|task| s.transition(task, completed())).collect();
            s.apply(&worker, reports).await;
        }
    }
    let mut active: Vec<String> = stage.send("LRANGE", "active", &["0", "-1"]).await;
    let mut leases: Vec<String> = stage.send("ZRANGE", "lease", &["0", "-1"]).await;
    let mut left: Vec<String> = running.iter().map(|task| task.id.to_string()).collect();
    for ids in [&mut active, &mut leases, &mut left] {
        ids.sort();
    }
    assert_eq!((active.len(), &active, &leases), (400, &left, &left));
}

#[tokio::test]
async fn a_fraction_of_a_second_is_never_early() {
    let stage = Stage::new().await;
    let id = stage.scene.submit(draft().after(Duration::from_millis(1_001))).await;
    let due: i64 = stage.send("ZSCORE", "scheduled", &[id.as_str()]).await;
    assert_eq!(due, START + 2, "the next whole second");
    let told = stage.scene.record(&id).await.run_at.unwrap().as_millis();
    assert_eq!(told, START * 1_000 + 1_001, "to the millisecond, as it was asked for");
}

#[tokio::test]
async fn a_lock_of_go_and_one_of_windlass_exclude_each_other() {
    let stage = Stage::new().await;
    let unique = Unique { key: None, hold: Hold::UntilFinished, on_conflict: OnConflict::Reject };
    let once = || draft().payload("same").unique(unique.clone());
    // md5 of `same`.
    let lock = "unique:work:51037a4a37730f52c8732586d3aaa316";
    let _: String = stage.send("SET", lock, &["of-go", "EX", "60"]).await;
    let (_, refused) = stage.scene.offer(once()).await;
    let holder = matches!(&refused, Inserted::Conflict { holder } if holder.as_str() == "of-go");
    assert!(holder, "{refused:?}");
    let _: i64 = stage.send("DEL", lock, &[]).await;
    let id = stage.scene.submit(once()).await;
    let owner: String = stage.send("GET", lock, &[]).await;
    assert_eq!(owner, id.as_str(), "Go finds it taken");
    assert_eq!(stage.message(id.as_str()).await.unique_key, stage.key(lock));
    let worker = stage.scene.worker().await;
    let run = stage.scene.take(&worker, &id).await;
    stage.scene.finish_as(&run, completed(), State::Completed).await;
    let left: i64 = stage.send("EXISTS", lock, &[]).await;
    assert_eq!(left, 0, "and free again");
}

/// Submits a task that holds a lock for 90 s; returns for how many seconds the server keeps the lock.
async fn ttl_of_lock(stage: &Stage) -> i64 {
    let hold = Hold::For(SECOND * 90);
    let unique = Unique { key: Some("k".into()), hold, on_conflict: OnConflict::Reject };
    let id = stage.scene.submit(draft().unique(unique)).await;
    let lock = stage.message(id.as_str()).await.unique_key;
    stage.send_all("TTL", &[lock.as_bytes()]).await
}

#[tokio::test]
async fn a_lock_that_is_held_for_a_time_ends_by_itself_for_go() {
    let left = ttl_of_lock(&Stage::on_the_servers_clock().await).await;
    assert!((1..=90).contains(&left), "{left} s");
}

#[tokio::test]
async fn a_lock_outlasts_a_test_whose_clock_stands_still() {
    let left = ttl_of_lock(&Stage::new().await).await;
    assert!(left > 1_800, "{left} s: random sequences would depend on the machine's speed");
}
