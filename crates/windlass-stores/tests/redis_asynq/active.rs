//! Tasks leave the list of active ones from its ends and from its middle, and the rest stands as it stood.

use std::collections::HashSet;

use futures_util::StreamExt;
use windlass_core::store::Applied;
use windlass_core::{Claimed, WorkerId};
use windlass_testkit::scene::completed;

use crate::stage::Stage;

/// More than are searched from either end.
const TASKS: usize = 3_000;

#[tokio::test]
async fn whatever_ends_together_leaves_and_nothing_else() {
    let stage = Stage::new().await;
    stage.scene.submit_many(TASKS).await;
    let worker = stage.scene.worker().await;
    let mut held = Vec::new();
    while held.len() < TASKS {
        held.extend(stage.scene.claim(&worker, 1_000).await);
    }
    // The oldest, the newest, both, one, and what stands in the middle of the list, near to one another and not.
    let (oldest, newest) = (held.drain(..40).collect(), held.split_off(held.len() - 40));
    check(&stage, &worker, oldest, "the oldest").await;
    check(&stage, &worker, newest, "the newest").await;
    let mut ends: Vec<_> = held.drain(..10).collect();
    ends.extend(held.split_off(held.len() - 10));
    check(&stage, &worker, ends, "both ends").await;
    check(&stage, &worker, vec![held.swap_remove(400)], "one").await;
    for (at, what) in [(2_300, "not far from the newest"), (1_400, "the middle"), (600, "deep")] {
        let together = held.drain(at..at + 60).collect();
        check(&stage, &worker, together, what).await;
    }
    let mut apart: Vec<_> = held.drain(1_900..1_930).collect();
    apart.extend(held.drain(700..730));
    check(&stage, &worker, apart, "two stretches").await;
    let scattered = held.into_iter().step_by(9).collect();
    check(&stage, &worker, scattered, "here and there").await;
}

/// As a walk would cost while many run: what ends together is found where it stands.
#[tokio::test]
async fn what_ends_together_in_the_midst_costs_no_walk() {
    let stage = Stage::new().await;
    stage.scene.submit_many(TASKS).await;
    let worker = stage.scene.worker().await;
    let mut held = Vec::new();
    while held.len() < TASKS {
        held.extend(stage.scene.claim(&worker, 1_000).await);
    }
    let mut monitor = stage.monitor().await;
    for at in [2_500, 1_400, 400] {
        let together = held.drain(at..at + 60).collect();
        check(&stage, &worker, together, "together").await;
    }
    let last: String = stage.send_all("ECHO", &[stage.prefix.as_bytes()]).await;
    let (mut seen, walk) = (0, format!(r#""LRANGE" "{}" "0" "-1""#, stage.key("active")));
    let mut told = monitor.on_message::<String>();
    loop {
        let line = told.next().await.unwrap();
        if line.contains("\"ECHO\"") && line.contains(&last) {
            break;
        }
        // Commands of scripts; the test itself reads the list as a whole.
        if line.contains(" lua]") && line.contains(&stage.key("active")) {
            assert!(!line.contains(&walk), "{line}");
            seen += 1;
        }
    }
    assert!(seen > 6, "the reports were seen");
}

async fn check(stage: &Stage, worker: &WorkerId, ending: Vec<Claimed>, what: &str) {
    let gone: HashSet<_> = ending.iter().map(|task| task.id.to_string()).collect();
    let before: Vec<String> = stage.send("LRANGE", "active", &["0", "-1"]).await;
    let transition = |task| stage.scene.transition(task, completed());
    let applied = stage.scene.apply(worker, ending.iter().map(transition).collect()).await;
    assert!(applied.iter().all(|applied| matches!(applied, Applied::Applied(_))), "{what}");
    let after: Vec<String> = stage.send("LRANGE", "active", &["0", "-1"]).await;
    let expected: Vec<_> = before.into_iter().filter(|id| !gone.contains(id)).collect();
    assert_eq!(after, expected, "{what}");
    let leases: u64 = stage.send("ZCARD", "lease", &[]).await;
    assert_eq!(leases, expected.len() as u64, "{what}");
}
