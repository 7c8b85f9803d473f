//! Prune and retention: finished records are kept their time, then hidden, then removed.

use std::time::Duration;

use windlass_core::store::{Action, Applied, Changed, Duty, Filter, Refusal};
use windlass_core::{Ending, State, Transition};

use crate::draft::{RETENTION, draft, held_for};
use crate::scene::{HOUR, LEASE, MS, SECOND, Scene, completed};

pub async fn a_finished_record_is_kept_its_retention_and_not_less(s: Scene) {
    for state in [State::Completed, State::Cancelled] {
        let id = s.bring(draft(), state).await;
        s.advance(RETENTION - MS);
        assert_eq!(s.prune().await.done, 0, "a millisecond early: {state}");
        s.expect(&id, state, "kept to the end of its time").await;
        assert_eq!(s.list(Filter::default()).await.len(), 1, "and listed");
        s.advance(MS);
        assert_eq!(s.prune().await.done, 1, "{state}");
        s.expect_gone(&id, "its time is over").await;
        assert_eq!(s.count("main", state).await, 0, "counters follow");
    }
}

pub async fn reads_hide_a_record_from_the_moment_its_retention_is_over(s: Scene) {
    for state in [State::Completed, State::Cancelled] {
        let id = s.bring(draft(), state).await;
        s.advance(RETENTION);
        s.expect_gone(&id, "its time is over, pruned or not").await;
        let filter = Filter { states: vec![state], ..Filter::default() };
        assert_eq!(s.list(filter).await, [], "also in a list by state");
    }
}

pub async fn changes_do_not_find_a_record_whose_retention_is_over(s: Scene) {
    for state in [State::Completed, State::Cancelled] {
        let id = s.bring(draft(), state).await;
        s.advance(RETENTION);
        for action in [Action::Cancel, Action::Rerun, Action::Delete] {
            let by_id = s.change(&id, action).await;
            assert_eq!(by_id, Changed::NotFound, "{action:?} by id, {state}");
            let filter = Filter { states: vec![state], ..Filter::default() };
            let by_filter = s.change_matching(filter, action, 9).await;
            assert_eq!(by_filter.changed_count, 0, "{action:?} by filter, {state}");
        }
        s.expect_gone(&id, "its time is over").await;
    }
}

pub async fn dead_letters_are_never_pruned_or_hidden(s: Scene) {
    let run = s.start(draft().queue("crashed").max_crashes(0)).await;
    s.lose_all_workers().await;
    let ids = [run.id.clone(), s.bring(draft(), State::DeadLetter).await];
    s.advance(RETENTION * 1_000);
    assert_eq!(s.prune().await.done, 0);
    for id in ids {
        s.expect(&id, State::DeadLetter, "it stays until removed").await;
    }
}

pub async fn unfinished_tasks_are_never_pruned(s: Scene) {
    let mut ids = Vec::new();
    for state in [State::Scheduled, State::Running, State::Retrying, State::Pending] {
        ids.push((s.bring(draft().retention(SECOND), state).await, state));
    }
    s.advance(HOUR);
    assert_eq!(s.prune().await.done, 0);
    for (id, state) in ids {
        s.expect(&id, state, "it is not finished").await;
    }
}

pub async fn each_task_has_its_own_retention(s: Scene) {
    let brief = s.start(draft().retention(SECOND)).await;
    let long = s.start(draft().retention(HOUR * 48)).await;
    for run in [&brief, &long] {
        s.finish_as(run, completed(), State::Completed).await;
    }
    s.advance(SECOND);
    assert_eq!(s.prune().await.done, 1);
    s.expect_gone(&brief.id, "it was kept for a second").await;
    s.advance(HOUR * 47);
    s.prune().await;
    s.expect(&long.id, State::Completed, "it is kept for two days").await;
}

pub async fn a_record_is_kept_as_long_as_the_report_of_its_end_says(s: Scene) {
    for (ending, state) in [(completed(), State::Completed), (Ending::Cancelled, State::Cancelled)]
    {
        let run = s.start(draft().retention(HOUR * 48)).await;
        let transition = Transition { retention: SECOND, ..s.transition(&run, ending) };
        s.apply(&run.worker, vec![transition]).await;
        s.advance(SECOND - MS);
        s.expect(&run.id, state, "a millisecond before").await;
        assert_eq!(s.record(&run.id).await.spec.retention, SECOND, "as the record tells");
        s.advance(MS);
        s.expect_gone(&run.id, "kept for a second, not for two days").await;
    }
}

