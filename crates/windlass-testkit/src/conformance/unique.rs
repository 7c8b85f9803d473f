//! Unique keys: who holds one, what a second submit is told, and every exit that frees it.

use std::time::Duration;

use windlass_core::store::Inserted;
use windlass_core::unique::{OnConflict, Unique, UniqueScope};
use windlass_core::{Ending, State, TaskId};

use crate::draft::{Draft, RETENTION, draft, held_for, until_finished};
use crate::scene::{HOUR, LEASE, MS, SECOND, Scene, completed, discarded, failed, snoozed};

/// How long timed keys are held in these tests: longer than any record is kept.
const TIME: Duration = HOUR.saturating_mul(10);

fn until_end() -> Draft {
    draft().unique(until_finished("key"))
}

fn for_a_time() -> Draft {
    draft().unique(held_for("key", TIME))
}

/// Requires the key to be held by this task.
async fn check_held(s: &Scene, by: &TaskId, why: &str) {
    let (_, answer) = s.offer(until_end()).await;
    let held = matches!(&answer, Inserted::Conflict { holder } if holder == by);
    assert!(held, "the key should be held by {by} {why}, not {answer:?}");
}

/// Requires the key to be free, and leaves it free.
async fn check_free(s: &Scene, why: &str) {
    let (id, answer) = s.offer(until_end().after(HOUR * 9_999)).await;
    assert!(answer.is_new(), "the key should be free {why}: {answer:?}");
    s.delete(&id).await;
}

/// Every way in which a task can end or vanish; true where a run has counted by then.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Completed,
    Dead,
    FailedToDeath,
    PastDeadline,
    CancelledByHandler,
    CancelledWhileRunning,
    CompletedUnderCancel,
    CrashedToDeath,
    CrashedUnderCancel,
    LeftUnderCancel,
    GivenBackUnderCancel,
    CancelledPending,
    CancelledScheduled,
    CancelledRetrying,
    CancelledAfterCrash,
    CancelledAfterRelease,
    DeletedPending,
    DeletedScheduled,
    DeletedRetrying,
    DeletedCompleted,
    DeletedDead,
    DeletedCancelled,
    PrunedCompleted,
    PrunedCancelled,
}

const FINISHED: [Way; 16] = [
    Way::Completed,
    Way::Dead,
    Way::FailedToDeath,
    Way::PastDeadline,
    Way::CancelledByHandler,
    Way::CancelledWhileRunning,
    Way::CompletedUnderCancel,
    Way::CrashedToDeath,
    Way::CrashedUnderCancel,
    Way::LeftUnderCancel,
    Way::GivenBackUnderCancel,
    Way::CancelledPending,
    Way::CancelledScheduled,
    Way::CancelledRetrying,
    Way::CancelledAfterCrash,
    Way::CancelledAfterRelease,
];
const DELETED: [Way; 6] = [
    Way::DeletedPending,
    Way::DeletedScheduled,
    Way::DeletedRetrying,
    Way::DeletedCompleted,
    Way::DeletedDead,
    Way::DeletedCancelled,
];
const PRUNED: [Way; 2] = [Way::PrunedCompleted, Way::PrunedCancelled];
/// Cancelled with no run that has counted, as an attempt or as a crash.
const CANCELLED_BEFORE_START: [Way; 5] = [
    Way::CancelledPending,
    Way::CancelledScheduled,
    Way::CancelledAfterRelease,
    Way::LeftUnderCancel,
    Way::GivenBackUnderCancel,
];

