//! A server whose memory is over its limit: what is there goes on, ends and makes room; submits are refused.

use windlass_core::store::{
    Beat, Depth, Inspection, Order, ProgressReport, RunOrder, SaveDoc, Severity,
};
use windlass_core::{Lease, Reason, State};
use windlass_stores::redis::driver::cmd;
use windlass_testkit::draft::{draft, queue};
use windlass_testkit::scene::{HOUR, LEASE, Run, completed, failed};

use crate::stage::{Layout, Stage};

const COUNT: usize = 400;
const PAYLOAD_BYTES: usize = 10_000;

async fn ping(stage: &Stage) -> Inspection {
    stage.scene.store.inspect(Depth::Ping).await.unwrap()
}

async fn check_full_server_recovers(layout: Layout) {
    let stage = Stage::new(layout).await;
    let scene = &stage.scene;
    // What will make room: finished tasks that are kept for an hour.
    let large = || draft().payload(vec![7; PAYLOAD_BYTES]).retention(HOUR);
    scene.submit_all((0..COUNT).map(|_| large())).await;
    let worker = scene.worker().await;
    while let tasks = scene.claim(&worker, 100).await
        && !tasks.is_empty()
    {
        let ends = tasks.iter().map(|task| scene.transition(task, completed())).collect();
        scene.apply(&worker, ends).await;
    }
    let succeeds = scene.start(draft()).await;
    let fails = scene.start(draft()).await;
    let is_lost = scene.start(draft()).await;
    let pending = scene.submit(draft()).await;
    assert!(ping(&stage).await.is_writable(), "before it is full");

    let used = stage.info("memory", "used_memory").await;
    stage.limit_memory(used - 500_000);
    let error = scene.store.insert(vec![scene.make(draft()).await]).await.unwrap_err();
    assert_eq!(error.reason(), Reason::StorageFull, "{}", error.chain());
    // A queue that nobody has used before has no journal yet.
    let other = scene.make(draft().queue("other")).await;
    let error = scene.store.insert(vec![other]).await.unwrap_err();
    assert_eq!(error.reason(), Reason::StorageFull, "{}", error.chain());
    let refusal = ping(&stage).await.refusal.unwrap();
    assert_eq!(refusal.reason, Reason::StorageFull, "{}", refusal.text);
    let findings = scene.store.inspect(Depth::Full).await.unwrap().findings;
    for subject in ["writes", "memory"] {
        let is_told =
            findings.iter().any(|it| it.subject == subject && it.severity == Severity::Problem);
        assert!(is_told, "{subject}: {findings:#?}");
    }

    // Another process starts; one leads, workers beat, runs end, operators act.
    let scene = &scene.elsewhere().await;
    let duty = scene.duty().await;
    let report = ProgressReport {
        lease: Lease { task: fails.id.clone(), epoch: fails.epoch },
        fraction: 0.5,
        note: "half".into(),
    };
    let sign = Beat { progress: vec![report], ..scene.sign(&fails.worker) };
    scene.store.beat(sign).await.unwrap();
    scene.beat(&worker).await;
    scene.finish_as(&succeeds, completed(), State::Completed).await;
    scene.finish_as(&fails, failed("no"), State::Retrying).await;
    let task = scene.claim(&worker, 1).await.remove(0);
    assert_eq!(task.id, pending);
    let run = Run { worker: worker.clone(), task };
    scene.finish_as(&run, completed(), State::Completed).await;
    let order = Order::Queue { queue: queue("main"), order: RunOrder::Pause };
    scene.store.order(order).await.unwrap();
    scene.order_queue("main", RunOrder::Run).await;
    let document = SaveDoc {
        class: "audit".into(),
        key: "one".into(),
        expected: None,
        body: Some("{}".into()),
    };
    scene.store.save(document).await.unwrap();
    scene.advance(LEASE * 2);
    assert_eq!(scene.store.expire(duty).await.unwrap().done, 1, "a lost worker's task");
    scene.expect(&is_lost.id, State::Pending, "it was taken back").await;
    scene.advance(HOUR);
    scene.store.promote(duty).await.unwrap();
    scene.expect(&fails.id, State::Pending, "its time has come").await;
    let used_before = stage.info("memory", "used_memory").await;
    while scene.store.prune(duty).await.unwrap().has_more {}
    while scene.store.tend(duty).await.unwrap().has_more {}
    let used = stage.info("memory", "used_memory").await;
    assert!(used + 2_000_000 < used_before, "{used} of {used_before} bytes are left");

    // It has made room by itself.
    scene.submit(draft()).await;
    assert!(ping(&stage).await.is_writable(), "there is room");
}

#[tokio::test]
async fn a_full_server_recovers_by_itself() {
    check_full_server_recovers(Layout::Streams).await;
}

#[tokio::test]
async fn a_full_server_recovers_by_itself_on_asynqs_keys() {
    check_full_server_recovers(Layout::Asynq).await;
}

#[tokio::test]
async fn a_ping_reports_a_replica_that_takes_no_writes() {
    for layout in [Layout::Streams, Layout::Asynq] {
        let stage = Stage::new(layout).await;
        let _: () = stage.run(cmd("REPLICAOF").arg("127.0.0.1").arg(1)).await;
        let refusal = ping(&stage).await.refusal.unwrap();
        assert_eq!(refusal.reason, Reason::ReadOnly, "{}", refusal.text);
        let _: () = stage.run(cmd("REPLICAOF").arg("NO").arg("ONE")).await;
        assert!(ping(&stage).await.is_writable(), "a primary again");
    }
}

/// Whoever starts meanwhile comes up too, and the doctor names the key.
#[tokio::test]
async fn a_ping_reports_a_key_of_a_wrong_type() {
    for (layout, stem, names) in [
        (Layout::Streams, "up:{~}:", "up:{~}:queues"),
        (Layout::Asynq, "wl:up-fleet:{~}:", "up:queues"),
    ] {
        let stage = Stage::new(layout).await;
        stage.scene.submit(draft()).await;
        stage.scene.worker().await;
        assert!(ping(&stage).await.is_writable(), "all is well");
        let own = ["workers", "leases", "gone", "unclean", "lead", "born", "touched"];
        for key in own.map(|key| format!("{stem}{key}")).into_iter().chain([names.to_owned()]) {
            let strange = if key.ends_with("born") { "LPUSH" } else { "SET" };
            let kept: i32 = stage.run(cmd("EXISTS").arg(&key)).await;
            if kept == 1 {
                let _: () = stage.run(cmd("RENAME").arg(&key).arg("kept")).await;
            }
            let _: () = stage.run(cmd(strange).arg(&key).arg("strange")).await;
            assert!(!ping(&stage).await.is_writable(), "{key}");
            for depth in [Depth::Full, Depth::Repair] {
                let elsewhere = stage.scene.elsewhere().await;
                let findings = elsewhere.store.inspect(depth).await.unwrap().findings;
                let is_named =
                    findings.iter().any(|it| it.subject == "keys" && it.text.contains(&key));
                assert!(is_named, "{key}: {findings:#?}");
            }
            let _: () = stage.run(cmd("DEL").arg(&key)).await;
            if kept == 1 {
                let _: () = stage.run(cmd("RENAME").arg("kept").arg(&key)).await;
            }
            assert!(ping(&stage).await.is_writable(), "without {key}");
        }
    }
}
