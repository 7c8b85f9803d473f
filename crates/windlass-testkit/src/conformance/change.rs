//! Rerun, reschedule and delete, by id and by filter.

use std::collections::BTreeSet;
use std::time::Duration;

use windlass_core::store::{Action, Applied, ChangeParams, Changed, Filter, Target};
use windlass_core::{State, TaskId, When};

use crate::draft::{RETENTION, draft, held_for, queue, until_finished};
use crate::scene::{HOUR, MS, SECOND, Scene, completed, discarded, failed};

const PENDING: Changed = Changed::Done(Some(State::Pending));
const SCHEDULED: Changed = Changed::Done(Some(State::Scheduled));
const GONE: Changed = Changed::Done(None);

/// A filter for one queue.
fn of_queue(name: &str) -> Filter {
    Filter { queue: Some(queue(name)), ..Filter::default() }
}

pub async fn a_rerun_of_a_finished_task_starts_its_counters_again(s: Scene) {
    for state in State::TERMINAL {
        let name = format!("again-{state}");
        let id = s.submit(draft().queue(&name).max_retries(1)).await;
        let worker = s.worker().await;
        s.take(&worker, &id).await;
        s.lose_all_workers().await;
        let worker = s.worker().await;
        let run = s.take(&worker, &id).await;
        match state {
            State::Completed => s.finish_as(&run, completed(), state).await,
            State::DeadLetter => s.finish_as(&run, discarded("no use"), state).await,
            _ => {
                s.finish(&run, failed("boom")).await;
                s.cancel(&id).await;
            }
        }
        let before = s.record(&id).await;
        let counted = (before.state, before.attempts, before.crashes);
        assert_eq!(counted, (state, 1, 1));
        assert_eq!(s.rerun(&id).await, PENDING, "{state}");
        let record = s.record(&id).await;
        let counted = (record.state, record.attempts, record.crashes);
        assert_eq!(counted, (State::Pending, 0, 0), "after a rerun of {state}");
        assert_eq!(record.finished_at, None, "it is not finished any more");
        let again = s.take(&worker, &id).await;
        assert_eq!((again.attempts, again.crashes), (1, 0));
        assert!(again.epoch > run.epoch, "epochs go on growing");
        s.finish_as(&again, failed("has a retry again"), State::Retrying).await;
    }
}

pub async fn a_rerun_of_a_waiting_task_runs_it_now_and_keeps_its_counters(s: Scene) {
    let worker = s.worker().await;
    let scheduled = s.submit(draft().queue("scheduled").after(HOUR)).await;
    let crashed = s.start(draft().queue("retrying")).await;
    s.lose_all_workers().await;
    let heir = s.worker().await;
    let run = s.take(&heir, &crashed.id).await;
    s.finish_as(&run, failed("boom"), State::Retrying).await;
    for (id, counters) in [(&scheduled, (0, 0)), (&run.id, (1, 1))] {
        assert_eq!(s.rerun(id).await, PENDING);
        let record = s.record(id).await;
        assert_eq!((record.attempts, record.crashes), counters, "{record:#?}");
        let again = s.take(&heir, id).await;
        assert_eq!((again.attempts, again.crashes), (counters.0 + 1, counters.1));
    }
    s.leave(&worker).await;
}

pub async fn a_rerun_task_is_kept_its_whole_retention_again(s: Scene) {
    let id = s.bring(draft(), State::Completed).await;
    s.advance(RETENTION - MS);
    s.rerun(&id).await;
    s.advance(RETENTION * 2);
    s.prune().await;
    s.expect(&id, State::Pending, "it is not finished").await;
    let worker = s.worker().await;
    let run = s.take(&worker, &id).await;
    s.finish_as(&run, completed(), State::Completed).await;
    s.advance(RETENTION - MS);
    s.prune().await;
    s.expect(&id, State::Completed, "kept from its new end on").await;
}

pub async fn a_reschedule_moves_a_waiting_task_to_its_new_time(s: Scene) {
    for state in State::WAITING {
        let id = s.bring(draft().queue(&format!("{state}")), state).await;
        let before = s.record(&id).await;
        let at = s.now().await.after(SECOND * 30);
        assert_eq!(s.reschedule(&id, When::At(at)).await, SCHEDULED, "{state}");
        let record = s.record(&id).await;
        assert_eq!((record.state, record.run_at), (State::Scheduled, Some(at)));
        assert_eq!(record.attempts, before.attempts, "counters stay");
        s.advance(SECOND * 30 - MS);
        s.promote().await;
        s.expect(&id, State::Scheduled, "its new time comes later").await;
        s.advance(s.capabilities().schedule_resolution.max(MS));
        s.promote().await;
        s.expect(&id, State::Pending, "its new time has come").await;
    }
}

