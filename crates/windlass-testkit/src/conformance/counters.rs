//! Counters equal states: after each kind of transition, after a drain, and with many at once.

use std::time::Duration;

use windlass_core::store::{Action, Applied, Depth, Duty, Filter, RunOrder, Severity};
use windlass_core::{Ending, Priority, State, When};

use crate::draft::{Draft, RETENTION, draft};
use crate::scene::{HOUR, MS, SECOND, Scene, completed, discarded, failed, snoozed};

/// Requires queue `main` to have so many tasks in one state, and no others.
async fn check(s: &Scene, state: State, count: u64, when: &str) {
    let queue = s.queue("main").await.expect("the queue has had tasks");
    let (in_state, total) = (queue.counts.get(state), queue.counts.total());
    assert_eq!((in_state, total), (count, count), "{state} {when}");
    s.books_balance(when).await;
}

pub async fn counters_follow_a_task_through_every_ending(s: Scene) {
    let endings = [
        (completed(), State::Completed),
        (failed("boom"), State::Retrying),
        (discarded("no use"), State::DeadLetter),
        (snoozed(5), State::Scheduled),
        (Ending::Released, State::Pending),
        (Ending::Cancelled, State::Cancelled),
    ];
    for (ending, state) in endings {
        let run = s.start(draft()).await;
        check(&s, State::Running, 1, "while it runs").await;
        s.finish(&run, ending.clone()).await;
        check(&s, state, 1, &format!("after {ending:?}")).await;
        s.finish(&run, ending.clone()).await;
        check(&s, state, 1, &format!("after {ending:?} repeated")).await;
        s.delete(&run.id).await;
        check(&s, state, 0, "after a delete").await;
    }
}

pub async fn counters_follow_a_task_through_every_change(s: Scene) {
    for priority in priorities(&s) {
        follow_changes(&s, draft().priority(priority)).await;
    }
}

/// Priorities that the store can tell apart.
fn priorities(s: &Scene) -> Vec<Priority> {
    match s.capabilities().has_priorities {
        true => Priority::DESCENDING.to_vec(),
        false => vec![Priority::Normal],
    }
}

async fn follow_changes(s: &Scene, draft: Draft) {
    let id = s.submit(draft.after(HOUR)).await;
    check(s, State::Scheduled, 1, "after a submit for later").await;
    s.rerun(&id).await;
    check(s, State::Pending, 1, "after run-now").await;
    s.reschedule(&id, When::After(SECOND)).await;
    check(s, State::Scheduled, 1, "after a reschedule").await;
    s.reschedule(&id, When::After(SECOND * 2)).await;
    check(s, State::Scheduled, 1, "after another").await;
    s.advance(SECOND * 2);
    s.promote().await;
    check(s, State::Pending, 1, "after a promote").await;
    s.cancel(&id).await;
    check(s, State::Cancelled, 1, "after a cancel").await;
    s.cancel(&id).await;
    check(s, State::Cancelled, 1, "after a refused cancel").await;
    s.rerun(&id).await;
    check(s, State::Pending, 1, "after a rerun").await;
    s.cancel(&id).await;
    s.advance(RETENTION);
    s.prune().await;
    check(s, State::Cancelled, 0, "after a prune").await;
}

pub async fn counters_follow_a_task_through_crash_leave_and_held(s: Scene) {
    for priority in priorities(&s) {
        follow_losses(&s, draft().priority(priority)).await;
    }
}

async fn follow_losses(s: &Scene, draft: Draft) {
    let run = s.start(draft).await;
    s.lose_all_workers().await;
    check(s, State::Pending, 1, "after a crash").await;
    let worker = s.worker().await;
    s.take(&worker, &run.id).await;
    s.leave(&worker).await;
    check(s, State::Pending, 1, "after a leave").await;
    let worker = s.worker().await;
    s.take(&worker, &run.id).await;
    s.advance(MS * 2);
    s.beat_holding(&worker, vec![], MS).await;
    check(s, State::Pending, 1, "after a give-back").await;
    s.take(&worker, &run.id).await;
    s.cancel(&run.id).await;
    check(s, State::Running, 1, "while the cancel is requested").await;
    s.lose_all_workers().await;
    check(s, State::Cancelled, 1, "after a crash under a cancel").await;
    s.delete(&run.id).await;
}

