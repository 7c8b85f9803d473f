//! Access control as callers see it: every route against every wrong token, and what the right ones may do.

use std::net::SocketAddr;

use serde_json::{Value, json};
use windlass_server::{App, Bounds, Listener, Method, Route, Scope};
use windlass_testkit::faults::Method as Call;

use crate::support::{Answer, Api, Server, token};

/// What may be asked for without a token.
const FOR_ALL: [&str; 12] = [
    "/healthz",
    "/readyz",
    "/version",
    "/",
    "/page.css",
    "/page.js",
    "/api/v1/openapi.json",
    "/api/docs",
    "/api/docs.css",
    "/api/docs.js",
    "/problems",
    "/problems/{slug}",
];

/// A server with a task, and a worker that runs another, in the queue `other`.
struct Scene {
    server: Server,
    admin: String,
    task: String,
    worker: String,
    running: Value,
}

impl Scene {
    async fn new() -> Self {
        let server = Server::start(Bounds::default()).await;
        let api = &server.api;
        api.submit(r#"{"queue":"other"}"#).await;
        let ask = r#"{"queues":["other"],"worker":{"name":"w"}}"#;
        let leased = api.post("/leases", ask).await.is(200);
        let task = api.submit(r#"{"queue":"other"}"#).await;
        let admin = token(api, json!({"name": "root", "scopes": ["admin"]})).await;
        let worker = leased["worker"]["id"].as_str().unwrap().to_owned();
        Self { admin, task, worker, running: leased["tasks"][0].clone(), server }
    }

    /// A request that would be fine for an operator.
    fn request(&self, route: &Route) -> (String, String) {
        let path = route.path.replace("{queue}", "other").replace("{slug}", "not-found");
        let id = if path.contains("/workers/") { &self.worker } else { &self.task };
        let id = if path.contains("/tokens/") { "001122334455" } else { id };
        let body = match (route.method.as_str(), route.path.as_str()) {
            ("POST", "/api/v1/tasks") => json!({"queue": "other"}),
            ("POST", "/api/v1/tasks/batch") => json!([{"queue": "other"}]),
            ("POST", "/api/v1/tasks/bulk") => json!({"action": "retry", "ids": [id]}),
            ("POST", "/api/v1/tasks/{id}/snooze") => json!({"for": "1h"}),
            ("POST", "/api/v1/leases") => json!({"queues": ["other"]}),
            ("POST", "/api/v1/results") => json!({"worker_id": self.worker, "results": [
                {"id": self.running["id"], "epoch": self.running["epoch"], "outcome": "completed"}
            ]}),
            ("POST", "/api/v1/workers/{id}/heartbeat") => json!({"held": []}),
            ("POST", "/api/v1/dlq/retry" | "/admin/dlq/retry") => json!({"task_id": id}),
            ("POST", "/api/v1/tokens") => json!({"name": "n", "scopes": ["read"]}),
            _ => Value::Null,
        };
        let body = if body.is_null() { String::new() } else { body.to_string() };
        // A stream that ends.
        let path = path.replace("/api/v1/events", "/api/v1/events?for=0s");
        (path.replace("{id}", id), body)
    }

    async fn try_route(&self, route: &Route, token: Option<&str>) -> (String, Answer) {
        let (path, body) = self.request(route);
        ask(&self.server, route.method.as_str(), &path, token, &body).await
    }
}

/// Asks with a token, or without.
async fn ask(
    server: &Server,
    method: &str,
    path: &str,
    token: Option<&str>,
    body: &str,
) -> (String, Answer) {
    let token = token.map(|token| format!("authorization: Bearer {token}\r\n"));
    let json = if body.is_empty() { "" } else { "content-type: application/json\r\n" };
    server.send(method, path, &format!("{json}{}", token.unwrap_or_default()), body).await
}

fn id_of(token: &str) -> &str {
    token.split('_').nth(1).unwrap()
}

/// Every scope but these.
fn all_but(scopes: &[Scope]) -> Vec<&'static str> {
    let others = Scope::ALL.into_iter().filter(|scope| !scopes.contains(scope));
    others.map(Scope::as_str).collect()
}

#[tokio::test]
async fn every_route_refuses_every_wrong_token() {
    let scene = Scene::new().await;
    let api = &scene.server.api;
    let wrong = format!("wl_{}_{}", id_of(&scene.admin), "0".repeat(64));
    let revoked = token(api, json!({"name": "old", "scopes": ["admin"]})).await;
    api.delete(&format!("/tokens/{}", id_of(&revoked))).await.is(200);
    let scopes = all_but(&[Scope::Admin]);
    let elsewhere =
        token(api, json!({"name": "mine", "scopes": scopes, "queues": ["mine*"]})).await;
    let routes = api.app.routes().to_vec();
    assert!(routes.len() > 40, "the table is not empty");
    for route in routes {
        let Some(scope) = route.scope else {
            assert!(FOR_ALL.contains(&route.path.as_str()), "{route:?} asks for nothing");
            let (_, answer) = scene.try_route(&route, None).await;
            assert_eq!(answer.status, 200, "{route:?}");
            continue;
        };
        assert_eq!(scope, due_scope(&route), "{route:?}");
        for token in [None, Some(wrong.as_str()), Some(&revoked), Some("canary"), Some("")] {
            let (head, answer) = scene.try_route(&route, token).await;
            answer.is_problem(401, "unauthorized");
            assert!(head.contains("www-authenticate: bearer"), "{route:?}: {head}");
        }
        let others = all_but(&[scope, Scope::Admin]);
        let small = token(api, json!({"name": "small", "scopes": others})).await;
        let (_, answer) = scene.try_route(&route, Some(&small)).await;
        let told = answer.is_problem(403, "forbidden")["detail"].to_string();
        assert!(told.contains(scope.as_str()), "{route:?}: {told}");
        check_other_queue(&scene, &route, &elsewhere).await;
    }
    // And that was for want of a good token only.
    for route in api.app.routes().to_vec() {
        let (_, answer) = scene.try_route(&route, Some(&scene.admin)).await;
        let is_let_in = ![401, 403, 400, 405, 422, 500, 503].contains(&answer.status);
        assert!(is_let_in, "{route:?}: {answer:?}");
    }
    scene.server.stop().await;
}

/// What a route of this name must ask for.
fn due_scope(route: &Route) -> Scope {
    let path = route.path.strip_prefix("/api/v1").unwrap_or(&route.path);
    match (route.method.as_str(), path) {
        (_, path) if path.starts_with("/tokens") || path == "/audit" => Scope::Admin,
        ("GET", _) => Scope::Read,
        ("POST", "/tasks" | "/tasks/batch") => Scope::Submit,
        ("POST", "/leases" | "/results" | "/workers/{id}/heartbeat") => Scope::Work,
        ("DELETE", "/workers/{id}") => Scope::Work,
        (_, _) => Scope::Operate,
    }
}

async fn check_other_queue(scene: &Scene, route: &Route, token: &str) {
    let (_, answer) = scene.try_route(route, Some(token)).await;
    match (route.method.as_str(), route.path.as_str()) {
        // These leave out what the token is not for.
        ("GET", "/api/v1/events") => assert_eq!(answer.status, 200),
        ("GET", "/ws") => _ = answer.is_problem(426, "upgrade-required"),
        ("GET", "/api/v1/queues" | "/admin/queues") => {
            assert_eq!(answer.is(200)["data"], json!([]));
        }
        ("POST", "/api/v1/tasks/batch") => {
            let result = answer.is(200)["results"][0].clone();
            assert_eq!(
                (&result["status"], &result["error"]["status"]),
                (&json!("failed"), &json!(403))
            );
        }
        _ => _ = answer.is_problem(403, "forbidden"),
    }
}

#[tokio::test]
async fn a_token_needs_no_more_than_the_scope_of_the_route() {
    let scene = Scene::new().await;
    let api = &scene.server.api;
    for scope in all_but(&[]) {
        let token = token(api, json!({"name": scope, "scopes": [scope]})).await;
        for route in api.app.routes().to_vec() {
            let is_it = route.scope.is_some_and(|asked| asked.as_str() == scope);
            if is_it || (scope == "admin" && route.scope.is_some()) {
                let (_, answer) = scene.try_route(&route, Some(&token)).await;
                assert!(![401, 403].contains(&answer.status), "{scope} {route:?}: {answer:?}");
            }
        }
    }
    scene.server.stop().await;
}

#[tokio::test]
async fn a_token_for_some_queues_sees_and_changes_these_only() {
    let scene = Scene::new().await;
    let (server, api) = (&scene.server, &scene.server.api);
    let scopes = all_but(&[Scope::Admin]);
    let mine = token(api, json!({"name": "m", "scopes": scopes, "queues": ["mine*"]})).await;
    let as_mine = async |method: &str, path: &str, body: Value| {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        ask(server, method, &format!("/api/v1{path}"), Some(&mine), &body).await.1
    };
    let made = as_mine("POST", "/tasks", json!({"queue": "mine.1"})).await.is(201);
    let path = format!("/tasks/{}", made["id"].as_str().unwrap());
    assert_eq!(as_mine("GET", &path, Value::Null).await.is(200)["queue"], "mine.1");
    as_mine("POST", &format!("{path}/cancel"), Value::Null).await.is(200);
    let queues = as_mine("GET", "/queues", Value::Null).await.is(200);
    assert_eq!(queues["data"].as_array().unwrap().len(), 1);
    as_mine("GET", "/tasks?queue=mine.1", Value::Null).await.is(200);
    as_mine("GET", "/tasks?queue=other", Value::Null).await.is_problem(403, "forbidden");
    let all = as_mine("GET", "/tasks/count", Value::Null).await.is_problem(403, "forbidden");
    assert!(all["detail"].as_str().unwrap().contains("name one"), "{all}");
    for filter in [json!({"type": "default"}), json!({"queue": "other"})] {
        for is_dry in [true, false] {
            let body = json!({"action": "cancel", "filter": filter, "dry_run": is_dry});
            as_mine("POST", "/tasks/bulk", body).await.is_problem(403, "forbidden");
        }
    }
    let body = json!({"action": "cancel", "ids": [made["id"], scene.task], "dry_run": true});
    as_mine("POST", "/tasks/bulk", body).await.is_problem(403, "forbidden");
    as_mine("DELETE", "/dlq?queue=other", Value::Null).await.is_problem(403, "forbidden");
    as_mine("DELETE", "/dlq?queue=mine.1", Value::Null).await.is(200);
    // Half of what is asked for is not half allowed.
    let both = json!({"queues": ["mine.1", "other"]});
    as_mine("POST", "/leases", both).await.is_problem(403, "forbidden");
    // Nor may one speak for a worker of others, even about one's own queues.
    let theirs = json!({"queues": ["mine.1"], "worker": {"id": scene.worker}});
    as_mine("POST", "/leases", theirs.clone()).await.is_problem(403, "forbidden");
    let report = json!({"worker_id": scene.worker, "results": [], "lease": theirs});
    as_mine("POST", "/results", report).await.is_problem(403, "forbidden");
    // Its own worker is a worker like any other.
    as_mine("POST", "/tasks", json!({"queue": "mine.1"})).await.is(201);
    let leased = as_mine("POST", "/leases", json!({"queues": ["mine.1"]})).await.is(200);
    let (run, worker) = (&leased["tasks"][0], leased["worker"]["id"].as_str().unwrap());
    let held = json!({"held": [{"id": run["id"], "epoch": run["epoch"]}]});
    as_mine("POST", &format!("/workers/{worker}/heartbeat"), held).await.is(200);
    let result = json!({"id": run["id"], "epoch": run["epoch"], "outcome": "completed"});
    let report = json!({"worker_id": worker, "results": [result], "lease": {"queues": ["mine.1"]}});
    let answer = as_mine("POST", "/results", report).await.is(200);
    assert_eq!(answer["results"][0]["status"], "applied");
    as_mine("DELETE", &format!("/workers/{worker}"), Value::Null).await.is(200);
    scene.server.stop().await;
}

#[tokio::test]
async fn a_key_does_not_lead_to_a_task_of_another_queue() {
    let scene = Scene::new().await;
    let api = &scene.server.api;
    let unique = json!({"key": "k", "for": "1h", "on_conflict": "return"});
    api.submit(&json!({"queue": "other", "payload": "canary", "unique": unique}).to_string()).await;
    let mine = token(api, json!({"name": "m", "scopes": ["submit"], "queues": ["mine"]})).await;
    let body = json!({"queue": "mine", "unique": unique}).to_string();
    let (_, answer) = ask(&scene.server, "POST", "/api/v1/tasks", Some(&mine), &body).await;
    answer.is_problem(403, "forbidden");
    assert!(!answer.text.contains("canary"), "{}", answer.text);
    scene.server.stop().await;
}

#[tokio::test]
async fn loopback_is_open_until_there_is_a_token_and_stays_closed_when_it_is_revoked() {
    let server = Server::start(Bounds::default()).await;
    let stats = async |token: Option<&str>| ask(&server, "GET", "/api/v1/stats", token, "").await.1;
    stats(None).await.is(200);
    let wrong = format!("wl_001122334455_{}", "0".repeat(64));
    stats(Some(&wrong)).await.is_problem(401, "unauthorized");
    let api = &server.api;
    let good = token(api, json!({"name": "ann", "scopes": ["read"]})).await;
    stats(None).await.is_problem(401, "unauthorized");
    stats(Some(&good)).await.is(200);
    api.delete(&format!("/tokens/{}", id_of(&good))).await.is(200);
    stats(Some(&good)).await.is_problem(401, "unauthorized");
    stats(None).await.is_problem(401, "unauthorized");
    assert_eq!(api.get("/tokens").await.is(200)["data"].as_array().unwrap().len(), 1);
    api.delete(&format!("/tokens/{}?purge=true", id_of(&good))).await.is(200);
    stats(None).await.is(200);
    server.stop().await;
}

#[tokio::test]
async fn a_token_comes_in_one_of_two_headers() {
    let server = Server::start(Bounds::default()).await;
    let good = token(&server.api, json!({"name": "a", "scopes": ["read"]})).await;
    let other = token(&server.api, json!({"name": "b", "scopes": ["read"]})).await;
    for (headers, status) in [
        (format!("authorization: Bearer {good}\r\n"), 200),
        (format!("authorization: bearer {good}\r\n"), 200),
        (format!("x-api-key: {good}\r\n"), 200),
        (format!("x-api-key: {good}\r\nauthorization: Bearer {good}\r\n"), 200),
        (format!("x-api-key: {other}\r\nauthorization: Bearer {good}\r\n"), 401),
        (format!("authorization: Bearer {good}\r\nauthorization: Bearer {good}\r\n"), 401),
        (format!("authorization: Basic {good}\r\n"), 401),
        (format!("authorization: {good}\r\n"), 401),
    ] {
        let (_, answer) = server.send("GET", "/api/v1/stats", &headers, "").await;
        assert_eq!(answer.status, status, "{headers}");
        assert!(!answer.text.contains(&good), "{}", answer.text);
    }
    let (_, head) = ask(&server, "HEAD", "/api/v1/stats", None, "").await;
    assert_eq!(head.status, 401);
    server.stop().await;
}

#[tokio::test]
async fn a_name_for_the_server_that_is_not_loopback_needs_tokens() {
    let server = Server::start(Bounds::default()).await;
    let get = "GET /version HTTP/1.1\r\nhost: queue.example\r\nconnection: close\r\n\r\n";
    assert!(server.raw(get.as_bytes()).await.starts_with("HTTP/1.1 403"));
    token(&server.api, json!({"name": "a", "scopes": ["read"]})).await;
    assert!(server.raw(get.as_bytes()).await.starts_with("HTTP/1.1 200"));
    server.stop().await;
}

#[tokio::test]
async fn a_wait_ends_when_its_token_is_revoked() {
    let server = Server::start(Bounds::default()).await;
    let api = &server.api;
    let work = token(api, json!({"name": "w", "scopes": ["work"]})).await;
    let waiting =
        ask(&server, "POST", "/api/v1/leases", Some(&work), r#"{"queues":["q"],"wait":"60s"}"#);
    let revoking = async {
        api.faults.called(Call::Wait).await;
        api.delete(&format!("/tokens/{}", id_of(&work))).await.is(200);
    };
    let ((_, answer), ()) = tokio::join!(waiting, revoking);
    answer.is_problem(401, "unauthorized");
    server.stop().await;
}

#[tokio::test]
async fn a_token_over_its_rate_is_told_to_come_back() {
    let server = Server::start(Bounds::default()).await;
    let slow = token(&server.api, json!({"name": "s", "scopes": ["read"], "rate": 1})).await;
    let mut refused = None;
    // As long as these take less than 29 s in all, one of them is too much.
    for _ in 0..30 {
        let (head, answer) = ask(&server, "GET", "/api/v1/stats", Some(&slow), "").await;
        if answer.status != 200 {
            refused = Some((head, answer));
            break;
        }
    }
    let (head, answer) = refused.unwrap();
    answer.is_problem(429, "rate-limited");
    assert!(head.contains("retry-after: 1"), "{head}");
    server.stop().await;
}

#[tokio::test]
async fn elsewhere_nothing_is_served_without_a_token() {
    let api = Api::new();
    let everywhere: SocketAddr = "0.0.0.0:0".parse().unwrap();
    let serve = async |app: App, listener: Listener| listener.serve(app, async {}).await;
    let listener = Listener::bind(everywhere).await.unwrap();
    let refused = serve(api.app.clone(), listener).await.unwrap_err().to_string();
    assert!(refused.contains("windlass token create"), "{refused}");
    let insecure = Listener::bind(everywhere).await.unwrap().insecure();
    serve(api.another().app, insecure).await.unwrap();
    let revoked = token(&api, json!({"name": "a", "scopes": ["read"]})).await;
    api.delete(&format!("/tokens/{}", id_of(&revoked))).await.is(200);
    let listener = Listener::bind(everywhere).await.unwrap();
    serve(api.another().app, listener).await.unwrap_err();
    token(&api, json!({"name": "b", "scopes": ["read"]})).await;
    serve(api.another().app, Listener::bind(everywhere).await.unwrap()).await.unwrap();
}

#[tokio::test]
async fn a_wish_for_a_token_is_read_strictly() {
    let api = Api::new();
    for (wish, field) in [
        (json!({"scopes": ["read"]}), "name"),
        (json!({"name": "", "scopes": ["read"]}), "name"),
        (json!({"name": "a\nb", "scopes": ["read"]}), "name"),
        (json!({"name": "a"}), "scopes"),
        (json!({"name": "a", "scopes": []}), "scopes"),
        (json!({"name": "a", "scopes": ["root"]}), "scopes[0]"),
        (json!({"name": "a", "scopes": ["read"], "queues": []}), "queues"),
        (json!({"name": "a", "scopes": ["read"], "queues": ["a b"]}), "queues[0]"),
        (json!({"name": "a", "scopes": ["admin"], "queues": ["a"]}), "queues"),
        (json!({"name": "a", "scopes": ["read"], "rate": 0}), "rate"),
    ] {
        let problem = api.post("/tokens", &wish.to_string()).await;
        assert_eq!(problem.is_problem(422, "invalid-request")["field"], field, "{wish}");
    }
    api.delete("/tokens/001122334455").await.is_problem(404, "not-found");
}

#[tokio::test]
async fn what_the_store_keeps_of_a_secret_is_never_told() {
    let api = Api::new();
    let secret = token(&api, json!({"name": "a", "scopes": ["read"]})).await;
    let listed = api.get("/tokens").await;
    let revoked = api.delete(&format!("/tokens/{}", id_of(&secret))).await;
    let audit = api.get("/audit").await;
    for answer in [listed, revoked, audit] {
        answer.is(200);
        assert!(!answer.text.contains("hash"), "{}", answer.text);
        assert!(!answer.text.contains(secret.rsplit('_').next().unwrap()), "{}", answer.text);
    }
}

#[tokio::test]
async fn every_change_of_an_operator_is_on_record_with_who_and_what() {
    let scene = Scene::new().await;
    let (api, server) = (&scene.server.api, &scene.server);
    let operator = token(api, json!({"name": "op", "scopes": ["operate"]})).await;
    let by = format!("token {} (op)", id_of(&operator));
    let task = format!("/tasks/{}", scene.task);
    let worker = format!("/workers/{}", scene.worker);
    let dead = api.dead("{}").await;
    let filter = json!({"action": "cancel", "filter": {"queue": "other"}});
    let steps = [
        ("POST", format!("{task}/snooze"), json!({"for": "1h"}), "snooze", &*scene.task),
        ("POST", format!("{task}/retry"), Value::Null, "retry", &scene.task),
        ("POST", format!("{task}/cancel"), Value::Null, "cancel", &scene.task),
        ("DELETE", format!("{task}?purge=true"), Value::Null, "delete", &scene.task),
        ("POST", "/dlq/retry".into(), json!({"task_id": dead}), "retry", &dead),
        ("POST", "/tasks/bulk".into(), filter, "cancel", "queue=other"),
        ("POST", "/queues/q/pause?create=true".into(), Value::Null, "pause", "queue q"),
        ("POST", "/queues/q/resume".into(), Value::Null, "resume", "queue q"),
        ("POST", format!("{worker}/pause"), Value::Null, "pause", &scene.worker),
        ("POST", format!("{worker}/drain"), Value::Null, "drain", &scene.worker),
        ("POST", "/queues/default/purge".into(), Value::Null, "delete", "queue=default"),
    ];
    let mut known = entries(api).await.len();
    for (method, path, body, action, subject) in steps {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let path = format!("/api/v1{path}");
        let (_, answer) = ask(server, method, &path, Some(&operator), &body).await;
        assert!(answer.status < 300, "{path}: {answer:?}");
        let entries = entries(api).await;
        assert_eq!(entries.len(), known + 1, "{path} leaves one entry");
        known += 1;
        let is_it = |entry: &&Value| {
            entry["action"] == action && entry["by"] == by && entry.to_string().contains(subject)
        };
        assert!(entries.iter().any(|entry| is_it(&entry)), "{path}: {entries:?}");
    }
    // A change that is refused is none.
    let path = format!("/api/v1/tasks/{}/retry", scene.running["id"].as_str().unwrap());
    ask(server, "POST", &path, Some(&operator), "").await.1.is_problem(409, "state-conflict");
    assert_eq!(entries(api).await.len(), known);
    // Without a token it is the operator.
    api.call(Method::POST, "/api/v1/queues/q/pause", None).await.is(200);
    let told = |entry: &Value| (entry["by"].clone(), entry["action"].clone());
    assert!(entries(api).await.iter().map(told).any(|it| it == ("local".into(), "pause".into())));
    scene.server.stop().await;
}

/// The whole audit, page by page.
async fn entries(api: &Api) -> Vec<Value> {
    let (mut entries, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = api.get(&format!("/audit?limit=3{cursor}")).await.is(200);
        entries.extend(page["data"].as_array().unwrap().clone());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return entries,
        }
    }
}

#[tokio::test]
async fn a_cursor_of_the_audit_that_is_none_is_refused() {
    let api = Api::new();
    for queue in ["a", "b", "c"] {
        api.post(&format!("/queues/{queue}/pause?create=true"), "").await.is(200);
    }
    let first = api.get("/audit?limit=2").await.is(200);
    let cursor = first["next_cursor"].as_str().unwrap();
    let next = api.get(&format!("/audit?limit=2&cursor={cursor}")).await.is(200);
    assert_eq!(next["data"].as_array().unwrap().len(), 1, "{next}");
    for cursor in ["x", "", "2026-01-31", "2026-01-31T00:00:00.000Z", "9999%20x"] {
        let answer = api.get(&format!("/audit?cursor={cursor}")).await;
        assert_eq!(answer.is_problem(422, "invalid-request")["field"], "cursor", "{cursor}");
    }
}

#[tokio::test]
async fn a_token_in_a_path_a_parameter_or_a_field_is_not_told_back() {
    let server = Server::start(Bounds::default()).await;
    let secret = "c0ffee".repeat(10);
    let token = format!("wl_001122334455_{secret}");
    let json = "content-type: application/json\r\n";
    let body = format!(r#"{{"{token}":1}}"#);
    for (method, path, headers, body) in [
        ("GET", format!("/{token}"), "", ""),
        ("GET", format!("/api/v1/{token}/x"), "", ""),
        ("GET", format!("/api/v1/tasks/{token}"), "", ""),
        ("GET", format!("/api/v1/queues/{token}"), "", ""),
        ("GET", format!("/api/v1/workers/{token}"), "", ""),
        ("PUT", format!("/api/v1/tasks/{token}"), "", ""),
        ("POST", format!("/api/v1/workers/{token}/pause"), "", ""),
        ("POST", format!("/api/v1/workers/{token}/heartbeat"), json, "{}"),
        ("DELETE", format!("/api/v1/tokens/{token}"), "", ""),
        ("GET", format!("/api/v1/tasks?{token}=1"), "", ""),
        ("GET", format!("/api/v1/tasks?state={token}"), "", ""),
        ("POST", "/api/v1/tasks".into(), json, &*body),
    ] {
        let (head, answer) = server.send(method, &path, headers, body).await;
        assert!(answer.status >= 400, "{path}: {answer:?}");
        let told = format!("{head}{}", answer.text);
        assert!(!told.contains(&secret), "{method} {path}: {told}");
    }
    server.stop().await;
}
