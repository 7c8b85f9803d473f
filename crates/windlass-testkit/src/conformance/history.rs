//! The timeline: complete, in order, with who and which run.

use windlass_core::history::{Entry, Happening, timeline};
use windlass_core::store::{Action, ChangeParams, Filter, Target};
use windlass_core::{Ending, State, TaskId, When};

use crate::draft::draft;
use crate::scene::{HOUR, MS, Run, SECOND, Scene, completed, discarded, failed, snoozed};

async fn story(s: &Scene, id: &TaskId) -> Vec<Entry> {
    let story = timeline(&s.record(id).await);
    let ordered = story.windows(2).all(|pair| pair[0].at <= pair[1].at);
    assert!(ordered, "a timeline is in order: {story:#?}");
    story
}

/// Requires a task's whole story to be these happenings.
async fn check(s: &Scene, id: &TaskId, expected: &[Happening]) {
    let story = story(s, id).await;
    let told: Vec<_> = story.iter().map(|entry| entry.what).collect();
    assert_eq!(told, expected, "{story:#?}");
}

/// Requires an entry to tell of this run.
fn check_run(entry: &Entry, run: &Run) {
    let told = entry.run.as_ref().unwrap_or_else(|| panic!("{entry:#?}"));
    assert_eq!(told.epoch, run.epoch, "{entry:#?}");
    assert_eq!(told.worker, run.worker, "{entry:#?}");
    assert_eq!(told.attempt, run.attempts, "{entry:#?}");
    assert_eq!(told.claimed_at, run.claimed_at, "{entry:#?}");
}

pub async fn the_happy_path_is_told_without_an_entry(s: Scene) {
    let run = s.start(draft()).await;
    s.finish(&run, completed()).await;
    let record = s.record(&run.id).await;
    assert_eq!(record.history.entries(), [], "nothing extra is kept");
    let steps = [Happening::Submitted, Happening::Claimed, Happening::Completed];
    check(&s, &run.id, &steps).await;
}

pub async fn every_ending_but_success_is_told_with_its_run(s: Scene) {
    let endings = [
        (failed("boom"), Happening::Failed),
        (Ending::TimedOut, Happening::TimedOut),
        (discarded("no use"), Happening::Discarded),
        (Ending::DeadlinePassed { has_started: true }, Happening::DeadlinePassed),
        (snoozed(5), Happening::Snoozed),
        (Ending::PutOff, Happening::PutOff),
        (Ending::Released, Happening::Released),
        (Ending::Cancelled, Happening::Cancelled),
    ];
    for (number, (ending, what)) in endings.into_iter().enumerate() {
        let run = s.start(draft().queue(&format!("told-{number}"))).await;
        s.advance(MS);
        s.finish(&run, ending.clone()).await;
        let story = story(&s, &run.id).await;
        let entry = &story[2];
        assert_eq!((story[1].what, entry.what), (Happening::Claimed, what));
        assert_eq!(entry.at, s.now().await, "{ending:?}");
        check_run(entry, &run);
        let dead = s.state(&run.id).await == State::DeadLetter;
        let last = if dead { Happening::DeadLetter } else { what };
        assert_eq!(story.last().unwrap().what, last, "{ending:?}");
    }
}

pub async fn a_task_handled_elsewhere_is_pending_again_without_a_trace(s: Scene) {
    let worker = s.worker().await;
    let ids = s.submit_many(3).await;
    for _ in 0..3 {
        let tasks = s.claim(&worker, 2).await;
        let end = |task: &_| s.transition(task, Ending::HandledElsewhere);
        s.apply(&worker, tasks.iter().map(end).collect()).await;
    }
    for id in &ids {
        let record = s.record(id).await;
        let counts = (record.state, record.attempts, record.crashes);
        assert_eq!(counts, (State::Pending, 0, 0), "{record:?}");
        check(&s, id, &[Happening::Submitted]).await;
    }
    let again = s.claim_ids(&worker, 3).await;
    assert!(ids.iter().all(|id| again.contains(id)), "{again:?} of {ids:?}");
}

