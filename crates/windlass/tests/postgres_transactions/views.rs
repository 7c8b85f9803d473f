//! The views for people who look with SQL: timelines, states in bulk, workers.

use std::time::Duration;

use windlass::core::history::timeline;
use windlass::core::store::{GetParams, Parts};
use windlass::core::{State, TaskId, TaskRecord};
use windlass::prelude::*;
use windlass::tokio_postgres;

use crate::shop::{Ship, Shop};

/// What happened, in which attempt, at which worker, and the message.
type EventRow = (String, Option<i32>, Option<String>, Option<String>);

const PATIENCE: Duration = Duration::from_secs(60);

/// One succeeds at once, two fails once, and three is beyond help.
async fn deliver(task: Ship, cx: Context<()>) -> Outcome<i64> {
    match task.0 {
        2 if cx.attempt() == 1 => Err(retry_after(Duration::ZERO, "the truck broke down")),
        3 => Err(discard("no such address")),
        number => Ok(number),
    }
}

/// A shop whose tasks are in many states.
async fn busy_shop() -> (Shop, Worker, Vec<TaskId>) {
    let shop = Shop::open().await;
    let worker = shop.client.worker().handle(deliver).concurrency(4).start().await.unwrap();
    let mut ids = Vec::new();
    for number in 1..=3 {
        let task = shop.client.enqueue(Ship(number)).await.unwrap();
        let ended = tokio::time::timeout(PATIENCE, task.wait()).await.expect("it ends");
        assert_eq!(ended.is_ok(), number < 3);
        ids.push(task.id().clone());
    }
    for number in 4..=5 {
        ids.push(shop.client.enqueue(Ship(number)).queue("unserved").await.unwrap().id().clone());
    }
    let later = shop.client.enqueue(Ship(6)).delay(Duration::from_secs(600)).await.unwrap();
    ids.push(later.id().clone());
    let cancelled = shop.client.enqueue(Ship(7)).queue("unserved").await.unwrap();
    cancelled.cancel().await.unwrap();
    ids.push(cancelled.id().clone());
    (shop, worker, ids)
}

async fn rows(shop: &Shop, text: &str) -> Vec<tokio_postgres::Row> {
    let connection = shop.connect().await;
    connection.query(&text.replace("{}", &shop.schema), &[]).await.unwrap()
}

async fn record(shop: &Shop, id: &TaskId) -> TaskRecord {
    let params = GetParams { ids: vec![id.clone()], parts: Parts::ALL };
    shop.client.store().get(params).await.unwrap().pop().flatten().unwrap()
}

#[tokio::test]
async fn events_are_the_timeline_of_each_task() {
    let (shop, worker, ids) = busy_shop().await;
    for id in &ids {
        let expected: Vec<_> = timeline(&record(&shop, id).await)
            .into_iter()
            .map(|entry| {
                let what = serde_json::to_value(entry.what).unwrap();
                let attempt = entry.run.as_ref().map(|run| i32::try_from(run.attempt).unwrap());
                let worker = entry.run.map(|run| run.worker.to_string());
                (what.as_str().unwrap().to_owned(), attempt, worker, entry.error)
            })
            .collect();
        let text = format!(
            "SELECT event, attempt, worker_id, message, time <= now() + interval '1 minute'
             FROM {{}}.task_events('{id}')"
        );
        let found = rows(&shop, &text).await;
        assert!(found.iter().all(|row| row.get(4)));
        let found: Vec<EventRow> =
            found.iter().map(|row| (row.get(0), row.get(1), row.get(2), row.get(3))).collect();
        assert_eq!(found, expected, "{id}");
    }
    assert!(rows(&shop, "SELECT * FROM {}.task_events('nobody')").await.is_empty());
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn task_states_agree_with_tasks() {
    let (shop, worker, ids) = busy_shop().await;
    let columns = "seq, type, queue, state, attempts, crashes, created_at, run_at, claimed_at, started_at, completed_at";
    for (one, other) in [("tasks", "task_states"), ("task_states", "tasks")] {
        let text =
            format!("SELECT {columns} FROM {{}}.{one} EXCEPT SELECT {columns} FROM {{}}.{other}");
        let differing = rows(&shop, &format!("SELECT d::text FROM ({text}) AS d")).await;
        let differing: Vec<String> = differing.iter().map(|row| row.get(0)).collect();
        assert!(differing.is_empty(), "only in {one}: {differing:?}");
    }
    let by_state =
        rows(&shop, "SELECT state, count(*) FROM {}.task_states GROUP BY 1 ORDER BY 1").await;
    let by_state: Vec<(String, i64)> =
        by_state.iter().map(|row| (row.get(0), row.get(1))).collect();
    let expected = [
        (State::Cancelled, 1),
        (State::Completed, 2),
        (State::DeadLetter, 1),
        (State::Pending, 2),
        (State::Scheduled, 1),
    ];
    assert_eq!(by_state, expected.map(|(state, count)| (state.to_string(), count)));
    assert_eq!(ids.len(), 7);
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn workers_show_who_leads_and_who_is_gone() {
    let (shop, worker, _) = busy_shop().await;
    let leads = async {
        while rows(&shop, "SELECT id FROM {}.workers WHERE is_leader AND state = 'run'")
            .await
            .is_empty()
        {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(PATIENCE, leads).await.expect("the only worker leads");
    let found = rows(&shop, "SELECT slots, queues::text, version, pid FROM {}.workers").await;
    assert_eq!(found.len(), 1);
    let (slots, queues): (i64, &str) = (found[0].get(0), found[0].get(1));
    assert_eq!((slots, queues), (4, "[\"default\"]"));
    assert_eq!(found[0].get::<_, i64>(3), i64::from(std::process::id()));
    worker.stop().await.unwrap();
    let found = rows(&shop, "SELECT state, is_leader, gone_at IS NOT NULL FROM {}.workers").await;
    assert_eq!((found[0].get(0), found[0].get(1), found[0].get(2)), ("gone", false, true));
}