pub async fn a_reschedule_to_the_past_is_due_at_once(s: Scene) {
    let past = s.now().await.before(HOUR);
    for (number, when) in
        [When::At(past), When::Now, When::After(Duration::ZERO)].into_iter().enumerate()
    {
        let id = s.submit(draft().queue(&format!("past-{number}")).after(HOUR)).await;
        assert_eq!(s.reschedule(&id, when).await, SCHEDULED, "{when:?}");
        s.promote().await;
        s.expect(&id, State::Pending, &format!("due at once: {when:?}")).await;
    }
}

pub async fn a_rescheduled_pending_task_is_not_given_out(s: Scene) {
    let id = s.submit(draft()).await;
    s.reschedule(&id, When::After(HOUR)).await;
    let worker = s.worker().await;
    assert_eq!(s.claim(&worker, 9).await, []);
}

pub async fn a_deleted_task_is_gone_from_every_read_and_count(s: Scene) {
    for state in State::ALL {
        if state == State::Running {
            continue;
        }
        let name = format!("gone-{state}");
        let id = s.bring(draft().queue(&name), state).await;
        assert_eq!(s.delete(&id).await, GONE, "{state}");
        s.expect_gone(&id, &format!("it was deleted while {state}")).await;
        assert_eq!(s.queue(&name).await.unwrap().counts.total(), 0, "{state}");
        s.advance(HOUR * 2_000);
        s.promote().await;
        let worker = s.worker().await;
        let given = s.claim_from(&worker, &[&name], 9).await;
        assert_eq!(given, [], "deleted while {state}");
        assert_eq!(s.delete(&id).await, Changed::NotFound, "again");
    }
}

pub async fn a_delete_is_on_record_with_who_and_what(s: Scene) {
    let ids = s.submit_many(3).await;
    let running = s.start(draft().queue("running")).await.id.clone();
    let asked = [ids[0].clone(), running, ids[1].clone()];
    let outcomes = s.change_all(&asked, Action::Delete).await;
    assert_eq!(outcomes, [GONE, Changed::Conflict(State::Running), GONE]);
    let audits = s.elsewhere().await.audits().await;
    assert_eq!(audits.len(), 1, "one entry for one call: {audits:#?}");
    let audit = &audits[0];
    assert_eq!(audit.by.as_deref(), Some("olivia"));
    assert_eq!((audit.action.as_str(), audit.count), ("delete", 2));
    let named: Vec<_> = [&ids[0], &ids[1]].map(ToString::to_string).into();
    assert_eq!(audit.tasks, named);
    assert_eq!(audit.at, s.now().await);
    s.advance(MS);
    s.delete(&ids[2]).await;
    assert_eq!(s.audits().await.len(), 2, "one more for the next call");
}

pub async fn a_delete_by_filter_is_on_record_too(s: Scene) {
    let ids = s.submit_many(3).await;
    s.submit(draft().queue("other")).await;
    s.change_piece(of_queue("main"), Action::Delete, 99, None).await;
    let audits = s.audits().await;
    assert_eq!(audits.len(), 1, "one entry for one call: {audits:#?}");
    assert_eq!((audits[0].by.as_deref(), audits[0].count), (Some("olivia"), 3));
    assert_eq!(audits[0].subject.as_deref(), Some("queue=main"));
    let named = |id: &TaskId| audits[0].tasks.contains(&id.to_string());
    assert!(ids.iter().all(named), "each by its id: {audits:#?}");
}

pub async fn a_purge_of_a_queue_takes_all_but_what_runs(s: Scene) {
    let running = s.start(draft()).await.id.clone();
    s.submit_many(7).await;
    s.submit(draft().after(HOUR)).await;
    let kept = s.submit(draft().queue("kept")).await;
    let reply = s.change_matching(of_queue("main"), Action::Delete, 3).await;
    assert_eq!((reply.changed_count, reply.requested_count), (8, 0));
    assert_eq!(s.queue("main").await.unwrap().counts.total(), 1);
    s.expect(&running, State::Running, "it runs").await;
    s.expect(&kept, State::Pending, "another queue").await;
    let counted: u64 = s.audits().await.iter().map(|audit| audit.count).sum();
    assert_eq!(counted, 8, "every delete is on record");
}