pub async fn a_task_that_nobody_handles_says_why_it_waits(s: Scene) {
    let run = s.start(draft()).await;
    let reason = windlass_core::state::unhandled(&run.kind);
    let mut again = run.clone();
    for _ in 0..2 {
        s.finish(&again, Ending::Unhandled { delay: SECOND }).await;
        s.advance(SECOND * 2);
        s.promote().await;
        again = s.take(&run.worker, &run.id).await;
    }
    s.finish(&again, Ending::Unhandled { delay: SECOND }).await;
    let record = s.record(&run.id).await;
    assert_eq!((record.state, record.attempts), (State::Scheduled, 0), "{record:?}");
    assert_eq!(record.history.wait_reason(), Some(&*reason));
    assert_eq!(record.history.entries().len(), 1, "one entry, however often: {record:?}");
    assert!(record.history.waits_since(&reason) < Some(s.now().await));
}

pub async fn every_failure_keeps_its_error(s: Scene) {
    let run = s.start(draft().max_retries(2)).await;
    s.finish(&run, failed("first")).await;
    for error in ["second", "third"] {
        s.rerun(&run.id).await;
        let again = s.take(&run.worker, &run.id).await;
        s.finish(&again, failed(error)).await;
    }
    let story = story(&s, &run.id).await;
    let errors: Vec<_> = story.iter().filter_map(|e| e.error.as_deref()).collect();
    assert_eq!(errors, ["first", "second", "third"]);
    let ends = story.iter().filter(|e| e.what == Happening::DeadLetter);
    assert_eq!(ends.count(), 1, "one terminal entry: {story:#?}");
}

pub async fn a_crash_is_told_with_the_worker_that_was_lost(s: Scene) {
    let run = s.start(draft()).await;
    s.lose_all_workers().await;
    let steps = [Happening::Submitted, Happening::Claimed, Happening::Crashed];
    check(&s, &run.id, &steps).await;
    check_run(&story(&s, &run.id).await[2], &run);
}

pub async fn a_leave_and_a_give_back_are_told_as_released(s: Scene) {
    let left = s.start(draft()).await;
    s.leave(&left.worker).await;
    let steps = [Happening::Submitted, Happening::Claimed, Happening::Released];
    check(&s, &left.id, &steps).await;
    s.delete(&left.id).await;
    let lost = s.start(draft()).await;
    s.advance(MS * 2);
    s.beat_holding(&lost.worker, vec![], MS).await;
    check(&s, &lost.id, &steps).await;
    check_run(&story(&s, &lost.id).await[2], &lost);
}

pub async fn each_change_is_told_with_who_asked(s: Scene) {
    let id = s.submit(draft()).await;
    s.reschedule(&id, When::After(HOUR)).await;
    s.rerun(&id).await;
    s.cancel(&id).await;
    s.rerun(&id).await;
    let steps = [
        Happening::Submitted,
        Happening::Rescheduled,
        Happening::Rerun,
        Happening::Cancelled,
        Happening::Rerun,
    ];
    check(&s, &id, &steps).await;
    for entry in &story(&s, &id).await[1..] {
        assert_eq!(entry.by.as_deref(), Some("olivia"), "{entry:#?}");
        assert_eq!(entry.at, s.now().await, "{entry:#?}");
    }
    let unsigned = ChangeParams {
        target: Target::Tasks(vec![id.clone()]),
        action: Action::Cancel,
        only_in: vec![],
        by: None,
    };
    s.store.change(unsigned).await.unwrap();
    assert_eq!(story(&s, &id).await.last().unwrap().by, None);
}

pub async fn a_cancel_of_a_run_is_told_as_request_and_as_end(s: Scene) {
    let run = s.start(draft()).await;
    s.cancel(&run.id).await;
    let requested = story(&s, &run.id).await;
    let asked = requested.iter().find(|entry| entry.what == Happening::CancelRequested);
    let asked = asked.expect("the request is told at once");
    assert_eq!(asked.by.as_deref(), Some("olivia"));
    s.cancel(&run.id).await;
    s.finish(&run, failed("stopped")).await;
    let told = story(&s, &run.id).await;
    let count = |what| told.iter().filter(|entry| entry.what == what).count();
    assert_eq!(count(Happening::CancelRequested), 1, "{told:#?}");
    assert_eq!(count(Happening::Cancelled), 1, "one terminal entry");
    let error = told.iter().find_map(|entry| entry.error.as_deref());
    assert_eq!(error, Some("stopped"), "the failure is told too");
}

