//! Submits: what is taken, byte for byte, and what is refused, by name.

use crate::support::Api;
use proptest::prelude::*;
use serde_json::{Value, json};
use windlass_server::Method;
use windlass_testkit::faults::Method as Call;

/// A body that is refused with 422 about this field.
async fn refused(body: &str, field: &str, word: &str) {
    let problem = Api::new().post("/tasks", body).await.is_problem(422, "invalid-request");
    assert_eq!(problem["field"], field, "{body}: {problem}");
    assert!(problem["detail"].as_str().unwrap().contains(word), "{body}: {problem}");
}

#[tokio::test]
async fn a_task_in_an_answer_has_every_field_in_order() {
    let answer = Api::new().post("/tasks", "{}").await;
    let task = answer.is(201);
    let fields = [
        "id",
        "type",
        "queue",
        "priority",
        "state",
        "payload",
        "attempts",
        "crashes",
        "max_retries",
        "max_crashes",
        "result",
        "error",
        "worker_id",
        "epoch",
        "progress",
        "created_at",
        "updated_at",
        "run_at",
        "claimed_at",
        "started_at",
        "completed_at",
        "timeout",
        "deadline",
        "idempotency_key",
        "tags",
        "metadata",
        "traceparent",
    ];
    assert_eq!(task.as_object().unwrap().len(), fields.len(), "{task}");
    let places: Vec<_> = fields
        .iter()
        .map(|field| {
            answer.text.find(&format!("\"{field}\":")).unwrap_or_else(|| panic!("{field}"))
        })
        .collect();
    assert!(places.is_sorted(), "{}", answer.text);
    assert_eq!(task["type"], "default");
    assert_eq!(task["queue"], "default");
    assert_eq!(task["priority"], "normal");
    assert_eq!(task["state"], "pending");
    assert_eq!(task["timeout"], json!(300));
    assert!(answer.text.contains("\"timeout\":300,"), "{}", answer.text);
    assert_eq!(task["payload"], Value::Null);
    let created = task["created_at"].as_str().unwrap();
    assert!(created.len() == 24 && created.ends_with('Z'), "{created}");
}

