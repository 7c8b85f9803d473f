//! The state table: every row can be walked, and what has no row changes nothing.

use std::time::Duration;

use windlass_core::state::{Cause, Row, TABLE, is_allowed};
use windlass_core::store::{Action, Applied, Changed, Refusal};
use windlass_core::{Ending, Epoch, State, TaskId, TaskRecord, When};

use crate::draft::{Draft, RETENTION, draft};
use crate::scene::{HOUR, Run, SECOND, Scene, completed, discarded, failed, snoozed};

pub async fn every_row_of_the_table_can_be_walked(s: Scene) {
    for (number, row) in TABLE.iter().enumerate() {
        let draft = draft().queue(&format!("row-{number}"));
        let id = walk(&s, row, draft).await;
        let state = s.find(&id).await.map(|record| record.state);
        assert_eq!(state, row.to, "after {row:?}");
        s.books_balance(&format!("after {row:?}")).await;
    }
}

/// Takes a fresh task along one row of the table.
async fn walk(s: &Scene, row: &Row, draft: Draft) -> TaskId {
    let Some(from) = row.from else {
        let delay = match row.to {
            Some(State::Scheduled) => HOUR,
            _ => Duration::ZERO,
        };
        return s.submit(draft.after(delay)).await;
    };
    if from == State::Running {
        let run = match row.by {
            Cause::Expire if row.to == Some(State::DeadLetter) => {
                s.start(draft.max_crashes(0)).await
            }
            _ => s.start(draft).await,
        };
        end(s, row, &run).await;
        return run.id.clone();
    }
    let id = match row.by {
        Cause::Promote if from == State::Scheduled => s.submit(draft.after(HOUR)).await,
        _ => s.bring(draft, from).await,
    };
    s.expect(&id, from, "the walk starts here").await;
    match row.by {
        Cause::Promote => {
            s.advance(HOUR);
            s.promote().await;
        }
        Cause::Claim => {
            let worker = s.worker().await;
            s.take(&worker, &id).await;
        }
        Cause::Cancel => drop(s.cancel(&id).await),
        Cause::Rerun => drop(s.rerun(&id).await),
        Cause::Reschedule => drop(s.reschedule(&id, When::After(HOUR)).await),
        Cause::Delete => drop(s.delete(&id).await),
        Cause::Prune => {
            s.advance(RETENTION);
            s.prune().await;
        }
        Cause::Submit | Cause::Apply | Cause::Release | Cause::Expire => {
            panic!("no walk for the row {row:?}: add one")
        }
    }
    id
}

/// Ends a run as the row says.
async fn end(s: &Scene, row: &Row, run: &Run) {
    let to = row.to.expect("a run ends in a state");
    if row.by != Cause::Apply && to == State::Cancelled {
        s.cancel(&run.id).await;
    }
    match row.by {
        Cause::Apply => s.finish_as(run, ending_to(to), to).await,
        Cause::Release => drop(s.leave(&run.worker).await),
        Cause::Expire => drop(s.lose_all_workers().await),
        Cause::Submit
        | Cause::Promote
        | Cause::Claim
        | Cause::Cancel
        | Cause::Rerun
        | Cause::Reschedule
        | Cause::Delete
        | Cause::Prune => panic!("no walk for the row {row:?}: add one"),
    }
}

fn ending_to(state: State) -> Ending {
    match state {
        State::Completed => completed(),
        State::Retrying => failed("boom"),
        State::DeadLetter => discarded("no use"),
        State::Scheduled => snoozed(60),
        State::Pending => Ending::Released,
        State::Cancelled => Ending::Cancelled,
        State::Running => panic!("a run does not end by running"),
    }
}

pub async fn a_promote_moves_only_what_waits_for_its_time(s: Scene) {
    only_by_the_table(s, Cause::Promote, async |s, _, _| {
        s.promote().await;
    })
    .await;
}

pub async fn a_claim_takes_only_what_is_pending(s: Scene) {
    only_by_the_table(s, Cause::Claim, async |s, record, _| {
        let worker = s.worker().await;
        let given = s.claim_from(&worker, &[record.queue.as_str()], 10).await;
        assert_eq!(given, [], "a {} task was given out", record.state);
    })
    .await;
}