/// Takes a fresh task out by one way.
async fn exit(s: &Scene, draft: Draft, way: Way) -> TaskId {
    match way {
        Way::CancelledPending | Way::PrunedCancelled | Way::DeletedCancelled => {
            let id = s.submit(draft).await;
            s.cancel(&id).await;
            return vanish(s, id, way).await;
        }
        Way::CancelledScheduled => {
            let id = s.submit(draft.after(HOUR)).await;
            s.cancel(&id).await;
            return id;
        }
        Way::DeletedPending => return vanish(s, s.submit(draft).await, way).await,
        Way::DeletedScheduled => {
            return vanish(s, s.submit(draft.after(HOUR)).await, way).await;
        }
        _ => {}
    }
    let max_crashes = u32::from(way != Way::CrashedToDeath);
    let run = s.start(draft.max_retries(1).max_crashes(max_crashes)).await;
    let id = run.id.clone();
    let cancels_first = [
        Way::CancelledWhileRunning,
        Way::CompletedUnderCancel,
        Way::CrashedUnderCancel,
        Way::LeftUnderCancel,
        Way::GivenBackUnderCancel,
    ];
    if cancels_first.contains(&way) {
        s.cancel(&id).await;
    }
    match way {
        Way::Completed
        | Way::CompletedUnderCancel
        | Way::DeletedCompleted
        | Way::PrunedCompleted => s.finish_as(&run, completed(), State::Completed).await,
        Way::Dead | Way::DeletedDead => {
            s.finish_as(&run, discarded("no use"), State::DeadLetter).await;
        }
        Way::FailedToDeath => {
            s.finish_as(&run, failed("first"), State::Retrying).await;
            s.rerun(&id).await;
            let last = s.take(&run.worker, &id).await;
            s.finish_as(&last, failed("last"), State::DeadLetter).await;
        }
        Way::PastDeadline => {
            let ending = Ending::DeadlinePassed { has_started: false };
            s.finish_as(&run, ending, State::DeadLetter).await;
        }
        Way::CancelledByHandler => {
            s.finish_as(&run, Ending::Cancelled, State::Cancelled).await;
        }
        Way::CancelledWhileRunning => {
            s.finish_as(&run, failed("boom"), State::Cancelled).await;
        }
        Way::CrashedToDeath | Way::CrashedUnderCancel => drop(s.lose_all_workers().await),
        Way::LeftUnderCancel => drop(s.leave(&run.worker).await),
        Way::GivenBackUnderCancel => {
            s.advance(MS * 2);
            s.beat_holding(&run.worker, vec![], MS).await;
        }
        Way::CancelledRetrying | Way::DeletedRetrying => {
            s.finish_as(&run, failed("boom"), State::Retrying).await;
        }
        Way::CancelledAfterCrash => drop(s.lose_all_workers().await),
        Way::CancelledAfterRelease => {
            s.finish_as(&run, Ending::Released, State::Pending).await;
        }
        Way::CancelledPending
        | Way::CancelledScheduled
        | Way::DeletedPending
        | Way::DeletedScheduled
        | Way::DeletedCancelled
        | Way::PrunedCancelled => unreachable!("returned above"),
    }
    let cancels_last =
        [Way::CancelledRetrying, Way::CancelledAfterCrash, Way::CancelledAfterRelease];
    if cancels_last.contains(&way) {
        s.cancel(&id).await;
    }
    vanish(s, id, way).await
}

/// Deletes or prunes the task, where the way says so.
async fn vanish(s: &Scene, id: TaskId, way: Way) -> TaskId {
    if DELETED.contains(&way) {
        s.delete(&id).await;
    }
    if PRUNED.contains(&way) {
        s.advance(RETENTION);
        s.prune().await;
    }
    if DELETED.contains(&way) || PRUNED.contains(&way) {
        s.expect_gone(&id, &format!("{way:?}")).await;
    }
    id
}

pub async fn until_finished_a_second_task_is_rejected_with_the_holder_named(s: Scene) {
    let id = s.submit(until_end()).await;
    check_held(&s, &id, "while it is pending").await;
    check_held(&s.elsewhere().await, &id, "everywhere").await;
}

pub async fn a_second_task_may_ask_for_the_holder_instead(s: Scene) {
    let asks =
        || draft().unique(Unique { on_conflict: OnConflict::Return, ..until_finished("key") });
    let id = s.submit(asks()).await;
    let (_, answer) = s.offer(asks()).await;
    let told = matches!(&answer, Inserted::Existing { id: holder, .. } if *holder == id);
    assert!(told, "the second should be told of {id}, not {answer:?}");
    check_held(&s, &id, "and rejects those who do not ask").await;
}

pub async fn until_finished_a_key_is_held_through_every_unfinished_state(s: Scene) {
    let id = s.submit(until_end().after(SECOND)).await;
    check_held(&s, &id, "while scheduled").await;
    s.advance(SECOND);
    s.promote().await;
    check_held(&s, &id, "after promote").await;
    let worker = s.worker().await;
    let run = s.take(&worker, &id).await;
    check_held(&s, &id, "while running").await;
    s.finish(&run, failed("boom")).await;
    check_held(&s, &id, "while retrying").await;
    s.rerun(&id).await;
    check_held(&s, &id, "after run-now").await;
    let run = s.take(&worker, &id).await;
    s.finish(&run, snoozed(1)).await;
    check_held(&s, &id, "while snoozed").await;
    s.rerun(&id).await;
    let run = s.take(&worker, &id).await;
    s.finish(&run, Ending::Released).await;
    check_held(&s, &id, "after a release").await;
    s.take(&worker, &id).await;
    s.cancel(&id).await;
    check_held(&s, &id, "while the cancel is only requested").await;
    s.advance(LEASE);
}

