//! One request of the pull protocol and its reply. Errors say what a worker can do about them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use windlass::Timestamp;
use windlass::core::limits::clip;
use windlass::core::{Error, ErrorKind, Reason, Result};
use windlass_server::Method;

use crate::caller::{http, unreachable_text};
use crate::exit::Done;
use crate::settings::{Server, without_password};

/// How far the clock of this machine may be from the server's, which the server tells in whole seconds.
const SKEW_MAX: Duration = Duration::from_secs(2);
/// Longest detail of a problem that is repeated.
const DETAIL_BYTES_MAX: usize = 1_024;

/// The connections to a server. They belong to the runtime that makes the first request.
pub(super) struct Exchange {
    http: reqwest::Client,
    server: Server,
}

/// A reply, and the time at the server.
pub(super) struct Reply<T> {
    pub(super) body: T,
    pub(super) now: Timestamp,
}

/// The part of a problem document that is read.
#[derive(Deserialize)]
struct Problem {
    r#type: String,
    detail: String,
}

impl Exchange {
    pub(super) fn new(server: &Server) -> Done<Self> {
        let mut server = server.clone();
        server.url.truncate(server.url.trim_end_matches('/').len());
        Ok(Self { http: http(&server, None)?, server })
    }

    /// Posts to the API and reads the reply.
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        reply_within: Duration,
    ) -> Result<Reply<T>> {
        let body = serde_json::to_vec(body)
            .map_err(|cause| Error::internal(format!("write {path}")).because(cause))?;
        let path = format!("/api/v1{path}");
        let Reply { body, now } =
            self.send(Method::POST, &path, Some(body.into()), reply_within).await?;
        Ok(Reply { body: self.read(&path, &body)?, now })
    }

    pub(super) async fn delete<T: DeserializeOwned>(
        &self,
        path: &str,
        reply_within: Duration,
    ) -> Result<T> {
        let path = format!("/api/v1{path}");
        let reply = self.send(Method::DELETE, &path, None, reply_within).await?;
        self.read(&path, &reply.body)
    }

    /// Asks whether the server is ready; answers its time.
    pub(super) async fn ping(&self, reply_within: Duration) -> Result<Timestamp> {
        Ok(self.send(Method::GET, "/readyz", None, reply_within).await?.now)
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
        reply_within: Duration,
    ) -> Result<Reply<Bytes>> {
        let url = format!("{}{path}", self.server.url);
        let mut request = self.http.request(method, url).timeout(reply_within);
        if let Some(token) = &self.server.token {
            request = request.bearer_auth(token);
        }
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body);
        }
        let lost =
            |cause| Error::new(ErrorKind::Unavailable, unreachable_text(&self.server, cause));
        let response = request.send().await.map_err(lost)?;
        let status = response.status().as_u16();
        let now = server_time(response.headers().get("date"));
        let body = response.bytes().await.map_err(lost)?;
        match status {
            200..300 => Ok(Reply { body, now }),
            _ => Err(self.refused(status, &body)),
        }
    }

    fn read<T: DeserializeOwned>(&self, path: &str, body: &[u8]) -> Result<T> {
        let url = without_password(&self.server.url);
        serde_json::from_slice(body).map_err(|cause| {
            // What stands between may have answered: the next try may reach the server.
            let text = format!("read the answer of {url} to {path}");
            Error::new(ErrorKind::Unavailable, text).because(cause)
        })
    }

    /// Only a problem document of windlass makes a request invalid or a lease lost. Whatever else may answer, such as
    /// a proxy whose server is away, must not cost a result.
    fn refused(&self, status: u16, body: &[u8]) -> Error {
        let url = without_password(&self.server.url);
        let Ok(Problem { r#type, detail }) = serde_json::from_slice(body) else {
            let text = format!("{url} answered with status {status}");
            return Error::new(ErrorKind::Unavailable, text);
        };
        let detail = clip(&detail, DETAIL_BYTES_MAX);
        let (kind, reason) = match r#type.strip_prefix("/problems/").unwrap_or_default() {
            "lease-lost" => (ErrorKind::LeaseLost, Reason::WorkerLost),
            "invalid-request" => (ErrorKind::Invalid, Reason::Unspecified),
            "payload-too-large" => (ErrorKind::Invalid, Reason::TooLarge),
            "unsupported" => (ErrorKind::Unsupported, Reason::Unspecified),
            "unauthorized" | "forbidden" => (ErrorKind::Unavailable, Reason::Forbidden),
            _ => (ErrorKind::Unavailable, Reason::Unspecified),
        };
        Error::new(kind, format!("{url}: {detail}")).reason_is(reason)
    }
}

/// The time at the server: this machine's, which has milliseconds, unless the two clocks differ.
fn server_time(date: Option<&reqwest::header::HeaderValue>) -> Timestamp {
    let here = SystemTime::now();
    let told = date
        .and_then(|date| date.to_str().ok())
        .and_then(|date| httpdate::parse_http_date(date).ok())
        .unwrap_or(here);
    let skew = here.duration_since(told).unwrap_or_else(|ahead| ahead.duration());
    let time = if skew > SKEW_MAX { told } else { here };
    let millis = time.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis());
    Timestamp::from_millis(i64::try_from(millis).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange() -> Exchange {
        let url = String::from("http://ann:secret@127.0.0.1:1/");
        Exchange::new(&Server { url, token: None, ca_cert: None }).unwrap()
    }

    #[track_caller]
    fn check(body: &str, kind: ErrorKind, reason: Reason) {
        let error = exchange().refused(409, body.as_bytes());
        assert_eq!((error.kind(), error.reason()), (kind, reason), "{body}");
        assert!(!error.chain().contains("secret"), "{error:?}");
    }

    #[test]
    fn only_a_problem_of_windlass_refuses_a_result() {
        let problem = |slug: &str| format!(r#"{{"type":"/problems/{slug}","detail":"why"}}"#);
        check(&problem("lease-lost"), ErrorKind::LeaseLost, Reason::WorkerLost);
        check(&problem("invalid-request"), ErrorKind::Invalid, Reason::Unspecified);
        check(&problem("payload-too-large"), ErrorKind::Invalid, Reason::TooLarge);
        check(&problem("forbidden"), ErrorKind::Unavailable, Reason::Forbidden);
        check(&problem("internal"), ErrorKind::Unavailable, Reason::Unspecified);
        for foreign in ["<html>409</html>", "{}", r#"{"type":"about:blank","detail":"no"}"#] {
            check(foreign, ErrorKind::Unavailable, Reason::Unspecified);
        }
    }

    #[test]
    fn the_time_is_the_servers_where_the_clocks_differ() {
        let value = reqwest::header::HeaderValue::from_static("Thu, 01 Jan 2032 00:00:00 GMT");
        assert_eq!(server_time(Some(&value)).to_string(), "2032-01-01T00:00:00.000Z");
        let now = httpdate::fmt_http_date(SystemTime::now());
        let value = reqwest::header::HeaderValue::from_str(&now).unwrap();
        let skew = server_time(None).since(server_time(Some(&value)));
        assert!(skew < Duration::from_secs(60), "{skew:?}");
    }
}