pub async fn an_apply_ends_only_what_runs(s: Scene) {
    only_by_the_table(s, Cause::Apply, async |s, record, last| {
        // A lease that the task never had, and the last that it had.
        let worker = s.worker().await;
        let run = match last {
            Some(run) => run.clone(),
            None => s.start(draft().queue("elsewhere")).await,
        };
        for ending in [completed(), failed("late"), Ending::Released] {
            let mut transition = s.transition(&run, ending);
            transition.lease.task = record.id.clone();
            transition.lease.epoch = Epoch(run.epoch.0 + 1_000_000);
            let outcomes = s.apply(&worker, vec![transition.clone()]).await;
            assert_eq!(
                outcomes,
                [Applied::Refused(Refusal::LeaseLost)],
                "an epoch that was never given, on a {} task",
                record.state
            );
            transition.lease.epoch = run.epoch;
            let outcome = s.apply(&worker, vec![transition]).await[0];
            let expected = match last {
                Some(_) => Applied::Already,
                None => Applied::Refused(Refusal::LeaseLost),
            };
            assert_eq!(outcome, expected, "on a {} task", record.state);
        }
    })
    .await;
}

pub async fn a_leave_gives_back_only_what_runs(s: Scene) {
    only_by_the_table(s, Cause::Release, async |s, record, _| {
        if let Some(worker) = &record.worker {
            assert_eq!(s.leave(worker).await, 0, "it held nothing any more");
        }
    })
    .await;
}

pub async fn an_expire_takes_back_only_what_runs(s: Scene) {
    only_by_the_table(s, Cause::Expire, async |s, _, _| {
        s.lose_all_workers().await;
    })
    .await;
}

pub async fn a_cancel_of_a_finished_task_is_a_conflict(s: Scene) {
    refused(s, Cause::Cancel, Action::Cancel).await;
}

pub async fn a_rerun_of_a_task_that_waits_or_runs_already_is_a_conflict(s: Scene) {
    refused(s, Cause::Rerun, Action::Rerun).await;
}

pub async fn a_reschedule_of_a_running_or_finished_task_is_a_conflict(s: Scene) {
    let action = Action::Reschedule(When::After(HOUR));
    refused(s, Cause::Reschedule, action).await;
}

pub async fn a_delete_of_a_running_task_is_a_conflict(s: Scene) {
    refused(s, Cause::Delete, Action::Delete).await;
}

pub async fn a_prune_removes_only_completed_and_cancelled_tasks(s: Scene) {
    only_by_the_table(s, Cause::Prune, async |s, _, _| {
        s.advance(RETENTION * 3);
        s.prune().await;
    })
    .await;
}

async fn refused(s: Scene, cause: Cause, action: Action) {
    only_by_the_table(s, cause, async |s, record, _| {
        let changed = s.change(&record.id, action).await;
        assert_eq!(changed, Changed::Conflict(record.state), "{action:?}");
    })
    .await;
}

/// Tries an operation on a task in each state that has no row for it; the record must not change.
async fn only_by_the_table(
    s: Scene,
    cause: Cause,
    attempt: impl AsyncFn(&Scene, &TaskRecord, Option<&Run>),
) {
    for state in State::ALL {
        let is_cancel_request = (state, cause) == (State::Running, Cause::Cancel);
        let has_row = State::ALL
            .into_iter()
            .map(Some)
            .chain([None])
            .any(|to| is_allowed(Some(state), to, cause));
        if has_row || is_cancel_request {
            continue;
        }
        let (id, last) = bring_with_lease(&s, state).await;
        let before = s.record(&id).await;
        attempt(&s, &before, last.as_ref()).await;
        let after = s.record(&id).await;
        assert_eq!(after, before, "{} on a {state} task must change nothing", cause.as_str());
        s.books_balance(&format!("after {} on {state}", cause.as_str())).await;
    }
}

/// A task in a state, in a queue of its own, with the lease of its last run where it had one.
async fn bring_with_lease(s: &Scene, state: State) -> (TaskId, Option<Run>) {
    let draft = draft().queue(&format!("in-{state}")).retention(RETENTION);
    match state {
        State::Retrying | State::Completed | State::DeadLetter | State::Cancelled => {
            let run = s.start(draft.max_retries(1)).await;
            s.finish_as(&run, ending_to(state), state).await;
            (run.id.clone(), Some(run))
        }
        State::Scheduled | State::Pending | State::Running => (s.bring(draft, state).await, None),
    }
}

pub async fn a_submit_due_later_is_scheduled_and_any_other_is_pending(s: Scene) {
    let now = s.now().await;
    let cases = [
        (When::Now, State::Pending),
        (When::After(Duration::ZERO), State::Pending),
        (When::At(now), State::Pending),
        (When::At(now.before(HOUR)), State::Pending),
        (When::After(SECOND), State::Scheduled),
        (When::At(now.after(SECOND)), State::Scheduled),
    ];
    for (when, state) in cases {
        let id = s.submit(draft().when(when)).await;
        s.expect(&id, state, &format!("submitted for {when:?}")).await;
    }
}

