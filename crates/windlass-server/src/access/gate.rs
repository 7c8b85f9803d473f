//! What stands before every route: it says which scope the route needs, and lets no one else through.

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HeaderName, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
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
/// What a protocol of a WebSocket begins with that is a token.
const TOKEN_PROTOCOL: &str = "bearer.";

/// What a route asks of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing: it tells nothing that strangers must not know, and works while the store is away.
    Nothing,
    /// This scope, for all queues.
    Everywhere(Scope),
    /// The same; while the store is away, those who were known last are let in. It tells nothing of the store then.
    Meanwhile(Scope),
    /// This scope; the handler sees to it that the token is for the queues in question.
    InQueues(Scope),
}

impl Need {
    /// The scope that it asks for.
    pub(crate) const fn scope(self) -> Option<Scope> {
        match self {
            Self::Nothing => None,
            Self::Everywhere(scope) | Self::Meanwhile(scope) | Self::InQueues(scope) => Some(scope),
        }
    }
}

/// By what a caller was let in; rides on the request. Who is served for long asks now and then whether that
/// still holds.
#[derive(Clone)]
pub(crate) struct Admission {
    arrival: Arrival,
    presented: Option<Presented>,
}

impl Admission {
    /// Ends when the caller would not be let in any more; never where it needed no admission.
    pub(crate) async fn ended(admission: Option<&Self>, shared: &Shared) {
        match admission {
            Some(Self { arrival, presented }) => {
                shared.keyring().dismissed(*arrival, presented.as_ref()).await;
            }
            None => std::future::pending().await,
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
    request.extensions_mut().insert(Admission { arrival, presented: presented.clone() });
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
        let caller = match self.need {
            Need::Meanwhile(_) => keyring.admit_meanwhile(arrival, presented).await?,
            Need::Nothing | Need::Everywhere(_) | Need::InQueues(_) => {
                keyring.admit(arrival, presented).await?
            }
        };
        if let Caller::Token(token) = &caller {
            keyring.count(token)?;
        }
        if let Some(scope) = self.need.scope() {
            caller.check_scope(scope)?;
        }
        if matches!(self.need, Need::Everywhere(_) | Need::Meanwhile(_)) && caller.is_limited() {
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
    let mut texts: Vec<_> = bearer.into_iter().chain(key).chain(protocols(headers)).collect();
    texts.dedup();
    match texts.as_slice() {
        [] => Ok(None),
        [text] => Presented::read(text).map(Some).ok_or_else(malformed),
        [..] => Err(unauthorized("the headers of this request present two tokens")),
    }
}

/// Tokens among the protocols of a WebSocket: scripts in browsers can set no other header of its handshake.
fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let is_handshake = headers.contains_key(UPGRADE);
    let lines = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter(move |_| is_handshake);
    let words = lines.filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(','));
    words.filter_map(|word| word.trim().strip_prefix(TOKEN_PROTOCOL))
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
