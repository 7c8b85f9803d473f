//! Fencing: what is written under a lease counts only while that lease is valid.

use windlass_core::store::{Applied, Beat, ProgressReport, Refusal};
use windlass_core::{Ending, Epoch, Lease, State, TaskId};

use crate::draft::draft;
use crate::scene::{LEASE, MS, Run, Scene, completed, discarded, failed, snoozed};

const LOST: Applied = Applied::Refused(Refusal::LeaseLost);
const GONE: Applied = Applied::Refused(Refusal::Gone);

fn every_ending() -> [Ending; 7] {
    [
        completed(),
        failed("late"),
        Ending::TimedOut,
        discarded("late"),
        snoozed(1),
        Ending::Released,
        Ending::Cancelled,
    ]
}

/// A run whose worker was lost, and its successor that runs under another worker.
async fn overtaken(s: &Scene) -> (Run, Run) {
    let old = s.start(draft()).await;
    s.lose_all_workers().await;
    let worker = s.worker().await;
    let new = s.take(&worker, &old.id).await;
    (old, new)
}

/// Reports an old run in every way; each must be refused and change nothing.
async fn check_refused(s: &Scene, old: &Run, why: &str) {
    let before = s.record(&old.id).await;
    for ending in every_ending() {
        let outcome = s.finish(old, ending.clone()).await;
        assert_eq!(outcome, LOST, "{ending:?} {why}");
        assert_eq!(s.record(&old.id).await, before, "{ending:?} {why}");
    }
}

pub async fn an_apply_with_an_old_epoch_is_refused_while_the_successor_runs(s: Scene) {
    let (old, new) = overtaken(&s).await;
    check_refused(&s, &old, "while another worker runs it").await;
    s.finish_as(&new, completed(), State::Completed).await;
}

pub async fn an_apply_with_an_old_epoch_is_refused_while_the_same_worker_runs_it_again(s: Scene) {
    let old = s.start(draft()).await;
    s.advance(MS * 2);
    s.beat_holding(&old.worker, vec![], MS).await;
    let new = s.take(&old.worker, &old.id).await;
    check_refused(&s, &old, "while its worker runs it again").await;
    s.finish_as(&new, completed(), State::Completed).await;
}

pub async fn an_apply_with_an_old_epoch_is_refused_in_one_batch_with_the_valid_one(s: Scene) {
    let (old, new) = overtaken(&s).await;
    let stale = s.transition(&old, failed("late"));
    let valid = s.transition(&new, completed());
    let batch = vec![stale.clone(), valid, stale];
    let outcomes = s.apply(&new.worker, batch).await;
    assert_eq!(outcomes[..2], [LOST, Applied::Applied(State::Completed)]);
    assert_eq!(outcomes[2], LOST, "also behind the valid one");
    s.expect(&old.id, State::Completed, "only the valid one counts").await;
}

pub async fn an_apply_with_an_old_epoch_is_refused_after_a_rerun_runs(s: Scene) {
    let old = s.start(draft()).await;
    s.lose_all_workers().await;
    let worker = s.worker().await;
    let second = s.take(&worker, &old.id).await;
    s.finish_as(&second, discarded("no use"), State::DeadLetter).await;
    s.rerun(&old.id).await;
    let third = s.take(&worker, &old.id).await;
    check_refused(&s, &old, "from before the rerun").await;
    let outcome = s.finish(&second, completed()).await;
    assert!(!matches!(outcome, Applied::Applied(_)), "a run from before the rerun was accepted");
    s.expect(&old.id, State::Running, "the third run goes on").await;
    s.finish_as(&third, completed(), State::Completed).await;
}

pub async fn an_apply_after_an_expire_is_refused_and_not_taken_for_a_repetition(s: Scene) {
    let run = s.start(draft()).await;
    s.lose_all_workers().await;
    check_refused(&s, &run, "after its worker was lost").await;
    s.expect(&run.id, State::Pending, "it waits for another worker").await;
}

pub async fn an_apply_after_an_expire_to_a_terminal_state_is_refused(s: Scene) {
    let dead = s.start(draft().queue("dead").max_crashes(0)).await;
    let cancelled = s.start(draft().queue("cancelled")).await;
    s.cancel(&cancelled.id).await;
    s.lose_all_workers().await;
    check_refused(&s, &dead, "after the crash killed it").await;
    check_refused(&s, &cancelled, "after the crash cancelled it").await;
}

pub async fn an_apply_after_a_leave_is_refused(s: Scene) {
    let run = s.start(draft()).await;
    s.leave(&run.worker).await;
    check_refused(&s, &run, "after its worker left").await;
}

