//! What stands at the root: is it alive, is it ready, which version, and the page.

use std::time::Duration;

use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderName, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;
use windlass_core::store::{Depth, Inspection, Severity};
use windlass_core::{Error, ErrorKind};

use crate::app::Shared;
use crate::openapi::call::{Call, Group, answer, page as shown};
use crate::problem::{Outcome, Problem, Slug};
use crate::wire::Json;
use crate::wire::stats::durability;

/// How long the store may take to answer a ping.
const PING_TIME: Duration = Duration::from_secs(2);

/// The process lives.
#[derive(Serialize, JsonSchema)]
pub(super) struct Health {
    /// Always `ok`.
    status: &'static str,
}

/// The store answers and takes writes.
#[derive(Serialize, JsonSchema)]
pub(super) struct Ready {
    /// Always `ok`.
    status: &'static str,
    store: ReadyStore,
    /// What is not as it should be, and makes nothing unready.
    warnings: Vec<Warning>,
}

/// What the store promises.
#[derive(Serialize, JsonSchema)]
struct ReadyStore {
    name: &'static str,
    /// `durable`, `window` or `volatile`.
    durability: &'static str,
    /// What may be lost.
    loss_window: Option<String>,
}

/// Something that is not as it should be.
#[derive(Serialize, JsonSchema)]
struct Warning {
    subject: &'static str,
    text: String,
    /// What to do about it; empty when there is nothing to do.
    advice: String,
}

/// What runs here.
#[derive(Serialize, JsonSchema)]
pub(super) struct Version {
    name: &'static str,
    version: &'static str,
    /// The version of the API.
    api: &'static str,
}

pub(super) const HEALTHZ: Call = Call {
    group: Group::Server,
    id: "healthz",
    summary: "Is the process alive?",
    answers: &[answer::<Health>(200, "It is")],
    ..Call::PLAIN
};

pub(super) const READYZ: Call = Call {
    group: Group::Server,
    id: "readyz",
    summary: "Does the store answer and take writes?",
    answers: &[answer::<Ready>(200, "It does, within 2 s")],
    problems: &[Slug::StoreUnavailable, Slug::StoreForbidden, Slug::Internal],
    ..Call::PLAIN
};

pub(super) const VERSION: Call = Call {
    group: Group::Server,
    id: "version",
    summary: "Which version is this?",
    answers: &[answer::<Version>(200, "The version")],
    ..Call::PLAIN
};

pub(super) const PAGE: Call = Call {
    group: Group::Pages,
    id: "page",
    summary: "A page that shows queues and the last tasks",
    answers: &[shown("The page", HTML)],
    ..Call::PLAIN
};

pub(super) const CSS: Call = Call {
    group: Group::Pages,
    id: "page_css",
    summary: "The style of the page",
    answers: &[shown("A style sheet", STYLE)],
    ..Call::PLAIN
};

pub(super) const JS: Call = Call {
    group: Group::Pages,
    id: "page_js",
    summary: "The script of the page",
    answers: &[shown("A script", SCRIPT)],
    ..Call::PLAIN
};

/// The process lives.
pub(super) async fn healthz() -> Json<Health> {
    Json(StatusCode::OK, Health { status: "ok" })
}

/// The store answers and takes writes.
pub(super) async fn readyz(State(shared): State<Shared>) -> Outcome<Json<Ready>> {
    let inspection = ping(&shared).await?;
    if let Some(refusal) = inspection.refusal {
        let text = format!("the store accepts no writes: {}", refusal.text);
        return Err(Problem::new(Slug::StoreUnavailable, text));
    }
    let profile = shared.store().profile();
    let (durability, loss_window) = durability(&profile.durability);
    let store = ReadyStore { name: profile.name, durability, loss_window };
    let warnings = inspection.findings.into_iter();
    let warnings = warnings.filter(|finding| finding.severity > Severity::Info).map(|finding| {
        Warning { subject: finding.subject, text: finding.text, advice: finding.advice }
    });
    // A warning is no reason to be sent no requests.
    Ok(Json(StatusCode::OK, Ready { status: "ok", store, warnings: warnings.collect() }))
}

/// What runs here.
pub(super) async fn version() -> Json<Version> {
    let version = env!("CARGO_PKG_VERSION");
    Json(StatusCode::OK, Version { name: "windlass", version, api: "v1" })
}

pub(super) const HTML: &str = "text/html; charset=utf-8";
pub(super) const STYLE: &str = "text/css; charset=utf-8";
pub(super) const SCRIPT: &str = "text/javascript; charset=utf-8";

/// A file for browsers.
pub(super) type Asset = ([(HeaderName, &'static str); 2], &'static str);

pub(super) async fn page() -> Asset {
    asset(HTML, include_str!("../page/index.html"))
}

pub(super) async fn css() -> Asset {
    asset(STYLE, include_str!("../page/page.css"))
}

pub(super) async fn js() -> Asset {
    asset(SCRIPT, include_str!("../page/page.js"))
}

pub(super) fn asset(media: &'static str, text: &'static str) -> Asset {
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
