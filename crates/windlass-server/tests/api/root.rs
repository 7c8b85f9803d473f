//! What is not under `/api/v1`: health, version, the admin names, the page; and what an outage looks like.

use serde_json::json;
use windlass_server::Method;
use windlass_testkit::faults::Method as Call;

use crate::support::Api;

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