pub async fn every_way_into_cancelled_ends_the_story_with_it(s: Scene) {
    for way in ["own", "fail", "crash", "leave", "held"] {
        let run = s.start(draft().queue(way)).await;
        if way != "own" {
            s.cancel(&run.id).await;
        }
        match way {
            "own" => drop(s.finish(&run, Ending::Cancelled).await),
            "fail" => drop(s.finish(&run, failed("boom")).await),
            "crash" => drop(s.lose_all_workers().await),
            "leave" => drop(s.leave(&run.worker).await),
            _ => {
                s.advance(MS * 2);
                s.beat_holding(&run.worker, vec![], MS).await;
            }
        }
        s.expect(&run.id, State::Cancelled, way).await;
        let story = story(&s, &run.id).await;
        let ends = story.iter().filter(|e| e.what == Happening::Cancelled);
        assert_eq!(ends.count(), 1, "one terminal entry by {way}: {story:#?}");
        assert_eq!(story.last().unwrap().what, Happening::Cancelled, "{way}");
    }
}

pub async fn a_completion_is_still_told_after_a_rerun(s: Scene) {
    let run = s.start(draft()).await;
    s.finish(&run, completed()).await;
    s.advance(SECOND);
    s.rerun(&run.id).await;
    let again = s.take(&run.worker, &run.id).await;
    s.finish(&again, completed()).await;
    let steps = [
        Happening::Submitted,
        Happening::Claimed,
        Happening::Completed,
        Happening::Rerun,
        Happening::Claimed,
        Happening::Completed,
    ];
    check(&s, &run.id, &steps).await;
}

pub async fn snoozes_in_a_row_fold_into_one_entry_with_a_count(s: Scene) {
    let run = s.start(draft()).await;
    s.finish(&run, snoozed(1)).await;
    for _ in 0..4 {
        s.advance(SECOND);
        s.beat(&run.worker).await;
        s.promote().await;
        let again = s.take(&run.worker, &run.id).await;
        assert_eq!(again.attempts, 1, "a snooze spends no attempt");
        s.finish(&again, snoozed(1)).await;
    }
    let record = s.record(&run.id).await;
    let entries = record.history.entries();
    assert_eq!(entries.len(), 1, "{entries:#?}");
    assert_eq!(entries[0].again.unwrap().count, 4, "further times");
}

pub async fn a_refused_report_leaves_no_entry(s: Scene) {
    let run = s.start(draft()).await;
    s.lose_all_workers().await;
    let before = story(&s, &run.id).await;
    s.finish(&run, failed("too late")).await;
    assert_eq!(story(&s, &run.id).await, before);
}

/// How many tasks a race over many of them has, and how many times it is run.
const RACERS: usize = 300;
const RACES: usize = 3;

/// Claims tasks in small steps, while time goes on, until none is left.
async fn claim_in_steps(s: Scene) -> Vec<Run> {
    let worker = s.worker().await;
    let mut runs = Vec::new();
    loop {
        s.advance(MS);
        let claimed = s.claim(&worker, 10).await;
        if claimed.is_empty() {
            return runs;
        }
        runs.extend(claimed.into_iter().map(|task| Run { worker: worker.clone(), task }));
    }
}

pub async fn a_cancel_that_meets_claims_is_never_older_than_the_claim(s: Scene) {
    let elsewhere = s.elsewhere().await;
    for _ in 0..RACES {
        let ids = s.submit_many(RACERS).await;
        let claiming = tokio::spawn(claim_in_steps(s.clone()));
        elsewhere.change_all(&ids, Action::Cancel).await;
        claiming.await.unwrap();
        for id in &ids {
            story(&s, id).await;
        }
    }
}

pub async fn a_rerun_of_all_that_matches_is_never_older_than_an_end(s: Scene) {
    let elsewhere = s.elsewhere().await;
    for _ in 0..RACES {
        let ids = s.submit_many(RACERS).await;
        let runs = claim_in_steps(s.clone()).await;
        let ending = tokio::spawn({
            let s = s.clone();
            async move {
                for run in runs {
                    s.advance(MS);
                    s.finish(&run, discarded("no use")).await;
                }
            }
        });
        let filter = Filter { states: vec![State::DeadLetter], ..Filter::default() };
        while !ending.is_finished() {
            elsewhere.change_piece(filter.clone(), Action::Rerun, RACERS, None).await;
        }
        ending.await.unwrap();
        for id in &ids {
            story(&s, id).await;
            s.delete(id).await;
        }
    }
}
