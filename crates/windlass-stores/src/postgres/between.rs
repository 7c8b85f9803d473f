//! Whether something stands between here and the server, such as PgBouncer, that gives its own
//! connections to whom it likes.
//!
//! A server tells the number of its process when a connection is made, as a part of what a cancel
//! request has to name. A pooler makes that up, since the connection behind it may be another one by
//! the next transaction. So the process that answers a query is another than the one that was told.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};
use tokio_postgres::{Client, SimpleQueryMessage};
use windlass_core::{Error, Result};

/// What a cancel request ends with: the process and its secret.
const PROCESS_BYTES: usize = 4;
const SECRET_BYTES: usize = 4;

/// The number of the server's process as it was told when the connection was made. The driver tells it
/// to nobody but the server, in a cancel request; so one is written, and sent nowhere.
pub(super) async fn told_process(client: &Client) -> Result<i32> {
    let written = Arc::new(Mutex::new(Vec::new()));
    let nowhere = Nowhere { written: Arc::clone(&written) };
    let unknown = || Error::corrupt("a connection to postgres without a process");
    let token = client.cancel_token();
    token.cancel_query_raw(nowhere, AsItIs).await.map_err(|cause| unknown().because(cause))?;
    let written = written.lock();
    let end = written.len().saturating_sub(SECRET_BYTES);
    let bytes = written[..end].last_chunk::<PROCESS_BYTES>().ok_or_else(unknown)?;
    Ok(i32::from_be_bytes(*bytes))
}

/// The number of the process that has answered.
pub(super) fn answering_process(answer: &[SimpleQueryMessage]) -> Option<i32> {
    answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
        _ => None,
    })
}

/// What is told of a pooler that the URL says nothing of.
pub(super) fn unexpected_pooler() -> Error {
    Error::invalid(
        "connect to postgres: something in between, such as PgBouncer, shares out the server's \
         connections; say pooler=transaction in the URL, or pooler=session if it gives each client \
         one for as long as it stays",
    )
}

/// A connection that leads nowhere and remembers what was written. To the question whether it speaks
/// TLS it says yes.
struct Nowhere {
    written: Arc<Mutex<Vec<u8>>>,
}

/// TLS that encrypts nothing: what is written stays here.
struct AsItIs;

impl TlsConnect<Nowhere> for AsItIs {
    type Stream = Nowhere;
    type Error = io::Error;
    type Future = std::future::Ready<io::Result<Nowhere>>;

    fn connect(self, stream: Nowhere) -> Self::Future {
        std::future::ready(Ok(stream))
    }
}

impl TlsStream for Nowhere {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Nowhere {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        buffer.put_slice(b"S");
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Nowhere {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.written.lock().extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