pub async fn a_task_that_is_kept_for_no_time_is_gone_at_its_end(s: Scene) {
    let run = s.start(draft().retention(Duration::ZERO)).await;
    let result = Some("nobody reads it".into());
    s.finish_as(&run, Ending::Completed { result }, State::Completed).await;
    s.expect_gone(&run.id, "it is kept for no time").await;
    let again = s.finish(&run, completed()).await;
    let expected = match s.capabilities().forgets_at_once {
        true => Applied::Refused(Refusal::Gone),
        false => Applied::Already,
    };
    assert_eq!(again, expected, "a report that was repeated");
    s.prune().await;
    assert_eq!(s.count("main", State::Completed).await, 0, "counters follow");
    assert_eq!(s.rows_kept().await.unwrap_or(0), 0, "nothing is left behind");
}

pub async fn retention_counts_from_the_end_and_not_from_the_submit(s: Scene) {
    let id = s.submit(draft()).await;
    s.advance(RETENTION * 2);
    let worker = s.worker().await;
    let run = s.take(&worker, &id).await;
    s.finish_as(&run, completed(), State::Completed).await;
    s.prune().await;
    s.expect(&id, State::Completed, "it has just ended").await;
}

pub async fn what_expire_and_leave_cancelled_is_pruned_too(s: Scene) {
    let crashed = s.start(draft()).await;
    s.cancel(&crashed.id).await;
    s.lose_all_workers().await;
    let left = s.start(draft()).await;
    s.cancel(&left.id).await;
    s.leave(&left.worker).await;
    let own = s.start(draft()).await;
    s.finish_as(&own, Ending::Cancelled, State::Cancelled).await;
    s.advance(RETENTION - LEASE * 2);
    assert_eq!(s.prune().await.done, 0, "early");
    s.advance(LEASE * 2);
    assert_eq!(s.prune().await.done, 3);
}

pub async fn prune_in_small_pieces_gets_to_the_end(s: Scene) {
    for _ in 0..5 {
        s.bring(draft(), State::Completed).await;
    }
    let kept = s.submit(draft()).await;
    s.advance(RETENTION);
    let duty = Duty { limit: 2, ..s.duty().await };
    let mut done = 0;
    for _ in 0..20 {
        let report = s.store.prune(duty).await.unwrap();
        assert!(report.done <= 2, "a piece of two did {}", report.done);
        done += report.done;
        if !report.has_more {
            break;
        }
    }
    assert_eq!(done, 5, "records removed in all");
    s.expect(&kept, State::Pending, "it is not finished").await;
}

/// A key or large value that outlives its task is a leak, also where nobody trips over it.
pub async fn nothing_is_left_behind_by_tasks_that_are_gone(s: Scene) {
    let large = vec![7; 70_000];
    for is_pruned in [true, false] {
        for state in [State::Completed, State::Cancelled] {
            let draft = draft()
                .idempotency("once")
                .unique(held_for("key", HOUR * 2))
                .payload(large.clone());
            let id = match state {
                State::Completed => {
                    let run = s.start(draft).await;
                    let result = Some(large.clone().into());
                    s.finish_as(&run, Ending::Completed { result }, state).await;
                    run.id.clone()
                }
                _ => s.bring(draft, state).await,
            };
            assert_ne!(s.rows_kept().await, Some(0), "the task is there");
            if is_pruned {
                s.advance(RETENTION);
                s.prune().await;
                s.advance(HOUR * 2);
                s.tend().await;
            } else {
                s.delete(&id).await;
            }
            let left = s.rows_kept().await.unwrap_or(0);
            assert_eq!(left, 0, "rows left by a {state} task, pruned: {is_pruned}");
        }
    }
}

pub async fn a_rerun_leaves_no_result_behind(s: Scene) {
    let run = s.start(draft()).await;
    let kept = s.rows_kept().await;
    let result = Some(vec![7; 70_000].into());
    s.finish_as(&run, Ending::Completed { result }, State::Completed).await;
    s.rerun(&run.id).await;
    assert_eq!(s.rows_kept().await, kept, "rows, as before the result");
}

pub async fn tend_in_small_pieces_gets_to_the_end(s: Scene) {
    for number in 0..5 {
        s.submit(draft().unique(held_for(&format!("key-{number}"), HOUR))).await;
    }
    s.advance(HOUR);
    let duty = Duty { limit: 2, ..s.duty().await };
    let mut done = 0;
    for _ in 0..20 {
        let report = s.store.tend(duty).await.unwrap();
        done += report.done;
        if !report.has_more {
            break;
        }
    }
    assert_eq!(done, 5, "keys freed in all");
}

pub async fn what_is_over_in_a_few_of_many_queues_is_pruned(s: Scene) {
    let drafts = (0..150).map(|number| draft().queue(&format!("many-{number:03}")));
    let ids = s.submit_all(drafts).await;
    for id in ids.iter().step_by(50) {
        s.cancel(id).await;
    }
    s.advance(RETENTION);
    assert_eq!(s.prune().await.done, 3);
    for id in ids.iter().step_by(50) {
        s.expect_gone(id, "its time is over").await;
    }
    s.expect(&ids[1], State::Pending, "it waits").await;
}