pub async fn until_finished_a_key_is_held_through_crash_leave_and_reschedule(s: Scene) {
    let id = s.start(until_end()).await.id.clone();
    s.lose_all_workers().await;
    check_held(&s, &id, "after a crash").await;
    let worker = s.worker().await;
    s.take(&worker, &id).await;
    s.leave(&worker).await;
    check_held(&s, &id, "after a leave").await;
    s.reschedule(&id, windlass_core::When::After(HOUR)).await;
    check_held(&s, &id, "after a reschedule").await;
}

pub async fn until_finished_every_terminal_state_frees_the_key(s: Scene) {
    for way in FINISHED {
        exit(&s, until_end(), way).await;
        check_free(&s, &format!("after {way:?}")).await;
    }
}

pub async fn until_finished_a_delete_frees_the_key_in_every_state(s: Scene) {
    for way in DELETED {
        exit(&s, until_end(), way).await;
        check_free(&s, &format!("after {way:?}")).await;
    }
}

pub async fn until_finished_a_pruned_task_leaves_no_key_behind(s: Scene) {
    for way in PRUNED {
        exit(&s, until_end(), way).await;
        check_free(&s, &format!("after {way:?}")).await;
    }
}

pub async fn for_a_time_a_key_outlives_every_end_of_a_task_that_has_run(s: Scene) {
    for way in FINISHED {
        if CANCELLED_BEFORE_START.contains(&way) {
            continue;
        }
        let id = exit(&s, for_a_time(), way).await;
        check_held(&s, &id, &format!("after {way:?}")).await;
        s.delete(&id).await;
    }
}

pub async fn for_a_time_a_key_is_freed_by_a_cancel_before_start(s: Scene) {
    for way in CANCELLED_BEFORE_START {
        exit(&s, for_a_time(), way).await;
        check_free(&s, &format!("after {way:?}")).await;
    }
}

pub async fn for_a_time_a_key_is_freed_by_a_delete_in_every_state(s: Scene) {
    for way in DELETED {
        exit(&s, for_a_time(), way).await;
        check_free(&s, &format!("after {way:?}")).await;
    }
}

pub async fn for_a_time_a_key_outlives_the_pruned_record_of_a_run(s: Scene) {
    let id = exit(&s, for_a_time(), Way::PrunedCompleted).await;
    check_held(&s, &id, "although its record is gone").await;
    s.tend().await;
    check_held(&s, &id, "also after upkeep").await;
    s.advance(TIME);
    check_free(&s, "when its time is over").await;
}

pub async fn for_a_time_a_key_is_free_when_the_time_is_over_and_not_before(s: Scene) {
    for state in [State::Scheduled, State::Pending, State::Running] {
        let id = s.bring(for_a_time(), state).await;
        s.advance(TIME - MS);
        check_held(&s, &id, &format!("a millisecond before, {state}")).await;
        s.advance(MS);
        check_free(&s, &format!("finished or not: {state}")).await;
        s.lose_all_workers().await;
        s.delete(&id).await;
    }
}

pub async fn for_a_time_upkeep_frees_no_key_before_its_time(s: Scene) {
    let id = s.submit(for_a_time()).await;
    s.advance(TIME - MS);
    s.tend().await;
    check_held(&s, &id, "a millisecond before").await;
    s.advance(MS);
    s.tend().await;
    check_free(&s, "when its time is over").await;
}

pub async fn for_a_time_a_key_that_is_over_can_be_taken_at_once_without_upkeep(s: Scene) {
    let first = s.submit(for_a_time()).await;
    s.advance(TIME);
    let second = s.submit(for_a_time()).await;
    check_held(&s, &second, "anew").await;
    for end in 0..2 {
        // The first owner's exits must not free what is not its own any more.
        match end {
            0 => drop(s.cancel(&first).await),
            _ => drop(s.delete(&first).await),
        }
        check_held(&s, &second, "whatever the first owner does").await;
    }
    s.tend().await;
    check_held(&s, &second, "also after upkeep").await;
}

