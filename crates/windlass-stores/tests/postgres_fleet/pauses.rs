//! Pauses in large fleets: one notification for all workers, and no look at queues that run.

use std::sync::Arc;

use windlass_core::store::{Beat, Order, RunOrder, WaitParams, Wake, WakeMark, WorkerCard};
use windlass_core::{Store, WorkerId};
use windlass_stores::postgres::{PostgresOptions, PostgresStore};
use windlass_testkit::draft::queue;

use super::{LISTENING, Place, WAIT_MAX, beat};

const PROCESSES: usize = 5;
const WORKERS_EACH: usize = 200;

fn serving(worker: &str, name: &str) -> Beat {
    let card = WorkerCard { queues: vec![queue(name)], ..WorkerCard::default() };
    Beat { card, ..beat(worker) }
}

fn for_orders(worker: &str, name: &str, since: WakeMark) -> WaitParams {
    WaitParams {
        orders: Some(WorkerId::new(worker)),
        served_queues: vec![queue(name)],
        since: Some(since),
        at_most: WAIT_MAX,
        ..WaitParams::default()
    }
}

/// A process that listens.
async fn open_listening(place: &Place, process: &str) -> Arc<PostgresStore> {
    let store = place.open(process).await;
    let first = for_orders("nobody", "none", WakeMark::default());
    let waiting = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.wait(first).await }
    });
    place.until(process, LISTENING, |count| count == 1).await;
    waiting.abort();
    store
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_pause_wakes_a_thousand_workers() {
    let place = Place::fresh().await;
    let mut waiting = Vec::new();
    for process in 0..PROCESSES {
        let store = open_listening(&place, &format!("p{process}")).await;
        for number in 0..WORKERS_EACH {
            let worker = format!("worker-{process}-{number}");
            let mark = store.beat(serving(&worker, "main")).await.unwrap().mark;
            let params = for_orders(&worker, "main", mark);
            let store = Arc::clone(&store);
            waiting.push(tokio::spawn(async move {
                let wake = store.wait(params).await.unwrap();
                (wake, store.beat(serving(&worker, "main")).await.unwrap().paused_queues)
            }));
        }
    }
    let order = Order::Queue { queue: queue("main"), order: RunOrder::Pause };
    place.open("operator").await.order(order).await.unwrap();
    let all = async {
        for waiting in waiting {
            assert_eq!(waiting.await.unwrap(), (Wake::Orders, vec![queue("main")]));
        }
    };
    tokio::time::timeout(WAIT_MAX, all).await.expect("all are woken and beat");
}

/// Gives an order from a process that ends as soon as the order is answered.
async fn order_and_end(options: PostgresOptions, order: Order) {
    let process = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store = PostgresStore::open(options).await.unwrap();
            store.order(order).await.unwrap();
        });
        runtime.shutdown_background();
    });
    tokio::task::spawn_blocking(|| process.join().unwrap()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_of_a_process_that_ends_right_after_are_heard() {
    let place = Place::fresh().await;
    let store = open_listening(&place, "worker").await;
    let (name, order) = (queue("main"), RunOrder::Pause);
    let worker = WorkerId::new("worker");
    for order in [Order::Queue { queue: name, order }, Order::Worker { worker, order }] {
        let mark = store.beat(serving("worker", "main")).await.unwrap().mark;
        let waiting = tokio::spawn({
            let (store, params) = (Arc::clone(&store), for_orders("worker", "main", mark));
            async move { store.wait(params).await.unwrap() }
        });
        order_and_end(place.options("operator"), order.clone()).await;
        assert_eq!(waiting.await.unwrap(), Wake::Orders, "after {order:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_beat_reads_no_queues_that_run() {
    let place = Place::fresh().await;
    let other = &place.other;
    let prepare = format!("PREPARE beat AS {}", include_str!("../../sql/postgres/beat.sql"));
    let fill = "INSERT INTO queue (name) SELECT 'queue-' || n FROM generate_series(1, 100000) AS n;
        UPDATE queue SET is_paused = true WHERE name = 'queue-77';
        SET plan_cache_mode = force_generic_plan";
    other.batch_execute(fill).await.unwrap();
    other.batch_execute(&prepare).await.unwrap();
    for is_analyzed in [false, true] {
        if is_analyzed {
            other.batch_execute("ANALYZE queue").await.unwrap();
        }
        let text =
            "EXPLAIN EXECUTE beat (NULL, 'worker', '{}', 15000, ARRAY['queue-77', 'queue-78'])";
        let rows = other.query(text, &[]).await.unwrap();
        let plan = rows.iter().map(|row| row.get::<_, &str>(0)).collect::<Vec<_>>().join("\n");
        assert!(plan.contains("queue_paused"), "{plan}");
    }
}
