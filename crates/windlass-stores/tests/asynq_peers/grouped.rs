//! Groups are Go's: windlass shows and counts their tasks, and leaves alone what a Go server is aggregating.

use std::time::Duration;

use windlass_core::store::{Action, ChangeParams, Changed, Filter, Target};
use windlass_core::{State, TaskId, When};
use windlass_testkit::asynq::GoTask;
use windlass_testkit::draft::draft;
use windlass_testkit::scene::Scene;

use crate::ground::Ground;

const GRACE_S: i64 = 10;

async fn add(ground: &Ground, id: &str) -> TaskId {
    let task = GoTask { group: "digest".into(), ..GoTask::new("mail", "{}").queue("main").id(id) };
    ground.peer.enqueue(&task).await.unwrap();
    TaskId::new(id)
}

/// The tasks of queue `main` that are shown as scheduled, by id.
async fn scheduled(scene: &Scene) -> Vec<String> {
    let filter = Filter { states: vec![State::Scheduled], ..Filter::default() };
    let mut ids: Vec<_> =
        scene.list(filter).await.into_iter().map(|record| record.id.to_string()).collect();
    ids.sort();
    assert_eq!(scene.count("main", State::Scheduled).await, ids.len() as u64, "counted as listed");
    ids
}

#[tokio::test]
async fn what_a_go_server_is_aggregating_is_counted_shown_and_left_alone() {
    let ground = Ground::fresh().await;
    let scene = ground.scene().await;
    let held = [add(&ground, "one").await, add(&ground, "two").await];
    ground.advance(Duration::from_secs(10));
    let set = ground.peer.aggregate("main", "digest", GRACE_S).await.unwrap();
    let late = add(&ground, "three").await;
    assert_eq!(scheduled(&scene).await, ["one", "three", "two"]);
    let before = ground.peer.dump().await;
    for id in &held {
        assert_eq!(scene.record(id).await.spec.extras.metadata["asynq.group"], "digest");
        let later = Action::Reschedule(When::After(Duration::from_secs(60)));
        for action in [Action::Cancel, Action::Rerun, Action::Delete, later] {
            let changed = scene.change(id, action).await;
            assert_eq!(changed, Changed::HeldElsewhere(State::Scheduled), "{action:?}");
        }
    }
    assert_eq!(ground.peer.dump().await.0, before.0, "nothing was written");
    ground.peer.aggregated("main", &set).await.unwrap();
    assert_eq!(scheduled(&scene).await, ["three"]);
    assert_eq!(scene.change(&late, Action::Delete).await, Changed::Done(None), "nobody has it yet");
    ground.sound("after the aggregation").await;
}

#[tokio::test]
async fn a_change_by_filter_spares_groups() {
    let ground = Ground::fresh().await;
    let scene = ground.scene().await;
    add(&ground, "grouped").await;
    scene.submit(draft().after(Duration::from_secs(60))).await;
    scene.submit(draft()).await;
    // As `queue purge` does.
    let filter = Filter { states: State::WAITING.to_vec(), ..Filter::default() };
    let params = ChangeParams {
        target: Target::Matching { filter, limit: 100, cursor: None },
        action: Action::Delete,
        only_in: Vec::new(),
        by: None,
    };
    let reply = scene.store.change(params).await.unwrap();
    assert_eq!((reply.changed_count, reply.next_cursor), (2, None));
    assert_eq!(scheduled(&scene).await, ["grouped"]);
    assert_eq!(scene.count("main", State::Pending).await, 0);
    ground.sound("after the purge").await;
}
