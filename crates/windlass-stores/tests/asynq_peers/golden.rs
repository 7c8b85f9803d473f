//! What a real asynq wrote, read and worked by windlass.

use std::time::Duration;

use windlass_core::store::{Action, Applied, Changed, Depth, Filter, RunOrder};
use windlass_core::{ErrorKind, State, Store, TaskId, TaskRecord, Timestamp};
use windlass_stores::redis::asynq::AsynqStore;
use windlass_stores::redis::driver::cmd;
use windlass_testkit::asynq::{Keys, TaskMessage, fixture, message};
use windlass_testkit::scene::{Scene, completed, failed};

use crate::ground::Ground;

const HOUR: Duration = Duration::from_secs(3_600);
/// The second in which the fixture's programs did what they did.
const THEN: i64 = 1_794_769_833;

fn at(seconds: i64) -> Option<Timestamp> {
    Some(Timestamp::from_millis(seconds * 1_000))
}

fn id(text: &str) -> TaskId {
    TaskId::new(text)
}

async fn read(scene: &Scene, task: &str, queue: &str, state: State) -> TaskRecord {
    let record = scene.record(&id(task)).await;
    assert_eq!((record.state, record.queue.as_str()), (state, queue), "{record:#?}");
    record
}

fn last_error(record: &TaskRecord) -> Option<String> {
    record.history.last_error().map(ToString::to_string)
}

#[tokio::test]
async fn every_task_is_seen_as_it_is() {
    let ground = Ground::with_fixture().await;
    let scene = ground.scene().await;

    let plain = read(&scene, "pending-1", "default", State::Pending).await;
    assert_eq!((plain.kind.as_str(), plain.attempts), ("email:welcome", 0));
    assert_eq!(&plain.payload[..], "{\"user_id\":42,\"name\":\"Zoë\"}".as_bytes());
    assert_eq!((plain.spec.max_retries, plain.spec.timeout), (25, HOUR / 2));
    assert_eq!(plain.spec.retention, Duration::ZERO);

    let urgent = read(&scene, "pending-2", "critical", State::Pending).await;
    assert_eq!((urgent.spec.max_retries, urgent.spec.timeout), (5, Duration::from_secs(90)));

    let later = read(&scene, "scheduled-1", "default", State::Scheduled).await;
    assert_eq!((&later.payload[..], later.kind.as_str()), (&[0, 1, 2, 255][..], "report:build"));
    assert_eq!(later.run_at, at(THEN + 24 * 3_600));

    read(&scene, "unique-1", "default", State::Pending).await;

    let grouped = read(&scene, "group-1", "default", State::Scheduled).await;
    assert_eq!(grouped.spec.extras.metadata["asynq.group"], "digest-7");

    let doomed = read(&scene, "deadline-1", "low", State::Pending).await;
    assert_eq!(doomed.spec.extras.deadline, at(THEN + 48 * 3_600));
    assert!(doomed.payload.is_empty());

    let done = read(&scene, "completed-1", "work", State::Completed).await;
    assert_eq!(done.result.as_deref(), Some(&b"{\"sent\":true}"[..]));
    assert_eq!((done.finished_at, done.spec.retention), (at(THEN), HOUR * 72));

    let retried = read(&scene, "retry-1", "work", State::Retrying).await;
    assert_eq!((retried.attempts, retried.spec.max_retries), (1, 3));
    assert_eq!(
        (retried.run_at, last_error(&retried).as_deref()),
        (at(THEN + 36), Some("boom: retry"))
    );

    let dead = read(&scene, "archived-1", "work", State::DeadLetter).await;
    assert_eq!((dead.attempts, dead.spec.max_retries, dead.finished_at), (1, 0, at(THEN)));
    assert_eq!(last_error(&dead).as_deref(), Some("boom: dead"));

    let active = read(&scene, "active-1", "work", State::Running).await;
    assert_eq!(active.attempts, 1);
    ground.sound("reading changes nothing").await;
}

