//! What windlass writes is what Go writes: the same done by both, each in a database of its own, and all keys
//! compared. The fields that windlass adds (`wl`, `wl_…`) and its own keys (`wl:…`) are left out.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use windlass_core::store::RunOrder;
use windlass_core::task::Extras;
use windlass_core::unique::{Hold, OnConflict, Unique};
use windlass_core::{Ending, State, TaskId};
use windlass_testkit::asynq::message::decode;
use windlass_testkit::asynq::{Content, Dump, GoServer, GoTask, Shelf, TaskMessage};
use windlass_testkit::draft::{Draft, draft};
use windlass_testkit::scene::{Scene, completed, discarded, failed};

use crate::ground::Ground;

const HOUR: Duration = Duration::from_secs(3_600);

/// The same database twice, one for windlass and one for Go.
struct Twins {
    ours: Ground,
    theirs: Ground,
    scene: Scene,
    server: GoServer,
}

impl Twins {
    async fn on(ours: Ground, theirs: Ground) -> Self {
        ours.strike();
        theirs.strike();
        let scene = ours.scene().await;
        let server = GoServer::start(theirs.peer.clone(), ("go", 1, "go"), &[("work", 1)]);
        Self { ours, theirs, scene, server }
    }

    async fn empty() -> Self {
        Self::on(Ground::fresh().await, Ground::fresh().await).await
    }

    async fn with_fixture() -> Self {
        Self::on(Ground::with_fixture().await, Ground::with_fixture().await).await
    }

    fn advance(&self, by: Duration) {
        self.ours.advance(by);
        self.theirs.advance(by);
    }

    /// A Go client enqueues the same into both.
    async fn enqueue(&self, task: GoTask) {
        self.ours.peer.enqueue(&task).await.unwrap();
        self.theirs.peer.enqueue(&task).await.unwrap();
    }

    /// Both must have the same keys with the same contents.
    async fn are_alike(&self, when: &str) {
        self.are_alike_but(when, &[]).await;
    }

    /// The same, apart from these fields of hashes.
    async fn are_alike_but(&self, when: &str, fields: &[&str]) {
        let ours = told(self.ours.sound(when).await, fields);
        let theirs = told(self.theirs.sound(when).await, fields);
        for (key, content) in &theirs.0 {
            assert_eq!(ours.0.get(key), Some(content), "{when}: {key} is not as Go has it");
            let (our, their) = (self.ours.peer.ttl(key).await, self.theirs.peer.ttl(key).await);
            assert!((our - their).abs() <= 60, "{when}: {key} has {our} s, not {their}");
        }
        let more: Vec<_> = ours.0.keys().filter(|key| !theirs.0.contains_key(*key)).collect();
        assert!(more.is_empty(), "{when}: Go has not {more:?}");
    }
}

/// What asynq knows, apart from who works there and from these fields.
fn told(dump: Dump, without: &[&str]) -> Dump {
    let mut dump = dump.without_own_fields();
    dump.0.retain(|key, _| !key.starts_with("asynq:servers") && !key.starts_with("asynq:workers"));
    for content in dump.0.values_mut() {
        if let Content::Hash(fields) = content {
            fields.retain(|field, _| !without.contains(&field.as_str()));
            // Go reads fields of a message in any order, and so must we.
            if let Some(message) = fields.get_mut("msg") {
                *message = format!("{:?}", decode::<TaskMessage>(message)).into_bytes();
            }
        }
    }
    dump
}

/// A draft with the defaults of a Go client.
fn plain(kind: &str, payload: impl Into<Bytes>) -> Draft {
    let draft = draft().kind(kind).queue("default").payload(payload).max_retries(25);
    draft.retention(Duration::ZERO).but(|task| task.spec.timeout = HOUR / 2)
}

fn unique_for(hour: Duration) -> Unique {
    Unique { key: None, hold: Hold::For(hour), on_conflict: OnConflict::Reject }
}

