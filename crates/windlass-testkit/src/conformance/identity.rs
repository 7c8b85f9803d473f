//! Who may claim: registered, live workers, each under an id that is never used again.

use windlass_core::store::{Applied, Beat, GONE_WORKER_KEPT, Refusal};
use windlass_core::{Ending, Error, ErrorKind, Reason, Result, State, WorkerId};

use crate::draft::draft;
use crate::scene::{HOUR, LEASE, MS, SECOND, Scene, claim_of, completed, failed, snoozed};

/// Requires a call to be refused since the worker is not known, or not any more.
fn check_lost<T: std::fmt::Debug>(answer: Result<T>, why: &str) {
    let told = |error: &Error| (error.kind(), error.reason());
    match answer {
        Err(error) => {
            assert_eq!(
                told(&error),
                (ErrorKind::LeaseLost, Reason::WorkerLost),
                "{why}: {error:?}"
            );
        }
        Ok(accepted) => panic!("{why}, but the store accepted it: {accepted:?}"),
    }
}

/// Requires every call of a worker to be refused, here and through another handle.
async fn check_never_back(s: &Scene, worker: &WorkerId, why: &str) {
    for scene in [s.clone(), s.elsewhere().await] {
        check_lost(scene.store.claim(claim_of(worker, 1)).await, why);
        check_lost(scene.store.beat(scene.sign(worker)).await, why);
        check_lost(scene.store.claim(claim_of(worker, 1)).await, why);
    }
}

pub async fn an_unknown_worker_gets_nothing(s: Scene) {
    let id = s.submit(draft()).await;
    let nobody = s.new_worker_id();
    check_lost(s.store.claim(claim_of(&nobody, 1)).await, "never registered");
    s.expect(&id, State::Pending, "it was not given out").await;
}

pub async fn a_worker_that_was_declared_lost_never_comes_back(s: Scene) {
    let run = s.start(draft()).await;
    s.lose_all_workers().await;
    check_never_back(&s, &run.worker, "it was declared lost").await;
    s.expect(&run.id, State::Pending, "it was not given out").await;
}

pub async fn a_worker_that_held_nothing_is_declared_lost_too(s: Scene) {
    let worker = s.worker().await;
    s.submit(draft()).await;
    s.lose_all_workers().await;
    check_never_back(&s, &worker, "it was declared lost").await;
}

pub async fn a_lost_worker_is_remembered_for_an_hour(s: Scene) {
    let worker = s.worker().await;
    s.lose_all_workers().await;
    s.advance(HOUR - MS);
    s.tend().await;
    s.prune().await;
    s.expire().await;
    check_never_back(&s, &worker, "it was lost within the hour").await;
    let known = s.store.workers().await.unwrap();
    let record = known.iter().find(|record| record.id == worker);
    assert!(record.is_some_and(|record| record.is_gone), "{known:#?}");
}

pub async fn a_worker_that_is_gone_for_long_is_forgotten(s: Scene) {
    let (left, lost) = (s.worker().await, s.start(draft()).await);
    s.leave(&left).await;
    s.lose_all_workers().await;
    // Where tasks name their worker by its row, the row stays as long as they do.
    s.delete(&lost.id).await;
    s.advance(GONE_WORKER_KEPT - LEASE * 4);
    s.tend().await;
    for worker in [&left, &lost.worker] {
        check_never_back(&s, worker, "it is remembered for this long").await;
    }
    s.advance(LEASE * 5);
    check_never_back(&s, &left, "no upkeep has forgotten it").await;
    s.tend().await;
    for worker in [&left, &lost.worker] {
        s.beat(worker).await;
        let known = s.store.workers().await.unwrap();
        let record = known.iter().find(|record| record.id == *worker).unwrap();
        assert!(!record.is_gone && record.running_count == 0, "it is as new: {record:#?}");
        assert_eq!(record.started_at, s.now().await);
    }
    // The epoch is the fence, whatever became of the worker's id.
    let late = s.transition(&lost, completed());
    let refused = [Applied::Refused(Refusal::Gone)];
    assert_eq!(s.apply(&lost.worker, vec![late]).await, refused);
    let orders = s.beat_holding(&lost.worker, vec![lost.lease()], SECOND).await;
    assert_eq!(orders.lost, [lost.lease()]);
    let next = s.submit(draft()).await;
    assert_eq!(s.claim_ids(&lost.worker, 9).await, [next], "it works again");
}

pub async fn a_task_goes_on_naming_its_worker_after_that_is_gone_for_long(s: Scene) {
    let completed_run = s.start(draft().retention(GONE_WORKER_KEPT * 9)).await;
    s.finish_as(&completed_run, completed(), State::Completed).await;
    let dead = s.start(draft().max_retries(0)).await;
    s.finish_as(&dead, failed("boom"), State::DeadLetter).await;
    let retried = s.start(draft()).await;
    s.finish_as(&retried, failed("boom"), State::Retrying).await;
    let pending = s.start(draft()).await;
    s.lose_all_workers().await;
    for _ in 0..3 {
        s.advance(GONE_WORKER_KEPT + SECOND);
        s.tend().await;
    }
    for run in [&completed_run, &dead, &retried, &pending] {
        let record = s.record(&run.id).await;
        assert_eq!(record.worker.as_ref(), Some(&run.worker), "{record:#?}");
    }
}

pub async fn a_lost_worker_is_not_told_of_after_an_hour(s: Scene) {
    let worker = s.worker().await;
    s.lose_all_workers().await;
    s.advance(HOUR + MS);
    let known = s.store.workers().await.unwrap();
    assert!(known.iter().all(|record| record.id != worker), "{known:#?}");
}