pub async fn a_key_is_freed_only_by_its_owner(s: Scene) {
    for way in ["complete", "dead", "cancel", "crash", "delete", "prune"] {
        let first = exit(&s, until_end().max_crashes(0), Way::Completed).await;
        let second = s.submit(until_end().queue("second")).await;
        if s.capabilities().unique_scope == UniqueScope::QueueAndKind {
            // The second queue is another scope there: take the key where the first task was.
            s.delete(&second).await;
            return rerun_beside_in_one_queue(&s, &first).await;
        }
        s.rerun(&first).await;
        check_held(&s, &second, "a rerun does not take it back").await;
        let worker = s.worker().await;
        match way {
            "complete" => drop(s.finish(&s.take(&worker, &first).await, completed()).await),
            "dead" => drop(s.finish(&s.take(&worker, &first).await, discarded("")).await),
            "cancel" => drop(s.cancel(&first).await),
            "crash" => {
                s.take(&worker, &first).await;
                s.cancel(&first).await;
                s.lose_all_workers().await;
            }
            "delete" => {}
            _ => {
                s.cancel(&first).await;
                s.advance(RETENTION);
                s.prune().await;
            }
        }
        check_held(&s, &second, &format!("after the other's {way}")).await;
        s.delete(&first).await;
        check_held(&s, &second, "after the other was deleted").await;
        s.delete(&second).await;
        check_free(&s, "after its owner was deleted").await;
    }
}

async fn rerun_beside_in_one_queue(s: &Scene, first: &TaskId) {
    let second = s.submit(until_end().after(HOUR)).await;
    s.rerun(first).await;
    check_held(s, &second, "a rerun does not take it back").await;
    s.delete(first).await;
    check_held(s, &second, "a non-owner does not free it").await;
    s.delete(&second).await;
}

pub async fn a_rerun_does_not_take_its_key_again(s: Scene) {
    let id = exit(&s, until_end(), Way::Completed).await;
    s.rerun(&id).await;
    check_free(&s, "although the first task is pending again").await;
}

pub async fn for_a_time_a_rerun_does_not_hold_the_key_longer(s: Scene) {
    let id = s.bring(for_a_time().retention(TIME), State::Completed).await;
    s.advance(TIME - SECOND);
    s.rerun(&id).await;
    check_held(&s, &id, "as long as at first").await;
    s.advance(SECOND);
    check_free(&s, "when its time is over, rerun or not").await;
}

pub async fn a_missing_key_is_derived_from_queue_kind_and_payload(s: Scene) {
    let derived =
        || draft().payload("same").unique(Unique { key: None, ..until_finished("unused") });
    let id = s.submit(derived()).await;
    let (_, again) = s.offer(derived()).await;
    let held = matches!(&again, Inserted::Conflict { holder } if *holder == id);
    assert!(held, "the same queue, kind and payload: {again:?}");
    s.submit(derived().payload("other")).await;
    s.submit(derived().kind("other")).await;
    s.submit(derived().queue("other")).await;
    s.submit(draft().payload("same")).await;
    s.delete(&id).await;
    s.submit(derived()).await;
}

pub async fn a_unique_key_counts_within_its_scope(s: Scene) {
    let id = s.submit(until_end()).await;
    s.submit(until_end().kind("other")).await;
    let (_, elsewhere) = s.offer(until_end().queue("other")).await;
    match s.capabilities().unique_scope {
        UniqueScope::Kind => {
            let held = matches!(&elsewhere, Inserted::Conflict { holder } if *holder == id);
            assert!(held, "one kind, every queue: {elsewhere:?}");
        }
        UniqueScope::QueueAndKind => {
            assert!(elsewhere.is_new(), "each queue for itself: {elsewhere:?}");
        }
    }
}

pub async fn two_tasks_of_one_batch_cannot_share_a_unique_key(s: Scene) {
    let first = s.make(until_end()).await;
    let second = s.make(until_end()).await;
    let id = first.id.clone();
    let answers = s.insert(vec![first, second.clone()]).await;
    assert!(answers[0].is_new(), "{answers:?}");
    let held = matches!(&answers[1], Inserted::Conflict { holder } if *holder == id);
    assert!(held, "{answers:?}");
    s.expect_gone(&second.id, "it was rejected").await;
}