#[tokio::test]
async fn submits_are_alike() {
    let twins = Twins::empty().await;
    let notes: BTreeMap<_, _> = [("tenant".to_owned(), "a".to_owned())].into();
    let deadline = Some(windlass_core::Timestamp::from_millis((twins.ours.seconds() + 9) * 1_000));
    let extras = Extras { deadline, metadata: notes.clone(), ..Extras::default() };
    let go = |kind: &str, payload: &str| GoTask::new(kind, payload);
    let pairs = [
        (plain("email:welcome", "{}"), go("email:welcome", "{}")),
        (
            plain("email:welcome", "{}").queue("critical").max_retries(5).but(|task| {
                task.spec.timeout = Duration::from_secs(90);
            }),
            GoTask { max_retry: 5, timeout_s: 90, ..go("email:welcome", "{}").queue("critical") },
        ),
        (
            plain("report:build", &[0, 1, 2, 255][..]).after(HOUR * 24),
            GoTask { process_in_s: 24 * 3_600, ..GoTask::new("report:build", [0, 1, 2, 255]) },
        ),
        (
            plain("email:welcome", "{\"unique\":true}").unique(unique_for(HOUR)),
            GoTask { unique_s: 3_600, ..go("email:welcome", "{\"unique\":true}") },
        ),
        (
            // Go counts from when the task is due, windlass from its submit.
            plain("once", "").unique(unique_for(HOUR * 2)).after(HOUR),
            GoTask { unique_s: 3_600, process_in_s: 3_600, ..go("once", "") },
        ),
        (
            plain("noted", "{}").extras(extras).retention(HOUR).max_retries(0),
            GoTask {
                deadline_s: twins.ours.seconds() + 9,
                timeout_s: 1_800,
                headers: notes,
                retention_s: 3_600,
                max_retry: 0,
                ..go("noted", "{}")
            },
        ),
    ];
    for (number, (ours, theirs)) in pairs.into_iter().enumerate() {
        let id = format!("task-{number}");
        let task = ours.with_id(TaskId::new(&id));
        let answer = twins.scene.insert(vec![task]).await.remove(0);
        assert!(answer.is_new(), "{answer:?}");
        twins.theirs.peer.enqueue(&theirs.id(&id)).await.unwrap();
        twins.are_alike(&id).await;
    }
}

#[tokio::test]
async fn what_go_has_only_in_seconds_is_never_too_short() {
    let ground = Ground::fresh().await;
    ground.strike();
    let scene = ground.scene().await;
    let bit = Duration::from_millis(1_001);
    let rounded = draft().retention(bit).after(bit).unique(unique_for(bit));
    let task = rounded.but(|task| task.spec.timeout = Duration::from_millis(1));
    let id = scene.submit(task).await;
    let info = ground.peer.task_info("main", id.as_str()).await.unwrap();
    assert_eq!((info.message.timeout, info.message.retention), (1, 2));
    assert_eq!(info.next_process_at, ground.seconds() + 2);
    assert!(ground.peer.ttl(&info.message.unique_key).await > 1);
    ground.advance(bit);
    ground.peer.forward("main").await;
    assert_eq!(scene.state(&id).await, State::Scheduled, "Go is not early either");
}

#[tokio::test]
async fn a_batch_of_submits_stands_in_the_same_order() {
    let twins = Twins::empty().await;
    let ids = ["a", "b", "c", "d"];
    let tasks = ids.map(|id| plain("kind", id).with_id(TaskId::new(id)));
    assert!(twins.scene.insert(tasks.to_vec()).await.iter().all(|answer| answer.is_new()));
    for id in ids {
        twins.theirs.peer.enqueue(&GoTask::new("kind", id).id(id)).await.unwrap();
    }
    twins.are_alike("after four").await;
}

/// Has both run the next task of a queue to this end.
async fn end(twins: &Twins, queue: &str, ending: Ending, state: State) {
    let worker = twins.scene.worker().await;
    let tasks = twins.scene.claim_from(&worker, &[queue], 1).await;
    let run = windlass_testkit::Run { worker, task: tasks[0].clone() };
    let theirs = twins.server.dequeue(&[queue]).await.unwrap();
    assert_eq!(run.id.as_str(), theirs.message.id);
    twins.are_alike("while it runs").await;
    match &ending {
        Ending::Completed { result } => {
            if let Some(result) = result {
                twins.server.write_result(&theirs, result).await;
            }
            twins.server.succeed(&theirs).await.unwrap();
        }
        Ending::Failed { error, .. } => twins.server.fail(&theirs, error, 10).await.unwrap(),
        Ending::Discarded { error } => {
            twins.theirs.peer.archive(&theirs.message, error).await.unwrap();
        }
        Ending::Released => twins.server.abort(&theirs).await.unwrap(),
        other => panic!("Go has no word for {other:?}"),
    }
    twins.scene.finish_as(&run, ending, state).await;
}

