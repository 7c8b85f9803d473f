//! What stands at the root: is it alive, is it ready, which version, and the page.

use std::time::Duration;

use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderName, StatusCode};
use serde_json::{Value, json};
use windlass_core::store::{Depth, Inspection, Severity};
use windlass_core::{Error, ErrorKind, Reason};

use crate::app::Shared;
use crate::problem::Outcome;
use crate::wire::Json;
use crate::wire::stats::durability;

/// How long the store may take to answer a ping.
const PING_TIME: Duration = Duration::from_secs(2);

/// The process lives.
pub(super) async fn healthz() -> Json<Value> {
    Json(StatusCode::OK, json!({ "status": "ok" }))
}

/// The store answers and takes writes.
pub(super) async fn readyz(State(shared): State<Shared>) -> Outcome<Json<Value>> {
    let inspection = ping(&shared).await?;
    if !inspection.is_writable {
        let error = Error::new(ErrorKind::Unavailable, "the store takes no writes now");
        return Err(error.reason_is(Reason::ReadOnly).into());
    }
    let profile = shared.store().profile();
    let (durability, loss) = durability(&profile.durability);
    let store = json!({ "name": profile.name, "durability": durability, "loss_window": loss });
    let warnings: Vec<_> = inspection
        .findings
        .iter()
        .filter(|finding| finding.severity > Severity::Info)
        .map(|finding| json!({ "subject": finding.subject, "text": finding.text, "advice": finding.advice }))
        .collect();
    // A warning is no reason to be sent no requests.
    Ok(Json(StatusCode::OK, json!({ "status": "ok", "store": store, "warnings": warnings })))
}

/// What runs here.
pub(super) async fn version() -> Json<Value> {
    let version = env!("CARGO_PKG_VERSION");
    Json(StatusCode::OK, json!({ "name": "windlass", "version": version, "api": "v1" }))
}

type Asset = ([(HeaderName, &'static str); 2], &'static str);

pub(super) async fn page() -> Asset {
    asset("text/html; charset=utf-8", include_str!("../page/index.html"))
}

pub(super) async fn css() -> Asset {
    asset("text/css; charset=utf-8", include_str!("../page/page.css"))
}

pub(super) async fn js() -> Asset {
    asset("text/javascript; charset=utf-8", include_str!("../page/page.js"))
}

fn asset(media: &'static str, text: &'static str) -> Asset {
    ([(CONTENT_TYPE, media), (CACHE_CONTROL, "no-cache")], text)
}

/// Pings the store, to the end even if nobody waits that long; only a few at a time, so that they
/// do not pile up in front of a store that hangs.
async fn ping(shared: &Shared) -> Outcome<Inspection> {
    let answer = async {
        let leave = shared.pings().clone().acquire_owned().await;
        let store = shared.store().clone();
        let ping = tokio::spawn(async move {
            let _leave = leave;
            store.inspect(Depth::Ping).await
        });
        ping.await
    };
    match tokio::time::timeout(PING_TIME, answer).await {
        Ok(Ok(inspection)) => Ok(inspection?),
        Ok(Err(ended)) => Err(silent().because(ended).into()),
        Err(_) => Err(silent().into()),
    }
}

fn silent() -> Error {
    Error::new(ErrorKind::Unavailable, format!("ping the store for {PING_TIME:?}"))
}