pub async fn counters_do_not_follow_what_was_refused(s: Scene) {
    let unique = || draft().unique(crate::draft::until_finished("key"));
    let task = s.make(unique()).await;
    s.insert(vec![task.clone()]).await;
    s.insert(vec![task]).await;
    s.offer(unique()).await;
    let bad = draft().but(|task| task.spec.timeout = Duration::ZERO);
    s.offer(bad).await;
    check(&s, State::Pending, 1, "after refused submits").await;
}

pub async fn pending_tasks_are_counted_by_priority(s: Scene) {
    if !s.capabilities().has_priorities {
        s.submit_many(2).await;
        assert_eq!(s.queue("main").await.unwrap().pending, [0, 2, 0, 0]);
        return;
    }
    let counts =
        [(Priority::Low, 1), (Priority::Normal, 2), (Priority::High, 3), (Priority::Critical, 4)];
    for (priority, count) in counts {
        s.submit_all(vec![draft().priority(priority); count]).await;
    }
    assert_eq!(s.queue("main").await.unwrap().pending, [1, 2, 3, 4]);
    let worker = s.worker().await;
    s.claim(&worker, 5).await;
    assert_eq!(s.queue("main").await.unwrap().pending, [1, 2, 2, 0]);
    s.leave(&worker).await;
    assert_eq!(s.queue("main").await.unwrap().pending, [1, 2, 3, 4]);
}

pub async fn a_queue_tells_since_when_its_oldest_task_is_pending(s: Scene) {
    s.submit(draft().after(HOUR)).await;
    assert_eq!(s.queue("main").await.unwrap().oldest_pending_at, None);
    let first = s.now().await;
    s.submit(draft()).await;
    s.advance(SECOND);
    let second = s.now().await;
    s.submit(draft()).await;
    assert_eq!(s.queue("main").await.unwrap().oldest_pending_at, Some(first));
    let worker = s.worker().await;
    s.claim(&worker, 1).await;
    let oldest = s.queue("main").await.unwrap().oldest_pending_at;
    assert_eq!(oldest, Some(second), "the first runs");
    s.claim(&worker, 1).await;
    assert_eq!(s.queue("main").await.unwrap().oldest_pending_at, None);
}

pub async fn a_promoted_task_is_pending_since_its_promote(s: Scene) {
    s.submit(draft().after(SECOND)).await;
    s.advance(SECOND * 5);
    s.promote().await;
    let since = s.now().await;
    assert_eq!(s.queue("main").await.unwrap().oldest_pending_at, Some(since));
    s.advance(SECOND * 3);
    let worker = s.worker().await;
    let task = s.claim(&worker, 1).await.remove(0);
    assert_eq!((task.pending_at, task.claimed_at), (since, since.after(SECOND * 3)));
}

