//! Lost and ambiguous replies: an insert or apply that is repeated is recognised.

use std::time::Duration;

use windlass_core::store::{Applied, Filter, Inserted};
use windlass_core::{Ending, NewTask, Reason, State};

use crate::draft::{draft, until_finished};
use crate::scene::{SECOND, Scene, completed, discarded, failed, snoozed};

pub async fn a_repeated_insert_is_new_again_and_stores_nothing_twice(s: Scene) {
    let task = s.make(draft()).await;
    for scene in [s.clone(), s.clone(), s.elsewhere().await] {
        let answer = scene.insert(vec![task.clone()]).await.remove(0);
        assert!(answer.is_new(), "the same id again: {answer:?}");
    }
    assert_eq!(s.list(Filter::default()).await.len(), 1, "stored once");
    assert_eq!(s.count("main", State::Pending).await, 1, "counted once");
    let worker = s.worker().await;
    assert_eq!(s.claim(&worker, 9).await.len(), 1, "given out once");
}

pub async fn one_id_twice_in_a_batch_is_stored_once(s: Scene) {
    let task = s.make(draft()).await;
    let other = s.make(draft()).await;
    let batch = vec![task.clone(), other, task];
    let answers = s.insert(batch).await;
    assert!(answers.iter().all(Inserted::is_new), "{answers:?}");
    assert_eq!(s.list(Filter::default()).await.len(), 2);
    assert_eq!(s.count("main", State::Pending).await, 2);
}

pub async fn a_repeated_batch_stores_only_what_is_missing(s: Scene) {
    let mut tasks = Vec::new();
    for _ in 0..3 {
        tasks.push(s.make(draft()).await);
    }
    s.insert(vec![tasks[1].clone()]).await;
    let answers = s.insert(tasks.clone()).await;
    assert!(answers.iter().all(Inserted::is_new), "{answers:?}");
    assert_eq!(s.list(Filter::default()).await.len(), 3);
}

/// More tasks than one call to a server takes, over queues of which one cannot take its own at first: either since it
/// is broken, or, where nothing of a queue can break, since its tasks are no good.
pub async fn an_insert_over_several_queues_repeated_after_a_failure_stores_every_task_once(
    s: Scene,
) {
    const QUEUES: [&str; 3] = ["first", "broken", "last"];
    let is_broken = s.damage("broken").await;
    let mut tasks = Vec::new();
    for number in 0..250 {
        tasks.push(s.make(draft().queue(QUEUES[number % 3])).await);
    }
    let mut sent = tasks.clone();
    if !is_broken {
        let is_bad = |task: &&mut NewTask| task.queue.as_str() == "broken";
        sent.iter_mut().filter(is_bad).for_each(|task| task.spec.timeout = Duration::ZERO);
    }
    for (task, answer) in sent.iter().zip(s.insert(sent.clone()).await) {
        let is_bad = task.queue.as_str() == "broken";
        let is_expected =
            matches!(&answer, Inserted::Bad(_)) == is_bad && answer.is_new() != is_bad;
        assert!(is_expected, "a task of {}: {answer:?}", task.queue);
        if is_broken && let Inserted::Bad(error) = answer {
            assert_eq!(error.reason(), Reason::DamagedQueue, "{error:?}");
            assert!(error.to_string().contains("queue broken"), "{error}");
        }
    }
    s.undo_damage("broken").await;
    assert!(s.find(&tasks[1].id).await.is_none(), "its queue could not take it");
    for _ in 0..2 {
        let answers = s.insert(tasks.clone()).await;
        assert!(answers.iter().all(Inserted::is_new), "{answers:?}");
    }
    let worker = s.worker().await;
    for (number, name) in QUEUES.into_iter().enumerate() {
        let mine = || tasks.iter().skip(number).step_by(3);
        assert_eq!(s.count(name, State::Pending).await, mine().count() as u64, "{name}");
        let mut claimed: Vec<_> = Vec::new();
        loop {
            let more = s.claim_from(&worker, &[name], 100).await;
            if more.is_empty() {
                break;
            }
            claimed.extend(more.into_iter().map(|task| task.id));
        }
        claimed.sort();
        let mut expected: Vec<_> = mine().map(|task| task.id.clone()).collect();
        expected.sort();
        assert_eq!(claimed, expected, "each task of {name} once");
    }
}

pub async fn a_repeated_insert_leaves_a_task_that_has_gone_on_as_it_is(s: Scene) {
    let task = s.make(draft().unique(until_finished("key"))).await;
    s.insert(vec![task.clone()]).await;
    let worker = s.worker().await;
    let run = s.take(&worker, &task.id).await;
    for ending in [None, Some(completed())] {
        if let Some(ending) = ending {
            s.finish(&run, ending).await;
        }
        let before = s.record(&task.id).await;
        let answer = s.insert(vec![task.clone()]).await.remove(0);
        assert!(answer.is_new(), "{answer:?}");
        assert_eq!(s.record(&task.id).await, before);
    }
}

pub async fn a_repeated_insert_does_not_conflict_with_its_own_keys(s: Scene) {
    let sent = draft().idempotency("once").unique(until_finished("one"));
    let task = s.make(sent).await;
    for _ in 0..3 {
        let answer = s.insert(vec![task.clone()]).await.remove(0);
        assert!(answer.is_new(), "its own keys: {answer:?}");
    }
}

