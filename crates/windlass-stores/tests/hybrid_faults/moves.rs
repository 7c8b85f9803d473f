//! What comes while a worker waits is brought to it: by a move from the list itself where there is one to wait for, or
//! right behind the bell.

use std::sync::Arc;

use tokio::task::JoinHandle;
use windlass_core::store::{
    ApplyParams, ClaimParams, Depth, PrioritySet, Quota, WaitParams, Wake, WakeMark,
};
use windlass_core::{Priority, TaskId, WorkerId};
use windlass_testkit::draft::{draft, queue};
use windlass_testkit::scene::{LEASE, claim_of, completed};
use windlass_testkit::servers::redis::Keeping;
use windlass_testkit::{RedisServer, Scene};

use crate::hybrid::HybridSubject;
use crate::schema::connect;
use crate::{signal, stage};

/// A claim of one list.
fn wish(worker: &WorkerId) -> ClaimParams {
    let priorities = PrioritySet::of(&[Priority::Normal]);
    let quotas = vec![Quota { priorities, ..Quota::of(queue("main"), 9) }];
    ClaimParams { quotas, ..claim_of(worker, 9) }
}

/// Finds nothing to claim and begins to wait for work, at the server too: at the bell, and at the list if there is
/// only one.
async fn begin_to_wait(
    s: &Scene,
    server: &RedisServer,
    wish: &ClaimParams,
    places: usize,
) -> JoinHandle<Wake> {
    loop {
        let (found, mark) = claim(s, wish.clone()).await;
        assert_eq!(found, []);
        let (store, queues, since) = (Arc::clone(&s.store), vec![queue("main")], Some(mark));
        let wait = WaitParams { queues, since, at_most: LEASE, ..WaitParams::default() };
        let waiting = tokio::spawn(async move { store.wait(wait).await.unwrap() });
        // It may be told to look once more.
        while !waiting.is_finished() {
            let clients = server.operate(&["INFO", "clients"]).unwrap();
            if clients.contains(&format!("blocked_clients:{places}")) {
                return waiting;
            }
            tokio::task::yield_now().await;
        }
    }
}

