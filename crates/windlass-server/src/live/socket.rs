//! Live events over a WebSocket, from its handshake to its end.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, close_code};
use futures_util::SinkExt;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;
use tokio::time::{Instant, interval, timeout};
use tokio_tungstenite::tungstenite;
use tokio_util::sync::CancellationToken;
use windlass_engine::{EventFilter, Listener, Told};

use super::Wish;
use crate::access::Caller;
use crate::app::Shared;
use crate::problem::Problem;
use crate::share::Share;

/// Longest message of a client.
pub(crate) const MESSAGE_BYTES_MAX: usize = 4 * 1024;
/// How often a client is asked whether it is there. One that has said nothing for two such times is gone.
const PING_EVERY: Duration = Duration::from_secs(20);
/// The least time between two wishes of a client: each may have the whole ring looked through.
const WISH_PAUSE: Duration = Duration::from_millis(100);
/// How long a client may take to say goodbye.
const GOODBYE: Duration = Duration::from_secs(1);
/// Longest reason of an end, by the protocol.
const REASON_BYTES_MAX: usize = 123;

/// One client of the events.
pub(crate) struct Guest {
    pub(crate) shared: Shared,
    pub(crate) caller: Caller,
    /// Its filter among those of its token.
    pub(crate) share: Share<EventFilter>,
    /// Its token is good no longer.
    pub(crate) dismissed: CancellationToken,
    pub(crate) stopping: CancellationToken,
}

/// Why it ends.
enum End {
    /// The client takes nothing.
    Gone,
    /// The client has said goodbye; that is answered.
    Left,
    /// It is told why.
    Told(CloseFrame),
}

impl Guest {
    /// Tells events until one of both has enough.
    pub(crate) async fn serve(self, mut socket: WebSocket, listener: Listener) {
        let Self { shared, caller, share, dismissed, stopping } = self;
        let wishes = Wishes { shared, caller, share };
        let end = tokio::select! {
            end = converse(&mut socket, listener, wishes) => end,
            () = dismissed.cancelled() => told(close_code::POLICY, "the token is good no longer"),
            () = stopping.cancelled() => told(close_code::AWAY, "the server stops"),
        };
        let frame = match end {
            End::Gone => return,
            End::Left => None,
            End::Told(frame) => Some(frame),
        };
        let goodbye = async {
            if let Some(frame) = frame {
                // A client that is gone already needs none.
                let _ = socket.send(Message::Close(Some(frame))).await;
            }
            // The answer to a goodbye is sent on the way.
            while let Some(Ok(_)) = socket.recv().await {}
        };
        let _ = timeout(GOODBYE, goodbye).await;
    }
}

/// Does something on the thread of all WebSockets. An event that many want wakes them all at the same time; on
/// the threads that answer requests these would stand in line behind them.
pub(crate) fn apart<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    static THREAD: OnceLock<Option<Runtime>> = OnceLock::new();
    let start = || {
        let mut runtime = Builder::new_multi_thread();
        runtime.worker_threads(1).thread_name("windlass-events").enable_all().build().ok()
    };
    match THREAD.get_or_init(start) {
        Some(runtime) => runtime.spawn(work),
        // As well as it can be done without one.
        None => Handle::current().spawn(work),
    }
}

async fn converse(socket: &mut WebSocket, mut listener: Listener, mut wishes: Wishes) -> End {
    let mut ping = interval(PING_EVERY);
    let mut heard = Instant::now();
    loop {
        tokio::select! {
            batch = listener.next_batch() => {
                if tell(socket, &batch).await.is_err() {
                    return End::Gone;
                }
            }
            message = socket.recv() => {
                heard = Instant::now();
                match message {
                    Some(Ok(Message::Text(text))) => {
                        if let Err(problem) = wishes.obey(&mut listener, &text) {
                            return told(close_code::POLICY, &problem);
                        }
                        tokio::time::sleep(WISH_PAUSE).await;
                    }
                    Some(Ok(Message::Binary(_))) => {
                        return told(close_code::UNSUPPORTED, "messages are JSON in text");
                    }
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                    Some(Ok(Message::Close(_))) => return End::Left,
                    Some(Err(error)) => return broken(error),
                    None => return End::Gone,
                }
            }
            _ = ping.tick() => {
                let is_silent = heard.elapsed() >= PING_EVERY * 2;
                if is_silent || socket.send(Message::Ping(Default::default())).await.is_err() {
                    return End::Gone;
                }
            }
        }
    }
}

/// Sends events in one go. A client that takes nothing makes this fail after a while.
async fn tell(socket: &mut WebSocket, batch: &[Arc<Told>]) -> Result<(), axum::Error> {
    for told in batch {
        // JSON is UTF-8.
        let Ok(text) = Utf8Bytes::try_from(told.json.clone()) else { continue };
        socket.feed(Message::Text(text)).await?;
    }
    socket.flush().await
}

/// Who says what it wants.
struct Wishes {
    shared: Shared,
    caller: Caller,
    share: Share<EventFilter>,
}

impl Wishes {
    /// Does what a message asks for, or says why not.
    fn obey(&mut self, listener: &mut Listener, message: &str) -> Result<(), String> {
        let text = |problem: Problem| problem.detail().to_owned();
        let wish = Wish::of_message(message, &self.caller).map_err(text)?;
        let share = self.shared.filter(&self.caller, &wish.filter).map_err(text)?;
        let done = listener.refilter(&wish.filter, wish.since.as_deref());
        done.map_err(|error| error.to_string())?;
        self.share = share;
        Ok(())
    }
}

/// The end of a client that breaks the protocol, or is gone.
fn broken(error: axum::Error) -> End {
    match error.into_inner().downcast_ref() {
        Some(tungstenite::Error::Capacity(_)) => {
            told(close_code::SIZE, &format!("a message has at most {MESSAGE_BYTES_MAX} bytes"))
        }
        Some(tungstenite::Error::Utf8(_)) => told(close_code::INVALID, "a text must be UTF-8"),
        Some(tungstenite::Error::Protocol(_)) => {
            told(close_code::PROTOCOL, "that is not how WebSockets talk")
        }
        _ => End::Gone,
    }
}

fn told(code: u16, reason: &str) -> End {
    let reason = &reason[..reason.floor_char_boundary(REASON_BYTES_MAX)];
    End::Told(CloseFrame { code, reason: reason.into() })
}
