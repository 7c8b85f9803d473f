//! Expire: lost workers, what becomes of their tasks, and who is not lost.

use std::time::Duration;

use windlass_core::store::{Applied, Beat, Duty};
use windlass_core::{State, TaskId};

use crate::draft::draft;
use crate::scene::{LEASE, MS, SECOND, Scene, completed, failed};

/// Requires a task to be in a state with these counters.
async fn check(s: &Scene, id: &TaskId, state: State, attempts: u32, crashes: u32) {
    let record = s.record(id).await;
    assert_eq!(
        (record.state, record.attempts, record.crashes),
        (state, attempts, crashes),
        "state, attempts and crashes of {record:#?}"
    );
}

pub async fn a_lost_workers_tasks_are_pending_again_with_one_crash_more(s: Scene) {
    let ids = s.submit_many(3).await;
    let worker = s.worker().await;
    s.claim(&worker, 3).await;
    let report = s.lose_all_workers().await;
    assert_eq!(report.done, 3, "tasks taken back");
    for id in ids {
        check(&s, &id, State::Pending, 0, 1).await;
    }
}

pub async fn a_crash_spends_no_attempt(s: Scene) {
    let run = s.start(draft().max_retries(1).max_crashes(9)).await;
    s.finish_as(&run, failed("counts"), State::Retrying).await;
    s.rerun(&run.id).await;
    for crashes in 1..=4 {
        let worker = s.worker().await;
        let again = s.take(&worker, &run.id).await;
        assert_eq!(again.attempts, 2, "each run after a crash is the second");
        s.lose_all_workers().await;
        check(&s, &run.id, State::Pending, 1, crashes).await;
    }
    let worker = s.worker().await;
    let last = s.take(&worker, &run.id).await;
    s.finish_as(&last, failed("counts too"), State::DeadLetter).await;
    check(&s, &run.id, State::DeadLetter, 2, 4).await;
}

pub async fn a_task_survives_just_its_max_crashes(s: Scene) {
    for max_crashes in [0, 1, 3] {
        let name = format!("survives-{max_crashes}");
        let id = s.submit(draft().queue(&name).max_crashes(max_crashes)).await;
        for crash in 1..=max_crashes + 1 {
            let worker = s.worker().await;
            s.take(&worker, &id).await;
            s.lose_all_workers().await;
            let state = if crash > max_crashes { State::DeadLetter } else { State::Pending };
            check(&s, &id, state, 0, crash).await;
        }
        let record = s.record(&id).await;
        assert!(record.finished_at.is_some(), "dead is an end");
        let error = record.history.last_error().unwrap_or_default();
        assert!(error.contains("lost too often"), "its owner is told why: {error:?}");
    }
}

pub async fn a_crash_under_a_cancel_request_is_cancelled_and_not_retried(s: Scene) {
    let run = s.start(draft()).await;
    s.cancel(&run.id).await;
    s.lose_all_workers().await;
    check(&s, &run.id, State::Cancelled, 0, 1).await;
    let worker = s.worker().await;
    assert_eq!(s.claim(&worker, 9).await, [], "it must not run again");
}

pub async fn a_crash_under_a_cancel_request_is_cancelled_also_past_max_crashes(s: Scene) {
    let run = s.start(draft().max_crashes(0)).await;
    s.cancel(&run.id).await;
    s.lose_all_workers().await;
    check(&s, &run.id, State::Cancelled, 0, 1).await;
}

pub async fn nobody_is_lost_before_the_lease_is_over(s: Scene) {
    let run = s.start(draft()).await;
    s.advance(LEASE - MS);
    s.expire().await;
    check(&s, &run.id, State::Running, 1, 0).await;
    s.beat(&run.worker).await;
    s.finish_as(&run, completed(), State::Completed).await;
}

pub async fn a_live_worker_keeps_its_tasks_while_another_is_lost(s: Scene) {
    let alive = s.start(draft().queue("alive")).await;
    let lost = s.start(draft().queue("lost")).await;
    s.advance(LEASE - MS);
    s.beat(&alive.worker).await;
    s.advance(MS * 2);
    let report = s.expire().await;
    assert_eq!(report.done, 1, "tasks taken back");
    check(&s, &alive.id, State::Running, 1, 0).await;
    check(&s, &lost.id, State::Pending, 0, 1).await;
    s.finish_as(&alive, completed(), State::Completed).await;
}

