//! One way to ask windlass for anything: the requests of the HTTP API, sent to a server, or answered
//! in this process right from a store. So a command does, and prints, the same either way.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use indexmap::IndexMap;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use windlass::{Client, Opening};
use windlass_server::{App, Method};

use crate::exit::{Code, Done, Failure};
use crate::settings::{Server, Settings, without_password};
use crate::telemetry::traceparent;

/// How long a server may take to accept a connection.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How long a server may take to answer; a wait of 60 s is the longest it is asked for.
const ANSWER_MAX: Duration = Duration::from_secs(90);

/// Whether a command makes the store's file when it is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// It only looks.
    Read,
    /// It submits or changes something.
    Write,
}

/// Whom a command talks to.
pub(crate) enum Caller {
    /// A store, in this process.
    Store(App),
    /// A server.
    Server { http: reqwest::Client, server: Server },
}

/// A successful answer.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Bytes,
}

impl Answer {
    /// The body as a value of our own.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Done<T> {
        serde_json::from_slice(&self.body)
            .map_err(|cause| Failure::new(Code::Error, format!("read the answer: {cause}")))
    }

    /// The body as an object whose fields may hold whatever JSON there is.
    pub(crate) fn value(&self) -> Done<Value> {
        std::str::from_utf8(&self.body)
            .ok()
            .and_then(|text| lenient(text).ok())
            .ok_or_else(|| Failure::new(Code::Error, "the answer is not JSON"))
    }
}

/// Reads an object field by field: a payload may be JSON that no Rust string can hold, such as half
/// of a surrogate pair, and is then shown as its text.
pub(crate) fn lenient(text: &str) -> serde_json::Result<Value> {
    serde_json::from_str(text).or_else(|_| {
        let fields: IndexMap<String, Box<RawValue>> = serde_json::from_str(text)?;
        let read = |raw: Box<RawValue>| {
            serde_json::from_str(raw.get()).unwrap_or_else(|_| Value::from(raw.get()))
        };
        Ok(fields.into_iter().map(|(name, raw)| (name, read(raw))).collect())
    })
}

impl Caller {
    /// Opens the store, or makes ready to talk to the server.
    pub(crate) async fn connect(settings: &Settings, access: Access) -> Done<Self> {
        if let Some(server) = &settings.server {
            return Self::of_server(server.clone());
        }
        Ok(Self::Store(App::new(client(settings, access).await?)))
    }

    pub(crate) fn of_server(mut server: Server) -> Done<Self> {
        server.url.truncate(server.url.trim_end_matches('/').len());
        let http = http(&server, Some(ANSWER_MAX))?;
        Ok(Self::Server { http, server })
    }

