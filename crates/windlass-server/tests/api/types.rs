//! Pull workers that name the types they handle.

use serde_json::{Value, json};

use crate::pull::id;
use crate::support::Api;

/// Leases up to so many tasks of these types, waiting for the first.
async fn lease(api: &Api, worker: Option<&str>, types: &[&str], max: u32, wait: u32) -> Value {
    let worker = json!({ "id": worker, "types": types });
    let body = json!({ "worker": worker, "max": max, "wait": wait });
    api.post("/leases", &body.to_string()).await.is(200)
}

/// A worker that the store knows with its types.
async fn registered(api: &Api, types: &[&str]) -> String {
    let first = lease(api, None, types, 1, 0).await;
    let second = lease(api, Some(id(&first)), types, 1, 0).await;
    id(&second).to_owned()
}

async fn complete(api: &Api, worker: &str, tasks: &[Value]) {
    let result =
        |task: &Value| json!({ "id": task["id"], "epoch": task["epoch"], "outcome": "completed" });
    let results: Vec<_> = tasks.iter().map(result).collect();
    let body = json!({ "worker_id": worker, "results": results });
    api.post("/results", &body.to_string()).await.is(200);
}

/// Leases until a worker has had so many tasks; all of them must be of its type.
async fn work(api: &Api, worker: &str, kind: &str, count: usize) {
    let mut had = 0;
    while had < count {
        let leased = lease(api, Some(worker), &[kind], 5, 30).await;
        let tasks = leased["tasks"].as_array().unwrap();
        assert!(tasks.iter().all(|task| task["type"] == kind), "{leased}");
        assert!(tasks.len() <= 5, "no more than it has asked for: {leased}");
        had += tasks.len();
        complete(api, worker, tasks).await;
    }
}

#[tokio::test]
async fn each_worker_gets_its_own_types_and_no_task_notices() {
    let api = Api::new();
    let (a, b) = (registered(&api, &["a"]).await, registered(&api, &["b"]).await);
    let mut ids = Vec::new();
    for number in 0..60 {
        let kind = if number % 2 == 0 { "a" } else { "b" };
        ids.push(api.submit(&json!({ "type": kind }).to_string()).await);
    }
    tokio::join!(work(&api, &a, "a", 30), work(&api, &b, "b", 30));
    for id in ids {
        let task = api.get(&format!("/tasks/{id}")).await.is(200);
        let counts = (&task["state"], &task["attempts"], &task["crashes"]);
        assert_eq!(counts, (&json!("completed"), &json!(1), &json!(0)), "{task}");
        let events = api.get(&format!("/tasks/{id}/events")).await.is(200);
        let told: Vec<_> = events["data"].as_array().unwrap().iter().map(|e| &e["event"]).collect();
        assert_eq!(told, ["submitted", "claimed", "completed"], "{events}");
    }
}

#[tokio::test]
async fn results_with_a_lease_bring_own_types_only() {
    let api = Api::new();
    let (a, _b) = (registered(&api, &["a"]).await, registered(&api, &["b"]).await);
    for kind in ["b", "a", "b", "a"] {
        api.submit(&json!({ "type": kind }).to_string()).await;
    }
    let lease = json!({ "worker": { "types": ["a"] }, "max": 5, "wait": 30 });
    let body = json!({ "worker_id": a, "results": [], "lease": lease });
    let leased = api.post("/results", &body.to_string()).await.is(200);
    let types: Vec<_> = leased["tasks"].as_array().unwrap().iter().map(|t| &t["type"]).collect();
    assert!(!types.is_empty() && types.iter().all(|kind| **kind == "a"), "{leased}");
}

#[tokio::test]
async fn a_task_of_a_type_that_nobody_handles_says_so() {
    let api = Api::new();
    let worker = registered(&api, &["a"]).await;
    let submitted = api.submit(r#"{"type":"c"}"#).await;
    assert_eq!(lease(&api, Some(&worker), &["a"], 5, 0).await["tasks"], json!([]));
    let task = api.get(&format!("/tasks/{submitted}")).await.is(200);
    let told = (&task["state"], &task["error"], &task["attempts"]);
    let reason = json!("no live worker handles type c");
    assert_eq!(told, (&json!("scheduled"), &reason, &json!(0)), "{task}");
    let events = api.get(&format!("/tasks/{submitted}/events")).await.is(200);
    let last = events["data"].as_array().unwrap().last().unwrap();
    assert_eq!((&last["event"], &last["error"]), (&json!("snoozed"), &reason), "{events}");
}

#[tokio::test]
async fn the_types_of_a_worker_are_shown_and_may_change() {
    let api = Api::new();
    let worker = registered(&api, &["b", "a", "b"]).await;
    let shown = api.get(&format!("/workers/{worker}")).await.is(200);
    assert_eq!((&shown["types"], &shown["type_count"]), (&json!(["a", "b"]), &json!(2)));
    lease(&api, Some(&worker), &["c"], 1, 0).await;
    let shown = api.get(&format!("/workers/{worker}")).await.is(200);
    assert_eq!(shown["types"], json!(["c"]), "other workers know at once");
    let every = json!({ "worker": { "id": worker } }).to_string();
    api.post("/leases", &every).await.is(200);
    let shown = api.get(&format!("/workers/{worker}")).await.is(200);
    assert_eq!((&shown["types"], &shown["type_count"]), (&Value::Null, &Value::Null));
}

#[tokio::test]
async fn types_that_nobody_can_submit_are_refused() {
    let api = Api::new();
    for types in [json!([]), json!(["no spaces"]), json!("mail"), json!([7])] {
        let body = json!({ "worker": { "types": types } }).to_string();
        api.post("/leases", &body).await.is_problem(422, "invalid-request");
    }
}
