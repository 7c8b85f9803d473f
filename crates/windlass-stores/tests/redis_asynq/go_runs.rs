//! What a user of both sees of tasks that Go programs work on.

use prost::Message;
use uuid::{NoContext, Uuid};
use windlass_core::history::{Happening, timeline};
use windlass_core::store::{Filter, Order, RunOrder};
use windlass_core::{ErrorKind, State, TaskId, WorkerId};
use windlass_stores::redis::asynq::message::{Instant, ServerInfo, WorkerInfo};
use windlass_testkit::draft::draft;
use windlass_testkit::scene::SECOND;

use crate::stage::{START, Stage, go_message};

const SERVER: &str = "a-go-server";

/// Has a Go server say of itself what it runs, as it does every 5 s.
async fn beat_as_go(stage: &Stage, task: &str) {
    let server = ServerInfo { server_id: SERVER.into(), ..ServerInfo::default() };
    let start_time = Some(Instant { seconds: START + 2, nanos: 250_000_000 });
    let run = WorkerInfo {
        server_id: SERVER.into(),
        task_id: task.into(),
        queue: "main".into(),
        start_time,
        ..WorkerInfo::default()
    };
    let until = (START + 3_600).to_string();
    let [server_key, workers_key] =
        ["servers", "workers"].map(|name| format!("{}:{name}:{{h:1:{SERVER}}}", stage.prefix));
    for (name, key) in [("servers", &server_key), ("workers", &workers_key)] {
        let set = format!("{}:{name}", stage.prefix);
        let _: i64 =
            stage.send_all("ZADD", &[set.as_bytes(), until.as_bytes(), key.as_bytes()]).await;
    }
    let _: () = stage.send_all("SET", &[server_key.as_bytes(), &server.encode_to_vec()]).await;
    let fields = [workers_key.as_bytes(), task.as_bytes(), &run.encode_to_vec()];
    let _: i64 = stage.send_all("HSET", &fields).await;
}

#[tokio::test]
async fn a_run_of_a_go_server_is_shown_with_its_server_and_its_start() {
    let stage = Stage::new().await;
    let id = stage.enqueue_as_go("a").await;
    stage.dequeue_as_go(START + 30).await;
    beat_as_go(&stage, "a").await;
    let listed = stage.scene.list(Filter::default()).await.remove(0);
    for record in [stage.scene.record(&id).await, listed] {
        assert_eq!(record.worker, Some(WorkerId::new(SERVER)));
        let started = record.started_at.map(|at| at.as_millis());
        assert_eq!(started, Some(START * 1_000 + 2_250));
        assert_eq!(record.claimed_at, record.started_at);
    }
}

#[tokio::test]
async fn an_order_to_a_go_server_is_unsupported_and_says_why() {
    let stage = Stage::new().await;
    beat_as_go(&stage, "a").await;
    let order =
        |worker: &str| Order::Worker { worker: WorkerId::new(worker), order: RunOrder::Pause };
    let error = stage.scene.store.order(order(SERVER)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:?}");
    assert!(error.to_string().contains("pause its queues"), "{error}");
    let error = stage.scene.store.order(order("nobody")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error:?}");
}

#[tokio::test]
async fn a_task_that_go_archives_ends_its_timeline_as_a_dead_letter() {
    let stage = Stage::new().await;
    let mut message = go_message("a");
    (message.last_failed_at, message.error_msg) = (START + 9, "boom".into());
    stage.put_hash(&message, "archived").await;
    let _: i64 = stage.send("ZADD", "archived", &[&(START + 9).to_string(), "a"]).await;
    let told = timeline(&stage.scene.record(&TaskId::new("a")).await);
    let told: Vec<_> = told.iter().map(|entry| (entry.what, entry.error.as_deref())).collect();
    let ends = [(Happening::Failed, Some("boom")), (Happening::DeadLetter, None)];
    assert_eq!(told[1..], ends, "{told:?}");
}

#[tokio::test]
async fn a_cancelled_task_says_so_in_asynqs_archive_until_it_runs_again() {
    let stage = Stage::new().await;
    let s = &stage.scene;
    let waiting = s.submit(draft()).await;
    s.cancel(&waiting).await;
    let run = s.start(draft()).await;
    s.cancel(&run.id).await;
    s.finish_as(&run, windlass_core::Ending::Released, State::Cancelled).await;
    for id in [&waiting, &run.id] {
        assert_eq!(stage.message(id.as_str()).await.error_msg, "cancelled by windlass");
        let told = s.record(id).await;
        assert_eq!(told.history.last_error(), None, "it did not fail");
        s.rerun(id).await;
        assert_eq!(stage.message(id.as_str()).await.error_msg, "");
    }
}

#[tokio::test]
async fn a_task_of_windlass_keeps_its_time_after_go_has_worked_on_it() {
    let stage = Stage::new().await;
    let s = &stage.scene;
    s.advance(SECOND);
    let made = uuid::Timestamp::from_unix(NoContext, START.unsigned_abs(), 500_000_000);
    let id = TaskId::new(Uuid::new_v7(made).to_string());
    let plain = draft().retention(std::time::Duration::ZERO).max_retries(7);
    assert!(s.insert(vec![plain.with_id(id.clone())]).await.remove(0).is_new());
    assert_eq!(s.record(&id).await.created_at.as_millis(), (START + 1) * 1_000);
    s.advance(SECOND * 60);
    stage.dequeue_as_go(START + 90).await;
    let exact = START * 1_000 + 500;
    assert_eq!(s.record(&id).await.created_at.as_millis(), exact, "while Go runs it");
    // It fails, and Go makes it pending again.
    let mut message = stage.message(id.as_str()).await;
    (message.retried, message.last_failed_at) = (1, START + 61);
    stage.put_hash(&message, "pending").await;
    let since = format!("{}000000000", START + 80);
    let _: i64 = stage.send("HSET", &format!("t:{id}"), &["pending_since", &since]).await;
    let _: i64 = stage.send("LREM", "active", &["0", id.as_str()]).await;
    let _: i64 = stage.send("ZREM", "lease", &[id.as_str()]).await;
    let _: i64 = stage.send("LPUSH", "pending", &[id.as_str()]).await;
    s.advance(SECOND * 30);
    assert_eq!(s.record(&id).await.created_at.as_millis(), exact, "after Go has tried it");
}

#[tokio::test]
async fn a_scheduled_task_of_go_is_as_old_as_windlass_has_known_it() {
    let stage = Stage::new().await;
    let s = &stage.scene;
    let id = TaskId::new("later");
    stage.put_hash(&go_message("later"), "scheduled").await;
    let _: i64 = stage.send("ZADD", "scheduled", &[&(START + 9_000).to_string(), "later"]).await;
    s.advance(SECOND * 10);
    assert_eq!(s.tend().await.repaired, 0, "nothing is broken");
    for _ in 0..2 {
        s.advance(SECOND * 100);
        assert_eq!(s.record(&id).await.created_at.as_millis(), (START + 10) * 1_000);
        s.tend().await;
    }
}
