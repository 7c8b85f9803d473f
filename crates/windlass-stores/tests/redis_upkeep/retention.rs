//! Many lengths of retention.

use std::time::Duration;

use windlass_core::State;
use windlass_stores::redis::driver::cmd;
use windlass_testkit::draft::draft;
use windlass_testkit::scene::{HOUR, completed};

use crate::stage::{Layout, Stage};

const COUNT: u64 = 600;

/// Each finished task is kept for another time, from an hour to nearly two. Each length had a list of its own, and
/// prune read the names of all that were due at each call.
#[tokio::test]
async fn many_lengths_of_retention_share_few_lists() {
    let stage = Stage::new(Layout::Streams).await;
    let scene = &stage.scene;
    let drafts = (0..COUNT).map(|n| draft().retention(HOUR + Duration::from_secs(n * 6)));
    let ids = scene.submit_all(drafts).await;
    let worker = scene.worker().await;
    while let tasks = scene.claim(&worker, 200).await
        && !tasks.is_empty()
    {
        let ends = tasks.iter().map(|task| scene.transition(task, completed())).collect();
        scene.apply(&worker, ends).await;
    }
    let lists: u64 = stage.run(cmd("ZCARD").arg("up:{main}:ks")).await;
    assert!(lists <= 60, "{lists} lists");

    // Reads hide each at its own time, to the millisecond.
    scene.advance(HOUR + Duration::from_millis(300 * 6_000 - 1));
    scene.expect_gone(&ids[299], "its time is over").await;
    scene.expect(&ids[300], State::Completed, "a millisecond early").await;

    // Its space is free a tenth of its retention later at the latest.
    scene.advance(HOUR.mul_f64(1.5) / 10 + Duration::from_millis(1));
    scene.prune().await;
    let left: u64 = stage.run(cmd("HLEN").arg("up:{main}:d")).await;
    assert!(left < COUNT - 300, "{left} records are left");
    assert_eq!(scene.tend().await.repaired, 0, "a record that its list removes late is no damage");
    scene.advance(HOUR);
    scene.prune().await;
    let left: u64 = stage.run(cmd("HLEN").arg("up:{main}:d")).await;
    assert_eq!(left, 0, "records that are left");
    assert_eq!(scene.count("main", State::Completed).await, 0, "counters follow");
}
