//! Counters that do not agree with what is there.

use windlass_core::State;
use windlass_core::store::{Depth, Severity};
use windlass_testkit::draft::draft;

use crate::stage::Stage;

/// One task or two in each state.
async fn one_of_each(stage: &Stage) {
    for state in State::ALL {
        stage.scene.bring(draft(), state).await;
        if matches!(state, State::Completed | State::Cancelled) {
            stage.scene.bring(draft(), state).await;
        }
        if state == State::Pending {
            // Else the next one would be claimed instead.
            stage.drain().await;
        }
    }
    stage.scene.submit_many(2).await;
}

#[tokio::test]
async fn wrong_counters_are_put_right() {
    let stage = Stage::new().await;
    one_of_each(&stage).await;
    for counter in ["p2", "s", "r", "c", "x", "d"] {
        for wrong in ["0", "77", "-5"] {
            let _: i64 = stage.run(stage.on("HSET", "st").arg(counter).arg(wrong)).await;
            stage.mend().await;
        }
    }
}

#[tokio::test]
async fn tasks_run_although_all_counters_are_gone() {
    let stage = Stage::new().await;
    one_of_each(&stage).await;
    stage.delete_key("st").await;
    stage.mend().await;
    assert_eq!(stage.drain().await.len(), 2);
    stage.scene.books_balance("after a drain").await;
}

/// More than one step of the sweep looks at: what it counts is carried from one to the next.
#[tokio::test]
async fn counters_of_many_tasks_are_put_right_in_steps() {
    let stage = Stage::new().await;
    let ids = stage.scene.submit_many(1_200).await;
    stage.scene.change_all(&ids[..900], windlass_core::store::Action::Cancel).await;
    stage.delete_key("st").await;
    stage.mend().await;
    assert_eq!(stage.scene.count("main", State::Cancelled).await, 900);
    assert_eq!(stage.scene.count("main", State::Pending).await, 300);
}

#[tokio::test]
async fn an_operator_can_have_everything_mended_at_once() {
    let stage = Stage::new().await;
    stage.scene.submit_many(5).await;
    stage.delete_key("st").await;
    let findings = stage.scene.store.inspect(Depth::Full).await.unwrap().findings;
    assert!(findings.iter().any(|found| found.subject == "counters"), "{findings:#?}");
    let findings = stage.scene.store.inspect(Depth::Repair).await.unwrap().findings;
    assert!(findings.iter().all(|found| found.severity != Severity::Problem), "{findings:#?}");
    assert_eq!(stage.drain().await.len(), 5);
}
