//! Promote: scheduled and retrying tasks become pending at their time, never before.

use std::time::Duration;

use windlass_core::store::Duty;
use windlass_core::{Ending, State, TaskId, When};

use crate::draft::draft;
use crate::scene::{HOUR, MS, SECOND, Scene, failed, snoozed};

/// Requires a task to wait until just before `delay` has passed, and to be pending then.
async fn check_due(s: &Scene, id: &TaskId, waiting: State, delay: Duration) {
    s.promote().await;
    s.expect(id, waiting, "its time has not come").await;
    s.advance(delay - MS);
    s.promote().await;
    s.expect(id, waiting, "its time comes a millisecond later").await;
    let worker = s.worker().await;
    assert_eq!(s.claim(&worker, 9).await, [], "it must not start early");
    // A store with coarse schedules may be late by its resolution, never early.
    s.advance(s.capabilities().schedule_resolution.max(MS));
    s.promote().await;
    s.expect(id, State::Pending, "its time has come").await;
}

pub async fn a_task_scheduled_by_a_delay_is_never_early(s: Scene) {
    let id = s.submit(draft().after(SECOND * 90)).await;
    check_due(&s, &id, State::Scheduled, SECOND * 90).await;
}

pub async fn a_task_scheduled_for_an_instant_is_never_early(s: Scene) {
    let at = s.now().await.after(SECOND * 90);
    let id = s.submit(draft().when(When::At(at))).await;
    assert_eq!(s.record(&id).await.run_at, Some(at));
    check_due(&s, &id, State::Scheduled, SECOND * 90).await;
}

pub async fn a_retry_is_never_early(s: Scene) {
    let run = s.start(draft()).await;
    s.finish_as(&run, failed("boom"), State::Retrying).await;
    check_due(&s, &run.id, State::Retrying, SECOND * 10).await;
}

pub async fn a_retry_delay_counts_from_the_end_of_the_run_on_the_stores_clock(s: Scene) {
    let run = s.start(draft()).await;
    s.advance(SECOND * 7);
    s.beat(&run.worker).await;
    let ending = Ending::Failed { error: "busy".into(), retry_after: Some(SECOND * 33) };
    s.finish_as(&run, ending, State::Retrying).await;
    let due = s.now().await.after(SECOND * 33);
    assert_eq!(s.record(&run.id).await.run_at, Some(due));
    check_due(&s, &run.id, State::Retrying, SECOND * 33).await;
}

pub async fn a_snoozed_task_is_never_early(s: Scene) {
    let run = s.start(draft()).await;
    s.finish_as(&run, snoozed(45), State::Scheduled).await;
    check_due(&s, &run.id, State::Scheduled, SECOND * 45).await;
}

pub async fn a_rescheduled_task_is_never_early(s: Scene) {
    let id = s.submit(draft()).await;
    s.reschedule(&id, When::After(SECOND * 20)).await;
    check_due(&s, &id, State::Scheduled, SECOND * 20).await;
}

pub async fn a_fraction_of_a_millisecond_is_waited_for_in_full(s: Scene) {
    let id = s.submit(draft().after(Duration::from_micros(1_001))).await;
    check_due(&s, &id, State::Scheduled, MS * 2).await;
}

pub async fn a_very_long_delay_does_not_overflow_into_the_past(s: Scene) {
    let id = s.submit(draft().after(Duration::MAX)).await;
    s.advance(HOUR * 24 * 365 * 100);
    s.promote().await;
    s.expect(&id, State::Scheduled, "not within a hundred years").await;
}

pub async fn what_is_due_at_the_same_time_becomes_pending_in_the_order_of_submits(s: Scene) {
    let run = s.start(draft()).await;
    s.finish_as(&run, failed("boom"), State::Retrying).await;
    let scheduled = s.submit(draft().after(SECOND * 10)).await;
    s.advance(SECOND * 10 + s.capabilities().schedule_resolution);
    s.promote().await;
    let worker = s.worker().await;
    assert_eq!(s.claim_ids(&worker, 9).await, [run.id.clone(), scheduled]);
}

pub async fn promote_takes_retrying_and_scheduled_tasks_alike(s: Scene) {
    let run = s.start(draft()).await;
    s.finish_as(&run, failed("boom"), State::Retrying).await;
    let scheduled = s.submit(draft().after(SECOND * 10)).await;
    let later = s.submit(draft().after(SECOND * 11)).await;
    s.advance(SECOND * 10);
    assert_eq!(s.promote().await.done, 2, "tasks promoted");
    s.expect(&run.id, State::Pending, "a due retry").await;
    s.expect(&scheduled, State::Pending, "a due schedule").await;
    s.expect(&later, State::Scheduled, "not due yet").await;
}

pub async fn promote_changes_no_counter_of_the_task(s: Scene) {
    let run = s.start(draft()).await;
    s.finish_as(&run, failed("boom"), State::Retrying).await;
    s.advance(SECOND * 10);
    s.promote().await;
    let record = s.record(&run.id).await;
    assert_eq!((record.attempts, record.crashes), (1, 0));
}

pub async fn promote_in_small_pieces_takes_the_longest_due_first(s: Scene) {
    let mut ids = Vec::new();
    for seconds in [5, 1, 4, 2, 3] {
        ids.push((seconds, s.submit(draft().after(SECOND * seconds)).await));
    }
    ids.sort();
    s.advance(SECOND * 9);
    let duty = Duty { limit: 2, ..s.duty().await };
    for (done, has_more) in [(2, true), (2, true), (1, false)] {
        let report = s.store.promote(duty).await.unwrap();
        assert_eq!((report.done, report.has_more), (done, has_more));
    }
    let worker = s.worker().await;
    let expected: Vec<_> = ids.into_iter().map(|(_, id)| id).collect();
    assert_eq!(s.claim_ids(&worker, 9).await, expected);
}

pub async fn promote_tells_when_the_next_task_is_due(s: Scene) {
    let now = s.now().await;
    s.submit(draft().after(SECOND * 60)).await;
    s.submit(draft().after(SECOND * 30)).await;
    let report = s.promote().await;
    assert_eq!((report.done, report.has_more), (0, false));
    let next = report.next_due.expect("a task waits for its time");
    assert!(
        next > now && next <= now.after(SECOND * 30),
        "told {next}; the forwarder would sleep past {}",
        now.after(SECOND * 30)
    );
}

pub async fn promote_tells_when_the_next_retry_is_due(s: Scene) {
    let id = s.bring(draft(), State::Retrying).await;
    let due = s.record(&id).await.run_at.expect("a retry has its time");
    let next = s.promote().await.next_due;
    assert!(next.is_some_and(|at| at <= due), "due at {due}, told {next:?}");
}

/// More queues than any store visits one by one.
const MANY_QUEUES: usize = 150;

pub async fn what_is_due_in_a_few_of_many_queues_is_promoted(s: Scene) {
    let is_soon = |number: usize| number % 50 == 49;
    let drafts = (0..MANY_QUEUES).map(|number| {
        let delay = if is_soon(number) { SECOND * 5 } else { HOUR };
        draft().queue(&format!("many-{number:03}")).after(delay)
    });
    let ids = s.submit_all(drafts).await;
    assert_eq!(s.promote().await.done, 0, "nothing is due");
    s.advance(SECOND * 6);
    let report = s.promote().await;
    assert!(report.next_due.is_some(), "the others are due later");
    for (number, id) in ids.iter().enumerate() {
        let state = if is_soon(number) { State::Pending } else { State::Scheduled };
        s.expect(id, state, "each at its own time").await;
    }
}