#[tokio::test]
async fn lists_and_counts_agree_with_the_keys() {
    let ground = Ground::with_fixture().await;
    let scene = ground.scene().await;
    let mut listed: Vec<_> = scene
        .list(Filter::default())
        .await
        .into_iter()
        .map(|record| record.id.to_string())
        .collect();
    listed.sort();
    let mut all = [
        "pending-1",
        "pending-2",
        "scheduled-1",
        "unique-1",
        "group-1",
        "deadline-1",
        "completed-1",
        "retry-1",
        "archived-1",
        "active-1",
    ];
    all.sort_unstable();
    assert_eq!(listed, all);
    scene.books_balance("on what asynq wrote").await;
    assert!(scene.queue("low").await.unwrap().is_paused);
    let default = scene.queue("default").await.unwrap();
    assert!(!default.is_paused);
    assert_eq!(default.counts.get(State::Scheduled), 2, "the grouped one too");
    let oldest = Timestamp::from_millis(1_794_769_833_813);
    assert_eq!(default.oldest_pending_at, Some(oldest));
    let dead = Filter { states: vec![State::DeadLetter], ..Filter::default() };
    assert_eq!(scene.list(dead).await.len(), 1);
}

#[tokio::test]
async fn what_only_go_has_used_is_opened_to_read_and_not_touched() {
    let ground = Ground::with_fixture().await;
    let store = AsynqStore::open(ground.options().existing()).await.unwrap();
    assert_eq!(store.queues().await.unwrap().len(), 4);
    store.inspect(Depth::Ping).await.unwrap();
    let keys: Vec<String> = ground.peer.plain(cmd("KEYS").arg("*")).await;
    assert_eq!(keys.len(), fixture::dump().0.len(), "{keys:?}");
    let empty = AsynqStore::open(Ground::fresh().await.options().existing()).await;
    assert!(empty.is_err_and(|error| error.kind() == ErrorKind::NotFound));
}

#[tokio::test]
async fn upkeep_changes_nothing_that_is_in_order() {
    let ground = Ground::with_fixture().await;
    let scene = ground.scene().await;
    scene.promote().await;
    scene.expire().await;
    scene.prune().await;
    assert_eq!(scene.tend().await.repaired, 0);
    let inspection = scene.store.inspect(Depth::Repair).await.unwrap();
    let orphans = inspection.findings.iter().filter(|finding| finding.subject == "orphans").count();
    assert_eq!(orphans, 0, "{:?}", inspection.findings);
    // Of Go's waiting tasks is noted when they were first met, in a field that Go does not know.
    assert_eq!(ground.peer.dump().await.without_own_fields(), fixture::dump());
}

#[tokio::test]
async fn every_pending_task_is_run_in_its_order_and_a_paused_queue_gives_nothing() {
    let ground = Ground::with_fixture().await;
    let scene = ground.scene().await;
    let worker = scene.worker().await;
    let queues = ["critical", "default", "low", "work"];
    let tasks = scene.claim_from(&worker, &queues, 10).await;
    let ids: Vec<_> = tasks.iter().map(|task| task.id.as_str()).collect();
    assert_eq!(ids, ["pending-2", "pending-1", "unique-1"]);
    assert_eq!(tasks[0].attempts, 1);
    assert_eq!(&tasks[2].payload[..], b"{\"unique\":true}");
    let transitions = tasks.iter().map(|task| scene.transition(task, completed())).collect();
    let outcomes = scene.apply(&worker, transitions).await;
    assert_eq!(outcomes, [Applied::Applied(State::Completed); 3]);
    let dump = ground.sound("after three successes").await;
    let left: Vec<_> = dump.0.keys().filter(|key| key.contains(":unique:")).collect();
    assert!(left.is_empty(), "the lock goes with its task, as in Go: {left:?}");
    scene.order_queue("low", RunOrder::Run).await;
    let run = scene.take(&worker, &id("deadline-1")).await;
    scene.finish_as(&run, completed(), State::Completed).await;
    ground.sound("after the last").await;
    assert_eq!(ground.peer.history("default", 1).await, [(2, 0)]);
    assert_eq!(ground.peer.stats("critical").await.unwrap().total, (1, 0));
}

