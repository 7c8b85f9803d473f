//! The body of an answer on its way to a client: in pieces, so that it shows whether they are taken.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use super::crowd::Asked;
use crate::memory::ResponsePermit;

/// HTTP/2 takes a piece whole as soon as there is room for one byte of it; so no answer is one piece.
const PIECE_BYTES: usize = 16 * 1024;

/// An answer that notes when a piece of it is taken.
pub(super) struct Answer {
    body: Body,
    /// What the body has given and nobody has taken yet.
    rest: Bytes,
    /// Bytes of the piece that was given last.
    given: usize,
    asked: Asked,
    /// Absent where the answer is small, or comes bit by bit.
    permit: Option<Arc<ResponsePermit>>,
}

/// Bytes that hold their memory until the last piece of them is gone, also out of the buffers of HTTP.
struct HeldBytes {
    bytes: Bytes,
    _permit: Arc<ResponsePermit>,
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Answer {
    pub(super) fn new(body: Body, asked: Asked, permit: Option<Arc<ResponsePermit>>) -> Self {
        asked.is_ready(body.size_hint().exact().is_some());
        if let Some(permit) = &permit {
            permit.transfer.begin();
        }
        Self { body, rest: Bytes::new(), given: 0, asked, permit }
    }

    fn piece(&mut self, mut data: Bytes) -> Frame<Bytes> {
        self.rest = data.split_off(data.len().min(PIECE_BYTES));
        self.given = data.len();
        Frame::data(data)
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        // Asked for the next piece: the one before is gone.
        let given = std::mem::take(&mut self.given);
        self.asked.is_offered(given);
        if let Some(permit) = &self.permit {
            permit.transfer.moved(given);
        }
        if !self.rest.is_empty() {
            let rest = std::mem::take(&mut self.rest);
            return Poll::Ready(Some(Ok(self.piece(rest))));
        }
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) else {
            self.asked.is_awaited();
            return Poll::Pending;
        };
        Poll::Ready(frame.map(|frame| match frame?.into_data() {
            Ok(bytes) => {
                let bytes = match self.permit.clone() {
                    Some(_permit) => Bytes::from_owner(HeldBytes { bytes, _permit }),
                    None => bytes,
                };
                Ok(self.piece(bytes))
            }
            Err(other) => Ok(other),
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (inner, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + rest);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}