pub async fn queues_are_told_by_name_and_stay_known_when_empty(s: Scene) {
    for name in ["b", "c", "a"] {
        let id = s.submit(draft().queue(name)).await;
        s.delete(&id).await;
    }
    let queues = s.store.queues().await.unwrap();
    let names: Vec<_> = queues.iter().map(|queue| queue.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
}

/// Does the store's own upkeep an hour later, as the leader that it has had all along.
async fn tend_later(s: &Scene, duty: Duty, hours: u32) {
    for _ in 0..hours {
        s.advance(HOUR);
        while s.store.tend(duty).await.unwrap().has_more {}
    }
}

async fn queue_names(s: &Scene) -> Vec<String> {
    let queues = s.store.queues().await.unwrap();
    queues.into_iter().map(|queue| queue.name.as_str().to_owned()).collect()
}

pub async fn a_queue_that_is_idle_for_long_is_forgotten_until_the_next_insert(s: Scene) {
    if !s.forgets_queues() {
        return s.skip("others announce a queue once and rely on its name for ever");
    }
    let idle = s.submit(draft().queue("idle")).await;
    s.submit(draft().queue("waiting")).await;
    s.submit(draft().queue("later").after(HOUR * 24 * 9)).await;
    let finished = s.start(draft().queue("finished").retention(HOUR * 24 * 9)).await;
    s.finish_as(&finished, completed(), State::Completed).await;
    s.order_queue("paused", RunOrder::Pause).await;
    s.order_queue("resumed", RunOrder::Pause).await;
    s.order_queue("resumed", RunOrder::Run).await;
    let others = ["finished", "later", "paused", "resumed", "waiting"];
    let all = ["finished", "idle", "later", "paused", "resumed", "waiting"];
    let duty = s.duty().await;
    tend_later(&s, duty, 30).await;
    assert_eq!(queue_names(&s).await, all, "it has a task");
    s.delete(&idle).await;
    tend_later(&s, duty, 23).await;
    assert_eq!(queue_names(&s).await, all, "its last task was deleted within a day");
    let elsewhere = s.elsewhere().await;
    tend_later(&s, duty, 4).await;
    assert_eq!(queue_names(&s).await, others, "it was idle for a day");
    assert_eq!(queue_names(&elsewhere).await, others);

    for scene in [&s, &elsewhere] {
        let again = scene.submit(draft().queue("idle").retention(HOUR * 24 * 9)).await;
        assert_eq!(queue_names(scene).await, all, "it is used again");
        let worker = scene.worker().await;
        let claimed = scene.claim_from(&worker, &["idle"], 9).await;
        assert_eq!(claimed.iter().map(|task| &task.id).collect::<Vec<_>>(), [&again]);
        let transitions = vec![scene.transition(&claimed[0], completed())];
        assert_eq!(scene.apply(&worker, transitions).await, [Applied::Applied(State::Completed)]);
        tend_later(scene, duty, 30).await;
        assert_eq!(queue_names(scene).await, all, "its task is kept");
        scene.delete(&again).await;
        tend_later(scene, duty, 30).await;
        assert_eq!(queue_names(scene).await, others, "it was idle for a day again");
    }
}

pub async fn a_queue_that_is_used_now_and_then_is_not_forgotten(s: Scene) {
    let duty = s.duty().await;
    for day in 0..4 {
        let id = s.submit(draft().queue("daily")).await;
        s.delete(&id).await;
        tend_later(&s, duty, 22).await;
        assert_eq!(queue_names(&s).await, ["daily"], "on day {day}");
    }
}

pub async fn counters_equal_states_while_many_work_and_after_the_drain(s: Scene) {
    let ids = s.submit_many(60).await;
    let elsewhere = s.elsewhere().await;
    let mut working = Vec::new();
    for number in 0..4 {
        let scene = if number % 2 == 0 { &s } else { &elsewhere }.clone();
        working.push(tokio::spawn(async move { drain(&scene).await }));
    }
    for id in ids.iter().step_by(7) {
        s.cancel(id).await;
    }
    for id in ids.iter().step_by(11) {
        s.delete(id).await;
    }
    for worked in working {
        worked.await.unwrap();
    }
    s.books_balance("after a drain by four workers").await;
    for state in [State::Pending, State::Running] {
        assert_eq!(s.count("main", state).await, 0, "{state} after a drain");
    }
    let left = s.list(Filter::default()).await;
    let terminal = left.iter().filter(|task| task.state.is_terminal()).count();
    let retrying = s.count("main", State::Retrying).await;
    assert_eq!(terminal as u64 + retrying, left.len() as u64);
    s.change_matching(Filter::default(), Action::Delete, 9).await;
    assert_eq!(s.queue("main").await.unwrap().counts.total(), 0);
}

/// Works until nothing is pending: mostly well, now and then not.
async fn drain(s: &Scene) {
    let worker = s.worker().await;
    for round in 0.. {
        let tasks = s.claim(&worker, 4).await;
        if tasks.is_empty() {
            return;
        }
        let ending = |number: usize| match (round + number) % 5 {
            0 => failed("boom"),
            1 => discarded("no use"),
            _ => completed(),
        };
        let transitions =
            tasks.iter().enumerate().map(|(number, task)| s.transition(task, ending(number)));
        s.apply(&worker, transitions.collect()).await;
    }
}

pub async fn a_close_look_finds_no_problem_after_a_drain(s: Scene) {
    s.submit_many(10).await;
    drain(&s).await;
    for depth in [Depth::Full, Depth::Repair] {
        let findings = s.store.inspect(depth).await.unwrap().findings;
        let problems: Vec<_> =
            findings.iter().filter(|finding| finding.severity == Severity::Problem).collect();
        assert!(problems.is_empty(), "{depth:?} found {problems:#?}");
    }
    s.books_balance("after a repair").await;
}
