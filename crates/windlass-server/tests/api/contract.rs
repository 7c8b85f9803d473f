//! Every answer in these tests is held against the document that the server itself serves: its status must
//! be there for the call, and its body must fit the schema.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use jsonschema::Validator;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::sync::OnceCell;
use windlass_engine::Client;
use windlass_server::{App, Method};
use windlass_testkit::fleet;

use crate::support::Answer;

static DOCUMENT: OnceCell<Value> = OnceCell::const_new();
/// By method, path and status.
static VALIDATORS: LazyLock<Mutex<HashMap<String, Arc<Validator>>>> = LazyLock::new(Mutex::default);

/// The document, as the server serves it.
pub(crate) async fn document() -> &'static Value {
    let read = || async {
        let app = App::new(Client::new(fleet::memory()));
        let (status, body) = app.call(Method::GET, "/api/v1/openapi.json", None).await;
        assert_eq!(status, 200);
        serde_json::from_slice(&body).unwrap()
    };
    DOCUMENT.get_or_init(read).await
}

/// The call of the document that a request is, by its path: what is written out counts before what varies.
pub(crate) fn find<'a>(
    document: &'a Value,
    method: &str,
    path: &str,
) -> Option<(&'a str, &'a Value)> {
    let path = path.split('?').next().unwrap_or_default();
    let fits = |template: &str| {
        let (mut wanted, mut given) = (template.split('/'), path.split('/'));
        loop {
            match (wanted.next(), given.next()) {
                (None, None) => return true,
                (Some(wanted), Some(given)) if wanted == given => {}
                (Some(wanted), Some(_)) if wanted.starts_with('{') => {}
                (_, _) => return false,
            }
        }
    };
    let mut found: Vec<_> =
        document["paths"].as_object().unwrap().iter().filter(|(path, _)| fits(path)).collect();
    found.sort_by_key(|(path, _)| path.matches('{').count());
    let (path, calls) = found.first()?;
    Some((path, calls.get(method.to_lowercase())?))
}

/// Checks an answer. What is no call at all has no description.
#[track_caller]
fn check_in(document: &Value, method: &str, path: &str, answer: &Answer) {
    let Some((template, call)) = find(document, method, path) else { return };
    let status = answer.status.to_string();
    let Some(response) = call["responses"].get(&status) else {
        panic!("{method} {path} may not answer {status}: {}", answer.text);
    };
    let response = match response["$ref"].as_str() {
        Some(reference) => document.pointer(reference.trim_start_matches('#')).unwrap(),
        None => response,
    };
    let (media, content) = response["content"].as_object().unwrap().iter().next().unwrap();
    if !media.ends_with("json") {
        return;
    }
    // A payload may be JSON that no value of Rust can hold; everything beside it can.
    let json = serde_json::from_str::<Value>(&answer.text).unwrap_or_else(|_| {
        let fields: HashMap<String, &RawValue> = serde_json::from_str(&answer.text).unwrap();
        let read = |raw: &RawValue| serde_json::from_str(raw.get()).unwrap_or_default();
        fields.into_iter().map(|(name, raw)| (name, read(raw))).collect::<Map<_, _>>().into()
    });
    let key = format!("{method} {template} {status}");
    let known = VALIDATORS.lock().unwrap().get(&key).cloned();
    let validator = known.unwrap_or_else(|| {
        let schema = json!({ "allOf": [content["schema"]], "components": document["components"] });
        let validator = Arc::new(jsonschema::draft202012::new(&schema).unwrap());
        VALIDATORS.lock().unwrap().insert(key, validator.clone());
        validator
    });
    if let Err(error) = validator.validate(&json) {
        panic!("{method} {path} {status}: {error} at {}: {json}", error.instance_path);
    }
}

/// Checks an answer against the served document.
pub(crate) async fn check(method: &str, path: &str, answer: &Answer) {
    check_in(document().await, method, path, answer);
}

#[tokio::test]
async fn an_answer_that_is_not_described_is_found() {
    let document = document().await;
    let fails = |method: &str, path: &str, status: u16, text: &str| {
        let answer = Answer { status, text: text.into() };
        std::panic::catch_unwind(|| check_in(document, method, path, &answer)).is_err()
    };
    assert!(!fails("GET", "/healthz", 200, r#"{"status":"ok"}"#));
    assert!(fails("GET", "/healthz", 200, "{}"));
    assert!(fails("GET", "/healthz", 418, r#"{"status":"ok"}"#));
    assert!(fails("GET", "/api/v1/tasks/x", 200, r#"{"id":"x"}"#));
    let problem = |slug: &str| {
        format!(r#"{{"type":"/problems/{slug}","title":"t","status":404,"detail":"d"}}"#)
    };
    assert!(!fails("GET", "/api/v1/tasks/x", 404, &problem("not-found")));
    assert!(fails("GET", "/api/v1/tasks/x", 404, &problem("lease-lost")));
}
