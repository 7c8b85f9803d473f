//! Reading bodies: how large, how long, how fast, of which type.

use std::sync::Arc;
use std::time::Duration;

use axum::body::HttpBody;
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use bytes::Bytes;
use http_body_util::BodyExt;
use tokio::time::Instant;
use windlass_core::limits::Limits;

use crate::access::Caller;
use crate::fields::Object;
use crate::form::Form;
use crate::listen::Bounds;
use crate::memory::{ConnectionMemory, MemoryPermit, SMALL_BYTES, Transfer};
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
    /// Covers the body, and what is made of it, until the response is.
    memory: Option<MemoryPermit>,
}

impl Body {
    /// Lets go of the bytes. What was made of them needs the memory for longer.
    pub(crate) fn into_memory(self) -> Option<MemoryPermit> {
        self.memory
    }
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
pub(crate) async fn json(request: Request, bytes_max: usize) -> Outcome<Body> {
    let body = any(request, bytes_max).await?;
    match body.media {
        Media::Json => Ok(body),
        Media::Absent => Err(Problem::new(Slug::MalformedJson, "the body is empty: send JSON")),
        Media::Ndjson | Media::Other => Err(not_json()),
    }
}

/// Reads the body of a request that needs none: nothing, or an empty object.
pub(crate) async fn none(request: Request) -> Outcome<()> {
    let body = any(request, SINGLE_BYTES_MAX).await?;
    match body.media {
        Media::Absent => Ok(()),
        Media::Ndjson if body.bytes.is_empty() => Ok(()),
        Media::Json => Object::read(&body.bytes, &NOTHING).map(drop),
        Media::Ndjson | Media::Other => Err(not_json()),
    }
}

/// Reads a body of any form.
pub(crate) async fn any(request: Request, bytes_max: usize) -> Outcome<Body> {
    let bounds = request.extensions().get::<Bounds>().copied().unwrap_or_default();
    let memory = request.extensions().get::<ConnectionMemory>().cloned();
    let caller = request.extensions().get::<Caller>().cloned();
    let form = media(request.headers());
    let refusal = unreadable(request.headers());
    let arrival = Arrival { memory, caller, bounds, held: None };
    let gathered = arrival.gather(request.into_body(), bytes_max);
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
    Ok(Body { bytes, media, memory })
}

/// The problem of a body that is not JSON by its own account.
pub(crate) fn not_json() -> Problem {
    Problem::new(Slug::UnsupportedMediaType, "set content-type: application/json")
}

/// A body that comes in.
struct Arrival {
    /// Absent without a socket: whoever calls has the bytes already.
    memory: Option<ConnectionMemory>,
    caller: Option<Caller>,
    bounds: Bounds,
    /// There once the body is not small any more.
    held: Option<Held>,
}

/// The memory of a body that is not small, and how fast the rest has to come.
struct Held {
    memory: MemoryPermit,
    transfer: Arc<Transfer>,
    window_ends: Instant,
    window_bytes: usize,
}

impl Arrival {
    async fn gather(
        mut self,
        mut body: axum::body::Body,
        bytes_max: usize,
    ) -> Outcome<(Bytes, Option<MemoryPermit>)> {
        let declared = body.size_hint();
        if declared.lower() > bytes_max as u64 {
            return Err(too_large(bytes_max));
        }
        let most = declared.upper().and_then(|upper| usize::try_from(upper).ok());
        let most = most.unwrap_or(bytes_max).min(bytes_max);
        let mut bytes = Vec::with_capacity(most.min(SMALL_BYTES));
        while let Some(data) = self.next(&mut body).await? {
            let length = bytes.len() + data.len();
            if length > bytes_max {
                return Err(too_large(bytes_max));
            }
            if length > bytes.capacity() {
                // What counts is what has come, not what was announced.
                let capacity = length.max(bytes.capacity() * 2).min(most.max(length));
                self.hold(capacity).await?;
                bytes.reserve_exact(capacity - bytes.len());
            }
            bytes.extend_from_slice(&data);
        }
        if let Some(held) = &self.held {
            held.transfer.rest();
        }
        Ok((bytes.into(), self.held.map(|held| held.memory)))
    }

    /// The next bytes; nothing at the end.
    async fn next(&mut self, body: &mut axum::body::Body) -> Outcome<Option<Bytes>> {
        loop {
            let frame = match &mut self.held {
                None => body.frame().await,
                Some(held) => tokio::select! {
                    frame = body.frame() => frame,
                    () = held.transfer.ended() => return Err(slowest()),
                    () = tokio::time::sleep_until(held.window_ends) => {
                        held.check_rate(&self.bounds)?;
                        continue;
                    }
                },
            };
            let cut = |_| Problem::new(Slug::MalformedJson, "the body ended before its end");
            let Some(frame) = frame else { return Ok(None) };
            let Ok(data) = frame.map_err(cut)?.into_data() else { continue };
            if let Some(held) = &mut self.held {
                held.transfer.moved(data.len());
                held.window_bytes += data.len();
            }
            return Ok(Some(data));
        }
    }

    /// Waits for memory for so many bytes. That is no time in which the client is slow.
    async fn hold(&mut self, bytes: usize) -> Outcome<()> {
        let Some(memory) = &self.memory else { return Ok(()) };
        let (window, caller) = (self.bounds.body_window, self.caller.as_ref());
        let held = self.held.get_or_insert_with(|| {
            let (memory, transfer) = memory.body(caller);
            Held { memory, transfer, window_ends: Instant::now() + window, window_bytes: 0 }
        });
        let before = Instant::now();
        held.transfer.rest();
        let outcome = held.memory.hold(bytes).await;
        held.transfer.begin();
        held.window_ends += before.elapsed();
        outcome.map_err(Problem::last_of_connection)
    }
}

impl Held {
    /// The problem of a body of which too little has come of late.
    fn check_rate(&mut self, bounds: &Bounds) -> Outcome<()> {
        let least = bounds.bytes_in(bounds.body_window);
        if self.window_bytes < least {
            let window = bounds.body_window;
            let text = format!("less than {least} bytes of the body came within {window:?}");
            return Err(Problem::new(Slug::RequestTimeout, text).last_of_connection());
        }
        (self.window_ends, self.window_bytes) = (Instant::now() + bounds.body_window, 0);
        Ok(())
    }
}

fn too_large(bytes_max: usize) -> Problem {
    let text = format!("the body has more than the {bytes_max} bytes allowed");
    Problem::new(Slug::PayloadTooLarge, text).last_of_connection()
}

fn too_slow(allowed: Duration) -> Problem {
    let text = format!("the body did not arrive within {allowed:?}");
    Problem::new(Slug::RequestTimeout, text).last_of_connection()
}

/// The problem of the body that came slowest while there was no memory for others.
fn slowest() -> Problem {
    let text = "the body came too slowly while many others came";
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
