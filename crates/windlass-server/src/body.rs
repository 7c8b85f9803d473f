//! Reading bodies: how large, how long, of which type.

use std::time::Duration;

use axum::body::HttpBody;
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use tokio::sync::OwnedSemaphorePermit;
use windlass_core::limits::Limits;

use crate::app::{SMALL_BODY_BYTES, Shared};
use crate::fields::Object;
use crate::form::Form;
use crate::listen::Bounds;
use crate::problem::{Outcome, Problem, Slug};

/// Largest body of a batch.
pub(crate) const BATCH_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Largest body of everything else, unless the settings allow larger payloads.
pub(crate) const SINGLE_BYTES_MAX: usize = 2 * 1024 * 1024;

/// A body that says nothing.
const NOTHING: Form = Form::new("Nothing", &[]);

/// A body that was read to its end.
pub(crate) struct Body {
    /// What was sent.
    pub(crate) bytes: Bytes,
    /// In what form; nothing sent has none.
    pub(crate) media: Media,
    /// Given back when the body is not needed any more.
    _memory: Option<OwnedSemaphorePermit>,
}

/// The form of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Media {
    /// One JSON value.
    Json,
    /// A JSON value in each line.
    Ndjson,
    /// There is no body.
    Absent,
    /// Something else, or not said.
    Other,
}

/// Largest body of a single submit: a payload of the largest size fits in as base64.
pub(crate) fn single_bytes_max(limits: &Limits) -> usize {
    SINGLE_BYTES_MAX.max(limits.payload_bytes_max.saturating_mul(4) / 3 + 1024 * 1024)
}

/// Reads a body that must be JSON.
pub(crate) async fn json(shared: &Shared, request: Request, bytes_max: usize) -> Outcome<Body> {
    let body = any(shared, request, bytes_max).await?;
    match body.media {
        Media::Json => Ok(body),
        Media::Absent => Err(Problem::new(Slug::MalformedJson, "the body is empty: send JSON")),
        Media::Ndjson | Media::Other => Err(not_json()),
    }
}

/// Reads the body of a request that needs none: nothing, or an empty object.
pub(crate) async fn none(shared: &Shared, request: Request) -> Outcome<()> {
    let body = any(shared, request, SINGLE_BYTES_MAX).await?;
    match body.media {
        Media::Absent => Ok(()),
        Media::Ndjson if body.bytes.is_empty() => Ok(()),
        Media::Json => Object::read(&body.bytes, &NOTHING).map(drop),
        Media::Ndjson | Media::Other => Err(not_json()),
    }
}

/// Reads a body of any form.
pub(crate) async fn any(shared: &Shared, request: Request, bytes_max: usize) -> Outcome<Body> {
    let bounds = request.extensions().get::<Bounds>().copied().unwrap_or_default();
    let form = media(request.headers());
    let refusal = unreadable(request.headers());
    let gathered = gather(shared, request.into_body(), bytes_max);
    let (bytes, memory) = match tokio::time::timeout(bounds.body_read, gathered).await {
        Ok(gathered) => gathered?,
        Err(_) => return Err(too_slow(bounds.body_read)),
    };
    // No line is a list of nothing.
    let is_absent = bytes.is_empty() && form != Media::Ndjson;
    let media = if is_absent { Media::Absent } else { form };
    if let Some(problem) = refusal.filter(|_| media != Media::Absent) {
        return Err(problem);
    }
    Ok(Body { bytes, media, _memory: memory })
}

/// The problem of a body that is not JSON by its own account.
pub(crate) fn not_json() -> Problem {
    Problem::new(Slug::UnsupportedMediaType, "set content-type: application/json")
}

async fn gather(
    shared: &Shared,
    mut body: axum::body::Body,
    bytes_max: usize,
) -> Outcome<(Bytes, Option<OwnedSemaphorePermit>)> {
    let declared = body.size_hint();
    if declared.lower() > bytes_max as u64 {
        return Err(too_large(bytes_max));
    }
    let most = declared.upper().and_then(|upper| usize::try_from(upper).ok());
    let most = most.unwrap_or(bytes_max).min(bytes_max);
    let mut bytes = BytesMut::with_capacity(most.min(SMALL_BODY_BYTES));
    let mut memory = None;
    while let Some(frame) = body.frame().await {
        let cut = |_| Problem::new(Slug::MalformedJson, "the body ended before its end");
        let Ok(data) = frame.map_err(cut)?.into_data() else { continue };
        if bytes.len() + data.len() > bytes_max {
            return Err(too_large(bytes_max));
        }
        // Leave is asked for once, and for all of it: two bodies that each wait for the rest of
        // what the other holds would both wait for ever.
        if memory.is_none() && bytes.len() + data.len() > SMALL_BODY_BYTES {
            let kib = u32::try_from(most.div_ceil(1024)).unwrap_or(u32::MAX);
            memory = shared.large_bodies().clone().acquire_many_owned(kib).await.ok();
        }
        bytes.extend_from_slice(&data);
    }
    Ok((bytes.freeze(), memory))
}

fn too_large(bytes_max: usize) -> Problem {
    let text = format!("the body has more than the {bytes_max} bytes allowed");
    Problem::new(Slug::PayloadTooLarge, text).last_of_connection()
}

fn too_slow(allowed: Duration) -> Problem {
    let text = format!("the body did not arrive within {allowed:?}");
    Problem::new(Slug::RequestTimeout, text).last_of_connection()
}

/// The problem of a body that is packed, or written in another alphabet than JSON is.
fn unreadable(headers: &HeaderMap) -> Option<Problem> {
    let refused = |text: &str| Some(Problem::new(Slug::UnsupportedMediaType, text));
    let mut encodings = headers.get_all(CONTENT_ENCODING).iter();
    if encodings.any(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return refused("send the body as it is, without content-encoding: none is undone here");
    }
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let charset = value.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("charset").then(|| value.trim().trim_matches('"'))
    });
    let is_known = |charset: &str| {
        ["utf-8", "utf8", "us-ascii"].iter().any(|known| charset.eq_ignore_ascii_case(known))
    };
    match charset {
        Some(charset) if !is_known(charset) => {
            refused("JSON is UTF-8: leave the charset out, or send utf-8")
        }
        _ => None,
    }
}

fn media(headers: &HeaderMap) -> Media {
    let Some(value) = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()) else {
        return Media::Other;
    };
    let essence = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_json = essence == "application/json"
        || (essence.starts_with("application/") && essence.ends_with("+json"));
    match essence.as_str() {
        _ if is_json => Media::Json,
        "application/x-ndjson" => Media::Ndjson,
        _ => Media::Other,
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn check(value: &'static str, expected: Media) {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(value));
        assert_eq!(media(&headers), expected, "{value}");
    }

    #[test]
    fn json_is_known_by_its_type() {
        check("application/json", Media::Json);
        check("Application/JSON; charset=utf-8", Media::Json);
        check("application/cloudevents+json", Media::Json);
        check("application/x-ndjson", Media::Ndjson);
        check("text/plain", Media::Other);
        check("application/x-www-form-urlencoded", Media::Other);
    }
}
