//! Every way a request can fail: RFC 9457 problems with stable slugs, and the one function that
//! turns an error of windlass into one.

use std::time::Duration;

use axum::http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use windlass_core::limits::clip;
use windlass_core::{Error, ErrorKind, Reason, TaskId};

use crate::access::veil::veiled;

/// Longest detail in bytes, and longest name of a field: both may repeat what the caller sent.
const DETAIL_BYTES_MAX: usize = 1_024;
const FIELD_BYTES_MAX: usize = 256;

/// What a handler answers, or why it cannot.
pub(crate) type Outcome<T> = Result<T, Problem>;

/// What went wrong, as clients can match on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slug {
    InvalidRequest,
    MalformedJson,
    NotFound,
    UniqueConflict,
    IdempotencyMismatch,
    StateConflict,
    LeaseLost,
    PayloadTooLarge,
    UnsupportedMediaType,
    MethodNotAllowed,
    RequestTimeout,
    UpgradeRequired,
    Unauthorized,
    Forbidden,
    RateLimited,
    Unsupported,
    StoreUnavailable,
    StoreForbidden,
    TooManyConnections,
    Overloaded,
    Internal,
}

impl Slug {
    /// All of them.
    pub(crate) const ALL: [Self; 21] = [
        Self::InvalidRequest,
        Self::MalformedJson,
        Self::NotFound,
        Self::UniqueConflict,
        Self::IdempotencyMismatch,
        Self::StateConflict,
        Self::LeaseLost,
        Self::PayloadTooLarge,
        Self::UnsupportedMediaType,
        Self::MethodNotAllowed,
        Self::RequestTimeout,
        Self::UpgradeRequired,
        Self::Unauthorized,
        Self::Forbidden,
        Self::RateLimited,
        Self::Unsupported,
        Self::StoreUnavailable,
        Self::StoreForbidden,
        Self::TooManyConnections,
        Self::Overloaded,
        Self::Internal,
    ];

    /// The word itself.
    pub(crate) fn as_str(self) -> &'static str {
        self.describe().0
    }

    /// What it means, in a sentence.
    pub(crate) fn title(self) -> &'static str {
        self.describe().1
    }

    /// The status of its answers.
    pub(crate) fn status(self) -> StatusCode {
        self.describe().2
    }

    /// The slug, a title for people, and the status.
    fn describe(self) -> (&'static str, &'static str, StatusCode) {
        use StatusCode as Status;
        match self {
            Self::InvalidRequest => {
                ("invalid-request", "The request is not valid", Status::UNPROCESSABLE_ENTITY)
            }
            Self::MalformedJson => {
                ("invalid-request", "The body is not valid JSON", Status::BAD_REQUEST)
            }
            Self::NotFound => ("not-found", "There is no such thing", Status::NOT_FOUND),
            Self::UniqueConflict => {
                ("unique-conflict", "The unique key is held by another task", Status::CONFLICT)
            }
            Self::IdempotencyMismatch => (
                "idempotency-mismatch",
                "The idempotency key was used for a different task",
                Status::UNPROCESSABLE_ENTITY,
            ),
            Self::StateConflict => {
                ("state-conflict", "The present state forbids it", Status::CONFLICT)
            }
            Self::LeaseLost => ("lease-lost", "The lease is lost", Status::CONFLICT),
            Self::PayloadTooLarge => {
                ("payload-too-large", "The request is too large", Status::PAYLOAD_TOO_LARGE)
            }
            Self::UnsupportedMediaType => {
                ("unsupported-media-type", "The body must be JSON", Status::UNSUPPORTED_MEDIA_TYPE)
            }
            Self::MethodNotAllowed => (
                "method-not-allowed",
                "The path does not take this method",
                Status::METHOD_NOT_ALLOWED,
            ),
            Self::RequestTimeout => {
                ("request-timeout", "The body took too long", Status::REQUEST_TIMEOUT)
            }
            Self::UpgradeRequired => {
                ("upgrade-required", "The path is for WebSockets", Status::UPGRADE_REQUIRED)
            }
            Self::Unauthorized => {
                ("unauthorized", "This needs a valid token", Status::UNAUTHORIZED)
            }
            Self::RateLimited => {
                ("rate-limited", "There are too many requests", Status::TOO_MANY_REQUESTS)
            }
            Self::Forbidden => ("forbidden", "This is not allowed", Status::FORBIDDEN),
            Self::Unsupported => {
                ("unsupported", "The store cannot do that", Status::NOT_IMPLEMENTED)
            }
            Self::StoreUnavailable => {
                ("store-unavailable", "The store cannot answer now", Status::SERVICE_UNAVAILABLE)
            }
            Self::StoreForbidden => (
                "store-forbidden",
                "The server lacks a right in the store",
                Status::SERVICE_UNAVAILABLE,
            ),
            Self::TooManyConnections => (
                "too-many-connections",
                "There are too many connections",
                Status::SERVICE_UNAVAILABLE,
            ),
            Self::Overloaded => {
                ("overloaded", "The server has too much to do", Status::SERVICE_UNAVAILABLE)
            }
            Self::Internal => {
                ("internal", "Something went wrong here", Status::INTERNAL_SERVER_ERROR)
            }
        }
    }
}