pub async fn a_repeated_insert_is_new_although_its_key_has_a_new_owner(s: Scene) {
    let sent = draft().unique(until_finished("one"));
    let first = s.make(sent.clone()).await;
    s.insert(vec![first.clone()]).await;
    s.cancel(&first.id).await;
    let second = s.submit(sent.clone()).await;
    let answer = s.insert(vec![first]).await.remove(0);
    assert!(answer.is_new(), "its record is there: {answer:?}");
    let (_, third) = s.offer(sent).await;
    let kept = matches!(&third, Inserted::Conflict { holder } if *holder == second);
    assert!(kept, "the second task keeps the key: {third:?}");
}

pub async fn an_insert_repeated_by_many_at_once_is_stored_once(s: Scene) {
    let task = s.make(draft().unique(until_finished("one"))).await;
    let elsewhere = s.elsewhere().await;
    let mut sending = Vec::new();
    for number in 0..16 {
        let scene = if number % 2 == 0 { &s } else { &elsewhere }.clone();
        let task = task.clone();
        sending.push(tokio::spawn(async move { scene.insert(vec![task]).await.remove(0) }));
    }
    for sent in sending {
        let answer = sent.await.unwrap();
        assert!(answer.is_new(), "{answer:?}");
    }
    assert_eq!(s.list(Filter::default()).await.len(), 1);
}

pub async fn a_repeated_apply_is_recognised_after_every_ending(s: Scene) {
    let endings = [
        completed(),
        failed("boom"),
        Ending::TimedOut,
        discarded("no use"),
        snoozed(5),
        Ending::PutOff,
        Ending::Released,
        Ending::HandledElsewhere,
        Ending::Unhandled { delay: SECOND },
        Ending::Cancelled,
    ];
    for (number, ending) in endings.into_iter().enumerate() {
        let run = s.start(draft().queue(&format!("repeat-{number}"))).await;
        let first = s.finish(&run, ending.clone()).await;
        assert!(matches!(first, Applied::Applied(_)), "{ending:?}: {first:?}");
        let before = s.record(&run.id).await;
        for scene in [s.clone(), s.elsewhere().await] {
            let again = scene.finish(&run, ending.clone()).await;
            assert_eq!(again, Applied::Already, "{ending:?} repeated");
        }
        assert_eq!(s.record(&run.id).await, before, "{ending:?} repeated");
    }
}

pub async fn a_repeated_apply_is_recognised_whatever_it_says(s: Scene) {
    for (number, second) in [completed(), failed("boom"), Ending::Released].into_iter().enumerate()
    {
        let run = s.start(draft().queue(&format!("says-{number}"))).await;
        s.finish(&run, snoozed(60)).await;
        let before = s.record(&run.id).await;
        assert_eq!(s.finish(&run, second.clone()).await, Applied::Already);
        assert_eq!(s.record(&run.id).await, before, "{second:?} as second");
    }
}

pub async fn one_lease_twice_in_a_batch_is_applied_once(s: Scene) {
    let run = s.start(draft()).await;
    let batch = vec![s.transition(&run, failed("boom")), s.transition(&run, completed())];
    let outcomes = s.apply(&run.worker, batch).await;
    let expected = [Applied::Applied(State::Retrying), Applied::Already];
    assert_eq!(outcomes, expected);
    assert_eq!(s.record(&run.id).await.attempts, 1);
}

pub async fn a_repeated_apply_is_recognised_after_its_worker_is_gone(s: Scene) {
    let left = s.start(draft()).await;
    let lost = s.start(draft()).await;
    for run in [&left, &lost] {
        s.finish(run, completed()).await;
    }
    s.leave(&left.worker).await;
    s.lose_all_workers().await;
    for run in [&left, &lost] {
        assert_eq!(s.finish(run, completed()).await, Applied::Already);
    }
}

pub async fn a_repeated_apply_is_recognised_after_operators_moved_the_task(s: Scene) {
    let run = s.start(draft()).await;
    s.finish(&run, failed("boom")).await;
    s.rerun(&run.id).await;
    assert_eq!(s.finish(&run, failed("boom")).await, Applied::Already);
    s.expect(&run.id, State::Pending, "it waits for its next run").await;
    s.cancel(&run.id).await;
    assert_eq!(s.finish(&run, failed("boom")).await, Applied::Already);
    s.expect(&run.id, State::Cancelled, "it stays cancelled").await;
}

pub async fn a_repeated_apply_changes_nothing_while_the_next_run_is_under_way(s: Scene) {
    let first = s.start(draft()).await;
    s.finish(&first, Ending::Released).await;
    let second = s.take(&first.worker, &first.id).await;
    let before = s.record(&first.id).await;
    for ending in [Ending::Released, completed(), failed("late")] {
        let outcome = s.finish(&first, ending).await;
        let accepted = matches!(outcome, Applied::Applied(_));
        assert!(!accepted, "an old lease was accepted: {outcome:?}");
        assert_eq!(s.record(&first.id).await, before);
    }
    s.finish_as(&second, completed(), State::Completed).await;
}