pub async fn every_ending_takes_its_task_where_core_decides(s: Scene) {
    let endings = [
        (completed(), 1),
        (failed("boom"), 1),
        (Ending::TimedOut, 1),
        (discarded("no use"), 1),
        (Ending::DeadlinePassed { has_started: true }, 1),
        (Ending::DeadlinePassed { has_started: false }, 0),
        (snoozed(5), 0),
        (Ending::PutOff, 0),
        (Ending::Released, 0),
        (Ending::HandledElsewhere, 0),
        (Ending::Unhandled { delay: SECOND }, 0),
        (Ending::Cancelled, 1),
    ];
    for (number, (ending, attempts)) in endings.into_iter().enumerate() {
        let run = s.start(draft().queue(&format!("ending-{number}"))).await;
        let expected = s.transition(&run, ending.clone()).next.state;
        s.finish_as(&run, ending.clone(), expected).await;
        let record = s.record(&run.id).await;
        assert_eq!(record.state, expected, "after {ending:?}");
        assert_eq!(record.attempts, attempts, "attempts after {ending:?}");
        assert_eq!(record.crashes, 0, "crashes after {ending:?}");
        let finished = record.finished_at.is_some();
        assert_eq!(finished, expected.is_terminal(), "finish time: {ending:?}");
    }
}

pub async fn the_start_of_a_handler_is_told_from_how_long_it_took(s: Scene) {
    let run = s.start(draft()).await;
    assert_eq!(s.record(&run.id).await.started_at, None, "not told yet");
    s.advance(SECOND * 5);
    let transition = s.transition(&run, completed()).took(SECOND * 3);
    s.apply(&run.worker, vec![transition]).await;
    let started_at = s.record(&run.id).await.started_at;
    assert_eq!(started_at, Some(s.now().await.before(SECOND * 3)));
}

pub async fn the_start_of_a_handler_is_not_told_again_for_the_next_run(s: Scene) {
    let run = s.start(draft()).await;
    let transition = s.transition(&run, Ending::Released).took(SECOND);
    s.apply(&run.worker, vec![transition]).await;
    s.take(&run.worker, &run.id).await;
    assert_eq!(s.record(&run.id).await.started_at, None, "not told yet");
}

pub async fn the_start_of_a_handler_is_told_whatever_its_end(s: Scene) {
    for ending in [failed("boom"), discarded("no use"), snoozed(9), Ending::Cancelled] {
        let run = s.start(draft()).await;
        s.advance(SECOND * 5);
        let transition = s.transition(&run, ending.clone()).took(SECOND * 3);
        s.apply(&run.worker, vec![transition]).await;
        let started_at = s.record(&run.id).await.started_at;
        assert_eq!(started_at, Some(s.now().await.before(SECOND * 3)), "{ending:?}");
    }
}

pub async fn each_step_of_a_task_is_told_as_its_last_update(s: Scene) {
    let id = s.submit(draft().after(SECOND)).await;
    check_updated(&s, &id, "the submit").await;
    s.promote().await;
    check_updated(&s, &id, "the promote").await;
    let worker = s.worker().await;
    let run = s.take(&worker, &id).await;
    check_updated(&s, &id, "the claim").await;
    s.finish_as(&run, completed(), State::Completed).await;
    check_updated(&s, &id, "the completion").await;
    s.rerun(&id).await;
    check_updated(&s, &id, "the rerun").await;
    s.take(&worker, &id).await;
    s.cancel(&id).await;
    check_updated(&s, &id, "the cancel request").await;
    s.leave(&worker).await;
    check_updated(&s, &id, "the leave").await;
}

/// Requires a task to be updated now, and lets a second pass.
async fn check_updated(s: &Scene, id: &TaskId, by: &str) {
    assert_eq!(s.record(id).await.updated_at, s.now().await, "by {by}");
    s.advance(SECOND);
}

pub async fn a_task_runs_one_time_more_than_its_retries(s: Scene) {
    let run = s.start(draft().max_retries(2)).await;
    s.finish_as(&run, failed("1"), State::Retrying).await;
    for (attempt, end) in [(2, State::Retrying), (3, State::DeadLetter)] {
        s.rerun(&run.id).await;
        s.beat(&run.worker).await;
        let again = s.take(&run.worker, &run.id).await;
        assert_eq!(again.attempts, attempt);
        s.finish_as(&again, failed("again"), end).await;
    }
}
