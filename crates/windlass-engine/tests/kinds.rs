//! Workers of different kinds on one queue: none delays the tasks of another.

#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

use std::time::Duration;

use bytes::Bytes;
use windlass_core::history::{Happening, timeline};
use windlass_core::{ErrorKind, State, TaskId, TaskRecord};
use windlass_engine::{
    Configure, Context, Options, Outcome, RawTask, Unknown, Worker, WorkerBuilder,
};
use windlass_testkit::Method;
use windlass_testkit::fleet::{Do, Fleet};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// Adds a handler whose runs take so long.
fn handling(worker: WorkerBuilder<()>, kind: &'static str, run: Duration) -> WorkerBuilder<()> {
    let handler = move |task: RawTask, _: Context<()>| async move {
        tokio::time::sleep(run).await;
        Outcome::Ok(task.payload)
    };
    worker.handle_raw(kind, handler)
}

async fn start(fleet: &Fleet, kind: &'static str, slots: usize, run: Duration) -> Worker {
    let worker = handling(fleet.worker(), kind, run).unknown(Unknown::GivenBack);
    worker.concurrency(slots).start().await.unwrap()
}

async fn submit(fleet: &Fleet, kind: &str) -> TaskId {
    let (id, _) = fleet.client.enqueue_raw(kind, Bytes::new(), Options::new()).await.unwrap();
    id
}

/// Submits tasks of two kinds in turn, one per this time.
async fn submit_mixed(fleet: &Fleet, count: usize, every: Duration) -> Vec<TaskId> {
    let mut ids = Vec::with_capacity(count);
    for number in 0..count {
        ids.push(submit(fleet, ["a", "b"][number % 2]).await);
        tokio::time::sleep(every).await;
    }
    ids
}

/// Requires tasks to have run as if nobody else were there; answers the longest delay of a start.
fn check_undisturbed(records: &[TaskRecord]) -> Duration {
    let mut worst = Duration::ZERO;
    for record in records {
        let counts = (record.state, record.attempts, record.crashes);
        assert_eq!(counts, (State::Completed, 1, 0), "{record:?}");
        assert_eq!(record.history.entries(), [], "{record:?}");
        worst = worst.max(record.claimed_at.unwrap().since(record.created_at));
    }
    worst
}