pub async fn each_task_of_a_change_is_answered_in_the_order_given(s: Scene) {
    let pending = s.submit(draft().queue("waits")).await;
    let finished = s.bring(draft(), State::Completed).await;
    let running = s.start(draft()).await.id.clone();
    let nobody = TaskId::new("nobody");
    let ids = [finished, nobody, pending.clone(), running, pending];
    let outcomes = s.change_all(&ids, Action::Cancel).await;
    let expected = [
        Changed::Conflict(State::Completed),
        Changed::NotFound,
        Changed::Done(Some(State::Cancelled)),
        Changed::Requested,
        Changed::Conflict(State::Cancelled),
    ];
    assert_eq!(outcomes, expected);
}

pub async fn a_change_only_in_some_states_leaves_the_others_alone(s: Scene) {
    let waiting = s.submit(draft().after(HOUR)).await;
    let pending = s.submit(draft()).await;
    let params = |target| ChangeParams {
        target,
        action: Action::Cancel,
        only_in: vec![State::Scheduled],
        by: None,
    };
    let ids = vec![pending.clone(), waiting.clone()];
    let reply = s.store.change(params(Target::Tasks(ids))).await.unwrap();
    let expected = [Changed::Conflict(State::Pending), Changed::Done(Some(State::Cancelled))];
    assert_eq!(reply.outcomes, expected);
    assert_eq!(reply.changed_count, 1);
    let other = s.submit(draft().after(HOUR)).await;
    let target = Target::Matching { filter: Filter::default(), limit: 99, cursor: None };
    let reply = s.store.change(params(target)).await.unwrap();
    assert_eq!(reply.changed_count, 1, "only the scheduled one");
    s.expect(&other, State::Cancelled, "it was scheduled").await;
    s.expect(&pending, State::Pending, "it was not").await;
}

pub async fn a_change_by_filter_is_bounded_and_goes_on_from_its_cursor(s: Scene) {
    for _ in 0..7 {
        let run = s.start(draft()).await;
        s.finish(&run, discarded("no use")).await;
    }
    let dead = Filter { states: vec![State::DeadLetter], ..Filter::default() };
    let first = s.change_piece(dead.clone(), Action::Rerun, 3, None).await;
    assert_eq!(first.changed_count, 3, "no more than asked for");
    assert_eq!(first.outcomes, [], "counted, not answered one by one");
    assert_eq!(s.count("main", State::Pending).await, 3);
    let mut cursor = first.next_cursor;
    let mut changed = 3;
    while cursor.is_some() {
        let next = s.change_piece(dead.clone(), Action::Rerun, 3, cursor).await;
        changed += next.changed_count;
        cursor = next.next_cursor;
    }
    assert_eq!(changed, 7, "each once");
    assert_eq!(s.count("main", State::Pending).await, 7);
}

pub async fn a_change_by_filter_touches_only_what_matches(s: Scene) {
    let tagged = s.submit(draft().tag("blue").kind("sort")).await;
    let others = s
        .submit_all([
            draft().tag("blue"),
            draft().kind("sort"),
            draft().tag("blue").kind("sort").queue("other"),
        ])
        .await;
    let filter = Filter {
        tag: Some("blue".parse().unwrap()),
        kind: Some(crate::draft::kind("sort")),
        ..of_queue("main")
    };
    let reply = s.change_matching(filter, Action::Cancel, 99).await;
    assert_eq!(reply.changed_count, 1);
    s.expect(&tagged, State::Cancelled, "it matches").await;
    for id in others {
        s.expect(&id, State::Pending, "it does not match").await;
    }
}

pub async fn a_task_that_was_deleted_while_it_waited_cannot_be_finished(s: Scene) {
    let run = s.start(draft()).await;
    s.lose_all_workers().await;
    s.delete(&run.id).await;
    let outcome = s.finish(&run, completed()).await;
    assert!(matches!(outcome, Applied::Refused(_)), "{outcome:?}");
    s.expect_gone(&run.id, "it was deleted").await;
}

