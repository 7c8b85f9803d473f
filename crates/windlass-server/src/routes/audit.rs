//! Who changed what.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::value::RawValue;
use windlass_core::limits::clip;
use windlass_core::store::{AUDIT, DocQuery};
use windlass_core::{Error, Timestamp};

use crate::app::Shared;
use crate::form::{Entry, Sort, entry};
use crate::openapi::call::{Call, Group, answer};
use crate::problem::Outcome;
use crate::query::{PAGING, RawQuery};
use crate::wire::words::AuditForm;
use crate::wire::{Json, List};

const SINCE: [Entry; 1] = [entry("since", Sort::Time, "From then on")];

pub(super) const LIST: Call = Call {
    group: Group::Access,
    id: "list_audit",
    summary: "Read who changed what, oldest first",
    details: "Entries are kept for 90 days.",
    query: &[&SINCE, &PAGING],
    answers: &[answer::<List<AuditForm>>(200, "A page of the audit")],
    ..Call::PLAIN
};

/// A page of the audit, oldest first; with `since`, from that time on.
pub(super) async fn list(State(shared): State<Shared>, query: RawQuery) -> Outcome<Response> {
    let query = query.read(LIST.query)?;
    let limit = query.limit()?;
    let since = query.read("since", str::parse::<Timestamp>)?;
    let cursor = query.read("cursor", cursor)?;
    // Keys begin with the time.
    let after = cursor.or(since.map(|since| since.to_string()));
    let class = DocQuery::Class { class: AUDIT.into(), after, limit };
    let documents = shared.store().load(class).await?;
    let is_last = documents.len() < limit;
    let next_cursor =
        documents.last().filter(|_| !is_last).map(|last| BASE64_URL_SAFE_NO_PAD.encode(&last.key));
    let read = |body: String| {
        RawValue::from_string(body).map_err(|cause| Error::corrupt("read the audit").because(cause))
    };
    let data = documents.into_iter().map(|document| read(document.body));
    let data = data.collect::<Result<Vec<_>, _>>()?;
    Ok(Json(StatusCode::OK, List { data, next_cursor }).into_response())
}

/// Reads where a page ended: the key of an entry, which begins with its time.
fn cursor(text: &str) -> Result<String, Error> {
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok();
    let key = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    let is_key = |key: &String| {
        key.split_once(' ').is_some_and(|(at, mark)| {
            at.parse::<Timestamp>().is_ok_and(|time| time.to_string() == at) && !mark.is_empty()
        })
    };
    let refused = || Error::invalid(format!("cursor {:?} is not one of ours", clip(text, 128)));
    key.filter(is_key).ok_or_else(refused)
}
