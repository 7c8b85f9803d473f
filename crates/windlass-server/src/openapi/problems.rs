//! Which problems a call can answer with, and how the document tells of them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::call::Takes;
use crate::access::Need;
use crate::problem::Slug;
use crate::routes::Route;

/// The problems of all calls, each described once.
#[derive(Default)]
pub(super) struct Refusals(BTreeMap<String, Value>);

impl Refusals {
    /// The statuses by which a call can fail, each with a reference to its description.
    pub(super) fn of(&mut self, route: &Route) -> Vec<(u16, Value)> {
        let mut by_status: BTreeMap<u16, Vec<Slug>> = BTreeMap::new();
        for slug in slugs(route) {
            let slugs = by_status.entry(slug.status().as_u16()).or_default();
            if !slugs.contains(&slug) {
                slugs.push(slug);
            }
        }
        let refer = |(status, slugs): (u16, Vec<Slug>)| (status, self.refer(&slugs));
        by_status.into_iter().map(refer).collect()
    }

    fn refer(&mut self, slugs: &[Slug]) -> Value {
        let mut words: Vec<_> = slugs.iter().map(|slug| slug.as_str()).collect();
        words.sort_unstable();
        words.dedup();
        // The same slug may stand for two statuses.
        let status = slugs[0].status().as_u16();
        let name = format!("{status}-{}", words.join("-or-"));
        self.0.entry(name.clone()).or_insert_with(|| response(slugs, &words));
        json!({ "$ref": format!("#/components/responses/{name}") })
    }

    pub(super) fn into_responses(self) -> BTreeMap<String, Value> {
        self.0
    }
}

fn response(slugs: &[Slug], words: &[&str]) -> Value {
    let lines: Vec<_> = slugs
        .iter()
        .map(|slug| format!("[`{0}`](/problems/{0}): {1}.", slug.as_str(), slug.title()))
        .collect();
    let types: Vec<_> = words.iter().map(|word| format!("/problems/{word}")).collect();
    let schema = json!({
        "allOf": [{ "$ref": "#/components/schemas/Problem" }],
        "properties": { "type": { "enum": types }, "status": { "const": slugs[0].status().as_u16() } },
    });
    let mut headers = request_id();
    if slugs.contains(&Slug::Unauthorized) {
        headers["WWW-Authenticate"] = text("Always `Bearer`");
    }
    if slugs.iter().any(|slug| {
        matches!(
            slug,
            Slug::RateLimited
                | Slug::StoreUnavailable
                | Slug::TooManyConnections
                | Slug::Overloaded
        )
    }) {
        headers["Retry-After"] =
            json!({ "description": "Seconds to wait", "schema": { "type": "integer" } });
    }
    json!({
        "description": lines.join("\n\n"),
        "headers": headers,
        "content": { "application/problem+json": { "schema": schema } },
    })
}

/// The header that every response has.
pub(super) fn request_id() -> Value {
    json!({ "x-request-id": text("Names the request in the server's log; its own when that is a plain word") })
}

fn text(what: &str) -> Value {
    json!({ "description": what, "schema": { "type": "string" } })
}

/// Everything that can go wrong with a call: by what it asks of its caller, by what it reads, and by what
/// it says itself.
fn slugs(route: &Route) -> Vec<Slug> {
    let call = route.call;
    // Whatever the call: the host must be ours, a change must not come from another site, and there must be
    // room for the connection and for what is sent on it.
    let mut slugs = vec![Slug::Forbidden, Slug::TooManyConnections, Slug::Overloaded];
    if route.need != Need::Nothing {
        slugs.extend([Slug::Unauthorized, Slug::RateLimited, Slug::InvalidRequest]);
        slugs.extend([Slug::StoreUnavailable, Slug::StoreForbidden, Slug::Internal]);
    }
    if !call.path.is_empty() {
        slugs.push(Slug::NotFound);
    }
    match call.takes {
        Takes::Nothing => {}
        Takes::Empty | Takes::Json(_) | Takes::Batch(_) => slugs.extend([
            Slug::MalformedJson,
            Slug::InvalidRequest,
            Slug::PayloadTooLarge,
            Slug::UnsupportedMediaType,
            Slug::RequestTimeout,
        ]),
    }
    slugs.extend(call.problems);
    slugs
}
