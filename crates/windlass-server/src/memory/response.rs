//! Memory for a response that may be large, asked for before the store is.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::response::Response;

use super::{ConnectionMemory, ResponsePermit};
use crate::access::Caller;
use crate::problem::{Outcome, Problem};

/// Where a handler gets memory for its response. Without a socket there is no bound.
pub(crate) struct ResponseMemory(Option<ResponsePermit>);

impl ResponseMemory {
    /// Holds as much as the response may need. The caller reads the store only after that.
    pub(crate) async fn hold(&self, bytes: usize) -> Outcome<()> {
        match &self.0 {
            Some(permit) => permit.memory.hold(bytes).await,
            None => Ok(()),
        }
    }

    /// Waits until there would be so much, and holds none of it: who waits for something else meanwhile must not
    /// keep memory from others.
    pub(crate) async fn admit(&self, bytes: usize) -> Outcome<()> {
        self.hold(bytes).await?;
        if let Some(permit) = &self.0 {
            permit.memory.set(0);
        }
        Ok(())
    }

    /// The response takes the memory along; what it does not need is free again when its size is known.
    pub(crate) fn attach(self, mut response: Response) -> Response {
        if let Some(permit) = self.0 {
            response.extensions_mut().insert(Arc::new(permit));
        }
        response
    }
}

impl<S: Sync> FromRequestParts<S> for ResponseMemory {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Outcome<Self> {
        let caller = parts.extensions.get::<Caller>();
        let memory = parts.extensions.get::<ConnectionMemory>();
        Ok(Self(memory.map(|memory| memory.response(caller))))
    }
}
