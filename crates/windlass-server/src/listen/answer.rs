//! The body of an answer on its way to a client: in pieces, so that it shows whether they are taken.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use super::crowd::Asked;

/// HTTP/2 takes a piece whole as soon as there is room for one byte of it; so no answer is one piece.
const PIECE_BYTES: usize = 16 * 1024;

/// An answer that notes when a piece of it is taken.
pub(super) struct Answer {
    body: Body,
    /// What the body has given and nobody has taken yet.
    rest: Bytes,
    asked: Asked,
}

impl Answer {
    pub(super) fn new(body: Body, asked: Asked) -> Self {
        asked.is_offered();
        Self { body, rest: Bytes::new(), asked }
    }

    fn piece(&mut self, mut data: Bytes) -> Frame<Bytes> {
        self.rest = data.split_off(data.len().min(PIECE_BYTES));
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
        self.asked.is_offered();
        if !self.rest.is_empty() {
            let rest = std::mem::take(&mut self.rest);
            return Poll::Ready(Some(Ok(self.piece(rest))));
        }
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) else {
            self.asked.is_awaited();
            return Poll::Pending;
        };
        Poll::Ready(frame.map(|frame| match frame?.into_data() {
            Ok(data) => Ok(self.piece(data)),
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
