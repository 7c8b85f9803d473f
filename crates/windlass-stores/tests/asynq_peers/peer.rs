//! The peer itself: it writes what a real asynq wrote, and has asynq's defects.

use std::time::Duration;

use windlass_testkit::asynq::message::{ServerInfo, WorkerInfo, decode};
use windlass_testkit::asynq::{Content, Dump, GoError, GoServer, GoTask, Keys, Shelf};
use windlass_testkit::asynq::{audit, fixture};

use crate::ground::Ground;

/// When the fixture's tasks were enqueued, and its server started.
const ENQUEUED: i64 = 1_794_769_833_000_000_000;
const WELCOME: &str = "{\"user_id\":42,\"name\":\"Zoë\"}";

/// A moment of the fixture's second.
fn moment(nanos: i64) -> i64 {
    ENQUEUED + nanos
}

/// The fixture's own server, which cannot be compared byte by byte: Go writes maps in any order, and reads
/// its clock twice for the start and the end of a run.
fn without_servers(dump: &Dump) -> Dump {
    let is_server = |key: &str| key.contains(":servers:") || key.contains(":workers:");
    let rest = dump.0.iter().filter(|(key, _)| !is_server(key));
    Dump(rest.map(|(key, content)| (key.clone(), content.clone())).collect())
}

fn server_of(dump: &Dump) -> (ServerInfo, WorkerInfo) {
    let name = "{vm:8827:8bd65566-f6e7-4154-8d09-44f85c81eacc}";
    let Some(Content::Text(server)) = dump.0.get(&format!("asynq:servers:{name}")) else {
        panic!("the server should be there: {dump:#?}");
    };
    let worker = &dump.hash(&format!("asynq:workers:{name}"))["active-1"];
    (decode(server), decode(worker))
}

#[tokio::test]
async fn it_writes_what_a_real_asynq_wrote() {
    let ground = Ground::fresh().await;
    let welcome = GoTask::new("email:welcome", WELCOME);
    let work = |kind: &str, what: &str| {
        GoTask::new(kind, format!("{{\"will\":\"{what}\"}}")).queue("work")
    };
    let submits = [
        (813_427_090, welcome.clone().id("pending-1")),
        (
            814_140_673,
            GoTask { max_retry: 5, timeout_s: 90, ..welcome.id("pending-2").queue("critical") },
        ),
        (
            814_300_000,
            GoTask {
                process_in_s: 24 * 3_600,
                ..GoTask::new("report:build", [0, 1, 2, 255]).id("scheduled-1")
            },
        ),
        (
            814_717_089,
            GoTask {
                unique_s: 3_600,
                ..GoTask::new("email:welcome", "{\"unique\":true}").id("unique-1")
            },
        ),
        (
            815_000_000,
            GoTask {
                group: "digest-7".into(),
                ..GoTask::new("email:digest", "{\"part\":1}").id("group-1")
            },
        ),
        (
            815_661_954,
            GoTask {
                deadline_s: ENQUEUED / 1_000_000_000 + 48 * 3_600,
                ..GoTask::new("deadline:task", "").id("deadline-1").queue("low")
            },
        ),
        (
            816_000_000,
            GoTask { retention_s: 72 * 3_600, ..work("ok", "complete").id("completed-1") },
        ),
        (816_000_001, GoTask { max_retry: 3, ..work("retry", "retry").id("retry-1") }),
        (816_000_002, GoTask { max_retry: 0, ..work("dead", "archive").id("archived-1") }),
        (816_000_003, work("slow", "be active").id("active-1")),
    ];
    for (nanos, task) in submits {
        ground.peer.at_nanos(moment(nanos)).enqueue(&task).await.unwrap();
    }
    let early = ground.peer.at_nanos(moment(818_000_000));
    assert!(early.pause("low").await);
    let expected = fixture::dump();
    let (told, run_told) = server_of(&expected);
    let started = told.start_time.unwrap();
    let server = GoServer::start(
        ground.peer.at_nanos(moment(started.nanos.into())),
        ("vm", 8_827, "8bd65566-f6e7-4154-8d09-44f85c81eacc"),
        &[("work", 6), ("other", 3)],
    );
    let running = server.at_nanos(moment(run_told.start_time.unwrap().nanos.into()));
    let ok = running.dequeue(&["work", "other"]).await.unwrap();
    running.write_result(&ok, b"{\"sent\":true}").await;
    running.succeed(&ok).await.unwrap();
    let retried = running.dequeue(&["other", "work"]).await.unwrap();
    running.fail(&retried, "boom: retry", 36).await.unwrap();
    let dead = running.dequeue(&["work"]).await.unwrap();
    running.fail(&dead, "boom: dead", 36).await.unwrap();
    let active = running.dequeue(&["work"]).await.unwrap();
    assert_eq!(active.message.id, "active-1");
    assert!(running.dequeue(&["work", "other", "low"]).await.is_none(), "low is paused");
    server.at_nanos(fixture::NOW_NANOS).beat().await;

    let dump = ground.sound("after the fixture's scenario").await;
    assert_eq!(without_servers(&dump), without_servers(&expected));
    let (server, mut worker) = server_of(&dump);
    assert_eq!(server, told);
    worker.deadline.as_mut().unwrap().nanos = run_told.deadline.unwrap().nanos;
    assert_eq!(worker, run_told);
    for (key, ttl) in fixture::ttls() {
        let found = ground.peer.ttl(&key).await;
        // The fixture was read some seconds after it was written.
        assert!((ttl..=ttl + 60).contains(&found), "{key} has {found} s, not {ttl}");
    }
}

