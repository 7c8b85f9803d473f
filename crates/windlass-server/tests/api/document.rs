//! The OpenAPI document against the server: nothing is missing in it, and nothing is made up.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use windlass_core::Ending;
use windlass_server::Method;

use crate::contract::{document, find};
use crate::support::{Answer, Api};

/// Every call: method, path, description.
fn calls(document: &Value) -> Vec<(Method, &str, &Value)> {
    let paths = document["paths"].as_object().unwrap().iter();
    let call = |(path, calls): (&'_ String, &'_ Value)| {
        let path = path.clone();
        let named = calls.as_object().unwrap().keys().cloned();
        named.map(|method| (method, path.clone())).collect::<Vec<_>>()
    };
    let named: Vec<_> = paths.flat_map(call).collect();
    let find = |(method, path): (String, String)| {
        let (path, calls) = document["paths"].as_object().unwrap().get_key_value(&path).unwrap();
        (method.to_uppercase().parse().unwrap(), path.as_str(), &calls[&method])
    };
    named.into_iter().map(find).collect()
}

#[tokio::test]
async fn the_document_has_every_route_with_its_scope_and_nothing_else() {
    let document = document().await;
    let api = Api::new();
    let routes: BTreeSet<_> = api
        .app
        .routes()
        .iter()
        .map(|route| {
            let scope = route.scope.map(|scope| scope.to_string());
            (route.method.to_string(), route.path.clone(), scope)
        })
        .collect();
    let described: BTreeSet<_> = calls(document)
        .into_iter()
        .map(|(method, path, call)| {
            let scope = call["security"][0]["bearer"][0].as_str().map(str::to_owned);
            (method.to_string(), path.to_owned(), scope)
        })
        .collect();
    assert_eq!(routes, described);
    assert_eq!(document["openapi"], "3.1.0");
}

#[tokio::test]
async fn every_call_has_a_name_of_its_own_and_says_what_it_does() {
    let document = document().await;
    let mut names = BTreeSet::new();
    for (method, path, call) in calls(document) {
        let name = call["operationId"].as_str().unwrap();
        assert!(!name.is_empty() && names.insert(name), "{method} {path}: {name:?}");
        assert!(!call["summary"].as_str().unwrap().is_empty(), "{method} {path}");
        let successes = call["responses"].as_object().unwrap().keys();
        let is_success = |status: &String| status.starts_with('2') || status == "101";
        assert!(successes.into_iter().any(is_success), "{method} {path}");
        for name in path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')) {
            let parameters = call["parameters"].as_array().unwrap();
            assert!(parameters.iter().any(|one| one["in"] == "path" && one["name"] == name));
        }
    }
}

/// What the server says there is when it is sent something that there is not.
fn told(answer: &Answer) -> BTreeSet<String> {
    let detail = answer.is_problem(422, "invalid-request")["detail"].as_str().unwrap().to_owned();
    let Some((_, names)) = detail.split_once("there are ") else { return BTreeSet::new() };
    names.split(", ").map(str::to_owned).collect()
}

/// A path that leads to a call.
fn filled(path: &str) -> String {
    path.replace("{id}", "x").replace("{queue}", "x").replace("{slug}", "x")
}

