//! The document of this API, and a page that shows it.

use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use schemars::{JsonSchema, Schema, json_schema};

use super::root::{Asset, HTML, SCRIPT, STYLE, asset};
use crate::app::Shared;
use crate::openapi::call::{Call, Group, answer, page as shown};

/// An OpenAPI document.
struct Document;

impl JsonSchema for Document {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Document".into()
    }
    fn json_schema(_: &mut schemars::generate::SchemaGenerator) -> Schema {
        json_schema!({ "type": "object", "required": ["openapi", "info", "paths", "components"] })
    }
}

pub(super) const OPENAPI: Call = Call {
    group: Group::Server,
    id: "openapi",
    summary: "This document",
    answers: &[answer::<Document>(200, "OpenAPI 3.1")],
    ..Call::PLAIN
};

pub(super) const PAGE: Call = Call {
    group: Group::Pages,
    id: "docs",
    summary: "This document, to be read",
    answers: &[shown("A page", HTML)],
    ..Call::PLAIN
};

pub(super) const CSS: Call = Call {
    group: Group::Pages,
    id: "docs_css",
    summary: "The style of that page",
    answers: &[shown("A style sheet", STYLE)],
    ..Call::PLAIN
};

pub(super) const JS: Call = Call {
    group: Group::Pages,
    id: "docs_js",
    summary: "The script of that page",
    answers: &[shown("A script", SCRIPT)],
    ..Call::PLAIN
};

/// The document.
pub(super) async fn openapi(State(shared): State<Shared>) -> Response {
    let headers = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-cache")];
    (headers, shared.document()).into_response()
}

pub(super) async fn page() -> Asset {
    asset(HTML, include_str!("../page/docs.html"))
}

pub(super) async fn css() -> Asset {
    asset(STYLE, include_str!("../page/docs.css"))
}

pub(super) async fn js() -> Asset {
    asset(SCRIPT, include_str!("../page/docs.js"))
}
