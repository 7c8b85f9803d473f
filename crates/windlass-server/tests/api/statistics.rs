//! What was done lately: `/stats`, `/stats/timeseries`, the rates of queues.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use windlass_core::dice::Dice;
use windlass_core::retry::Backoff;
use windlass_core::store::{ApplyParams, Beat, ClaimParams, Quota, WorkerCard};
use windlass_core::{Ending, QueueName, WorkerId, state};
use windlass_testkit::faults::Method as Call;

use crate::support::Api;

/// Two queues, four tasks, three of them run: two well, one not.
async fn worked() -> Api {
    let api = Api::new();
    for queue in ["mail", "mail", "mail", "bulk"] {
        api.submit(&format!(r#"{{"type":"send","queue":"{queue}"}}"#)).await;
    }
    let well = || Ending::Completed { result: Some(Bytes::from_static(b"1")) };
    let failed = Ending::Failed { error: "no luck".into(), retry_after: None };
    for (queue, ending) in [("mail", well()), ("mail", failed), ("bulk", well())] {
        run_one(&api, queue, ending).await;
    }
    api
}

/// Has a worker run one task of a queue, the way that is counted.
async fn run_one(api: &Api, queue: &str, ending: Ending) {
    let (worker, store) = (WorkerId::new("hand-1"), api.client.watched());
    let (card, lease) = (WorkerCard::default(), Duration::from_secs(60));
    let beat = Beat { worker: worker.clone(), card, lease, held: None, progress: vec![] };
    store.beat(beat).await.unwrap();
    let quotas = vec![Quota::of(QueueName::stored(queue), 1)];
    let params = ClaimParams { worker: worker.clone(), quotas, limit: 1, suspects_at_most: 1 };
    let task = store.claim(params).await.unwrap().tasks.remove(0);
    let end = state::finish(&task, ending, &Backoff::default(), &mut Dice::seeded(1));
    let transitions = vec![end.took(Duration::from_millis(20))];
    store.apply(ApplyParams { worker, transitions, then_claim: None }).await.unwrap();
}

fn of<'a>(list: &'a Value, name: &str, wanted: &str) -> &'a Value {
    let list = list.as_array().unwrap();
    list.iter().find(|tally| tally[name] == wanted).unwrap_or(&Value::Null)
}

#[tokio::test]
async fn windows_tell_what_was_done_in_all_by_queue_and_by_type() {
    let stats = worked().await.get("/stats").await.is(200);
    for (name, minutes) in [("1h", 60), ("24h", 1_440), ("7d", 10_080)] {
        let window = &stats["windows"][name];
        assert_eq!(window["minutes"], minutes);
        let counts =
            |tally: &Value| json!([tally["submitted"], tally["completed"], tally["failed"]]);
        assert_eq!(counts(&window["total"]), json!([4, 2, 1]), "{name}: {window}");
        assert_eq!(counts(of(&window["queues"], "queue", "mail")), json!([3, 1, 1]));
        assert_eq!(counts(of(&window["queues"], "queue", "bulk")), json!([1, 1, 0]));
        assert_eq!(counts(of(&window["types"], "type", "send")), json!([4, 2, 1]));
        assert_eq!(window["queues"][0]["queue"], "mail", "the busiest first");
        assert!(window["total"]["wait"]["p95"].is_number(), "{window}");
    }
}

#[tokio::test]
async fn a_series_has_a_point_for_every_step_and_what_was_done_in_it() {
    let api = worked().await;
    for (minutes, points, step) in [
        (1, 1, 60),
        (60, 60, 60),
        (120, 120, 60),
        (121, 13, 600),
        (1_440, 144, 600),
        (10_080, 168, 3_600),
    ] {
        let series = api.get(&format!("/stats/timeseries?minutes={minutes}")).await.is(200);
        assert_eq!(series["points"].as_array().unwrap().len(), points, "{minutes}");
        assert_eq!((&series["step_seconds"], &series["minutes"]), (&json!(step), &json!(minutes)));
    }
    let total = async |path: &str| api.get(path).await.is(200)["total"]["completed"].clone();
    assert_eq!(total("/stats/timeseries").await, 2);
    assert_eq!(total("/stats/timeseries?queue=mail").await, 1);
    assert_eq!(total("/stats/timeseries?type=send&queue=bulk&minutes=600").await, 1);
    assert_eq!(total("/stats/timeseries?type=other").await, 0);
}

#[tokio::test]
async fn a_series_that_cannot_be_is_refused() {
    let api = Api::new();
    for query in
        ["minutes=0", "minutes=10081", "minutes=x", "minutes=-1", "minute=5", "minutes=1&minutes=2"]
    {
        let answer = api.get(&format!("/stats/timeseries?{query}")).await;
        answer.is_problem(422, "invalid-request");
    }
}

#[tokio::test]
async fn queues_tell_how_fast_tasks_come_and_go() {
    let api = worked().await;
    let queue = api.get("/queues/mail").await.is(200);
    assert!(queue["in_rate"].as_f64().unwrap() > 0.0, "{queue}");
    assert!(queue["in_rate"].as_f64() > queue["out_rate"].as_f64(), "{queue}");
    let queues = api.get("/queues").await.is(200);
    assert!(of(&queues["data"], "name", "bulk")["out_rate"].as_f64().unwrap() > 0.0, "{queues}");
}

#[tokio::test]
async fn a_queue_is_told_also_when_statistics_cannot_be_read() {
    let api = worked().await;
    api.faults.fail(Call::Load, 50, windlass_core::ErrorKind::Unavailable);
    let queue = api.get("/queues/mail").await.is(200);
    assert_eq!((&queue["in_rate"], &queue["out_rate"]), (&Value::Null, &Value::Null));
    api.get("/stats").await.is_problem(503, "store-unavailable");
}