/// A request that failed. Boxed, since it is what most functions here may return.
#[derive(Debug, Clone)]
pub(crate) struct Problem(Box<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    slug: Slug,
    detail: String,
    more: Map<String, Value>,
    /// What is behind it, for the log only.
    cause: Option<Error>,
    /// In how many seconds to try again.
    retry_after: Option<u64>,
    is_last_of_connection: bool,
}

/// Rides on a response to where it is logged, once, with the request's id.
#[derive(Debug, Clone)]
pub(crate) struct Cause(pub(crate) Error);

impl Problem {
    /// A problem; `detail` is one sentence for a person.
    pub(crate) fn new(slug: Slug, detail: impl Into<String>) -> Self {
        // Somebody may have pasted a token into the address, or into a field.
        let (mut detail, more) = (veiled(&detail.into()).into_owned(), Map::new());
        detail.truncate(detail.floor_char_boundary(DETAIL_BYTES_MAX));
        let is_passing =
            matches!(slug, Slug::StoreUnavailable | Slug::TooManyConnections | Slug::Overloaded);
        let retry_after = is_passing.then_some(1);
        let (cause, is_last_of_connection) = (None, false);
        Self(Box::new(Inner { slug, detail, more, cause, retry_after, is_last_of_connection }))
    }

    /// A value that cannot be taken, and the field or parameter that it stands in.
    pub(crate) fn field(field: &str, detail: impl std::fmt::Display) -> Self {
        let veiled = veiled(field);
        let field = clip(&veiled, FIELD_BYTES_MAX);
        let detail = detail.to_string();
        // An error that names the field itself needs no second name.
        let is_named = detail.strip_prefix(field).is_some_and(|rest| rest.starts_with([' ', ':']));
        let detail = if is_named { detail } else { format!("{field}: {detail}") };
        Self::new(Slug::InvalidRequest, detail).with("field", field)
    }

    /// An error of windlass about the value of one field.
    pub(crate) fn of_field(field: &str, error: &Error) -> Self {
        Self::field(field, error)
    }

    /// There is no such task.
    pub(crate) fn no_task(id: &TaskId) -> Self {
        Self::new(Slug::NotFound, format!("no task {id}"))
    }

    /// Adds a member to the problem object.
    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.more.insert(name.into(), value.into());
        self
    }

    /// The same, of a line that was read alone and is this one of the body.
    pub(crate) fn in_line(mut self, number: usize) -> Self {
        if let Some(line) = self.0.more.get_mut("line") {
            *line = number.into();
            self.0.detail = self.0.detail.replace(" at line 1 ", &format!(" at line {number} "));
        }
        self
    }

    /// Closes the connection after this: what is left of the request will not be read.
    pub(crate) fn last_of_connection(mut self) -> Self {
        self.0.is_last_of_connection = true;
        self
    }

    /// Says when to try again, in whole seconds.
    pub(crate) fn retry_after(mut self, wait: Duration) -> Self {
        self.0.retry_after = Some(wait.as_secs() + u64::from(wait.subsec_nanos() > 0));
        self
    }

    /// What went wrong, in a sentence.
    pub(crate) fn detail(&self) -> &str {
        &self.0.detail
    }

    /// What went wrong.
    pub(crate) fn slug(&self) -> Slug {
        self.0.slug
    }

    /// The HTTP status.
    pub(crate) fn status(&self) -> StatusCode {
        self.0.slug.status()
    }

    /// What is behind it, for the log.
    pub(crate) fn cause(&self) -> Option<&Error> {
        self.0.cause.as_ref()
    }
}