pub async fn one_beat_renews_everything_that_a_worker_holds(s: Scene) {
    let worker = s.worker().await;
    let ids = s.submit_many(5).await;
    s.claim(&worker, 5).await;
    for _ in 0..4 {
        s.advance(LEASE - MS);
        s.beat(&worker).await;
        s.expire().await;
    }
    for id in ids {
        check(&s, &id, State::Running, 1, 0).await;
    }
}

pub async fn a_lease_lasts_as_long_as_its_last_beat_asked_for(s: Scene) {
    let patient = s.start(draft().queue("patient")).await;
    let hasty = s.start(draft().queue("hasty")).await;
    for (run, lease) in [(&patient, SECOND * 60), (&hasty, SECOND)] {
        let beat = Beat { lease, ..s.sign(&run.worker) };
        s.store.beat(beat).await.unwrap();
    }
    s.advance(SECOND + MS);
    s.expire().await;
    check(&s, &hasty.id, State::Pending, 0, 1).await;
    s.advance(SECOND * 58);
    s.expire().await;
    check(&s, &patient.id, State::Running, 1, 0).await;
    s.advance(SECOND);
    s.expire().await;
    check(&s, &patient.id, State::Pending, 0, 1).await;
}

pub async fn an_expire_in_small_pieces_gets_to_the_end(s: Scene) {
    let ids = s.submit_many(5).await;
    for _ in 0..2 {
        let worker = s.worker().await;
        s.claim(&worker, 3).await;
    }
    s.advance(LEASE + MS);
    let duty = Duty { limit: 2, ..s.duty().await };
    let mut done = 0;
    for _ in 0..20 {
        let report = s.store.expire(duty).await.unwrap();
        assert!(report.done <= 2, "a piece of two did {}", report.done);
        done += report.done;
        if !report.has_more {
            break;
        }
    }
    assert_eq!(done, 5, "tasks taken back in all");
    for id in ids {
        check(&s, &id, State::Pending, 0, 1).await;
    }
}

pub async fn an_expire_that_is_repeated_counts_no_crash_twice(s: Scene) {
    let run = s.start(draft()).await;
    s.lose_all_workers().await;
    for _ in 0..3 {
        s.advance(LEASE * 2);
        assert_eq!(s.expire().await.done, 0, "nothing is left to do");
    }
    check(&s, &run.id, State::Pending, 0, 1).await;
}

pub async fn what_a_worker_finished_before_it_was_lost_stays_finished(s: Scene) {
    let worker = s.worker().await;
    let ids = s.submit_many(2).await;
    let tasks = s.claim(&worker, 2).await;
    let transition = s.transition(&tasks[0], completed());
    let outcomes = s.apply(&worker, vec![transition]).await;
    assert_eq!(outcomes, [Applied::Applied(State::Completed)]);
    s.lose_all_workers().await;
    check(&s, &ids[0], State::Completed, 1, 0).await;
    check(&s, &ids[1], State::Pending, 0, 1).await;
}

pub async fn an_expire_tells_when_the_next_lease_runs_out(s: Scene) {
    let worker = s.worker().await;
    let until = s.now().await.after(LEASE);
    s.advance(Duration::from_secs(1));
    let next = s.expire().await.next_due;
    assert!(
        next.is_none_or(|at| at <= until.after(MS)),
        "{worker}'s lease runs out at {until}, the next look is told for {next:?}"
    );
}

/// A leader that is told of an instant in the past would look again at once, for ever.
pub async fn an_expire_does_not_wait_for_a_worker_that_is_gone(s: Scene) {
    let left = s.worker().await;
    s.worker().await;
    s.leave(&left).await;
    let next = s.lose_all_workers().await.next_due;
    let now = s.now().await;
    assert!(next.is_none_or(|at| at > now), "nobody is left, told {next:?} at {now}");
}