#[tokio::test]
async fn what_is_due_later_runs_on_time_and_grouped_tasks_never() {
    let ground = Ground::with_fixture().await;
    let scene = ground.scene().await;
    let worker = scene.worker().await;
    ground.clock.set(Timestamp::from_millis((THEN + 36) * 1_000 - 1));
    scene.promote().await;
    assert!(scene.claim_from(&worker, &["work"], 9).await.is_empty(), "a moment early");
    ground.advance(Duration::from_millis(1));
    scene.beat(&worker).await;
    scene.promote().await;
    let run = scene.take(&worker, &id("retry-1")).await;
    assert_eq!(run.attempts, 2);
    scene.finish_as(&run, failed("boom again"), State::Retrying).await;
    let message = stored(&ground, "work", "retry-1").await;
    assert_eq!((message.retried, message.retry), (2, 3));
    assert_eq!((message.error_msg.as_str(), message.last_failed_at), ("boom again", THEN + 36));
    ground.clock.set(Timestamp::from_millis((THEN + 24 * 3_600) * 1_000));
    scene.promote().await;
    let worker = scene.worker().await;
    let tasks = scene.claim_from(&worker, &["default"], 9).await;
    let ids: Vec<_> = tasks.iter().map(|task| task.id.as_str()).collect();
    assert_eq!(ids, ["pending-1", "unique-1", "scheduled-1"], "and not group-1");
    ground.sound("grouped tasks stay where they are").await;
}

async fn stored(ground: &Ground, queue: &str, task: &str) -> TaskMessage {
    let fields = ground.peer.dump().await.hash(&Keys::of(queue).task(task));
    message::decode(&fields["msg"])
}

#[tokio::test]
async fn a_task_of_a_dead_go_server_is_taken_half_a_minute_after_its_lease() {
    let ground = Ground::with_fixture().await;
    let scene = ground.scene().await;
    // Go wrote the end of the lease; other Go servers wait 30 s longer, since clocks differ.
    ground.clock.set(Timestamp::from_millis((THEN + 35 + 30) * 1_000 - 1));
    scene.expire().await;
    scene.expect(&id("active-1"), State::Running, "its server may still renew it").await;
    ground.advance(Duration::from_millis(1_001));
    scene.expire().await;
    scene.expect(&id("active-1"), State::Pending, "nobody else would take it in time").await;
    let worker = scene.worker().await;
    let run = scene.take(&worker, &id("active-1")).await;
    assert_eq!((run.attempts, run.crashes), (1, 1), "a crash spends no retry");
    scene.finish_as(&run, completed(), State::Completed).await;
    ground.sound("after the rescue").await;
}

#[tokio::test]
async fn operators_change_what_asynq_wrote() {
    let ground = Ground::with_fixture().await;
    let scene = ground.scene().await;
    let gone = Changed::Done(None);
    let pending = Changed::Done(Some(State::Pending));
    assert_eq!(scene.rerun(&id("archived-1")).await, pending);
    assert_eq!(scene.rerun(&id("scheduled-1")).await, pending);
    assert_eq!(scene.rerun(&id("completed-1")).await, pending);
    assert_eq!(scene.delete(&id("retry-1")).await, gone);
    assert_eq!(scene.delete(&id("unique-1")).await, gone);
    assert_eq!(scene.delete(&id("group-1")).await, gone);
    assert_eq!(
        scene.change(&id("pending-1"), Action::Cancel).await,
        Changed::Done(Some(State::Cancelled))
    );
    assert_eq!(scene.delete(&id("active-1")).await, Changed::Conflict(State::Running));
    let dump = ground.sound("after the operator").await;
    assert!(dump.0.keys().all(|key| !key.contains(":unique:")), "its lock went with unique-1");
    assert!(dump.members(&Keys::of("default").key("groups")).is_empty());
    assert_eq!(ground.peer.task_info("default", "pending-1").await.unwrap().state, "archived");
    let worker = scene.worker().await;
    let tasks = scene.claim_from(&worker, &["work", "default"], 9).await;
    assert_eq!(tasks.len(), 3);
}