#[tokio::test]
async fn a_loaded_fixture_is_the_fixture() {
    let ground = Ground::with_fixture().await;
    assert_eq!(ground.peer.dump().await, fixture::dump());
    for (key, ttl) in fixture::ttls() {
        let found = ground.peer.ttl(&key).await;
        let is_right = if ttl < 0 { found == ttl } else { found > ttl - 60 && found > 60 };
        assert!(is_right, "{key} has {found} s, not {ttl}");
    }
}

#[tokio::test]
async fn ids_and_locks_conflict_as_in_asynq() {
    let ground = Ground::fresh().await;
    let task = GoTask { unique_s: 60, ..GoTask::new("kind", "a").id("one") };
    ground.peer.enqueue(&task).await.unwrap();
    assert_eq!(ground.peer.enqueue(&task).await, Err(GoError::DuplicateTask));
    let later = GoTask { process_in_s: 60, ..task.clone().id("two") };
    assert_eq!(ground.peer.enqueue(&later).await, Err(GoError::DuplicateTask));
    let other = GoTask::new("kind", "b").id("one");
    assert_eq!(ground.peer.enqueue(&other).await, Err(GoError::TaskIdConflict));
    let grouped = GoTask { group: "all".into(), ..other.clone() };
    assert_eq!(ground.peer.enqueue(&grouped).await, Err(GoError::TaskIdConflict));
    ground.sound("a refused task leaves nothing").await;
    // The lock of a refused task stays until its time is over: asynq's own defect.
    let unique = GoTask { unique_s: 60, ..other };
    assert_eq!(ground.peer.enqueue(&unique).await, Err(GoError::TaskIdConflict));
    let found = audit::complaints(&ground.peer.dump().await);
    assert!(matches!(&found[..], [one] if one.contains("does not know of it")), "{found:#?}");
}

#[tokio::test]
async fn a_recoverer_waits_half_a_minute_and_a_stale_worker_is_not_stopped_by_the_store() {
    let ground = Ground::fresh().await;
    ground
        .peer
        .enqueue(&GoTask { max_retry: 1, ..GoTask::new("kind", "").id("one") })
        .await
        .unwrap();
    let server = GoServer::start(ground.peer.clone(), ("a", 1, "a"), &[("default", 1)]);
    let run = server.dequeue(&["default"]).await.unwrap();
    ground.advance(Duration::from_secs(59));
    assert!(ground.peer.recover("default", 15).await.is_empty());
    ground.advance(Duration::from_secs(1));
    assert_eq!(server.succeed(&run).await, Err(GoError::LeaseOver), "by the worker's own clock");
    assert_eq!(ground.peer.recover("default", 15).await, ["one"]);
    assert_eq!(ground.peer.finish(&run).await, Err(GoError::NotFound), "it is not active");
    ground.advance(Duration::from_secs(15));
    ground.peer.forward("default").await;
    let other = GoServer::start(ground.peer.clone(), ("b", 2, "b"), &[("default", 1)]);
    let second = other.dequeue(&["default"]).await.unwrap();
    assert_eq!(second.message.retried, 1);
    // A worker that was halted between the look at its lease and the write: asynq takes it for the other's.
    ground.peer.finish(&run).await.unwrap();
    assert_eq!(other.succeed(&second).await, Err(GoError::NotFound));
    ground.sound("nobody has it now").await;
    assert_eq!(ground.peer.history("default", 2).await, [(2, 1), (0, 0)]);
}