    pub(crate) async fn get(&self, path: &str) -> Done<Answer> {
        self.call(Method::GET, path, None).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Done<Answer> {
        self.call(Method::DELETE, path, None).await
    }

    /// Posts nothing but the request itself.
    pub(crate) async fn post(&self, path: &str) -> Done<Answer> {
        self.call(Method::POST, path, None).await
    }

    pub(crate) async fn send(&self, path: &str, body: &impl Serialize) -> Done<Answer> {
        let body = serde_json::to_vec(body)
            .map_err(|cause| Failure::usage(format!("write the request: {cause}")))?;
        self.call(Method::POST, path, Some(body.into())).await
    }

    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> Done<Answer> {
        let (status, body) = match self {
            Self::Store(app) => app.call(method, path, body).await,
            Self::Server { http, server } => ask(http, server, method, path, body).await?,
        };
        match status {
            200..300 => Ok(Answer { status, body }),
            _ => {
                let mut failure = Failure::of_answer(status, &body);
                if status == 401 && self.has_no_token() {
                    failure.text.push_str(
                        "; set WINDLASS_TOKEN to a token of this server (`windlass token create` makes one)",
                    );
                }
                Err(failure)
            }
        }
    }
}

impl Caller {
    fn has_no_token(&self) -> bool {
        match self {
            Self::Store(_) => false,
            Self::Server { server, .. } => server.token.is_none(),
        }
    }
}

/// What talks to a server, with the longest time for an answer.
pub(crate) fn http(server: &Server, answer_max: Option<Duration>) -> Done<reqwest::Client> {
    if !server.url.starts_with("http://") && !server.url.starts_with("https://") {
        let text = "--server takes a URL such as http://127.0.0.1:8080";
        return Err(Failure::usage(text));
    }
    http_client(server.ca_cert.as_deref(), answer_max)
}

/// What makes requests and follows nobody anywhere else. With certificates it trusts just these.
pub(crate) fn http_client(
    ca_cert: Option<&Path>,
    answer_max: Option<Duration>,
) -> Done<reqwest::Client> {
    // Refused only when it was set before, which is just as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut http = reqwest::Client::builder()
        .connect_timeout(CONNECT_MAX)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy();
    if let Some(answer_max) = answer_max {
        http = http.timeout(answer_max);
    }
    if let Some(path) = ca_cert {
        http = http.tls_certs_only(certificates(path)?);
    }
    http.build().map_err(|cause| Failure::new(Code::Error, format!("set up HTTP: {cause}")))
}

/// Whom to trust in place of those whom the system trusts.
fn certificates(path: &Path) -> Done<Vec<reqwest::Certificate>> {
    let wrong = |cause: &dyn std::fmt::Display| {
        Failure::usage(format!("read certificates from {}: {cause}", path.display()))
    };
    let bytes = std::fs::read(path).map_err(|cause| wrong(&cause))?;
    let found = reqwest::Certificate::from_pem_bundle(&bytes).map_err(|cause| wrong(&cause))?;
    if found.is_empty() { Err(wrong(&"there is none")) } else { Ok(found) }
}

/// A client of the store that the settings name.
pub(crate) async fn client(settings: &Settings, access: Access) -> Done<Client> {
    let url = &settings.config.store;
    let opening = Opening {
        creates: access == Access::Write,
        limits: settings.config.limits,
        brokers: settings.brokers(),
    };
    let store = windlass::open_as(url, opening).await.map_err(|error| {
        // A schema in a database is not for everybody to make; its error says whose it is.
        let is_missing =
            error.kind() == windlass::ErrorKind::NotFound && !url.starts_with("postgres");
        let mut failure = Failure::from(error);
        if is_missing {
            failure.text.push_str("; `windlass dev` or a first `windlass enqueue` makes it");
        }
        failure
    })?;
    Ok(Client::with_config(store, settings.config.clone()))
}

async fn ask(
    http: &reqwest::Client,
    server: &Server,
    method: Method,
    path: &str,
    body: Option<Bytes>,
) -> Done<(u16, Bytes)> {
    let mut request = http.request(method, format!("{}{path}", server.url));
    if let Some(token) = &server.token {
        request = request.bearer_auth(token);
    }
    if let Some(traceparent) = traceparent() {
        request = request.header("traceparent", traceparent);
    }
    if let Some(body) = body {
        request = request.header("content-type", "application/json").body(body);
    }
    let told = |cause| Failure::new(Code::Unreachable, unreachable_text(server, cause));
    let answer = request.send().await.map_err(told)?;
    let status = answer.status().as_u16();
    Ok((status, answer.bytes().await.map_err(told)?))
}

/// Says that a server gave no answer, and why.
pub(crate) fn unreachable_text(server: &Server, cause: reqwest::Error) -> String {
    let what = if cause.is_timeout() { "no answer in time from" } else { "cannot reach" };
    // The cause names the URL with all that may be in it; its own causes do not.
    let cause = cause.without_url();
    let url = without_password(&server.url);
    let cause = explained(&innermost(&cause));
    let hint = protocol_hint(&server.url, &cause);
    format!("{what} {url}: {cause}{hint}")
}

/// What to try where one side speaks TLS and the other does not.
fn protocol_hint(url: &str, cause: &str) -> &'static str {
    let has_no_http = ["invalid HTTP version", "connection closed before message completed"];
    if url.starts_with("http://") && has_no_http.iter().any(|text| cause.contains(text)) {
        return "; a server that speaks TLS is reached by https://";
    }
    if url.starts_with("https://") && cause.contains("InvalidContentType") {
        return "; the server does not speak TLS: it is reached by http://";
    }
    ""
}

pub(crate) fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

/// The cause with what to do about it, where its own words do not tell.
pub(crate) fn explained(cause: &str) -> String {
    let hint = match cause {
        _ if cause.contains("CaUsedAsEndEntity") => {
            "the certificate of the server is one of an authority (CA:TRUE), as `openssl req -x509` makes them: \
             make it with basicConstraints=CA:FALSE and a subjectAltName"
        }
        _ if cause.contains("UnknownIssuer") => {
            "its issuer is not trusted here: name a file with it by --ca-cert"
        }
        _ if cause.contains("NotValidForName") => {
            "its subjectAltName does not have the name or address in the URL"
        }
        _ => return cause.to_owned(),
    };
    format!("{cause}: {hint} (see docs/securing.md)")
}

/// What stays as it is in a piece of a path or query.
const UNESCAPED: &percent_encoding::AsciiSet =
    &percent_encoding::NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A piece of a path or query, escaped.
pub(crate) fn escaped(text: &str) -> impl std::fmt::Display + '_ {
    percent_encoding::utf8_percent_encode(text, UNESCAPED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_that_no_string_can_hold_is_shown_as_its_text() {
        let task = lenient(r#"{"id":"a","payload":["\ud800"]}"#).unwrap();
        assert_eq!((&task["id"], &task["payload"]), (&"a".into(), &r#"["\ud800"]"#.into()));
        assert!(lenient("{").is_err());
    }

    #[test]
    fn whatever_could_end_a_path_is_escaped() {
        assert_eq!(escaped("a/b?c#d é").to_string(), "a%2Fb%3Fc%23d%20%C3%A9");
        assert_eq!(escaped("0190-ab_c.d~e").to_string(), "0190-ab_c.d~e");
    }
}
