//! Every route: what it answers, and what it answers when it cannot.

use crate::support::{Answer, Api};
use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};
use windlass_core::{Ending, ErrorKind};
use windlass_server::Method;
use windlass_testkit::faults::Method as Call;

fn ids(answer: &Value) -> Vec<&str> {
    answer["data"].as_array().unwrap().iter().map(|task| task["id"].as_str().unwrap()).collect()
}

fn completed() -> Ending {
    Ending::Completed { result: Some(Bytes::from_static(b"{\"big\": 9007199254740993}")) }
}

#[tokio::test]
async fn paths_and_methods_that_do_not_exist_are_problems() {
    let api = Api::new();
    for path in ["/nothing", "/api/v1", "/api/v1/", "/api/v1/tasks/", "/api/v2/tasks", "/tasks"] {
        api.call(Method::GET, path, None).await.is_problem(404, "not-found");
    }
    for path in ["/tasks/batch", "/tasks/bulk", "/dlq/retry", "/tasks/x/cancel", "/queues/q/pause"]
    {
        api.get(path).await.is_problem(405, "method-not-allowed");
    }
    for path in ["/tasks/count", "/queues", "/stats", "/workers", "/tasks/x/events"] {
        api.post(path, "{}").await.is_problem(405, "method-not-allowed");
    }
    api.call(Method::PATCH, "/api/v1/tasks", None).await.is_problem(405, "method-not-allowed");
}

#[tokio::test]
async fn a_path_without_its_prefix_gets_a_hint() {
    let api = Api::new();
    for (path, meant) in [
        ("/tasks", Some("/api/v1/tasks")),
        ("/api/tasks/x/cancel", Some("/api/v1/tasks/x/cancel")),
        ("/v1/queues/", Some("/api/v1/queues")),
        ("/nothing", None),
    ] {
        let problem = api.call(Method::GET, path, None).await.is_problem(404, "not-found");
        let detail = problem["detail"].as_str().unwrap();
        let hint = meant.map(|meant| format!("did you mean {meant}?"));
        assert_eq!(detail.contains("did you mean"), hint.is_some(), "{detail}");
        assert!(detail.contains(&hint.unwrap_or_default()), "{detail}");
    }
}

#[tokio::test]
async fn unknown_parameters_are_refused_everywhere() {
    let api = Api::new();
    for path in [
        "/tasks?sate=x",
        "/tasks/count?qeue=a",
        "/tasks/x?wiat=1",
        "/queues?limit=5",
        "/workers?a=b",
        "/dlq?state=pending",
        "/stats?x",
        "/tasks/x/events?limit=1",
    ] {
        api.get(path).await.is_problem(422, "invalid-request");
    }
    for path in ["/tasks?x=1", "/tasks/x/cancel?x", "/queues/q/purge?x=1", "/dlq/retry?all=1"] {
        api.post(path, "{}").await.is_problem(422, "invalid-request");
    }
    let problem = api.get("/tasks?qeue=a").await.json();
    assert_eq!(problem["field"], "qeue");
    assert!(problem["detail"].as_str().unwrap().contains("did you mean queue?"), "{problem}");
}

