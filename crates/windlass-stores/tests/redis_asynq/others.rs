//! What others do to the same keys is understood: workers and tools in Go.

use windlass_core::store::{
    Action, Applied, ChangeParams, Changed, Filter, GetParams, Parts, Refusal, Target,
};
use windlass_core::{ErrorKind, State, TaskId};
use windlass_testkit::draft::draft;
use windlass_testkit::scene::{MS, SECOND, completed, failed};

use crate::stage::{START, Stage, go_message};

#[tokio::test]
async fn a_task_of_go_is_run_and_ended() {
    let stage = Stage::new().await;
    let id = stage.enqueue_as_go("welcome:7").await;
    let record = stage.scene.record(&id).await;
    assert_eq!((record.state, record.spec.max_retries), (State::Pending, 25));
    assert_eq!(record.created_at.as_millis(), START * 1_000);
    let worker = stage.scene.worker().await;
    let run = stage.scene.take(&worker, &id).await;
    stage.scene.finish_as(&run, completed(), State::Completed).await;
    let left: Vec<String> = stage.send_all("KEYS", &[stage.key("t:*").as_bytes()]).await;
    assert_eq!(left, [""; 0], "Go's client asked for no retention");
}

#[tokio::test]
async fn a_report_is_refused_after_a_go_worker_has_taken_the_task() {
    let stage = Stage::new().await;
    let run = stage.scene.start(draft()).await;
    let id = run.id.to_string();
    // As Go's recoverer and then a worker of Go's do, a minute after the lease is over.
    stage.scene.advance(SECOND * 90);
    let _: i64 = stage.send("LREM", "active", &["0", &id]).await;
    let _: i64 = stage.send("ZREM", "lease", &[&id]).await;
    let _: i64 = stage.send("LPUSH", "pending", &[&id]).await;
    stage.dequeue_as_go(START + 120).await;
    let before = stage.scene.record(&run.id).await;
    assert_eq!((before.state, &before.worker), (State::Running, &None), "a Go worker has it");
    for ending in [completed(), failed("late")] {
        let outcome = stage.scene.finish(&run, ending).await;
        assert_eq!(outcome, Applied::Refused(Refusal::LeaseLost));
    }
    assert_eq!(stage.scene.record(&run.id).await, before);
    let lease: i64 = stage.send("ZSCORE", "lease", &[&id]).await;
    assert_eq!(lease, START + 120, "its lease is as Go wrote it");
}

#[tokio::test]
async fn a_task_of_a_dead_go_worker_is_taken_30_s_after_its_lease_and_no_retry_is_spent() {
    let stage = Stage::new().await;
    let id = stage.enqueue_as_go("a").await;
    stage.dequeue_as_go(START + 30).await;
    stage.scene.advance(SECOND * 60 - MS);
    assert_eq!(stage.scene.expire().await.done, 0, "Go may still be about to take it");
    stage.scene.advance(MS);
    assert_eq!(stage.scene.expire().await.done, 1);
    let record = stage.scene.record(&id).await;
    assert_eq!((record.state, record.attempts, record.crashes), (State::Pending, 0, 1));
    assert_eq!(stage.message("a").await.retried, 0);
}

#[tokio::test]
async fn a_beat_renews_what_windlass_leased_and_nothing_else() {
    let stage = Stage::new().await;
    let run = stage.scene.start(draft()).await;
    stage.enqueue_as_go("of-go").await;
    stage.dequeue_as_go(START + 30).await;
    stage.scene.advance(SECOND * 14);
    stage.scene.beat(&run.worker).await;
    let ours: i64 = stage.send("ZSCORE", "lease", &[run.id.as_str()]).await;
    let theirs: i64 = stage.send("ZSCORE", "lease", &["of-go"]).await;
    assert_eq!((ours, theirs), (START + 44, START + 30));
    stage.scene.finish_as(&run, completed(), State::Completed).await;
}

#[tokio::test]
async fn what_the_inspector_does_is_understood() {
    let stage = Stage::new().await;
    let (s, worker) = (&stage.scene, stage.scene.worker().await);
    let id = s.submit(draft()).await;
    let name = id.as_str();
    // archive
    let _: i64 = stage.send("LREM", "pending", &["1", name]).await;
    let _: i64 = stage.send("ZADD", "archived", &[&START.to_string(), name]).await;
    let _: i64 = stage.send("HSET", &format!("t:{name}"), &["state", "archived"]).await;
    s.expect(&id, State::DeadLetter, "archived by someone").await;
    assert_eq!(s.count("main", State::DeadLetter).await, 1);
    // run
    let _: i64 = stage.send("ZREM", "archived", &[name]).await;
    let _: i64 = stage.send("LPUSH", "pending", &[name]).await;
    let _: i64 = stage.send("HSET", &format!("t:{name}"), &["state", "pending"]).await;
    // pause and resume
    let _: i64 = stage.send("SETNX", "paused", &["1"]).await;
    assert_eq!(s.claim(&worker, 9).await, [], "paused by someone");
    assert!(s.queue("main").await.unwrap().is_paused);
    let _: i64 = stage.send("DEL", "paused", &[]).await;
    let run = s.take(&worker, &id).await;
    s.finish_as(&run, failed("boom"), State::Retrying).await;
    // delete
    let _: i64 = stage.send("ZREM", "retry", &[name]).await;
    let _: i64 = stage.send("DEL", &format!("t:{name}"), &[]).await;
    s.expect_gone(&id, "deleted by someone").await;
    s.books_balance("after all of it").await;
}

