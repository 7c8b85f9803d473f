//! A key of another type under one queue: that queue is skipped, and no other.

use windlass_core::State;
use windlass_core::store::{Action, Applied, Depth, Filter, Severity};
use windlass_testkit::draft::draft;
use windlass_testkit::scene::{completed, failed};

use crate::stage::Stage;

const OTHER: &str = "other";

/// Has `main` broken by one key, sees that everything else works, and puts the key back.
async fn check_broken_by(key: &str) {
    let stage = Stage::new().await;
    let s = &stage.scene;
    let worker = s.worker().await;
    let lost = s.worker().await;
    let own = s.submit(draft()).await;
    s.submit_all([draft().queue(OTHER), draft().queue(OTHER)]).await;
    let held = s.claim_from(&lost, &[OTHER], 1).await.remove(0);
    let later = s.submit(draft().queue(OTHER).after(windlass_testkit::scene::SECOND)).await;

    let aside = format!("{key}.aside");
    let is_there: i64 = stage.run(&stage.on("EXISTS", key)).await;
    if is_there == 1 {
        stage.rename(key, &aside).await;
    }
    stage.run::<()>(stage.on("SET", key).arg("no such thing")).await;

    s.beat(&worker).await;
    let claimed = s.claim_from(&worker, &["main", OTHER], 9).await;
    let of_other = claimed.iter().filter(|task| task.queue.as_str() == OTHER).count();
    assert_eq!(of_other, 1, "{key}: the other queue gives its task: {claimed:#?}");
    let is_listed =
        s.store.queues().await.unwrap().iter().any(|queue| queue.name.as_str() == OTHER);
    assert!(is_listed, "{key}: the other queue is listed");
    let is_listed = s.list(Filter::default()).await.iter().any(|task| task.id == later);
    assert!(is_listed, "{key}: the tasks of the other queue are listed");
    for states in [vec![State::DeadLetter], vec![State::Cancelled]] {
        let filter = Filter { states, ..Filter::default() };
        let reply = s.change_piece(filter, Action::Rerun, 10, None).await;
        assert_eq!(reply.next_cursor, None, "{key}: a change goes through all queues");
    }
    s.store.workers().await.unwrap();
    s.store.inspect(Depth::Full).await.unwrap();

    // Upkeep goes on where it can; it may say that it could not everywhere.
    s.advance(windlass_testkit::scene::HOUR);
    let duty = s.duty().await;
    let _ = s.store.promote(duty).await;
    s.expect(&later, State::Pending, "promoted").await;
    let _ = s.store.expire(duty).await;
    s.expect(&held.id, State::Pending, "taken back from a worker that is gone").await;

    stage.delete_key(key).await;
    if is_there == 1 {
        stage.rename(&aside, key).await;
    }
    s.store.inspect(Depth::Repair).await.unwrap();
    let fresh = s.worker().await;
    let mut ids: Vec<_> = Vec::new();
    loop {
        let tasks = s.claim_from(&fresh, &["main", OTHER], 9).await;
        if tasks.is_empty() {
            break;
        }
        ids.extend(tasks.iter().map(|task| task.id.clone()));
        let ends = tasks.iter().map(|task| s.transition(task, completed())).collect();
        s.apply(&fresh, ends).await;
    }
    s.expire().await;
    let is_back = ids.contains(&own) || claimed.iter().any(|task| task.id == own);
    assert!(is_back, "{key}: its own task is given out in the end: {ids:?}");
    let findings = s.store.inspect(Depth::Full).await.unwrap().findings;
    let problems: Vec<_> = findings
        .iter()
        .filter(|found| found.severity == Severity::Problem && found.subject != "durability")
        .collect();
    assert!(problems.is_empty(), "{key}: {problems:#?}");
}

#[tokio::test]
async fn a_key_of_another_type_stops_its_own_queue_only() {
    let keys =
        ["st", "d", "s:4", "c:4", "lost", "cr", "back", "bell:2", "z", "mend", "term", "j", "dead"];
    for key in keys {
        check_broken_by(key).await;
    }
}

#[tokio::test]
async fn a_report_over_a_damaged_queue_is_recorded_for_others_and_kept_for_it() {
    let keys = [
        "st",
        "d",
        "s:4",
        "c:4",
        "ks",
        "k:3600000",
        "cr",
        "u",
        "z",
        "dead",
        "back",
        "mend",
        "watch",
    ];
    for key in keys {
        let stage = Stage::new().await;
        let s = &stage.scene;
        let worker = s.worker().await;
        s.submit_all([draft(), draft(), draft().queue(OTHER), draft().queue(OTHER)]).await;
        let own = s.claim(&worker, 9).await;
        let other = s.claim_from(&worker, &[OTHER], 9).await;
        let aside = format!("{key}.aside");
        let is_there: i64 = stage.run(&stage.on("EXISTS", key)).await;
        if is_there == 1 {
            stage.rename(key, &aside).await;
        }
        stage.run::<()>(stage.on("SET", key).arg("no such thing")).await;

        let mut kept = Vec::new();
        let ends = [(completed(), State::Completed), (failed("boom"), State::Retrying)];
        for (at, (end, state)) in ends.into_iter().enumerate() {
            let batch = vec![s.transition(&own[at], end.clone()), s.transition(&other[at], end)];
            let outcomes = s.apply(&worker, batch.clone()).await;
            assert_eq!(outcomes[1], Applied::Applied(state), "{key}: {outcomes:?}");
            if outcomes[0] != Applied::Applied(state) {
                assert_eq!(outcomes[0], Applied::Unrecorded, "{key}");
                kept.push((batch[0].clone(), state));
            }
        }
        stage.delete_key(key).await;
        if is_there == 1 {
            stage.rename(&aside, key).await;
        }
        for (again, state) in kept {
            assert_eq!(s.apply(&worker, vec![again]).await, [Applied::Applied(state)], "{key}");
        }
        s.tend().await;
        assert_eq!(s.count("main", State::Completed).await, 1, "{key}");
        assert_eq!(s.count("main", State::Retrying).await, 1, "{key}");
        s.expect(&own[0].id, State::Completed, key).await;
        s.expect(&own[1].id, State::Retrying, key).await;
        s.advance(windlass_testkit::scene::HOUR * 2);
        s.prune().await;
        s.expect_gone(&own[0].id, key).await;
    }
}