#[tokio::test]
async fn a_missing_task_is_not_found() {
    let api = Api::new();
    let long = format!("/tasks/{}", "x".repeat(300));
    for path in [
        "/tasks/nope",
        "/tasks/nope/events",
        "/tasks/nope?wait=50ms",
        "/tasks/%00",
        "/tasks/%ff",
        &long,
    ] {
        api.get(path).await.is_problem(404, "not-found");
    }
    for path in ["/tasks/nope/cancel", "/tasks/nope/retry"] {
        api.post(path, "").await.is_problem(404, "not-found");
    }
    api.post("/tasks/nope/snooze", r#"{"for":1}"#).await.is_problem(404, "not-found");
    api.delete("/tasks/nope").await.is_problem(404, "not-found");
    api.delete("/tasks/nope?purge=true").await.is_problem(404, "not-found");
}

#[tokio::test]
async fn a_finished_task_shows_its_result_and_its_story() {
    let api = Api::new();
    let id = api.submit(r#"{"payload":[1, 2]}"#).await;
    api.run(completed()).await;
    let answer = api.get(&format!("/tasks/{id}?wait=30s")).await;
    let task = answer.is(200);
    assert_eq!(task["state"], "completed");
    assert!(answer.text.contains(r#""result":{"big": 9007199254740993},"#), "{}", answer.text);
    assert!(task["epoch"].is_string() && task["completed_at"].is_string(), "{task}");
    assert_eq!(task["worker_id"], "hand-1");
    let events = api.get(&format!("/tasks/{id}/events")).await.is(200);
    let story: Vec<_> = events["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["event"].as_str().unwrap())
        .collect();
    assert_eq!(story, ["submitted", "claimed", "completed"]);
    assert_eq!(events["data"][1]["worker_id"], "hand-1");
}

#[tokio::test]
async fn a_failed_task_shows_its_last_error() {
    let api = Api::new();
    let id = api.dead("{}").await;
    let task = api.get(&format!("/tasks/{id}")).await.is(200);
    assert_eq!((&task["state"], &task["error"]), (&json!("dead_letter"), &json!("no use")));
}

#[tokio::test]
async fn a_wait_ends_with_the_task_or_with_the_time() {
    let api = Api::new();
    let id = api.submit("{}").await;
    let path = format!("/tasks/{id}?wait=30s");
    let end = async {
        api.faults.called(Call::Wait).await;
        api.run(completed()).await;
    };
    // The end first: it waits for a call that is yet to come.
    let ((), waited) = tokio::join!(end, api.get(&path));
    assert_eq!(waited.is(200)["state"], "completed");
    let id = api.submit("{}").await;
    assert_eq!(api.get(&format!("/tasks/{id}?wait=20ms")).await.is(200)["state"], "pending");
    assert_eq!(api.get(&format!("/tasks/{id}?wait=0")).await.is(200)["state"], "pending");
    for wait in ["61s", "-1", "soon", ""] {
        api.get(&format!("/tasks/{id}?wait={wait}")).await.is_problem(422, "invalid-request");
    }
}

#[tokio::test]
async fn a_wait_outlasts_a_store_that_is_away_for_a_moment() {
    let api = Api::new();
    let id = api.submit("{}").await;
    api.run(completed()).await;
    api.faults.fail(Call::Wait, 1, ErrorKind::Unavailable);
    assert_eq!(api.get(&format!("/tasks/{id}?wait=30s")).await.is(200)["state"], "completed");
}

#[tokio::test]
async fn lists_are_filtered_and_paged() {
    let api = Api::new();
    let first = api.submit(r#"{"type":"a","queue":"q","tags":["t"],"priority":"low"}"#).await;
    let second = api.submit(r#"{"type":"b","delay":60}"#).await;
    let third = api.submit(r#"{"type":"b","payload":7}"#).await;
    let list = api.get("/tasks").await.is(200);
    assert_eq!(ids(&list), [&third, &second, &first]);
    assert_eq!(list["data"][0]["payload"], Value::Null, "lists leave payloads out");
    assert_eq!(list["next_cursor"], Value::Null);
    for (query, expected) in [
        ("type=b", vec![&third, &second]),
        ("queue=q", vec![&first]),
        ("tag=t", vec![&first]),
        ("priority=low", vec![&first]),
        ("priority=0", vec![&first]),
        ("state=scheduled", vec![&second]),
        ("state=scheduled,pending&type=b", vec![&third, &second]),
        ("created_after=2000-01-01T00:00:00Z", vec![&third, &second, &first]),
        ("created_before=2000-01-01T00:00:00Z", vec![]),
        ("queue=%7Bodd%7D", vec![]),
    ] {
        assert_eq!(ids(&api.get(&format!("/tasks?{query}")).await.is(200)), expected, "{query}");
    }
    let page = api.get("/tasks?limit=2").await.is(200);
    assert_eq!(ids(&page), [&third, &second]);
    let cursor = page["next_cursor"].as_str().unwrap();
    let escaped: String = cursor.bytes().map(|byte| format!("%{byte:02x}")).collect();
    assert_eq!(ids(&api.get(&format!("/tasks?limit=2&cursor={escaped}")).await.is(200)), [&first]);
    api.get("/tasks?cursor=nonsense").await.is_problem(422, "invalid-request");
    api.get("/tasks?queue=a%00").await.is_problem(422, "invalid-request");
    for refused in [r#"{"type":"a\u0000"}"#, r#"{"queue":""}"#, r#"{"tag":""}"#] {
        let body = format!(r#"{{"action":"cancel","filter":{refused}}}"#);
        api.post("/tasks/bulk", &body).await.is_problem(422, "invalid-request");
    }
}

#[tokio::test]
async fn counts_are_kept_or_exact() {
    let api = Api::new();
    for body in [r#"{"queue":"q","type":"a"}"#, r#"{"queue":"q","delay":60}"#, r#"{"queue":"r"}"#] {
        api.submit(body).await;
    }
    let count = async |query: &str| api.get(&format!("/tasks/count{query}")).await;
    assert_eq!(count("").await.is(200), json!({"count": 3, "capped": false}));
    assert_eq!(count("?queue=q&state=pending").await.is(200)["count"], 1);
    assert_eq!(count("?by=queue").await.is(200)["by"], json!({"q": 2, "r": 1}));
    assert_eq!(count("?by=state&queue=q").await.is(200)["by"]["scheduled"], 1);
    count("?type=a").await.is_problem(422, "invalid-request");
    assert_eq!(count("?type=a&exact=true").await.is(200)["count"], 1);
    assert_eq!(count("?exact=true&by=queue").await.is(200)["by"], json!({"q": 2, "r": 1}));
    count("?by=colour").await.is_problem(422, "invalid-request");
    count("?exact=perhaps").await.is_problem(422, "invalid-request");
}

#[tokio::test]
async fn a_cancel_is_done_requested_or_refused() {
    let api = Api::new();
    let waiting = api.submit("{}").await;
    let cancelled = api.post(&format!("/tasks/{waiting}/cancel"), "").await.is(200);
    assert_eq!((&cancelled["id"], &cancelled["state"]), (&json!(waiting), &json!("cancelled")));
    api.delete(&format!("/tasks/{waiting}")).await.is_problem(409, "state-conflict");
    let cancel = format!("/tasks/{waiting}/cancel");
    api.post(&cancel, "").await.is_problem(409, "state-conflict");
    let running = api.submit("{}").await;
    api.claim("hand-1").await;
    assert_eq!(api.delete(&format!("/tasks/{running}")).await.is(202)["state"], "running");
    let purge = format!("/tasks/{running}?purge=true");
    let problem = api.delete(&purge).await.is_problem(409, "state-conflict");
    assert_eq!(problem["state"], "running");
    let deleted = api.delete(&format!("/tasks/{waiting}?purge=true")).await.is(200);
    assert_eq!(deleted, json!({"id": waiting, "deleted": true}));
    api.get(&format!("/tasks/{waiting}")).await.is_problem(404, "not-found");
    api.post(&format!("/tasks/{running}/cancel"), r#"{"a":1}"#)
        .await
        .is_problem(422, "invalid-request");
}

#[tokio::test]
async fn a_task_nobody_keeps_is_cancelled_all_the_same() {
    let api = Api::new();
    let id = api.submit(r#"{"retention":0}"#).await;
    let cancelled = api.post(&format!("/tasks/{id}/cancel"), "").await.is(200);
    assert_eq!(cancelled["state"], "cancelled");
}

#[tokio::test]
async fn a_task_that_someone_will_wait_for_is_kept_where_tasks_are_not() {
    let api = Api::with("task.retention = \"0s\"");
    for (body, is_kept) in [
        (r#"{"awaited":true}"#, true),
        (r#"{"awaited":true,"retention":0}"#, false),
        (r#"{"awaited":false}"#, false),
    ] {
        let id = api.submit(body).await;
        api.run(completed()).await;
        let answer = api.get(&format!("/tasks/{id}?wait=30s")).await;
        match is_kept {
            true => assert_eq!(answer.is(200)["state"], "completed", "{body}"),
            false => drop(answer.is_problem(404, "not-found")),
        }
    }
    api.post("/tasks", r#"{"awaited":"yes"}"#).await.is_problem(422, "invalid-request");
}

#[tokio::test]
async fn a_task_that_goes_while_it_is_waited_for_is_told_from_one_that_never_was() {
    let api = Api::with("task.retention = \"0s\"");
    let id = api.submit("{}").await;
    let end = async {
        api.faults.called(Call::Wait).await;
        api.run(completed()).await;
    };
    let path = format!("/tasks/{id}?wait=30s");
    let ((), waited) = tokio::join!(end, api.get(&path));
    let problem = waited.is_problem(404, "not-found");
    assert!(problem["detail"].as_str().unwrap().contains("is gone"), "{problem}");
    let problem = api.get(&path).await.is_problem(404, "not-found");
    assert!(!problem["detail"].as_str().unwrap().contains("is gone"), "{problem}");
}

#[tokio::test]
async fn a_retry_starts_over_or_is_refused() {
    let api = Api::new();
    let id = api.dead("{}").await;
    assert_eq!(api.post(&format!("/tasks/{id}/retry"), "{}").await.is(200)["state"], "pending");
    api.post(&format!("/tasks/{id}/retry"), "").await.is_problem(409, "state-conflict");
}

#[tokio::test]
async fn a_snooze_moves_a_waiting_task() {
    let api = Api::new();
    let id = api.submit("{}").await;
    let path = format!("/tasks/{id}/snooze");
    assert_eq!(api.post(&path, r#"{"for":"1h"}"#).await.is(200)["state"], "scheduled");
    let until = api.post(&path, r#"{"until":"2040-01-01T00:00:00Z"}"#).await.is(200);
    assert_eq!(until["run_at"], "2040-01-01T00:00:00.000Z");
    for body in
        ["{}", r#"{"for":-1}"#, r#"{"for":1,"until":"2040-01-01T00:00:00Z"}"#, r#"{"fro":1}"#]
    {
        api.post(&path, body).await.is_problem(422, "invalid-request");
    }
    api.post(&path, "").await.is_problem(400, "invalid-request");
    let dead = api.dead("{}").await;
    let dead = format!("/tasks/{dead}/snooze");
    api.post(&dead, r#"{"for":1}"#).await.is_problem(409, "state-conflict");
}

#[tokio::test]
async fn queues_are_shown_paused_resumed_and_purged() {
    let api = Api::new();
    api.submit(r#"{"queue":"mail","priority":"high"}"#).await;
    api.submit(r#"{"queue":"mail","delay":60}"#).await;
    let queue = api.get("/queues/mail").await.is(200);
    assert_eq!((&queue["name"], &queue["paused"]), (&json!("mail"), &json!(false)));
    assert_eq!((&queue["depth"]["pending"], &queue["depth"]["scheduled"]), (&json!(1), &json!(1)));
    assert_eq!(queue["pending"], json!({"critical": 0, "high": 1, "normal": 0, "low": 0}));
    assert!(queue["oldest_age"].is_number(), "{queue}");
    assert_eq!(api.post("/queues/mail/pause", "").await.is(200)["paused"], true);
    api.submit(r#"{"queue":"mail"}"#).await;
    assert_eq!(api.get("/queues").await.is(200)["data"][0]["paused"], true);
    assert_eq!(api.post("/queues/mail/resume", "").await.is(200)["paused"], false);
    assert_eq!(api.post("/queues/mail/purge?dry_run=true", "").await.is(200)["matched"], 3);
    let purged = api.post("/queues/mail/purge", "").await.is(200);
    assert_eq!(purged, json!({"changed": 3, "requested": 0, "next_cursor": null}));
    assert_eq!(api.get("/tasks/count").await.is(200)["count"], 0);
}

#[tokio::test]
async fn unknown_queues_are_only_made_by_a_pause_that_asks_for_it() {
    let api = Api::new();
    api.get("/queues/nope").await.is_problem(404, "not-found");
    api.post("/queues/nope/resume", "").await.is_problem(404, "not-found");
    api.post("/queues/nope/purge", "").await.is_problem(404, "not-found");
    api.post("/queues/%7Bodd%7D/pause", "").await.is_problem(422, "invalid-request");
    let refused = api.post("/queues/new/pause", "").await.is_problem(404, "not-found");
    assert!(refused["detail"].as_str().unwrap().contains("?create=true"), "{refused}");
    api.get("/queues/new").await.is_problem(404, "not-found");
    assert_eq!(api.post("/queues/new/pause?create=true", "").await.is(200)["paused"], true);
    assert_eq!(api.get("/queues/new").await.is(200)["oldest_age"], Value::Null);
}

#[tokio::test]
async fn workers_are_shown_with_what_they_run() {
    let api = Api::new();
    let id = api.submit("{}").await;
    api.claim("hand-1").await;
    let worker = api.get("/workers/hand-1").await.is(200);
    for (field, value) in [
        ("id", json!("hand-1")),
        ("name", json!("hand")),
        ("slots", json!(9)),
        ("slots_used", json!(1)),
        ("running", json!(1)),
        ("state", json!("run")),
        ("leader", json!(false)),
        ("tasks_capped", json!(false)),
    ] {
        assert_eq!(worker[field], value, "{field}");
    }
    assert_eq!(worker["tasks"][0]["id"], id.as_str());
    assert!(worker["heartbeat_age"].is_number() && worker["started_at"].is_string(), "{worker}");
    assert_eq!(ids(&api.get("/workers").await.is(200)), ["hand-1"]);
    api.get("/workers/nobody").await.is_problem(404, "not-found");
    api.client.store().leave(windlass_core::WorkerId::new("hand-1")).await.unwrap();
    assert_eq!(api.get("/workers/hand-1").await.is(200)["state"], "gone");
}

#[tokio::test]
async fn dead_letters_are_listed_retried_and_removed() {
    let api = Api::new();
    let (a, b, c) = (
        api.dead(r#"{"type":"a"}"#).await,
        api.dead(r#"{"type":"b"}"#).await,
        api.dead("{}").await,
    );
    let alive = api.submit(r#"{"queue":"other"}"#).await;
    assert_eq!(ids(&api.get("/dlq").await.is(200)), [&c, &b, &a]);
    assert_eq!(ids(&api.get("/dlq?type=b").await.is(200)), [&b]);
    let retry = async |body: String| api.post("/dlq/retry", &body).await;
    assert_eq!(retry(json!({ "task_id": a }).to_string()).await.is(200)["changed"], 1);
    retry(json!({ "task_id": a }).to_string()).await.is_problem(409, "state-conflict");
    retry(json!({ "task_id": "nope" }).to_string()).await.is_problem(404, "not-found");
    for body in [
        "{}",
        r#"{"filter":{}}"#,
        r#"{"filter":{"state":"pending"}}"#,
        r#"{"task_id":"a","retry_all":true}"#,
    ] {
        retry(body.into()).await.is_problem(422, "invalid-request");
    }
    assert_eq!(
        retry(r#"{"filter":{"type":"b"},"dry_run":true}"#.into()).await.is(200)["matched"],
        1
    );
    assert_eq!(retry(r#"{"filter":{"type":"b"}}"#.into()).await.is(200)["changed"], 1);
    assert_eq!(retry(r#"{"retry_all":true}"#.into()).await.is(200)["changed"], 1);
    api.run(Ending::Discarded { error: "again".into() }).await;
    assert_eq!(api.delete("/dlq?type=b").await.is(200)["changed"], 1);
    assert_eq!(api.delete("/dlq?dry_run=true").await.is(200)["matched"], 2);
    let all = api.delete("/dlq").await.is(200);
    assert_eq!((&all["changed"], &all["next_cursor"]), (&json!(2), &Value::Null));
    assert_eq!(ids(&api.get("/tasks").await.is(200)), [&alive]);
}

async fn bulk(api: &Api, body: Value) -> Answer {
    api.post("/tasks/bulk", &body.to_string()).await
}

#[tokio::test]
async fn named_tasks_are_changed_and_each_is_answered() {
    let api = Api::new();
    let running = api.submit("{}").await;
    api.claim("hand-1").await;
    let (waiting, done) = (api.submit("{}").await, api.submit("{}").await);
    bulk(&api, json!({"action": "cancel", "ids": [done]})).await.is(200);
    let ids = json!([waiting, running, done, "nope"]);
    let statuses = |answer: &Value| -> Vec<String> {
        let results = answer["results"].as_array().unwrap().iter();
        results.map(|one| one["status"].as_str().unwrap().to_owned()).collect()
    };
    let wanted = ["done", "requested", "state-conflict", "not-found"];
    let dry = bulk(&api, json!({"action": "cancel", "ids": ids, "dry_run": true})).await.is(200);
    assert_eq!(
        (statuses(&dry), &dry["matched"], &dry["changed"]),
        (wanted.map(String::from).to_vec(), &json!(2), &json!(0))
    );
    let real = bulk(&api, json!({"action": "cancel", "ids": ids})).await.is(200);
    assert_eq!(statuses(&real), wanted);
    assert_eq!((&real["changed"], &real["requested"]), (&json!(2), &json!(1)));
    assert_eq!(real["results"][2]["state"], "cancelled");
    let deleted = bulk(&api, json!({"action": "delete", "ids": [waiting]})).await.is(200);
    assert_eq!(deleted["results"][0], json!({"id": waiting, "status": "done", "state": null}));
}

#[tokio::test]
async fn a_filter_is_worked_through_to_its_end() {
    let api = Api::new();
    let items = vec![r#"{"type":"a"}"#; 1_700].join(",");
    api.post("/tasks/batch", &format!("[{items}]")).await.is(200);
    api.submit(r#"{"type":"b"}"#).await;
    let dry = json!({"action": "cancel", "filter": {"type": "a"}, "dry_run": true});
    assert_eq!(bulk(&api, dry).await.is(200)["matched"], 1_700);
    let snoozed = json!({"action": "snooze", "for": "1h", "filter": {"type": "a"}});
    assert_eq!(bulk(&api, snoozed).await.is(200)["changed"], 1_700);
    let cancel = json!({"action": "cancel", "filter": {"state": ["scheduled"], "type": "a"}});
    let cancelled = bulk(&api, cancel).await.is(200);
    assert_eq!((&cancelled["changed"], &cancelled["next_cursor"]), (&json!(1_700), &Value::Null));
    let retried = json!({"action": "retry", "filter": {"state": "cancelled"}});
    assert_eq!(bulk(&api, retried).await.is(200)["changed"], 1_700);
    let none = json!({"action": "cancel", "filter": {"state": "completed"}, "dry_run": true});
    assert_eq!(bulk(&api, none).await.is(200)["matched"], 0);
    let all = json!({"action": "delete", "all": true});
    assert_eq!(bulk(&api, all).await.is(200)["changed"], 1_701);
}

#[tokio::test]
async fn a_change_that_is_cut_short_says_where_to_go_on() {
    let api = Api::new();
    let items = vec!["{}"; 900].join(",");
    api.post("/tasks/batch", &format!("[{items}]")).await.is(200);
    api.faults.pass_one(Call::Change);
    api.faults.fail(Call::Change, 1, ErrorKind::Unavailable);
    let first = bulk(&api, json!({"action": "cancel", "all": true})).await.is(200);
    assert_eq!(first["changed"], 500);
    let rest = json!({"action": "cancel", "all": true, "cursor": first["next_cursor"]});
    let rest = bulk(&api, rest).await.is(200);
    assert_eq!((&rest["changed"], &rest["next_cursor"]), (&json!(400), &Value::Null));
}

#[tokio::test]
async fn a_bulk_change_must_say_what_it_means() {
    let api = Api::new();
    let many = vec!["x"; 1_001];
    for body in [
        json!({}),
        json!({"action": "cancel"}),
        json!({"action": "cancel", "filter": {}}),
        json!({"action": "burn", "all": true}),
        json!({"action": "snooze", "all": true}),
        json!({"action": "cancel", "for": 1, "all": true}),
        json!({"action": 7, "all": true}),
        json!({"action": "cancel", "ids": ["a"], "filter": {"queue": "q"}}),
        json!({"action": "cancel", "ids": ["a"], "all": true}),
        json!({"action": "cancel", "ids": [1]}),
        json!({"action": "cancel", "ids": many}),
        json!({"action": "cancel", "ids": "a"}),
        json!({"action": "cancel", "filter": {"sate": "pending"}}),
        json!({"action": "cancel", "filter": {"state": "odd"}}),
        json!({"action": "cancel", "filter": {"state": []}}),
    ] {
        bulk(&api, body).await.is_problem(422, "invalid-request");
    }
}

#[tokio::test]
async fn stats_add_everything_up() {
    let api = Api::new();
    api.submit("{}").await;
    api.claim("hand-1").await;
    api.submit(r#"{"queue":"q"}"#).await;
    api.post("/queues/q/pause", "").await.is(200);
    let stats = api.get("/stats").await.is(200);
    assert_eq!(stats["tasks"]["total"], 2);
    assert_eq!(stats["tasks"]["by_state"]["running"], 1);
    assert_eq!(stats["queues"], json!({"total": 2, "paused": 1}));
    assert_eq!(stats["workers"], json!({"live": 1, "slots": 9, "slots_used": 1}));
    assert_eq!(stats["store"]["durability"], "volatile");
}

/// Paths and queries that are nearly right.
fn nearly() -> impl Strategy<Value = (bool, String, String)> {
    let path = prop::sample::select(vec![
        "tasks",
        "tasks/count",
        "tasks/x",
        "tasks/x/events",
        "queues",
        "queues/default",
        "workers",
        "workers/x",
        "dlq",
        "stats",
        "tasks/bulk",
        "tasks/x/snooze",
        "dlq/retry",
        "tasks/batch",
        "queues/q/pause",
        "queues/q/purge",
        "tasks/x/cancel",
    ]);
    let name = prop::sample::select(vec![
        "state",
        "queue",
        "type",
        "priority",
        "tag",
        "created_after",
        "created_before",
        "limit",
        "cursor",
        "by",
        "exact",
        "purge",
        "dry_run",
        "sate",
    ]);
    let value = prop_oneof![
        Just("pending".to_owned()),
        Just("true".into()),
        Just("%".into()),
        "[0-9]{1,20}",
        "[a-z%,+.:-]{0,12}",
        Just("2030-01-01T00:00:00Z".into())
    ];
    let pair = (name, value).prop_map(|(name, value)| format!("{name}={value}"));
    let query = prop::collection::vec(pair, 0..4).prop_map(|pairs| pairs.join("&"));
    let field = prop::sample::select(vec![
        "action",
        "ids",
        "filter",
        "all",
        "for",
        "until",
        "cursor",
        "dry_run",
        "task_id",
        "retry_all",
    ]);
    let value = prop::sample::select(vec![
        "\"cancel\"",
        "\"snooze\"",
        "\"delete\"",
        "[\"x\"]",
        "{\"queue\":\"q\"}",
        "{\"state\":[\"pending\"]}",
        "true",
        "1",
        "-1",
        "\"1h\"",
        "null",
        "\"\\ud800\"",
        "{}",
        "[]",
        "{\"state\":7}",
        "[[",
    ]);
    let member = (field, value).prop_map(|(field, value)| format!("\"{field}\":{value}"));
    let body = prop::collection::vec(member, 0..4).prop_map(|all| format!("{{{}}}", all.join(",")));
    (any::<bool>(), (path, query).prop_map(|(path, query)| format!("/{path}?{query}")), body)
}

#[test]
fn no_request_makes_the_server_fail() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let api = Api::new();
    proptest!(ProptestConfig::with_cases(2_000), |((is_read, path, body) in nearly())| {
        let call = async { if is_read { api.get(&path).await } else { api.post(&path, &body).await } };
        let answer = runtime.block_on(call);
        prop_assert!(answer.status < 500, "{path} {body}: {}", answer.text);
    });
}