#[tokio::test(start_paused = true)]
async fn tasks_of_two_workers_on_one_queue_start_at_once() {
    for every in [MS, 3 * MS, 10 * MS] {
        let fleet = Fleet::new();
        let (a, b) = (start(&fleet, "a", 20, MS).await, start(&fleet, "b", 4, MS).await);
        let ids = submit_mixed(&fleet, 1_000, every).await;
        let worst = check_undisturbed(&fleet.all_ended(&ids).await);
        assert!(worst < 100 * MS, "every {every:?}: {worst:?}");
        a.stop().await.unwrap();
        b.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_two_kinds_is_worked_off_at_once() {
    let fleet = Fleet::new();
    let (a, b) = (start(&fleet, "a", 20, MS).await, start(&fleet, "b", 20, MS).await);
    let ids = submit_mixed(&fleet, 1_000, Duration::ZERO).await;
    let worst = check_undisturbed(&fleet.all_ended(&ids).await);
    assert!(worst < SECOND, "{worst:?}");
    a.stop().await.unwrap();
    b.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_worker_of_another_kind_beside_a_busy_one_asks_seldom() {
    let fleet = Fleet::new();
    let seat = fleet.seat();
    let busy = start(&fleet, "b", 1, SECOND * 30).await;
    let idle = handling(seat.worker(), "a", MS).unknown(Unknown::GivenBack).concurrency(10);
    let idle = idle.start().await.unwrap();
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(submit(&fleet, "b").await);
    }
    tokio::time::sleep(SECOND).await;
    let before = seat.faults.calls_in_all();
    tokio::time::sleep(SECOND * 10).await;
    let calls = seat.faults.calls_in_all() - before;
    assert!(calls < 900, "{calls} calls in 10 s");
    let lists = seat.faults.calls(Method::Workers);
    assert!(lists <= 12, "the list of workers was read {lists} times");
    let own = submit(&fleet, "a").await;
    assert!(check_undisturbed(&[fleet.ended(&own).await]) < 100 * MS, "behind two of the other");
    for record in fleet.all_ended(&ids).await {
        assert_eq!((record.state, record.attempts), (State::Completed, 1), "{record:?}");
    }
    busy.stop().await.unwrap();
    idle.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn other_queues_of_a_worker_are_served_as_ever() {
    let fleet = Fleet::new();
    let busy = start(&fleet, "b", 1, SECOND * 30).await;
    let worker = handling(fleet.worker(), "a", MS).unknown(Unknown::GivenBack).concurrency(2);
    let worker = worker.queue("default", 1).queue("own", 1).start().await.unwrap();
    for _ in 0..50 {
        submit(&fleet, "b").await;
    }
    tokio::time::sleep(SECOND * 3).await;
    for _ in 0..20 {
        let options = Options::new().queue("own");
        let (id, _) = fleet.client.enqueue_raw("a", Bytes::new(), options).await.unwrap();
        let delay = check_undisturbed(&[fleet.ended(&id).await]);
        assert!(delay < 10 * MS, "{delay:?}");
    }
    worker.stop().await.unwrap();
    busy.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_library_worker_releases_what_another_handles_and_fails_what_nobody_does() {
    let fleet = Fleet::new();
    let a = handling(fleet.worker(), "a", MS).concurrency(5).start().await.unwrap();
    let b = handling(fleet.worker(), "b", MS).concurrency(5).start().await.unwrap();
    let ids = submit_mixed(&fleet, 100, MS).await;
    check_undisturbed(&fleet.all_ended(&ids).await);
    let options = Options::new().max_retries(0);
    let (id, _) = fleet.client.enqueue_raw("c", Bytes::new(), options).await.unwrap();
    let record = fleet.ended(&id).await;
    assert_eq!(record.history.last_error(), Some("no handler for tasks of type c"));
    a.stop().await.unwrap();
    b.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_task_that_nobody_handles_says_so_and_starts_soon_when_somebody_comes() {
    let fleet = Fleet::new();
    let a = start(&fleet, "a", 5, MS).await;
    let id = submit(&fleet, "b").await;
    tokio::time::sleep(SECOND * 3).await;
    let record = fleet.record(&id).await;
    assert_eq!((record.state, record.attempts), (State::Scheduled, 0), "{record:?}");
    assert_eq!(record.history.wait_reason(), Some("no live worker handles type b"));
    assert_eq!(record.history.last_error(), None, "that is no error of a run");
    let story = timeline(&record);
    assert_eq!(story.last().map(|entry| entry.what), Some(Happening::Snoozed), "{story:?}");
    let came = tokio::time::Instant::now();
    let b = start(&fleet, "b", 5, MS).await;
    let record = fleet.ended(&id).await;
    assert_eq!((record.state, record.attempts), (State::Completed, 1), "{record:?}");
    assert!(came.elapsed() < SECOND * 5, "{:?}", came.elapsed());
    a.stop().await.unwrap();
    b.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_worker_shows_its_kinds_unless_it_handles_every_kind() {
    let fleet = Fleet::new();
    let named = handling(handling(fleet.worker(), "b", MS), "a", MS).start().await.unwrap();
    let any = |task: RawTask, _: Context<()>| async move { Ok(task.payload) };
    let any = handling(fleet.worker(), "c", MS).handle_any(any).start().await.unwrap();
    let kinds = fleet.alive().await.into_iter().map(|worker| worker.card.kinds);
    let mut kinds: Vec<_> = kinds.collect();
    kinds.sort_by_key(Option::is_none);
    let names = |at: usize| kinds[at].as_ref().map(|kinds| kinds.names().unwrap().to_vec());
    let names = [names(0), names(1)].map(|names| names.map(|n| format!("{n:?}")));
    assert_eq!(names, [Some(r#"[Kind("a"), Kind("b")]"#.into()), None]);
    named.stop().await.unwrap();
    any.stop().await.unwrap();
}

#[tokio::test]
async fn workers_whose_handlers_contradict_each_other_are_refused() {
    async fn check(worker: WorkerBuilder<()>, text: &str) {
        let error = worker.start().await.err().unwrap();
        assert_eq!(
            (error.kind(), error.to_string().contains(text)),
            (ErrorKind::Invalid, true),
            "{error}"
        );
    }
    let fleet = Fleet::new();
    let typed = |task: Do, _: Context<()>| async move { Ok(task.0) };
    let any = |task: RawTask, _: Context<()>| async move { Ok(task.payload) };
    check(fleet.worker(), "a worker needs a handler").await;
    check(fleet.worker().handle(typed).handle(typed), "two handlers for type do").await;
    check(handling(fleet.worker().handle(typed), "do", MS), "two handlers for type do").await;
    check(fleet.worker().handle_any(any).handle_any(any), "two handlers for any kind").await;
    check(handling(fleet.worker(), "no spaces", MS), "\"no spaces\"").await;
}
