//! Memory for a response that may be large, asked for before the store is.

use std::sync::{Arc, OnceLock};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::response::Response;

use super::{ConnectionMemory, MemoryPermit, ResponsePermit};
use crate::access::Caller;
use crate::problem::{Outcome, Problem};

/// Where a handler gets memory for its response. Without a socket there is no bound.
pub(crate) struct ResponseMemory(Option<OfConnection>);

struct OfConnection {
    memory: ConnectionMemory,
    caller: Option<Caller>,
    /// Made when it is first needed: most responses are small.
    permit: OnceLock<ResponsePermit>,
}

impl OfConnection {
    fn permit(&self) -> &ResponsePermit {
        self.permit.get_or_init(|| self.memory.response(self.caller.as_ref()))
    }
}

/// Memory for a claim that is under way: nobody knows yet how large its tasks are.
#[must_use = "the memory is free again when this is dropped"]
pub(crate) struct ClaimMemory {
    _permit: Option<MemoryPermit>,
}

impl ResponseMemory {
    /// Holds as much as the response may need. The caller reads the store only after that.
    pub(crate) async fn hold(&self, bytes: usize) -> Outcome<()> {
        match &self.0 {
            Some(of) => of.permit().memory.hold(bytes).await,
            None => Ok(()),
        }
    }

    /// Holds what a claim may bring; waits for it a little. A claim is short, so this counts for no connection and
    /// no token.
    pub(crate) async fn hold_claim(&self, bytes: usize) -> Outcome<ClaimMemory> {
        let permit = self.0.as_ref().map(|of| of.memory.draft());
        if let Some(permit) = &permit {
            permit.hold(bytes).await?;
        }
        Ok(ClaimMemory { _permit: permit })
    }

    /// The same, if there is room at once.
    pub(crate) fn try_hold_claim(&self, bytes: usize) -> Option<ClaimMemory> {
        let permit = self.0.as_ref().map(|of| of.memory.draft());
        let is_held = permit.as_ref().is_none_or(|permit| permit.try_hold(bytes));
        is_held.then_some(ClaimMemory { _permit: permit })
    }

    /// Holds what a claim has brought, if anything: it is here already.
    pub(crate) fn set(&self, bytes: usize) {
        if let Some(of) = self.0.as_ref().filter(|of| bytes > 0 || of.permit.get().is_some()) {
            of.permit().memory.set(bytes);
        }
    }

    /// The response takes the memory along; what it does not need is free again when its size is known.
    pub(crate) fn attach(self, mut response: Response) -> Response {
        if let Some(permit) = self.0.and_then(|of| of.permit.into_inner()) {
            response.extensions_mut().insert(Arc::new(permit));
        }
        response
    }
}

impl<S: Sync> FromRequestParts<S> for ResponseMemory {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Outcome<Self> {
        let caller = parts.extensions.get::<Caller>().cloned();
        let memory = parts.extensions.get::<ConnectionMemory>().cloned();
        Ok(Self(memory.map(|memory| OfConnection { memory, caller, permit: OnceLock::new() })))
    }
}