#[tokio::test]
async fn the_inspector_does_to_tasks_what_the_command_line_says() {
    let ground = Ground::with_fixture().await;
    let peer = &ground.peer;
    let stats = peer.stats("work").await.unwrap();
    assert_eq!((stats.active, stats.retry, stats.archived, stats.completed), (1, 1, 1, 1));
    assert_eq!((stats.today, stats.total), ((3, 2), (3, 2)));
    assert_eq!(peer.stats("nowhere").await, Err(GoError::QueueNotFound));
    assert!(peer.stats("low").await.unwrap().is_paused);
    let default = peer.stats("default").await.unwrap();
    assert_eq!((default.pending, default.groups), (2, (1, 1)));
    assert_eq!(default.latency_ns, fixture::NOW_NANOS - 1_794_769_833_813_427_090);
    for queue in ["work", "default", "low", "critical"] {
        assert!(peer.memory_usage(queue).await.unwrap() > 0);
    }
    let pending = peer.list("default", Shelf::Pending).await.unwrap();
    let ids: Vec<_> = pending.iter().map(|listed| listed.message.id.as_str()).collect();
    assert_eq!(ids, ["pending-1", "unique-1"], "the oldest first");
    let info = peer.task_info("work", "retry-1").await.unwrap();
    assert_eq!((info.state.as_str(), info.next_process_at), ("retry", 1_794_769_869));
    assert_eq!(peer.servers().await[0].1.len(), 1);

    peer.run_task("work", "retry-1").await.unwrap();
    assert_eq!(peer.run_task("work", "active-1").await, Err(GoError::WrongState));
    peer.archive_task("default", "pending-1").await.unwrap();
    peer.run_task("default", "group-1").await.unwrap();
    peer.delete_task("default", "unique-1").await.unwrap();
    assert_eq!(peer.delete_task("default", "unique-1").await, Err(GoError::NotFound));
    assert_eq!(peer.run_all("default", Shelf::Archived).await, Ok(1));
    assert_eq!(peer.archive_all("default", Shelf::Pending).await, Ok(2));
    assert_eq!(peer.delete_all("default", Shelf::Archived).await, Ok(2));
    assert_eq!(peer.remove_queue("work", true).await, Err(GoError::QueueNotEmpty));
    assert_eq!(peer.remove_queue("critical", false).await, Err(GoError::QueueNotEmpty));
    peer.remove_queue("critical", true).await.unwrap();
    ground.sound("after all that").await;
}

#[tokio::test]
async fn it_has_the_defects_of_asynq() {
    let ground = Ground::fresh().await;
    let peer = &ground.peer;
    // A group whose aggregation died is not known any more.
    let grouped = GoTask { group: "all".into(), ..GoTask::new("kind", "").id("grouped") };
    peer.enqueue(&grouped).await.unwrap();
    ground.advance(Duration::from_secs(60));
    assert!(peer.aggregate("default", "all", 60).await.is_some());
    assert!(peer.groups("default").await.is_empty());
    ground.sound("while an aggregation runs").await;
    ground.advance(Duration::from_secs(120));
    peer.reclaim("default").await;
    // An id without a hash is dequeued as nothing, and stays active for ever.
    peer.enqueue(&GoTask::new("kind", "").id("ghost")).await.unwrap();
    let task = Keys::of("default").task("ghost");
    peer.plain::<i64>(windlass_stores::redis::driver::cmd("DEL").arg(task)).await;
    assert!(matches!(peer.memory_usage("default").await, Err(GoError::Internal(_))));
    let server = GoServer::start(peer.clone(), ("a", 1, "a"), &[("default", 1)]);
    assert!(server.dequeue(&["default"]).await.is_none());
    ground.advance(Duration::from_secs(3_600));
    assert!(peer.recover("default", 15).await.is_empty());
    let found = audit::complaints(&peer.dump().await);
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(
        found[0].contains("group all is not in groups")
            && found[1].contains("ghost lies in active")
    );
}