/// Stores that keep tasks in ranges must cut them where the change is.
pub async fn a_change_of_some_of_a_batch_leaves_its_neighbours_where_they_stand(s: Scene) {
    for (action, left) in [
        (Action::Cancel, Some(State::Cancelled)),
        (Action::Delete, None),
        (Action::Reschedule(When::After(HOUR)), Some(State::Scheduled)),
    ] {
        // The front, the end, the middle, every third.
        for part in 0..4_usize {
            let ids = s.submit_many(30).await;
            let is_chosen = |at: usize| match part {
                0 => at < 12,
                1 => at >= 12,
                2 => (9..21).contains(&at),
                _ => at.is_multiple_of(3),
            };
            let side = |chosen: bool| -> Vec<TaskId> {
                let ids = ids.iter().enumerate();
                ids.filter(|(at, _)| is_chosen(*at) == chosen).map(|(_, id)| id.clone()).collect()
            };
            for changed in s.change_all(&side(true), action).await {
                assert_eq!(changed, Changed::Done(left), "{action:?} of part {part}");
            }
            s.books_balance("after a change of a part").await;
            let worker = s.worker().await;
            let given = s.claim_ids(&worker, 40).await;
            assert_eq!(given, side(false), "{action:?} of part {part}");
            // The same to completed ones.
            let ids = s.submit_many(30).await;
            let tasks = s.claim(&worker, 30).await;
            let batch = tasks.iter().map(|task| s.transition(task, completed())).collect();
            s.apply(&worker, batch).await;
            let chosen: Vec<_> =
                (0..30).filter(|at| is_chosen(*at)).map(|at| ids[at].clone()).collect();
            s.change_all(&chosen, Action::Rerun).await;
            s.books_balance("after a rerun of a part").await;
            for (at, id) in ids.iter().enumerate() {
                let expected = if is_chosen(at) { State::Pending } else { State::Completed };
                s.expect(id, expected, "a rerun of a part").await;
            }
            s.change_matching(Filter::default(), Action::Delete, 1_000).await;
            s.leave(&worker).await;
            s.change_matching(Filter::default(), Action::Delete, 1_000).await;
        }
    }
}

pub async fn a_change_by_filter_of_some_of_a_batch_leaves_its_neighbours(s: Scene) {
    for (action, left) in [
        (Action::Cancel, Some(State::Cancelled)),
        (Action::Delete, None),
        (Action::Reschedule(When::After(HOUR)), Some(State::Scheduled)),
    ] {
        // The front, the end, the middle, every third.
        for part in 0..4_usize {
            let is_changed = |at: usize| match part {
                0 => at < 10,
                1 => at >= 20,
                2 => (10..20).contains(&at),
                _ => at.is_multiple_of(3),
            };
            let name = format!("{}-{part}", action.as_str());
            let sort = |at| if is_changed(at) { "meant" } else { "other" };
            let ids = s.submit_all((0..30).map(|at| draft().queue(&name).kind(sort(at)))).await;
            let filter = Filter { kind: Some(crate::draft::kind("meant")), ..of_queue(&name) };
            // In pieces that end in the middle of ranges.
            s.change_matching(filter, action, 4).await;
            let worker = s.worker().await;
            let given: BTreeSet<_> =
                s.claim_from(&worker, &[&name], 99).await.into_iter().map(|task| task.id).collect();
            let expected: BTreeSet<_> =
                (0..30).filter(|at| !is_changed(*at)).map(|at| ids[at].clone()).collect();
            assert_eq!(given, expected, "{action:?}, part {part}: the others");
            for at in (0..30).filter(|at| is_changed(*at)) {
                match left {
                    Some(state) => s.expect(&ids[at], state, "it was meant").await,
                    None => s.expect_gone(&ids[at], "it was meant").await,
                }
            }
        }
    }
}

pub async fn changes_by_filter_made_at_once_change_each_task_once(s: Scene) {
    const COUNT: usize = 240;
    for action in [Action::Cancel, Action::Delete] {
        let name = action.as_str();
        let sent = |number: usize| {
            let (one, key) = (draft().queue(name), format!("{name}-{number}"));
            match number / 10 % 4 {
                0 | 1 => one,
                2 => one.unique(until_finished(&key)),
                _ => one.idempotency(&key).unique(held_for(&key, HOUR)).after(HOUR),
            }
        };
        s.submit_all((0..COUNT).map(sent)).await;
        let mut changing = Vec::new();
        for number in 0..4 {
            let scene = if number % 2 == 0 { s.clone() } else { s.elsewhere().await };
            let filter = of_queue(name);
            changing.push(tokio::spawn(async move {
                scene.change_matching(filter, action, 50).await.changed_count
            }));
        }
        let mut changed = 0;
        for change in changing {
            changed += change.await.unwrap();
        }
        assert_eq!(changed, COUNT as u64, "{action:?}: each task was changed once");
        let left = s.list(of_queue(name)).await;
        match action {
            Action::Cancel => {
                assert_eq!(left.len(), COUNT);
                assert!(left.iter().all(|task| task.state == State::Cancelled), "{left:?}");
            }
            _ => assert_eq!(left.len(), 0, "{left:?}"),
        }
        s.books_balance("after changes by many").await;
        // None had started, so that each key is free.
        s.submit_all((0..COUNT).filter(|at| at / 10 % 4 == 2).map(sent)).await;
    }
}
