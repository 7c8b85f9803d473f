//! A slot that moves, key by key, while its queue is at work.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::store::{Beat, ClaimParams, Inserted, Quota, Reservation, WorkerCard};
use windlass_core::{Store, WorkerId};
use windlass_testkit::draft::{draft, queue};
use windlass_testkit::{Load, RedisCluster};

use crate::upkeep::Upkeep;

/// So many keys of a slot are moved one by one: all that Streams has. Then come the many tasks of asynq's layout.
const ONE_BY_ONE: usize = 20;
const AT_ONCE: usize = 500;

/// Moves the slots of these keys, one after the other. After each step somebody has met the open slot.
async fn reshard_under_load(cluster: &RedisCluster, store: Arc<dyn Store>, keys: &[&str]) {
    let load = Load::start(Arc::clone(&store));
    let upkeep = Upkeep::start(store);
    load.goes_on().await;
    for key in keys {
        let slot = cluster.open_slot(key);
        let (mut moved, mut is_empty) = (0, false);
        while !is_empty {
            // Of the fleet's keys only that of the workers is met by everybody: all of them are moved in one step.
            let is_queue = !key.contains("{~}");
            let step = if is_queue && moved < ONE_BY_ONE { 1 } else { AT_ONCE };
            let move_some = async {
                let keys: Vec<_> = std::iter::from_fn(|| slot.move_key()).take(step).collect();
                is_empty = keys.len() < step;
                moved += keys.len();
            };
            load.is_hit_by(move_some).await;
        }
        assert!(moved > 2, "a slot of several keys: {moved}");
        slot.close();
        load.goes_on().await;
    }
    upkeep.end().await;
    load.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_under_load_loses_and_doubles_nothing() {
    let cluster = RedisCluster::start();
    let store = windlass_stores::open(&cluster.url("moved")).await.unwrap();
    let keys = ["moved:{main}:", "moved:{~}:", "moved:{main}:"];
    reshard_under_load(&cluster, store, &keys).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_of_asynq_that_moves_under_load_loses_and_doubles_nothing() {
    let cluster = RedisCluster::start();
    let (nodes, _) = cluster.url("").split_once('?').map(|(url, _)| (url.to_owned(), ())).unwrap();
    let url = nodes.replace("redis+cluster", "redis+asynq+cluster");
    let store = windlass_stores::open(&url).await.unwrap();
    reshard_under_load(&cluster, store, &["asynq:{main}:", "asynq:{main}:"]).await;
}

/// An operator's tool that was interrupted leaves a slot open until someone closes it.
#[tokio::test]
async fn a_queue_whose_slot_is_open_keeps_no_other_from_work() {
    let cluster = RedisCluster::start();
    let store = windlass_stores::open(&cluster.url("open")).await.unwrap();
    let worker = WorkerId::new("worker");
    let beat = || {
        let sign = Beat {
            worker: worker.clone(),
            card: WorkerCard::default(),
            lease: Duration::from_secs(600),
            held: None,
            progress: Vec::new(),
        };
        store.beat(sign)
    };
    let submit = async || {
        let mut tasks = Vec::new();
        for name in ["stuck", "free"] {
            let wanted = vec![Reservation { queue: queue(name), count: 2 }];
            let ids = store.reserve(wanted).await.unwrap();
            tasks.extend(ids.into_iter().map(|id| draft().queue(name).with_id(id)));
        }
        tasks
    };
    let claim = || {
        let quotas = ["stuck", "free"].map(|name| Quota::of(queue(name), 9)).to_vec();
        store.claim(ClaimParams { worker: worker.clone(), quotas, limit: 9, suspects_at_most: 1 })
    };
    beat().await.unwrap();
    store.insert(submit().await).await.unwrap();

    let slot = cluster.open_slot("open:{stuck}:");
    slot.move_key().expect("a key of the queue");
    beat().await.unwrap();
    let claimed = claim().await.unwrap().tasks;
    let is_free = claimed.iter().all(|task| task.queue.as_str() == "free");
    assert!(claimed.len() == 2 && is_free, "{claimed:#?}");
    let tasks = submit().await;
    let error = store.insert(tasks.clone()).await.unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");

    while slot.move_key().is_some() {}
    slot.close();
    let answers = store.insert(tasks).await.unwrap();
    assert!(answers.iter().all(Inserted::is_new), "each once: {answers:?}");
    assert_eq!(claim().await.unwrap().tasks.len(), 6, "two and four");
}