/// The only place that says which problem an error of windlass is.
impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let slug = match (error.kind(), error.reason()) {
            (ErrorKind::NotFound, _) => Slug::NotFound,
            (ErrorKind::Conflict, Reason::UniqueKey) => Slug::UniqueConflict,
            (ErrorKind::Conflict, _) => Slug::StateConflict,
            (ErrorKind::Invalid, Reason::IdempotencyMismatch) => Slug::IdempotencyMismatch,
            (ErrorKind::Invalid, Reason::TooLarge) => Slug::PayloadTooLarge,
            (ErrorKind::Invalid, _) => Slug::InvalidRequest,
            (ErrorKind::LeaseLost, _) => Slug::LeaseLost,
            (ErrorKind::Unavailable, Reason::Forbidden) => Slug::StoreForbidden,
            (ErrorKind::Unavailable, Reason::Crowded) => Slug::TooManyConnections,
            (ErrorKind::Unavailable, _) => Slug::StoreUnavailable,
            (ErrorKind::Unsupported, _) => Slug::Unsupported,
            (ErrorKind::Corrupt | ErrorKind::Internal, _) => Slug::Internal,
            // The kind may grow: what nobody here knows is our fault, not the caller's.
            (_, _) => Slug::Internal,
        };
        // What happened inside is for the log; the caller is told what it can act on.
        let detail = match (slug, error.reason()) {
            (Slug::StoreUnavailable, Reason::ReadOnly) => "the store cannot be written to".into(),
            (Slug::StoreUnavailable, Reason::StorageFull) => "the store is full".into(),
            (Slug::StoreUnavailable, Reason::LockTableFull) => {
                "the lock table of the store is full; try again".into()
            }
            (Slug::StoreUnavailable, _) => "the store cannot answer now; try again".into(),
            (Slug::StoreForbidden, _) => {
                "windlass lacks a right in the store; `windlass doctor` names it".into()
            }
            (Slug::Internal, Reason::DamagedQueue) => error.to_string(),
            (Slug::Internal, _) => "this is a fault of the server; its log says more".into(),
            (_, _) => error.to_string(),
        };
        let mut problem = Self::new(slug, detail);
        if matches!(slug, Slug::StoreUnavailable | Slug::StoreForbidden | Slug::Internal) {
            problem.0.cause = Some(error);
        }
        problem
    }
}

impl Serialize for Problem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Form<'a> {
            r#type: String,
            title: &'a str,
            status: u16,
            detail: &'a str,
            #[serde(flatten)]
            more: &'a Map<String, Value>,
        }
        let (slug, title, status) = self.0.slug.describe();
        let form = Form {
            r#type: format!("/problems/{slug}"),
            title,
            status: status.as_u16(),
            detail: &self.0.detail,
            more: &self.0.more,
        };
        form.serialize(serializer)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self).expect("a problem holds only text and numbers");
        let mut response = (self.status(), body).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.0.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.0.slug == Slug::Unauthorized {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.0.is_last_of_connection {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some(error) = self.0.cause {
            response.extensions_mut().insert(Cause(error));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: ErrorKind, reason: Reason, status: u16, slug: &str) {
        let problem = Problem::from(Error::new(kind, "secret place").reason_is(reason));
        let json = serde_json::to_value(&problem).unwrap();
        assert_eq!(json["status"], status, "{kind:?} {reason:?}");
        assert_eq!(json["type"], format!("/problems/{slug}"), "{kind:?} {reason:?}");
        assert_eq!(problem.status().as_u16(), status);
        let is_told = status < 500 || status == 501 || reason == Reason::DamagedQueue;
        assert_eq!(json["detail"].as_str().unwrap().contains("secret"), is_told, "{json}");
    }

    #[test]
    fn a_field_is_named_once() {
        assert_eq!(Problem::field("state", "no such state").detail(), "state: no such state");
        assert_eq!(
            Problem::field("state", "state \"x\" is unknown").detail(),
            "state \"x\" is unknown"
        );
    }

    #[test]
    fn each_kind_and_reason_has_its_problem() {
        check(ErrorKind::NotFound, Reason::Unspecified, 404, "not-found");
        check(ErrorKind::Conflict, Reason::UniqueKey, 409, "unique-conflict");
        check(ErrorKind::Conflict, Reason::State, 409, "state-conflict");
        check(ErrorKind::Invalid, Reason::Unspecified, 422, "invalid-request");
        check(ErrorKind::Invalid, Reason::TooLarge, 413, "payload-too-large");
        check(ErrorKind::Invalid, Reason::IdempotencyMismatch, 422, "idempotency-mismatch");
        check(ErrorKind::LeaseLost, Reason::WorkerLost, 409, "lease-lost");
        check(ErrorKind::Unavailable, Reason::Unspecified, 503, "store-unavailable");
        check(ErrorKind::Unavailable, Reason::StorageFull, 503, "store-unavailable");
        check(ErrorKind::Unavailable, Reason::LockTableFull, 503, "store-unavailable");
        check(ErrorKind::Unavailable, Reason::Forbidden, 503, "store-forbidden");
        check(ErrorKind::Unsupported, Reason::Unspecified, 501, "unsupported");
        check(ErrorKind::Corrupt, Reason::Unspecified, 500, "internal");
        check(ErrorKind::Corrupt, Reason::DamagedQueue, 500, "internal");
        check(ErrorKind::Internal, Reason::Unspecified, 500, "internal");
    }
}
