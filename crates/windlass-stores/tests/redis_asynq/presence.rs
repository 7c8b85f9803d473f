//! Workers of windlass in the eyes of asynq's tools, and what these ask of them.

use std::time::Duration;

use windlass_core::store::{Beat, WaitParams, Wake, WorkerCard};
use windlass_core::{Ending, State};
use windlass_stores::redis::asynq::message::{ServerInfo, WorkerInfo};
use windlass_testkit::draft::{draft, queue};
use windlass_testkit::scene::claim_of;

use crate::stage::{START, Stage};

/// Longer than a wake-up may take; a wait that needs it has missed its wake-up.
const LONG: Duration = Duration::from_secs(20);

fn decode<M: prost::Message + Default>(stored: &[u8]) -> M {
    M::decode(stored).unwrap()
}

#[tokio::test]
async fn a_worker_shows_as_a_server_with_what_it_runs_until_it_leaves() {
    let stage = Stage::new().await;
    let run = stage.scene.start(draft().payload("{\"n\":1}")).await;
    let card = WorkerCard {
        host: "h".into(),
        pid: 7,
        slots: 4,
        slots_used: 1,
        queues: vec![queue("main")],
        ..WorkerCard::default()
    };
    stage.scene.store.beat(Beat { card, ..stage.scene.sign(&run.worker) }).await.unwrap();
    let server = format!("h:7:{}", run.worker);
    let key = format!("{}:servers:{{{server}}}", stage.prefix);
    let stored: Vec<u8> = stage.send_all("GET", &[key.as_bytes()]).await;
    let info: ServerInfo = decode(&stored);
    assert_eq!((info.concurrency, info.active_worker_count, info.pid), (4, 1, 7));
    assert_eq!((info.status.as_str(), info.queues["main"]), ("active", 1));
    assert_eq!(info.start_time.unwrap().seconds, START);
    let left: i64 = stage.send_all("TTL", &[key.as_bytes()]).await;
    assert!((8..=10).contains(&left), "{left} s");
    let set = format!("{}:servers", stage.prefix);
    let until: i64 = stage.send_all("ZSCORE", &[set.as_bytes(), key.as_bytes()]).await;
    assert_eq!(until, START + 10);
    let workers = format!("{}:workers:{{{server}}}", stage.prefix);
    let stored: Vec<u8> =
        stage.send_all("HGET", &[workers.as_bytes(), run.id.as_str().as_bytes()]).await;
    let info: WorkerInfo = decode(&stored);
    assert_eq!((info.task_type.as_str(), &info.task_payload[..]), ("work", &b"{\"n\":1}"[..]));
    assert_eq!(info.deadline.unwrap().seconds, START + 300);
    stage.scene.leave(&run.worker).await;
    for key in [&key, &workers] {
        let left: i64 = stage.send_all("EXISTS", &[key.as_bytes()]).await;
        assert_eq!(left, 0, "{key}");
    }
    let shown: Option<i64> = stage.send_all("ZSCORE", &[set.as_bytes(), key.as_bytes()]).await;
    assert_eq!(shown, None);
}

/// Waits until somebody listens to a channel.
async fn until_heard(stage: &Stage, channel: &str) {
    loop {
        let told: Vec<(String, i64)> =
            stage.send_all("PUBSUB", &[b"NUMSUB", channel.as_bytes()]).await;
        if told[0].1 > 0 {
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_cancellation_over_asynqs_channel_reaches_the_worker_and_lasts() {
    let stage = Stage::new().await;
    let s = &stage.scene;
    let run = s.start(draft()).await;
    let since = Some(s.beat(&run.worker).await.mark);
    let params = WaitParams {
        orders: Some(run.worker.clone()),
        since,
        at_most: LONG,
        ..WaitParams::default()
    };
    let store = s.store.clone();
    let waiting = tokio::spawn(async move { store.wait(params).await.unwrap() });
    let channel = format!("{}:cancel", stage.prefix);
    until_heard(&stage, &channel).await;
    let _: i64 = stage.send_all("PUBLISH", &[channel.as_bytes(), run.id.as_str().as_bytes()]).await;
    // One that begins to hear rings for all that it has not heard before: ask until the flag is there.
    assert_eq!(waiting.await.unwrap(), Wake::Orders);
    while s.beat(&run.worker).await.cancels.is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(s.beat(&run.worker).await.cancels, [run.lease()], "in every beat");
    s.finish_as(&run, Ending::Released, State::Cancelled).await;
}

#[tokio::test]
async fn a_task_that_go_pushes_wakes_who_waits_although_no_bell_rings() {
    let stage = Stage::new().await;
    let worker = stage.scene.worker().await;
    let claim = stage.scene.store.claim(claim_of(&worker, 1)).await.unwrap();
    let params = WaitParams {
        queues: vec![queue("other"), queue("main")],
        since: Some(claim.mark),
        at_most: LONG,
        ..WaitParams::default()
    };
    let store = stage.scene.store.clone();
    let waiting = tokio::spawn(async move { store.wait(params).await.unwrap() });
    stage.enqueue_as_go("a").await;
    assert_eq!(waiting.await.unwrap(), Wake::Work);
    assert_eq!(stage.scene.claim(&worker, 1).await.len(), 1);
}
