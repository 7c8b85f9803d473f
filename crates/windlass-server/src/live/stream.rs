//! Live events as server-sent events: a text that does not end.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use windlass_engine::{EventFilter, Listener, Told};

use crate::access::Admission;
use crate::app::Shared;
use crate::share::Share;

/// How often a client is sent something, so that neither it nor anything between takes the silence for an end.
const SIGN_EVERY: Duration = Duration::from_secs(15);
/// What a browser is to wait before it connects again, in ms.
const RETRY_MS: u32 = 2_000;
const SIGN: &str = ":\n\n";

/// A stream of events.
pub(crate) struct Stream {
    pub(crate) shared: Shared,
    pub(crate) listener: Listener,
    pub(crate) share: Share<EventFilter>,
    /// Absent where it needed none.
    pub(crate) admission: Option<Admission>,
    pub(crate) stopping: CancellationToken,
    /// It ends then, in any case.
    pub(crate) ends_at: Option<Instant>,
}

impl Stream {
    /// The events, until the server stops, the caller's token is good no longer, or the time is over.
    pub(crate) fn body(self) -> Body {
        let Self { shared, mut listener, share, admission, stopping, ends_at } = self;
        let ended = async move {
            let _share = share;
            let over = async {
                match ends_at {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = Admission::ended(admission.as_ref(), &shared) => {}
                () = over => {}
                () = stopping.cancelled() => {}
            }
        };
        // With an id, so that whoever is cut off before the first event is told of what it missed.
        let head = format!("retry: {RETRY_MS}\nid: {}\n\n", listener.place());
        let mut first = BytesMut::from(head.as_str());
        listener.take().iter().for_each(|told| write(told, &mut first));
        let begun = (Some(first.freeze()), listener, Box::pin(ended));
        let body = stream::unfold(begun, async |(first, mut listener, mut ended)| {
            if let Some(first) = first {
                return Some((Ok::<_, Infallible>(first), (None, listener, ended)));
            }
            let text = tokio::select! {
                biased;
                () = ended.as_mut() => return None,
                batch = listener.next_batch() => {
                    let mut text = BytesMut::new();
                    batch.iter().for_each(|told| write(told, &mut text));
                    text.freeze()
                }
                () = tokio::time::sleep(SIGN_EVERY) => Bytes::from_static(SIGN.as_bytes()),
            };
            Some((Ok(text), (None, listener, ended)))
        });
        Body::from_stream(body)
    }
}

fn write(told: &Told, text: &mut BytesMut) {
    text.reserve(told.id.len() + told.json.len() + 16);
    for part in [b"id: ", told.id.as_bytes(), b"\ndata: ", &told.json, b"\n\n"] {
        text.extend_from_slice(part);
    }
}