#[tokio::test]
async fn a_cancelled_task_that_the_inspector_runs_is_run() {
    let stage = Stage::new().await;
    let s = &stage.scene;
    let id = s.submit(draft()).await;
    s.cancel(&id).await;
    let _: i64 = stage.send("ZREM", "archived", &[id.as_str()]).await;
    let _: i64 = stage.send("LPUSH", "pending", &[id.as_str()]).await;
    let _: i64 = stage.send("HSET", &format!("t:{id}"), &["state", "pending"]).await;
    let worker = s.worker().await;
    let run = s.take(&worker, &id).await;
    s.finish_as(&run, failed("boom"), State::Retrying).await;
    s.tend().await;
    s.advance(SECOND * 100_000);
    s.prune().await;
    s.expect(&id, State::Retrying, "its time as a cancelled task is nothing to it any more").await;
}

#[tokio::test]
async fn an_id_that_two_queues_have_is_named_with_its_queue() {
    let stage = Stage::new().await;
    let twin = TaskId::new("twin");
    for queue in ["main", "other"] {
        let task = draft().queue(queue).with_id(twin.clone());
        assert!(stage.scene.insert(vec![task]).await.remove(0).is_new());
    }
    let params = GetParams { ids: vec![twin.clone()], parts: Parts::NONE };
    let error = stage.scene.store.get(params).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}");
    let named = TaskId::new("other/twin");
    assert_eq!(stage.scene.record(&named).await.queue.as_str(), "other");
    let params = ChangeParams {
        target: Target::Tasks(vec![named.clone()]),
        action: Action::Delete,
        only_in: Vec::new(),
        by: None,
    };
    let reply = stage.scene.store.change(params).await.unwrap();
    assert_eq!(reply.outcomes, [Changed::Done(None)]);
    assert_eq!(stage.scene.record(&twin).await.queue.as_str(), "main", "only one is left");
}

#[tokio::test]
async fn a_task_that_waits_to_be_aggregated_is_shown_and_never_claimed() {
    let stage = Stage::new().await;
    let s = &stage.scene;
    let mut message = go_message("part-1");
    message.group_key = "digest".into();
    stage.put_hash(&message, "aggregating").await;
    let _: i64 = stage.send("HSET", "t:part-1", &["group", "digest"]).await;
    let _: i64 = stage.send("ZADD", "g:digest", &[&START.to_string(), "part-1"]).await;
    let _: i64 = stage.send("SADD", "groups", &["digest"]).await;
    let record = s.record(&TaskId::new("part-1")).await;
    assert_eq!(record.state, State::Scheduled);
    assert_eq!(record.spec.extras.metadata["asynq.group"], "digest");
    let listed = s.list(Filter { states: vec![State::Scheduled], ..Filter::default() }).await;
    assert_eq!(listed.len(), 1, "{listed:#?}");
    s.advance(SECOND * 1_000);
    s.promote().await;
    let worker = s.worker().await;
    assert_eq!(s.claim(&worker, 9).await, []);
    s.books_balance("with a group").await;
}

#[tokio::test]
async fn a_cancelled_task_that_go_runs_and_archives_is_a_dead_letter_and_stays() {
    let stage = Stage::new().await;
    let s = &stage.scene;
    let id = s.submit(draft()).await;
    s.cancel(&id).await;
    // The inspector runs it, a Go worker fails with it for good, a minute later.
    s.advance(SECOND * 60);
    let _: i64 = stage.send("ZREM", "archived", &[id.as_str()]).await;
    let _: i64 = stage.send("ZADD", "archived", &[&(START + 60).to_string(), id.as_str()]).await;
    s.expect(&id, State::DeadLetter, "it was not cancelled this time").await;
    s.advance(SECOND * 100_000);
    s.prune().await;
    s.expect(&id, State::DeadLetter, "it stays until removed").await;
}

#[tokio::test]
async fn a_completed_task_that_go_completes_again_is_kept_from_then_on() {
    let stage = Stage::new().await;
    let s = &stage.scene;
    let id = s.bring(draft(), State::Completed).await;
    s.advance(SECOND * 3_000);
    let until = (START + 3_000 + 3_600).to_string();
    let _: i64 = stage.send("ZADD", "completed", &[&until, id.as_str()]).await;
    s.advance(SECOND * 3_599);
    s.prune().await;
    s.expect(&id, State::Completed, "kept from its last end on").await;
    s.advance(SECOND);
    s.prune().await;
    s.expect_gone(&id, "and no longer").await;
}
