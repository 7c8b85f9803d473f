//! What stands before every route: it says which scope the route needs, and lets no one else through.

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HeaderName};
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::caller::{Arrival, Caller};
use super::keyring::unauthorized;
use super::token::{Presented, Scope};
use crate::app::Shared;
use crate::problem::{Outcome, Problem, Slug};
use crate::routes::is_droppable;

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// What a route asks of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing: it tells nothing that strangers must not know, and works while the store is away.
    Nothing,
    /// This scope, for all queues.
    Everywhere(Scope),
    /// This scope; the handler sees to it that the token is for the queues in question.
    InQueues(Scope),
}

impl Need {
    /// The scope that it asks for.
    pub(crate) const fn scope(self) -> Option<Scope> {
        match self {
            Self::Nothing => None,
            Self::Everywhere(scope) | Self::InQueues(scope) => Some(scope),
        }
    }
}

/// A route's gate.
#[derive(Clone)]
pub(crate) struct Gate {
    pub(crate) shared: Shared,
    pub(crate) need: Need,
}

/// Lets a request through to its handler, or not.
pub(crate) async fn pass(State(gate): State<Gate>, mut request: Request, next: Next) -> Response {
    let arrival = request.extensions().get::<Arrival>().copied().unwrap_or(Arrival::Closed);
    if arrival == Arrival::Operator || gate.need == Need::Nothing {
        request.extensions_mut().insert(Caller::Local);
        return next.run(request).await;
    }
    let presented = match presented(request.headers()) {
        Ok(presented) => presented,
        Err(problem) => return problem.into_response(),
    };
    match gate.settle(arrival, presented.as_ref()).await {
        Ok(caller) => request.extensions_mut().insert(caller),
        Err(problem) => return problem.into_response(),
    };
    if !is_droppable(request.method(), request.uri().path()) {
        return next.run(request).await;
    }
    // These may wait for long, and a token can be revoked meanwhile. What is dropped here is put right as
    // if its client had gone.
    tokio::select! {
        response = next.run(request) => response,
        problem = gate.shared.keyring().dismissed(arrival, presented.as_ref()) => problem.into_response(),
    }
}

impl Gate {
    async fn settle(&self, arrival: Arrival, presented: Option<&Presented>) -> Outcome<Caller> {
        let keyring = self.shared.keyring();
        let caller = keyring.admit(arrival, presented).await?;
        if let Caller::Token(token) = &caller {
            keyring.count(token)?;
        }
        if let Some(scope) = self.need.scope() {
            caller.check_scope(scope)?;
        }
        if matches!(self.need, Need::Everywhere(_)) && caller.is_limited() {
            let text = "this token is for some queues only, and this concerns all of them";
            return Err(Problem::new(Slug::Forbidden, text));
        }
        Ok(caller)
    }
}

/// The token that a request presents, if any.
fn presented(headers: &HeaderMap) -> Outcome<Option<Presented>> {
    let (bearer, key) = (only(headers, &AUTHORIZATION)?, only(headers, &API_KEY)?);
    let bearer = bearer.map(|value| without_scheme(value).ok_or_else(malformed)).transpose()?;
    let key = key.map(|value| value.to_str().map_err(|_| malformed())).transpose()?;
    let text = match (bearer, key) {
        (Some(bearer), Some(key)) if bearer != key => {
            return Err(unauthorized("Authorization and X-API-Key present two tokens"));
        }
        (Some(text), _) | (None, Some(text)) => text,
        (None, None) => return Ok(None),
    };
    Presented::read(text).map(Some).ok_or_else(malformed)
}

fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Outcome<Option<&'a HeaderValue>> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (value, None) => Ok(value),
        (_, Some(_)) => Err(unauthorized("a header with a token is there twice")),
    }
}

fn without_scheme(value: &HeaderValue) -> Option<&str> {
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn malformed() -> Problem {
    unauthorized(
        "this is no token of windlass: wl_<id>_<secret>, as Authorization: Bearer or X-API-Key",
    )
}