async fn claim(s: &Scene, wish: ClaimParams) -> (Vec<TaskId>, WakeMark) {
    let claim = s.store.claim(wish).await.unwrap();
    (claim.tasks.into_iter().map(|task| task.id).collect(), claim.mark)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_list_is_waited_for_by_a_move_whatever_the_server_calls_it() {
    for extra in [&[][..], &["--rename-command", "BLMOVE", ""]] {
        let (server, s, _) = stage(extra).await;
        let worker = s.worker().await;
        let waiting = begin_to_wait(&s, &server, &wish(&worker), 2).await;
        let id = s.elsewhere().await.submit(draft()).await;
        assert_eq!(waiting.await.unwrap(), Wake::Work);
        let moves = server.operate(&["INFO", "commandstats"]).unwrap().to_lowercase();
        let name = if extra.is_empty() {
            "cmdstat_blmove:calls=1,"
        } else {
            "cmdstat_brpoplpush:calls=1,"
        };
        assert!(moves.contains(name), "{moves}");
        assert_eq!(claim(&s, wish(&worker)).await.0, [id]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_woken_by_a_bell_need_not_ask_the_broker_for_what_rang() {
    let (server, s, _) = stage(&[]).await;
    let (worker, elsewhere) = (s.worker().await, s.elsewhere().await);
    let is_up = async || s.store.inspect(Depth::Ping).await.unwrap().brokers[0].is_up;
    // Not by the first bell, which makes the server know the script behind it; and something else may wake as well.
    for _ in 0..20 {
        let waiting = begin_to_wait(&s, &server, &claim_of(&worker, 9), 1).await;
        let id = elsewhere.submit(draft()).await;
        assert_eq!(waiting.await.unwrap(), Wake::Work);
        signal(&server, "STOP");
        assert_eq!(claim(&s, claim_of(&worker, 9)).await.0, [id]);
        let is_unasked = is_up().await;
        signal(&server, "CONT");
        while !is_up().await {
            tokio::task::yield_now().await;
        }
        if is_unasked {
            // There may be more, so that whoever claims again looks at the lists.
            let more = elsewhere.submit_many(3).await;
            assert_eq!(claim(&s, claim_of(&worker, 9)).await.0, more);
            return;
        }
    }
    panic!("it was asked every time");
}

/// A worker that runs one task and ends another claims twice at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_moved_is_for_any_claim_of_the_worker() {
    let (server, s, schema) = stage(&[]).await;
    let worker = s.worker().await;
    s.submit(draft()).await;
    let first = s.store.claim(wish(&worker)).await.unwrap();
    // An ending with a claim behind it, held up when it has looked and found nothing.
    let operator = connect(&schema).await;
    operator.batch_execute("BEGIN; SELECT FROM lease FOR UPDATE").await.unwrap();
    let ending = ApplyParams {
        worker: worker.clone(),
        transitions: vec![s.transition(&first.tasks[0], completed())],
        then_claim: Some(wish(&worker)),
    };
    // On a connection of its own, so that nothing else waits behind it.
    let store = s.store.dedicated().await.unwrap();
    let applying = tokio::spawn(async move { store.apply(ending).await.unwrap() });
    let watcher = connect(&schema).await;
    let held_up = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
        AND query LIKE '%finish%' AND datname = current_database()";
    while watcher.query_one(held_up, &[]).await.unwrap().get::<_, i64>(0) == 0 {
        tokio::task::yield_now().await;
    }
    let waiting = begin_to_wait(&s, &server, &wish(&worker), 2).await;
    let id = s.elsewhere().await.submit(draft()).await;
    assert_eq!(waiting.await.unwrap(), Wake::Work);
    assert_eq!(claim(&s, wish(&worker)).await.0, [id]);
    operator.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(applying.await.unwrap().claim.unwrap().unwrap().tasks, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_broker_of_low_tasks_has_brought_waits_for_what_the_other_has() {
    let (high, low) = (RedisServer::start(Keeping::Nothing), RedisServer::start(Keeping::Nothing));
    let s = Scene::on(Arc::new(HybridSubject::on(&[&high, &low]).await));
    let (worker, elsewhere) = (s.worker().await, s.elsewhere().await);
    let waiting = begin_to_wait(&s, &low, &claim_of(&worker, 1), 1).await;
    let normal = elsewhere.submit(draft()).await;
    assert_eq!(waiting.await.unwrap(), Wake::Work);
    let urgent = elsewhere.submit(draft().priority(Priority::Critical)).await;
    assert_eq!(claim(&s, claim_of(&worker, 1)).await.0, [urgent]);
    assert_eq!(claim(&s, claim_of(&worker, 1)).await.0, [normal]);
}

/// One who waits for a bell may be slow to claim, and others may have some of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_are_not_brought_to_who_waits_for_a_bell() {
    let (server, s, _) = stage(&[]).await;
    let (worker, other, elsewhere) = (s.worker().await, s.worker().await, s.elsewhere().await);
    let waiting = begin_to_wait(&s, &server, &claim_of(&worker, 3), 1).await;
    let ids = elsewhere.submit_many(7).await;
    assert_eq!(waiting.await.unwrap(), Wake::Work);
    assert_eq!(claim(&elsewhere, claim_of(&other, 3)).await.0, ids[..3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_moved_stands_behind_what_is_more_urgent() {
    let (server, s, _) = stage(&[]).await;
    let (worker, elsewhere) = (s.worker().await, s.elsewhere().await);
    let waiting = begin_to_wait(&s, &server, &wish(&worker), 2).await;
    let moved = elsewhere.submit_many(7).await;
    assert_eq!(waiting.await.unwrap(), Wake::Work);
    let urgent = elsewhere.submit(draft().priority(Priority::Critical)).await;
    let given = claim(&s, claim_of(&worker, 3)).await.0;
    assert_eq!(given, [&[urgent], &moved[..2]].concat());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_moved_and_is_not_claimed_is_given_back() {
    let (server, s, _) = stage(&[]).await;
    let (worker, other) = (s.worker().await, s.worker().await);
    let waiting = begin_to_wait(&s, &server, &wish(&worker), 2).await;
    let elsewhere = s.elsewhere().await;
    let id = elsewhere.submit(draft()).await;
    assert_eq!(waiting.await.unwrap(), Wake::Work);
    // The one who waited has changed its mind.
    loop {
        let (given, mark) = claim(&elsewhere, claim_of(&other, 9)).await;
        if !given.is_empty() {
            assert_eq!(given, [id]);
            return;
        }
        let (queues, since) = (vec![queue("main")], Some(mark));
        let wait = WaitParams { queues, since, at_most: LEASE, ..WaitParams::default() };
        elsewhere.store.wait(wait).await.unwrap();
    }
}
