//! Live events: over a WebSocket, and as a stream of server-sent events.

use axum::Extension;
use axum::extract::State;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::http::HeaderMap;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName};
use axum::response::{IntoResponse, Response};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::access::{Admission, Caller};
use crate::app::Shared;
use crate::form::{Entry, Sort, entry};
use crate::listen::{Seat, Stopping};
use crate::live::Wish;
use crate::live::socket::{Guest, MESSAGE_BYTES_MAX, apart};
use crate::live::stream::Stream;
use crate::openapi::call::{Answer, Call, Given, Group, page as shown};
use crate::problem::{Outcome, Problem, Slug};
use crate::query::RawQuery;

const MEDIA: &str = "text/event-stream";
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// The protocol of the WebSocket, for those who name one.
const PROTOCOL: &str = "windlass";
/// Bytes that are read at once, and that gather before they are sent.
const BUFFER_BYTES: usize = 4 * 1024;
const WRITE_BYTES: usize = 16 * 1024;
/// More than all events of a batch can have.
const WRITE_BYTES_MAX: usize = 1024 * 1024;

const WISH: [Entry; 4] = [
    entry(
        "subscribe",
        Sort::Text,
        "Names of events with commas between: `task.completed`, `task.*`, `*`; all if absent",
    ),
    entry("queue", Sort::Stored, "Only events of this queue"),
    entry("type", Sort::Stored, "Only events of tasks of this type"),
    entry("since", Sort::Text, "The `id` of the last event seen: what came after it is told first"),
];
const TIME: [Entry; 1] =
    [entry("for", Sort::Duration, "The stream ends after this time; never if absent")];
const HEADERS: [Entry; 1] =
    [entry("Last-Event-ID", Sort::Text, "As `since`, and counts before it: browsers send it")];

pub(super) const STREAM: Call = Call {
    group: Group::Events,
    id: "stream_events",
    summary: "Follow live events, as server-sent events",
    details: "Each is `{type, timestamp, id, data}`. An event of the type `gap` says that others are \
              missing before it. A token for some queues gets the events of these.",
    query: &[&WISH, &TIME],
    headers: &HEADERS,
    answers: &[shown("Events, as they happen", MEDIA)],
    ..Call::PLAIN
};

pub(super) const SOCKET: Call = Call {
    group: Group::Events,
    id: "open_socket",
    summary: "Follow live events over a WebSocket",
    details: "The same events as at `/api/v1/events`, one in each message. A client may send \
              `{\"subscribe\":[\"task.*\"],\"queue\":\"mail\",\"type\":\"email.send\",\"since\":\"<id>\"}` \
              at any time, and gets other events from then on. Where no header can be set, a token may be \
              one of the protocols: `windlass, bearer.<token>`.",
    query: &[&WISH],
    answers: &[Answer { status: 101, what: "A WebSocket", given: Given::Text("application/json") }],
    problems: &[Slug::UpgradeRequired],
    ..Call::PLAIN
};

/// Tells events until the client has enough.
pub(super) async fn stream(
    State(shared): State<Shared>,
    caller: Caller,
    query: RawQuery,
    headers: HeaderMap,
    admission: Option<Extension<Admission>>,
    stop: Option<Extension<Stopping>>,
) -> Outcome<Response> {
    let query = query.read(STREAM.query)?;
    let mut wish = Wish::of_query(&query, &caller)?;
    let time = query.duration("for")?;
    if let Some(id) = headers.get(LAST_EVENT_ID) {
        // What is no text is no id of ours, either: a gap says so.
        wish.since = Some(id.to_str().unwrap_or_default().to_owned());
    }
    let share = shared.filter(&caller, &wish.filter)?;
    let listener = shared.client().listen(wish.filter, wish.since.as_deref()).await?;
    let ends_at = time.map(|time| Instant::now() + time);
    // Without a socket nobody could ever end it.
    let ends_at = if stop.is_some() { ends_at } else { Some(ends_at.unwrap_or_else(Instant::now)) };
    let admission = admission.map(|Extension(admission)| admission);
    let stopping = token(stop);
    let stream = Stream { shared, listener, share, admission, stopping, ends_at };
    let headers = [
        (CONTENT_TYPE, MEDIA),
        (CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    Ok((headers, stream.body()).into_response())
}

/// Opens a WebSocket and tells events on it.
pub(super) async fn socket(
    State(shared): State<Shared>,
    caller: Caller,
    query: RawQuery,
    admission: Option<Extension<Admission>>,
    stop: Option<Extension<Stopping>>,
    seat: Option<Extension<Seat>>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Outcome<Response> {
    let query = query.read(SOCKET.query)?;
    let wish = Wish::of_query(&query, &caller)?;
    let upgrade =
        upgrade.map_err(|error| Problem::new(Slug::UpgradeRequired, error.body_text()))?;
    let share = shared.filter(&caller, &wish.filter)?;
    let listener = shared.client().listen(wish.filter, wish.since.as_deref()).await?;
    let admission = admission.map(|Extension(admission)| admission);
    // The server waits for it when it stops, and its connection counts as long as it is there.
    let (presence, stopping) = (shared.presence(), token(stop));
    let dismissed = CancellationToken::new();
    let shared_too = shared.clone();
    let guest = Guest { shared: shared_too, caller, share, dismissed: dismissed.clone(), stopping };
    let upgrade = upgrade
        .protocols([PROTOCOL])
        .read_buffer_size(BUFFER_BYTES)
        .write_buffer_size(WRITE_BYTES)
        .max_write_buffer_size(WRITE_BYTES_MAX)
        .max_message_size(MESSAGE_BYTES_MAX)
        .max_frame_size(MESSAGE_BYTES_MAX);
    Ok(upgrade.on_upgrade(async move |socket| {
        let mut served = apart(guest.serve(socket, listener));
        tokio::select! {
            _ = &mut served => {}
            () = Admission::ended(admission.as_ref(), &shared) => {
                dismissed.cancel();
                let _ = served.await;
            }
        }
        drop((presence, seat));
    }))
}

fn token(stop: Option<Extension<Stopping>>) -> CancellationToken {
    stop.map_or_else(CancellationToken::new, |Extension(Stopping(token))| token)
}