#[tokio::test]
async fn every_field_is_taken() {
    let body = json!({
        "type": "email.send", "payload": {"to": "a"}, "queue": "mail", "priority": "high",
        "delay": "30s", "max_retries": 7, "max_crashes": 2, "timeout": 1.5,
        "deadline": "2040-01-01T00:00:00Z", "idempotency_key": "k1", "retention": "PT1H",
        "retry": {"shape": "linear", "step": "2s", "max": 60, "jitter": 0},
        "unique": {"for": "1h", "on_conflict": "return"}, "tags": ["a", "b"],
        "metadata": {"user.id": "7"}, "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    });
    let api = Api::new();
    let task = api.post("/tasks", &body.to_string()).await.is(201);
    for field in [
        "type",
        "queue",
        "priority",
        "max_retries",
        "max_crashes",
        "timeout",
        "tags",
        "metadata",
        "traceparent",
        "idempotency_key",
        "payload",
    ] {
        assert_eq!(task[field], body[field], "{field}");
    }
    assert_eq!(task["state"], "scheduled");
    assert_eq!(task["deadline"], "2040-01-01T00:00:00.000Z");
    assert!(task["run_at"].is_string());
    let again = api.post("/tasks", &body.to_string()).await.is(200);
    assert_eq!(again["id"], task["id"]);
    assert_eq!(again["payload"], body["payload"]);
}

#[tokio::test]
async fn null_counts_as_not_given() {
    let body = r#"{"type":null,"queue":null,"priority":null,"delay":null,"run_at":null,"retry":null,
        "unique":null,"tags":null,"metadata":null,"payload_base64":null,"payload":null}"#;
    assert_eq!(Api::new().post("/tasks", body).await.is(201)["type"], "default");
}

#[tokio::test]
async fn a_priority_may_be_a_number() {
    let task = Api::new().post("/tasks", r#"{"priority":3}"#).await.is(201);
    assert_eq!(task["priority"], "critical");
    // To JSON, 3.0 is the same number.
    let task = Api::new().post("/tasks", r#"{"priority":3.0,"max_retries":7.0}"#).await.is(201);
    assert_eq!((&task["priority"], &task["max_retries"]), (&json!("critical"), &json!(7)));
}

#[tokio::test]
async fn a_payload_that_is_json_goes_through_byte_for_byte() {
    let api = Api::new();
    for payload in [
        "null",
        "9007199254740993",
        "1.0",
        "-0",
        "1e400",
        "123456789012345678901234567890",
        r#""\ud800""#,
        r#""\u0000 \u0041 é""#,
        "{ \"b\" : 1 ,\n\t\"a\":[ ] , \"b\":2 }",
        "[[],{}]",
    ] {
        let submitted = api.post("/tasks", &format!("{{\"payload\": {payload} }}")).await;
        submitted_has(&submitted.text, payload);
        // Not every reader can read every payload: the id is taken out by hand.
        let id = submitted.text.split('"').nth(3).unwrap();
        let read = api.get(&format!("/tasks/{id}")).await;
        submitted_has(&read.text, payload);
    }
}

#[track_caller]
fn submitted_has(text: &str, payload: &str) {
    assert!(text.contains(&format!("\"payload\":{payload},\"attempts\"")), "{payload}: {text}");
}

#[tokio::test]
async fn a_payload_that_is_not_json_is_base64() {
    let api = Api::new();
    let task = api.post("/tasks", r#"{"payload_base64":"AAH/"}"#).await.is(201);
    assert_eq!((&task["payload"], &task["payload_base64"]), (&Value::Null, &json!("AAH/")));
    let id = task["id"].as_str().unwrap();
    assert_eq!(api.get(&format!("/tasks/{id}")).await.is(200)["payload_base64"], "AAH/");
    let record = api.client.get(&windlass_core::TaskId::new(id)).await.unwrap().unwrap();
    assert_eq!(record.payload, vec![0, 1, 255]);
}

#[tokio::test]
async fn an_unknown_field_is_named_with_what_was_meant() {
    refused(r#"{"tpye":"a"}"#, "tpye", "did you mean type?").await;
    refused(r#"{"maxRetries":1}"#, "maxRetries", "did you mean max_retries?").await;
    refused(r#"{"args":[1]}"#, "args", "did you mean payload?").await;
    refused(r#"{"kind":"a"}"#, "kind", "did you mean type?").await;
    refused(r#"{"retries":1}"#, "retries", "did you mean max_retries?").await;
    refused(r#"{"delay":"5x"}"#, "delay", "such as").await;
    refused(r#"{"colour":1}"#, "colour", "there are type").await;
    refused(r#"{"retry":{"inital":"1s"}}"#, "retry.inital", "did you mean retry.initial?").await;
    refused(r#"{"unique":{"fro":"1s"}}"#, "unique.fro", "did you mean unique.for?").await;
}

#[tokio::test]
async fn a_field_that_is_there_twice_is_refused() {
    refused(r#"{"type":"a","type":"b"}"#, "type", "twice").await;
    refused(r#"{"payload":1,"p\u0061yload":2}"#, "payload", "twice").await;
    refused(r#"{"metadata":{"a":"1","a":"2"}}"#, "metadata.a", "twice").await;
}

#[tokio::test]
async fn a_wrong_type_is_named() {
    refused(r#"{"type":1}"#, "type", "a string, not a number").await;
    refused(r#"{"queue":["a"]}"#, "queue", "a string, not an array").await;
    refused(r#"{"priority":"urgent"}"#, "priority", "urgent").await;
    refused(r#"{"priority":4}"#, "priority", "0 to 3").await;
    refused(r#"{"priority":true}"#, "priority", "not a boolean").await;
    refused(r#"{"max_retries":"3"}"#, "max_retries", "a number, not a string").await;
    refused(r#"{"max_retries":1.5}"#, "max_retries", "whole").await;
    refused(r#"{"max_retries":-1}"#, "max_retries", "negative").await;
    refused(r#"{"max_retries":5000000000}"#, "max_retries", "whole number up to").await;
    refused(r#"{"max_crashes":2000000}"#, "max_crashes", "at most 1000000").await;
    refused(r#"{"tags":"a"}"#, "tags", "an array, not a string").await;
    refused(r#"{"tags":["a",1]}"#, "tags[1]", "a string, not a number").await;
    refused(r#"{"metadata":[]}"#, "metadata", "an object, not an array").await;
    refused(r#"{"metadata":{"n":1}}"#, "metadata.n", "a string, not a number").await;
    refused(r#"{"retry":3}"#, "retry", "an object, not a number").await;
    refused(r#"{"payload_base64":"*"}"#, "payload_base64", "").await;
    refused(r#"{"run_at":5}"#, "run_at", "a string, not a number").await;
    refused(r#"{"run_at":"9999-12-31T00:00:00Z"}"#, "run_at", "too late a time").await;
    refused(r#"{"run_at":"9999-12-31T00:00:00Z"}"#, "run_at", "up to 9999-12-30").await;
    refused(r#"{"run_at":"2040-01-01T00:00:00+25:00"}"#, "run_at", "offsets end at 23:59").await;
    refused(r#"{"deadline":"soon"}"#, "deadline", "RFC 3339").await;
    refused(r#"{"type":"\ud800"}"#, "type", "not valid text").await;
}

#[tokio::test]
async fn bad_durations_are_refused() {
    for field in ["delay", "timeout", "retention"] {
        for value in ["-1", "\"-5s\"", "\"soon\"", "\"\"", "1e300", "true", "{}"] {
            refused(&format!("{{\"{field}\":{value}}}"), field, "").await;
        }
    }
    refused(r#"{"timeout":0}"#, "timeout", "longer than zero").await;
    refused(r#"{"delay":3153600001}"#, "delay", "hundred years").await;
    refused(r#"{"delay":"900000h"}"#, "delay", "hundred years").await;
}

#[tokio::test]
async fn what_excludes_each_other_is_refused() {
    refused(r#"{"run_at":"2040-01-01T00:00:00Z","delay":1}"#, "run_at", "not both").await;
    refused(r#"{"payload":1,"payload_base64":"AA=="}"#, "payload_base64", "not both").await;
    refused(r#"{"unique":{"key":"a"}}"#, "unique", "needs for").await;
    refused(r#"{"unique":{"for":1,"until":"finished"}}"#, "unique.until", "not both").await;
    refused(r#"{"unique":{"until":"noon"}}"#, "unique.until", "finished").await;
    refused(r#"{"unique":{"for":1,"on_conflict":"x"}}"#, "unique.on_conflict", "reject").await;
    refused(r#"{"retry":{"shape":"round"}}"#, "retry.shape", "exponential").await;
    refused(r#"{"retry":{"shape":"fixed","step":1}}"#, "retry.step", "no meaning").await;
    refused(r#"{"retry":{"jitter":2}}"#, "retry", "jitter").await;
    refused(r#"{"retry":{"factor":0}}"#, "retry", "factor").await;
}

#[tokio::test]
async fn bad_names_are_refused() {
    let long = "a".repeat(129);
    for name in ["", " ", "a b", ".a", "a{b}", "é", "a\\u0000", "../x", long.as_str()] {
        refused(&format!("{{\"type\":\"{name}\"}}"), "type", "").await;
        refused(&format!("{{\"queue\":\"{name}\"}}"), "queue", "").await;
        refused(&format!("{{\"tags\":[\"{name}\"]}}"), "tags[0]", "").await;
    }
    refused(r#"{"idempotency_key":""}"#, "idempotency_key", "1 to 255").await;
    refused(r#"{"unique":{"key":"a\u0007","for":1}}"#, "unique.key", "control").await;
}

#[tokio::test]
async fn too_much_is_refused() {
    let tags = vec!["t"; 33];
    refused(&json!({ "tags": tags }).to_string(), "tags", "at most 32").await;
    refused(&json!({ "tags": vec![0; 2_000] }).to_string(), "tags", "at most 1000").await;
    let many: serde_json::Map<_, _> = (0..2_000).map(|n| (n.to_string(), json!(""))).collect();
    refused(&json!({ "metadata": many }).to_string(), "metadata", "at most 1000").await;
    refused(&json!({ "metadata": {"a": "b".repeat(20_000)} }).to_string(), "metadata", "16384")
        .await;
    let api = Api::new();
    let large = format!("{{\"payload\":\"{}\"}}", "x".repeat(1024 * 1024));
    api.post("/tasks", &large).await.is_problem(413, "payload-too-large");
    let larger = format!("{{\"payload\":\"{}\"}}", "x".repeat(2 * 1024 * 1024));
    api.post("/tasks", &larger).await.is_problem(413, "payload-too-large");
    let vast = "x".repeat(3 * 1024 * 1024);
    api.post("/tasks", &vast).await.is_problem(413, "payload-too-large");
    let just = format!("{{\"payload\":\"{}\"}}", "x".repeat(1024 * 1024 - 2));
    api.post("/tasks", &just).await.is(201);
}

#[tokio::test]
async fn deep_payloads_are_refused_and_hurt_nobody() {
    let nested = |depth| format!("{{\"payload\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
    Api::new().post("/tasks", &nested(64)).await.is(201);
    refused(&nested(65), "payload", "65 deep").await;
    refused(&nested(100_000), "payload", "100000 deep").await;
    let api = Api::new();
    api.post("/tasks", &"[".repeat(100_000)).await.is_problem(422, "invalid-request");
    api.post("/tasks", &format!("{{\"tags\":{}", "[".repeat(100_000)))
        .await
        .is_problem(400, "invalid-request");
    let deep = format!("{{\"tags\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    api.post("/tasks", &deep).await.is_problem(422, "invalid-request");
}

#[tokio::test]
async fn broken_json_is_shown_where_it_breaks() {
    let api = Api::new();
    let problem =
        api.post("/tasks", "{\"type\":\n \"a\",}").await.is_problem(400, "invalid-request");
    assert_eq!((&problem["line"], &problem["column"]), (&json!(2), &json!(6)), "{problem}");
    for body in ["", "{", "{} {}", "{\"payload\":}", "{\"payload\":nul}", "{\"a\"}", "\u{feff}{}"] {
        api.post("/tasks", body).await.is_problem(400, "invalid-request");
    }
    for body in ["[]", "1", "null", "\"a\""] {
        api.post("/tasks", body).await.is_problem(422, "invalid-request");
    }
    let (status, _) = api
        .app
        .call(Method::POST, "/api/v1/tasks", Some(b"{\"payload\":\"\xff\"}"[..].into()))
        .await;
    assert_eq!(status, 400);
}

#[tokio::test]
async fn a_problem_does_not_repeat_all_that_was_sent() {
    let api = Api::new();
    let long = "\\u0001".repeat(100_000);
    for body in [format!("{{\"delay\":\"{long}\"}}"), format!("{{\"metadata\":{{\"{long}\":1}}}}")]
    {
        let answer = api.post("/tasks", &body).await;
        answer.is_problem(422, "invalid-request");
        assert!(answer.text.len() < 10_000, "{}", answer.text.len());
    }
}

#[tokio::test]
async fn keys_keep_tasks_one() {
    let api = Api::new();
    let first = api.submit(r#"{"type":"a","idempotency_key":"k","payload":1}"#).await;
    let again =
        api.post("/tasks", r#"{"type":"a","idempotency_key":"k","payload":1}"#).await.is(200);
    assert_eq!(again["id"], first.as_str());
    let other = api.post("/tasks", r#"{"type":"a","idempotency_key":"k","payload":2}"#).await;
    assert_eq!(other.is_problem(422, "idempotency-mismatch")["existing_id"], first.as_str());
    let unique = r#"{"type":"b","payload":1,"unique":{"until":"finished"}}"#;
    let first = api.submit(unique).await;
    let second = api.post("/tasks", unique).await.is_problem(409, "unique-conflict");
    assert_eq!(second["existing_id"], first.as_str());
    let returns = r#"{"type":"b","payload":1,"unique":{"for":"1h","on_conflict":"return"}}"#;
    assert_eq!(api.post("/tasks", returns).await.is(200)["id"], first.as_str());
}

#[tokio::test]
async fn a_stored_task_is_never_called_failed() {
    use windlass_testkit::faults::Method as Call;
    let api = Api::new();
    let body = r#"{"type":"a","payload":[1],"idempotency_key":"k"}"#;
    // The answer to the insert is lost; it is repeated, and what is there then cannot be read.
    api.faults.lose_reply(Call::Insert);
    api.faults.fail(Call::Get, 1, windlass_core::ErrorKind::Unavailable);
    let task = api.post("/tasks", body).await.is(201);
    assert_eq!((&task["state"], &task["payload"]), (&json!("pending"), &json!([1])));
    assert!(!api.faults.is_planned(Call::Get), "it was to be read");
    let read = api.get(&format!("/tasks/{}", task["id"].as_str().unwrap())).await.is(200);
    api.faults.fail(Call::Get, 1, windlass_core::ErrorKind::Unavailable);
    let again = api.post("/tasks", body).await.is(200);
    assert_eq!((&again["id"], &again["payload"]), (&read["id"], &json!([1])));
}

#[tokio::test]
async fn a_new_task_is_answered_as_it_is_stored_without_being_read() {
    use windlass_testkit::faults::Method as Call;
    let api = Api::new();
    let body = r#"{"type":"a","queue":"q","payload":{"n":1.0},"delay":"1.0004s","timeout":0.0004,
        "deadline":"2100-01-01T00:00:00Z","tags":["t"],"metadata":{"a":"b"},"retention":"1h"}"#;
    let task = api.post("/tasks", body).await.is(201);
    let batch = api.post("/tasks/batch", &format!("[{body}]")).await.is(200);
    assert_eq!(api.faults.calls(Call::Get), 0, "nothing was read");
    let path = |task: &serde_json::Value| format!("/tasks/{}", task["id"].as_str().unwrap());
    assert_eq!(task, api.get(&path(&task)).await.is(200));
    let listed = &batch["results"][0]["task"];
    let mut read = api.get(&path(listed)).await.is(200);
    read["payload"] = json!(null);
    assert_eq!(*listed, read, "but for the payload, which a batch does not repeat");
}

#[tokio::test]
async fn tasks_of_a_batch_that_a_key_led_to_one_task_all_show_it() {
    let api = Api::new();
    let first = api.submit(r#"{"type":"a","idempotency_key":"k","tags":["first"]}"#).await;
    let body = r#"[{"type":"a","idempotency_key":"k"},{"type":"a","idempotency_key":"k"}]"#;
    let answer = api.post("/tasks/batch", body).await.is(200);
    for result in answer["results"].as_array().unwrap() {
        let task = &result["task"];
        assert_eq!((&task["id"], &task["tags"]), (&json!(first), &json!(["first"])), "{answer}");
    }
}

#[tokio::test]
async fn a_batch_answers_each_in_order() {
    let api = Api::new();
    let body = r#"[{"type":"a"},{"tpye":"b"},{"type":"c","idempotency_key":"k"},
        {"type":"c","idempotency_key":"k"},7,{"type":"d"}]"#;
    let answer = api.post("/tasks/batch", body).await.is(200);
    let counts = [&answer["created"], &answer["existing"], &answer["failed"]];
    assert_eq!(counts, [&json!(3), &json!(1), &json!(2)], "{answer}");
    let statuses: Vec<_> = answer["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["status"].as_str().unwrap())
        .collect();
    assert_eq!(statuses, ["created", "failed", "created", "existing", "failed", "created"]);
    assert_eq!(answer["results"][1]["error"]["field"], "tpye");
    assert_eq!(answer["results"][0]["task"]["type"], "a");
    assert_eq!(answer["results"][2]["task"]["id"], answer["results"][3]["task"]["id"]);
    assert_eq!(api.get("/tasks/count").await.is(200)["count"], 3);
}

#[tokio::test]
async fn a_batch_has_bounds() {
    let api = Api::new();
    let full = format!("[{}]", vec!["{}"; 10_000].join(","));
    assert_eq!(api.post("/tasks/batch", &full).await.is(200)["created"], 10_000);
    let over = format!("[{}]", vec!["{}"; 10_001].join(","));
    api.post("/tasks/batch", &over).await.is_problem(413, "payload-too-large");
    assert_eq!(api.post("/tasks/batch", "[]").await.is(200)["created"], 0);
    api.post("/tasks/batch", "{}").await.is_problem(422, "invalid-request");
    api.post("/tasks/batch", "[{}").await.is_problem(400, "invalid-request");
    api.post("/tasks/batch", "").await.is_problem(400, "invalid-request");
    assert_eq!(api.get("/tasks/count").await.is(200)["count"], 10_000);
}

/// A body that is nearly a submit.
fn nearly() -> impl Strategy<Value = Vec<u8>> {
    let value = prop_oneof![
        Just("null".to_owned()),
        Just("true".into()),
        Just("{}".into()),
        Just("[]".into()),
        Just("\"30s\"".into()),
        Just("\"finished\"".into()),
        Just("{\"for\":1}".into()),
        Just("\"2030-01-01T00:00:00Z\"".into()),
        Just("[\"a\"]".into()),
        Just("\"\\ud800\"".into()),
        Just("1e999".into()),
        Just("-0.0".into()),
        Just("99999999999999999999".into()),
        any::<f64>().prop_map(|n| n.to_string()),
        any::<i64>().prop_map(|n| n.to_string()),
        "\"[ -~]{0,12}\"",
        "\\PC{0,8}",
    ];
    let name = prop::sample::select(vec![
        "type",
        "payload",
        "payload_base64",
        "queue",
        "priority",
        "run_at",
        "delay",
        "max_retries",
        "max_crashes",
        "timeout",
        "deadline",
        "retry",
        "idempotency_key",
        "unique",
        "retention",
        "awaited",
        "tags",
        "metadata",
        "traceparent",
        "tpye",
    ]);
    let members = prop::collection::vec((name, value), 0..5).prop_map(|members| {
        let members: Vec<_> =
            members.into_iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        format!("{{{}}}", members.join(",")).into_bytes()
    });
    (members, any::<Option<(prop::sample::Index, u8)>>()).prop_map(|(mut body, change)| {
        if let Some((at, byte)) = change {
            let at = at.index(body.len());
            body[at] = byte;
        }
        body
    })
}

#[test]
fn no_body_makes_the_server_fail() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let api = Api::new();
    let seen = std::cell::Cell::new((0, 0));
    proptest!(ProptestConfig::with_cases(2_000), |(body in nearly())| {
        let call = api.app.call(Method::POST, "/api/v1/tasks", Some(body.into()));
        let (status, answer) = runtime.block_on(call);
        let text = String::from_utf8_lossy(&answer).into_owned();
        prop_assert!([200, 201, 400, 409, 413, 422].contains(&status), "{status} {text}");
        let (taken, refused) = seen.get();
        seen.set(if status < 300 { (taken + 1, refused) } else { (taken, refused + 1) });
    });
    let (taken, refused) = seen.get();
    assert!(taken > 100 && refused > 100, "a test that sees one side only: {taken} {refused}");
}

#[tokio::test]
async fn single_submits_at_the_same_time_share_their_trips_to_the_store() {
    let api = Api::new();
    let submits = (0..50).map(|_| api.post("/tasks", "{}"));
    for answer in futures_util::future::join_all(submits).await {
        assert_eq!(answer.status, 201);
    }
    let trips = api.faults.calls(Call::Insert) + api.faults.calls(Call::Get);
    assert!(trips <= 10, "{trips} trips for 50 submits");
}