pub async fn an_apply_after_a_give_back_by_held_is_refused(s: Scene) {
    let run = s.start(draft()).await;
    s.advance(MS * 2);
    s.beat_holding(&run.worker, vec![], MS).await;
    check_refused(&s, &run, "after the store gave it back").await;
}

pub async fn an_apply_to_a_task_that_was_given_back_and_cancelled_is_refused(s: Scene) {
    let run = s.start(draft()).await;
    s.lose_all_workers().await;
    s.cancel(&run.id).await;
    check_refused(&s, &run, "after the task was cancelled").await;
}

pub async fn an_apply_with_an_epoch_that_was_never_given_is_refused(s: Scene) {
    let run = s.start(draft()).await;
    let before = s.record(&run.id).await;
    for epoch in [0, run.epoch.0 - 1, run.epoch.0 + 1, u128::MAX] {
        let mut transition = s.transition(&run, completed());
        transition.lease.epoch = Epoch(epoch);
        let outcomes = s.apply(&run.worker, vec![transition]).await;
        assert_eq!(outcomes, [LOST], "epoch {epoch} is not {}", run.epoch);
    }
    assert_eq!(s.record(&run.id).await, before);
}

pub async fn an_apply_to_a_deleted_task_is_refused_as_gone(s: Scene) {
    let finished = s.start(draft()).await;
    s.finish(&finished, completed()).await;
    let waiting = s.start(draft()).await;
    s.lose_all_workers().await;
    for run in [finished, waiting] {
        s.delete(&run.id).await;
        assert_eq!(s.finish(&run, completed()).await, GONE);
        s.expect_gone(&run.id, "it was deleted").await;
    }
}

pub async fn an_apply_to_a_pruned_task_is_refused_as_gone(s: Scene) {
    let run = s.start(draft()).await;
    s.finish(&run, completed()).await;
    s.advance(crate::draft::RETENTION);
    s.prune().await;
    assert_eq!(s.finish(&run, completed()).await, GONE);
}

pub async fn an_apply_to_a_task_that_never_was_is_refused_as_gone(s: Scene) {
    let run = s.start(draft()).await;
    let mut transition = s.transition(&run, completed());
    transition.lease.task = TaskId::new("00000000-0000-7000-8000-000000000000");
    assert_eq!(s.apply(&run.worker, vec![transition]).await, [GONE]);
    s.expect(&run.id, State::Running, "the other task is untouched").await;
}

pub async fn an_apply_is_accepted_until_the_worker_is_declared_lost(s: Scene) {
    let run = s.start(draft()).await;
    s.advance(LEASE * 5);
    s.finish_as(&run, completed(), State::Completed).await;
    s.expire().await;
    s.expect(&run.id, State::Completed, "an expire afterwards changes nothing").await;
}

pub async fn progress_under_an_old_epoch_is_dropped(s: Scene) {
    let (old, new) = overtaken(&s).await;
    let report =
        |lease: Lease, fraction| ProgressReport { lease, fraction, note: format!("{fraction}") };
    let beat = Beat {
        progress: vec![report(new.lease(), 0.25), report(old.lease(), 0.75)],
        ..s.sign(&new.worker)
    };
    s.store.beat(beat).await.unwrap();
    let progress = s.record(&old.id).await.progress.expect("one was valid");
    assert_eq!((progress.fraction, progress.note.as_str()), (0.25, "0.25"));
}

pub async fn progress_after_the_end_of_a_run_is_dropped(s: Scene) {
    for (number, ending) in every_ending().into_iter().enumerate() {
        let run = s.start(draft().queue(&format!("late-{number}"))).await;
        s.finish(&run, ending.clone()).await;
        let report = ProgressReport { lease: run.lease(), fraction: 0.5, note: "late".into() };
        let beat = Beat { progress: vec![report], ..s.sign(&run.worker) };
        s.store.beat(beat).await.unwrap();
        assert_eq!(s.record(&run.id).await.progress, None, "after {ending:?}");
    }
}

pub async fn only_one_completion_of_a_lease_is_accepted_however_many_come_at_once(s: Scene) {
    let run = s.start(draft()).await;
    let elsewhere = s.elsewhere().await;
    let mut reporting = Vec::new();
    for number in 0..16 {
        let scene = if number % 2 == 0 { &s } else { &elsewhere }.clone();
        let run = run.clone();
        reporting.push(tokio::spawn(async move { scene.finish(&run, completed()).await }));
    }
    let mut accepted = 0;
    for report in reporting {
        match report.await.unwrap() {
            Applied::Applied(State::Completed) => accepted += 1,
            Applied::Already => {}
            other => panic!("a repetition was answered {other:?}"),
        }
    }
    assert_eq!(accepted, 1, "completions accepted");
}
