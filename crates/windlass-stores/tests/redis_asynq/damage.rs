//! A key of another type than asynq and windlass write stops only its queue, and nothing is lost when it is repaired.

use windlass_core::store::{Applied, Depth, Quota};
use windlass_core::{Ending, State};
use windlass_testkit::draft::{draft, queue};
use windlass_testkit::scene::{LEASE, MS, SECOND, claim_of, completed, failed};

use crate::stage::Stage;

/// The keys of queue `main` that claims, ends, beats and upkeep read or write.
fn keys(stage: &Stage, worker: &str) -> Vec<String> {
    let asynq = ["pending", "active", "lease", "scheduled", "retry", "completed", "archived"];
    let own = ["n", "lost", "term", "bell", "mend", "x", "i", "u", "ut"];
    let own = own.iter().map(|name| format!("wl:{}", stage.key(name)));
    let held = format!("wl:{}", stage.key(&format!("w:{worker}")));
    asynq.iter().map(|name| stage.key(name)).chain(own).chain([held]).collect()
}

async fn damage(stage: &Stage, key: &str) {
    let aside = format!("{key}-aside");
    let exists: i64 = stage.send_all("EXISTS", &[key.as_bytes()]).await;
    if exists == 1 {
        let _: () = stage.send_all("RENAME", &[key.as_bytes(), aside.as_bytes()]).await;
    }
    // No key that is read or written is a HyperLogLog or a bitmap: `n` and `term` are numbers.
    let command = if key.ends_with(":n") || key.ends_with(":term") { "RPUSH" } else { "SET" };
    let _: windlass_stores::redis::driver::Value =
        stage.send_all(command, &[key.as_bytes(), b"of another type"]).await;
}

async fn undo(stage: &Stage, key: &str) {
    let aside = format!("{key}-aside");
    let _: i64 = stage.send_all("DEL", &[key.as_bytes()]).await;
    let exists: i64 = stage.send_all("EXISTS", &[aside.as_bytes()]).await;
    if exists == 1 {
        let _: () = stage.send_all("RENAME", &[aside.as_bytes(), key.as_bytes()]).await;
    }
}

async fn claim_both(
    stage: &Stage,
    worker: &windlass_core::WorkerId,
) -> Vec<windlass_core::Claimed> {
    let quotas = ["main", "other"].map(|name| Quota::of(queue(name), 9)).into();
    stage.scene.claim_by(windlass_core::store::ClaimParams { quotas, ..claim_of(worker, 9) }).await
}

#[tokio::test]
async fn a_damaged_key_of_any_kind_stops_only_its_queue_and_loses_nothing() {
    let probe = Stage::new().await;
    let count = keys(&probe, "w").len();
    for number in 0..count {
        let stage = Stage::new().await;
        let s = &stage.scene;
        let worker = s.worker().await;
        let keys = keys(&stage, worker.as_str());
        let key = &keys[number];
        let mut ids = s.submit_many(3).await;
        ids.push(s.submit(draft().after(SECOND)).await);
        let other = s.submit_all(std::iter::repeat_n(draft().queue("other"), 3)).await;
        let later = s.submit(draft().queue("other").after(SECOND)).await;
        let mut held = s.claim(&worker, 2).await;
        held.extend(s.claim_from(&worker, &["other"], 2).await);
        s.beat(&worker).await;

        damage(&stage, key).await;
        let claimed = claim_both(&stage, &worker).await;
        assert!(claimed.iter().any(|task| task.id == other[2]), "{key}: {claimed:?}");
        s.advance(SECOND * 5);
        s.beat(&worker).await;
        let ends: [fn() -> Ending; 2] = [completed, || failed("boom")];
        for (at, end) in ends.into_iter().enumerate() {
            let batch = [&held[at], &held[at + 2]].map(|task| s.transition(task, end()));
            let outcomes = s.apply(&worker, batch.into()).await;
            assert!(matches!(outcomes[1], Applied::Applied(_)), "{key}: {outcomes:?}");
        }
        s.promote().await;
        s.expect(&later, State::Pending, key).await;
        s.prune().await;
        s.tend().await;
        assert_eq!(s.count("other", State::Pending).await, 1, "{key}");
        let listed = s.list(windlass_core::store::Filter::default()).await;
        let seen = listed.iter().filter(|task| task.queue.as_str() == "other").count();
        assert!(seen >= 3, "{key}: {listed:#?}");
        let findings = s.store.inspect(Depth::Full).await.unwrap().findings;
        let is_named = |finding: &windlass_core::store::Finding| finding.text.contains(key);
        assert!(findings.iter().any(is_named), "{key}: {findings:#?}");

        undo(&stage, key).await;
        s.beat(&worker).await;
        s.advance(LEASE + MS);
        s.expire().await;
        s.tend().await;
        s.advance(SECOND * 100);
        s.promote().await;
        let again = s.worker().await;
        let mut left: Vec<_> = s.claim(&again, 9).await.into_iter().map(|task| task.id).collect();
        for id in &ids {
            if s.find(id).await.is_some_and(|record| record.state == State::Completed) {
                left.push(id.clone());
            }
        }
        left.sort();
        left.dedup();
        ids.sort();
        assert_eq!(left, ids, "{key}: each task is done or can be claimed");
    }
}

#[tokio::test]
async fn a_task_whose_key_is_no_hash_stops_no_claim_beat_or_sweep() {
    let stage = Stage::new().await;
    let s = &stage.scene;
    let ids = s.submit_many(3).await;
    let worker = s.worker().await;
    let spoiled = stage.key(&format!("t:{}", ids[0]));
    let _: () = stage.send_all("SET", &[spoiled.as_bytes(), b"no hash"]).await;
    assert_eq!(s.claim_ids(&worker, 9).await, ids[1..]);
    let spoiled = stage.key(&format!("t:{}", ids[1]));
    let _: () = stage.send_all("SET", &[spoiled.as_bytes(), b"no hash"]).await;
    s.beat(&worker).await;
    assert_eq!(s.list(windlass_core::store::Filter::default()).await.len(), 1);
    s.lose_all_workers().await;
    s.expect(&ids[2], State::Pending, "its worker was lost").await;
    s.tend().await;
    let kept: String = stage.send_all("GET", &[spoiled.as_bytes()]).await;
    assert_eq!(kept, "no hash", "a key of somebody else is left alone");
}