#[tokio::test]
async fn successes_are_alike() {
    let twins = Twins::with_fixture().await;
    end(&twins, "default", completed(), State::Completed).await;
    twins.are_alike("after a success").await;
    end(&twins, "default", completed(), State::Completed).await;
    twins.are_alike("after the success of a unique task").await;
    for unique_s in [0, 60] {
        let kept = GoTask { retention_s: 60, unique_s, ..GoTask::new("kept", "").queue("work") };
        twins.enqueue(kept.id(&format!("kept-{unique_s}"))).await;
        let result = Some(Bytes::from_static(b"{\"sent\":true}"));
        end(&twins, "work", Ending::Completed { result }, State::Completed).await;
        twins.are_alike("after a success that is kept").await;
    }
    twins.advance(Duration::from_secs(60));
    twins.scene.prune().await;
    twins.theirs.peer.clean("work").await;
    twins.are_alike("after the retention").await;
}

#[tokio::test]
async fn failures_are_alike() {
    let twins = Twins::with_fixture().await;
    end(&twins, "critical", failed("boom"), State::Retrying).await;
    twins.are_alike("after a failure").await;
    twins.advance(Duration::from_secs(10));
    twins.scene.promote().await;
    twins.theirs.peer.forward("critical").await;
    twins.are_alike("when it is due").await;
    end(&twins, "critical", failed("boom again"), State::Retrying).await;
    twins.are_alike("after the second failure").await;
    twins
        .enqueue(GoTask { max_retry: 0, ..GoTask::new("kind", "").id("last").queue("work") })
        .await;
    end(&twins, "work", failed("no more"), State::DeadLetter).await;
    twins.are_alike("after the last failure").await;
    end(&twins, "default", discarded("no use"), State::DeadLetter).await;
    twins.are_alike("after a failure for good").await;
}

#[tokio::test]
async fn what_is_given_back_is_alike() {
    let twins = Twins::with_fixture().await;
    end(&twins, "default", Ending::Released, State::Pending).await;
    // Go forgets since when it is pending.
    twins.are_alike_but("after a release", &["pending_since"]).await;
    let fields = twins.ours.peer.dump().await.hash("asynq:{default}:t:pending-1");
    assert_eq!(fields["pending_since"], b"1794769833813427090", "it waits since then");
}

#[tokio::test]
async fn operators_write_alike() {
    let twins = Twins::with_fixture().await;
    let go = &twins.theirs.peer;
    let id = TaskId::new;
    twins.scene.order_queue("critical", RunOrder::Pause).await;
    assert!(go.pause("critical").await);
    twins.scene.order_queue("low", RunOrder::Run).await;
    assert!(go.resume("low").await);
    twins.are_alike("after a pause and its end").await;
    for (queue, task) in [
        ("default", "scheduled-1"),
        ("work", "retry-1"),
        ("default", "unique-1"),
        ("default", "group-1"),
        ("work", "completed-1"),
    ] {
        twins.scene.delete(&id(task)).await;
        go.delete_task(queue, task).await.unwrap();
        twins.are_alike(task).await;
    }
    twins.scene.cancel(&id("pending-1")).await;
    go.archive_task("default", "pending-1").await.unwrap();
    // Go's inspector forgets that it is not pending any more.
    // And windlass says why it lies there.
    let fields = ["pending_since", "msg"];
    twins.are_alike_but("a cancelled task is one that was archived", &fields).await;
    let listed = twins.ours.peer.list("default", Shelf::Archived).await.unwrap();
    assert_eq!(listed.len(), 1);
}

#[tokio::test]
async fn what_is_run_now_is_alike() {
    let twins = Twins::with_fixture().await;
    for (queue, task) in [("default", "scheduled-1"), ("work", "retry-1")] {
        twins.scene.rerun(&TaskId::new(task)).await;
        twins.theirs.peer.run_task(queue, task).await.unwrap();
        twins.are_alike_but(task, &["pending_since"]).await;
    }
}
