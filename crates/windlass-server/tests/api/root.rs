//! What is not under `/api/v1`: health, version, the admin names, the page; and what an outage looks like.

use std::time::Duration;

use serde_json::json;
use windlass_server::Method;
use windlass_testkit::faults::Method as Call;

use crate::support::{Api, Server, bounds};

#[tokio::test]
async fn the_root_tells_health_and_version() {
    let api = Api::new();
    let root = async |path: &str| api.call(Method::GET, path, None).await;
    assert_eq!(root("/healthz").await.is(200), json!({"status": "ok"}));
    assert_eq!(root("/version").await.is(200)["name"], "windlass");
    let ready = root("/readyz").await.is(200);
    assert_eq!(
        (&ready["status"], &ready["store"]["durability"]),
        (&json!("ok"), &json!("volatile"))
    );
    api.faults.go_away();
    root("/readyz").await.is_problem(503, "store-unavailable");
    assert_eq!(root("/healthz").await.is(200)["status"], "ok");
}

#[tokio::test]
async fn the_admin_names_lead_to_the_same() {
    let api = Api::new();
    let root = async |path: &str| api.call(Method::GET, path, None).await.is(200);
    assert_eq!(root("/admin/health").await, root("/readyz").await);
    for name in ["workers", "queues", "dlq"] {
        let (alias, route) = (format!("/admin/{name}"), format!("/api/v1/{name}"));
        assert_eq!(root(&alias).await, root(&route).await, "{name}");
    }
    api.call(Method::DELETE, "/admin/dlq", None).await.is(200);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_is_not_ready() {
    let api = Api::new();
    api.faults.hold(Call::Inspect);
    for _ in 0..8 {
        api.call(Method::GET, "/readyz", None).await.is_problem(503, "store-unavailable");
    }
    assert_eq!(api.faults.calls(Call::Inspect), 4, "pings do not pile up");
}

#[tokio::test]
async fn metrics_are_told_also_while_the_store_is_away() {
    let api = Api::new();
    let metrics = async || {
        let told = api.call(Method::GET, "/metrics", None).await;
        assert_eq!(told.status, 200, "{}", told.text);
        told.text
    };
    api.faults.go_away();
    let told = metrics().await;
    assert!(told.contains("\nwindlass_leases_lost_total 0\n"), "{told}");
    assert!(!told.contains("taskqueue_dlq_size"), "{told}");
    api.faults.come_back();
    assert!(metrics().await.contains("\ntaskqueue_dlq_size 0\n"));
    api.call(Method::GET, "/metrics?name=x", None).await.is_problem(422, "invalid-request");
}

/// Whoever comes by a socket passes the gate, which knows tokens from the store.
#[tokio::test]
async fn metrics_are_told_to_strangers_long_after_the_store_went_away() {
    let server = Server::start(bounds()).await;
    let get = async |path| server.send("GET", path, "", "").await.1;
    // Nobody has asked for anything that needs a token: they are known all the same.
    get("/healthz").await.is(200);
    server.api.faults.go_away();
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(600)).await;
    tokio::time::resume();
    let told = get("/metrics").await;
    assert_eq!(told.status, 200, "{}", told.text);
    assert!(told.text.contains("\nwindlass_leases_lost_total 0\n"), "{}", told.text);
    get("/api/v1/queues").await.is_problem(503, "store-unavailable");
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_autoscaler_is_told_work_and_slots() {
    let api = Api::new();
    let told = async |path: &str| {
        // What was told a moment ago is told again.
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        api.get(path).await.is(200)
    };
    let none =
        json!({"pending": 0, "running": 0, "oldest_age_s": 0, "slots_used": 0, "slots_total": 0});
    assert_eq!(told("/autoscale").await, none);
    assert_eq!(told("/autoscale?queue=not-yet").await, none);
    for _ in 0..3 {
        api.submit(r#"{"queue":"mail"}"#).await;
    }
    api.submit("{}").await;
    let ask = r#"{"queues":["mail"],"worker":{"name":"w","slots":5},"max":1}"#;
    api.post("/leases", ask).await.is(200);
    let mail = told("/autoscale?queue=mail").await;
    assert_eq!((&mail["pending"], &mail["running"]), (&json!(2), &json!(1)));
    assert_eq!(mail["slots_total"], 5);
    let other = told("/autoscale?queue=default").await;
    assert_eq!((&other["pending"], &other["slots_total"]), (&json!(1), &json!(0)));
    assert_eq!(told("/autoscale").await["pending"], 3);
    api.faults.go_away();
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    api.get("/autoscale").await.is_problem(503, "store-unavailable");
}

#[tokio::test]
async fn an_outage_is_a_problem_that_tells_nothing_of_its_cause() {
    let api = Api::new();
    api.faults.go_away();
    for path in ["/tasks", "/tasks/count", "/queues", "/workers", "/stats", "/tasks/x", "/dlq"] {
        let problem = api.get(path).await.is_problem(503, "store-unavailable");
        assert_eq!(problem["detail"], "the store cannot answer now; try again");
    }
    api.post("/tasks/x/cancel", "").await.is_problem(503, "store-unavailable");
    api.post("/queues/q/pause", "").await.is_problem(503, "store-unavailable");
}

#[tokio::test]
async fn pages_have_nothing_inline_and_nothing_from_elsewhere() {
    let api = Api::new();
    let pages = [
        ("/", vec!["/page.css", "/page.js"]),
        ("/api/docs", vec!["/page.css", "/api/docs.css", "/api/docs.js"]),
        ("/problems", vec!["/page.css", "/api/docs.css"]),
    ];
    for (path, assets) in pages {
        let page = api.call(Method::GET, path, None).await;
        assert_eq!(page.status, 200);
        for inline in ["style=", "<style", "onclick", "<script>", "http://", "https://"] {
            assert!(!page.text.contains(inline), "{path}: {inline}");
        }
        for asset in assets {
            assert!(page.text.contains(asset));
            assert_eq!(api.call(Method::GET, asset, None).await.status, 200);
        }
    }
    for path in ["/page.js", "/api/docs.js"] {
        let script = api.call(Method::GET, path, None).await.text;
        assert!(!script.contains("localStorage"));
        for markup in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
            assert!(!script.contains(markup), "{path}: {markup}");
        }
    }
    let script = api.call(Method::GET, "/page.js", None).await.text;
    assert!(script.contains("sessionStorage"));
}