pub async fn a_worker_that_left_never_comes_back(s: Scene) {
    let worker = s.worker().await;
    s.submit(draft()).await;
    s.leave(&worker).await;
    check_never_back(&s, &worker, "it has left").await;
}

pub async fn an_overdue_worker_gets_nothing_until_it_has_beaten_again(s: Scene) {
    let worker = s.worker().await;
    let id = s.submit(draft()).await;
    s.advance(LEASE + MS);
    assert_eq!(s.claim(&worker, 1).await, [], "its lease has run out");
    s.expect(&id, State::Pending, "it was not given out").await;
    s.beat(&worker).await;
    assert_eq!(s.claim_ids(&worker, 1).await, [id], "it lives after all");
}

pub async fn a_worker_may_claim_to_the_end_of_its_lease(s: Scene) {
    let worker = s.worker().await;
    let id = s.submit(draft()).await;
    s.advance(LEASE - MS);
    assert_eq!(s.claim_ids(&worker, 1).await, [id]);
}

pub async fn an_overdue_worker_that_beats_before_the_expire_loses_nothing(s: Scene) {
    let run = s.start(draft()).await;
    s.advance(LEASE * 3);
    s.beat(&run.worker).await;
    s.expire().await;
    s.expect(&run.id, State::Running, "it beat before it was declared lost").await;
    s.finish_as(&run, completed(), State::Completed).await;
}

pub async fn a_lost_workers_beat_renews_nothing(s: Scene) {
    let run = s.start(draft()).await;
    s.lose_all_workers().await;
    check_lost(s.store.beat(s.sign(&run.worker)).await, "it was lost");
    let outcome = s.finish(&run, completed()).await;
    assert_eq!(outcome, Applied::Refused(Refusal::LeaseLost));
}

pub async fn a_leave_gives_everything_back_at_once_and_counts_nothing(s: Scene) {
    let worker = s.worker().await;
    let other = s.start(draft().queue("other")).await;
    let ids = s.submit_many(3).await;
    s.claim(&worker, 3).await;
    assert_eq!(s.leave(&worker).await, 3, "tasks given back");
    for id in &ids {
        let record = s.record(id).await;
        let counted = (record.state, record.attempts, record.crashes);
        assert_eq!(counted, (State::Pending, 0, 0), "{record:#?}");
    }
    s.expect(&other.id, State::Running, "another's task stays with it").await;
    let heir = s.worker().await;
    assert_eq!(s.claim(&heir, 9).await.len(), 3, "given out at once");
}

pub async fn a_leave_under_a_cancel_request_cancels(s: Scene) {
    let run = s.start(draft()).await;
    s.cancel(&run.id).await;
    s.leave(&run.worker).await;
    let record = s.record(&run.id).await;
    let counted = (record.state, record.attempts, record.crashes);
    assert_eq!(counted, (State::Cancelled, 0, 0), "{record:#?}");
}

pub async fn a_leave_that_is_repeated_or_of_an_unknown_worker_is_no_error(s: Scene) {
    let run = s.start(draft()).await;
    assert_eq!(s.leave(&run.worker).await, 1);
    let heir = s.worker().await;
    s.take(&heir, &run.id).await;
    assert_eq!(s.leave(&run.worker).await, 0, "it has nothing any more");
    assert_eq!(s.leave(&s.new_worker_id()).await, 0, "it never was");
    s.expect(&run.id, State::Running, "the heir keeps it").await;
}

pub async fn a_leave_does_not_touch_what_the_worker_had_ended_before(s: Scene) {
    let mut runs = Vec::new();
    for (name, ending) in [("back", Ending::Released), ("later", snoozed(9)), ("done", completed())]
    {
        let run = s.start(draft().queue(name)).await;
        s.finish(&run, ending).await;
        runs.push(run);
    }
    for run in runs {
        let before = s.record(&run.id).await;
        s.advance(MS);
        assert_eq!(s.leave(&run.worker).await, 0, "it held nothing any more");
        assert_eq!(s.record(&run.id).await, before, "as it was");
    }
}

pub async fn a_worker_that_left_is_not_counted_as_crashed_by_a_later_expire(s: Scene) {
    let run = s.start(draft()).await;
    s.leave(&run.worker).await;
    s.lose_all_workers().await;
    assert_eq!(s.record(&run.id).await.crashes, 0);
}

pub async fn the_first_beat_registers_and_later_ones_update_the_card(s: Scene) {
    let worker = s.new_worker_id();
    let start = s.now().await;
    s.beat(&worker).await;
    s.advance(MS * 500);
    let mut beat: Beat = s.sign(&worker);
    beat.card.host = "höst".into();
    beat.card.pid = 4_711;
    beat.card.name = "blue".into();
    beat.card.version = "1.2.3".into();
    beat.card.queues = vec![crate::draft::queue("main")];
    beat.card.slots = 8;
    beat.card.slots_used = 3;
    s.store.beat(beat.clone()).await.unwrap();
    let known = s.elsewhere().await.store.workers().await.unwrap();
    let record = known.iter().find(|record| record.id == worker).unwrap();
    assert_eq!(record.card, beat.card);
    assert_eq!(record.started_at, start);
    assert_eq!(record.beat_at, start.after(MS * 500));
    assert_eq!(record.lease_until, start.after(MS * 500 + LEASE));
    assert!(!record.is_gone);
}