#[tokio::test]
async fn what_is_described_is_what_is_read() {
    let document = document().await;
    let api = Api::new();
    let mut forms = 0;
    for (method, path, call) in calls(document) {
        if call["security"].as_array().unwrap().is_empty() || path == "/admin/health" {
            continue;
        }
        let of_query = call["parameters"].as_array().into_iter().flatten();
        let of_query = of_query.filter(|one| one["in"] == "query");
        let described: BTreeSet<_> =
            of_query.map(|one| one["name"].as_str().unwrap().to_owned()).collect();
        let asked = format!("{}?qqqqqqqqqq=1", filled(path));
        let answer = api.call(method.clone(), &asked, None).await;
        assert_eq!(told(&answer), described, "{method} {path}");
        let schema = &call["requestBody"]["content"]["application/json"]["schema"];
        let Some(reference) = schema["$ref"].as_str() else { continue };
        let form = document.pointer(reference.trim_start_matches('#')).unwrap();
        let described: BTreeSet<_> =
            form["properties"].as_object().unwrap().keys().cloned().collect();
        let answer = api.call(method.clone(), &filled(path), Some(r#"{"qqqqqqqqqq":1}"#)).await;
        assert_eq!(told(&answer), described, "{method} {path}");
        forms += 1;
    }
    assert!(forms >= 8, "{forms}");
}

/// Calls, and which good answers they have had.
struct Walk {
    api: Api,
    seen: BTreeSet<(String, String, String)>,
}

impl Walk {
    /// Asks, and notes the answer, which has been held against the document already.
    async fn ask(&mut self, method: Method, path: &str, body: Value) -> Value {
        let body = (!body.is_null()).then(|| body.to_string());
        let answer = self.api.call(method.clone(), path, body.as_deref()).await;
        assert!(answer.status < 300, "{method} {path}: {answer:?}");
        let (template, _) = find(document().await, method.as_str(), path).unwrap();
        let status = answer.status.to_string();
        self.seen.insert((method.to_string(), template.to_owned(), status));
        serde_json::from_str(&answer.text).unwrap_or_default()
    }

    async fn get(&mut self, path: &str) -> Value {
        self.ask(Method::GET, path, Value::Null).await
    }

    async fn post(&mut self, path: &str, body: Value) -> Value {
        self.ask(Method::POST, path, body).await
    }

    async fn delete(&mut self, path: &str) -> Value {
        self.ask(Method::DELETE, path, Value::Null).await
    }

    async fn submit(&mut self, body: Value) -> String {
        self.post("/api/v1/tasks", body).await["id"].as_str().unwrap().to_owned()
    }
}

#[tokio::test]
async fn every_good_answer_that_is_described_is_given_and_fits() {
    let mut walk = Walk { api: Api::new(), seen: BTreeSet::new() };
    let full = json!({
        "type": "t", "payload": {"a": [1]}, "queue": "q", "priority": "high", "delay": "1h", "timeout": 5,
        "deadline": "2090-01-01T00:00:00Z", "retry": {"shape": "linear", "step": 1}, "idempotency_key": "k",
        "unique": {"for": "1h"}, "tags": ["x"], "metadata": {"k": "v"}, "retention": "2h"
    });
    let id = walk.submit(full.clone()).await;
    assert_eq!(walk.submit(full).await, id);
    walk.post(
        "/api/v1/tasks/batch",
        json!([{}, {"sort": 1}, {"idempotency_key": "k", "payload": 1}]),
    )
    .await;
    let task = format!("/api/v1/tasks/{id}");
    walk.post(&format!("{task}/snooze"), json!({"for": "2h"})).await;
    walk.post(&format!("{task}/retry"), Value::Null).await;
    walk.post(&format!("{task}/cancel"), Value::Null).await;
    walk.get(&format!("{task}/events")).await;
    walk.get(&format!("{task}?wait=1")).await;
    walk.delete(&format!("{task}?purge=true")).await;
    let leased = walk.post("/api/v1/leases", json!({"worker": {"name": "w"}, "max": 5})).await;
    let (run, worker) = (&leased["tasks"][0], leased["worker"]["id"].as_str().unwrap());
    let path = format!("/api/v1/tasks/{}", run["id"].as_str().unwrap());
    let held = json!({"held": [{"id": run["id"], "epoch": run["epoch"], "progress": 0.5}]});
    let worker_path = format!("/api/v1/workers/{worker}");
    walk.post(&format!("{worker_path}/heartbeat"), held).await;
    walk.get(&path).await;
    walk.get(&worker_path).await;
    walk.post(&format!("{path}/cancel"), Value::Null).await;
    walk.delete(&path).await;
    for order in ["pause", "resume", "drain"] {
        walk.post(&format!("{worker_path}/{order}"), Value::Null).await;
    }
    let result =
        json!({"id": run["id"], "epoch": run["epoch"], "outcome": "completed", "result": 7});
    let report =
        json!({"worker_id": worker, "results": [result.clone(), result], "lease": {"max": 2}});
    walk.post("/api/v1/results", report).await;
    walk.delete(&worker_path).await;
    for base in ["/api/v1", "/admin"] {
        walk.api.dead("{}").await;
        walk.get(&format!("{base}/dlq")).await;
        walk.get(&format!("{base}/workers")).await;
        walk.get(&format!("{base}/queues")).await;
        walk.post(&format!("{base}/dlq/retry"), json!({"retry_all": true})).await;
        walk.api.run(Ending::Completed { result: None }).await;
        walk.delete(&format!("{base}/dlq")).await;
    }
    for order in ["pause", "resume", "purge?dry_run=true"] {
        walk.post(&format!("/api/v1/queues/default/{order}"), Value::Null).await;
    }
    let bulk = json!({"action": "cancel", "ids": ["none"]});
    walk.post("/api/v1/tasks/bulk", bulk).await;
    let made = walk.post("/api/v1/tokens", json!({"name": "a", "scopes": ["read"]})).await;
    for path in [
        "tasks",
        "tasks/count?by=queue",
        "autoscale",
        "queues/default",
        "stats",
        "stats/timeseries",
        "tokens",
        "audit",
        "openapi.json",
    ] {
        walk.get(&format!("/api/v1/{path}")).await;
    }
    let token = format!("/api/v1/tokens/{}", made["id"].as_str().unwrap());
    walk.delete(&token).await;
    walk.delete(&format!("{token}?purge=true")).await;
    for path in [
        "/",
        "/page.css",
        "/page.js",
        "/healthz",
        "/metrics",
        "/readyz",
        "/version",
        "/admin/health",
        "/api/docs",
        "/api/docs.css",
        "/api/docs.js",
        "/problems",
        "/problems/lease-lost",
        "/api/v1/events?for=0s",
    ] {
        walk.get(path).await;
    }
    let mut described = BTreeSet::new();
    for (method, path, call) in calls(document().await) {
        let statuses = call["responses"].as_object().unwrap().keys();
        for status in statuses.filter(|status| status.starts_with('2')) {
            described.insert((method.to_string(), path.to_owned(), status.clone()));
        }
    }
    let missed: Vec<_> = described.difference(&walk.seen).collect();
    assert!(missed.is_empty(), "nothing has answered {missed:?}");
}

#[tokio::test]
async fn each_problem_leads_to_its_page() {
    let api = Api::new();
    let problem = api.get("/tasks/none").await.is_problem(404, "not-found");
    let page = api.call(Method::GET, problem["type"].as_str().unwrap(), None).await;
    assert!(page.status == 200 && page.text.contains("not-found"), "{page:?}");
    api.call(Method::GET, "/problems/none", None).await.is_problem(404, "not-found");
}
