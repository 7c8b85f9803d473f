//! What stands between a socket and the API: whom a browser may speak for, the request's id, and the
//! headers of every response.
//!
//! A server that asks for no token trusts whoever reaches its port. That is the user, or a web page in the user's
//! browser; the latter is kept out here. A page can have its own name lead to this machine (DNS rebinding), so the
//! name that a request is meant for has to be one of the server's. A page cannot do so with an IP address.

use std::borrow::Cow;
use std::net::IpAddr;

use axum::extract::Request;
use axum::http::header::{self, HeaderName};
use axum::http::{HeaderMap, HeaderValue, Method, Uri, Version};
use axum::response::{IntoResponse, Response};

use crate::access::veil::veiled;
use crate::app::App;
use crate::listen::Exposure;
use crate::problem::{Problem, Slug};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Longest id of a request that is taken over from it.
const REQUEST_ID_BYTES_MAX: usize = 128;

/// Headers that every response has.
const ALWAYS: [(HeaderName, &str); 5] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
         img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
];

/// Names a request in the log and in its response.
#[derive(Debug, Clone)]
pub(crate) struct RequestId(HeaderValue);

impl RequestId {
    /// The caller's own id when it is a plain word, else a new one.
    fn of(headers: &HeaderMap) -> Self {
        let is_plain = |value: &&HeaderValue| {
            let is_word = |b: &u8| b.is_ascii_alphanumeric() || b"-_.:/+=".contains(b);
            (1..=REQUEST_ID_BYTES_MAX).contains(&value.len())
                && value.as_bytes().iter().all(is_word)
                // Somebody's token must not be told or logged.
                && value.to_str().is_ok_and(|text| matches!(veiled(text), Cow::Borrowed(_)))
        };
        let given = headers.get(REQUEST_ID).filter(is_plain).cloned();
        Self(given.unwrap_or_else(|| {
            let id = uuid::Uuid::new_v4().simple().to_string();
            HeaderValue::try_from(id).expect("an id is letters and digits")
        }))
    }

    /// The id as text.
    pub(crate) fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or("-")
    }
}

/// Names of hosts that are the server's own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Hosts {
    names: Vec<String>,
    is_any: bool,
}

impl Hosts {
    /// Reads names with commas between them.
    pub(crate) fn new(names: &str) -> Self {
        let names = names.split(',').map(plain).filter(|name| !name.is_empty());
        let (any, names): (Vec<_>, Vec<_>) = names.partition(|name| name == "*");
        Self { names, is_any: !any.is_empty() }
    }

    fn contains(&self, name: &str) -> bool {
        self.is_any || self.names.contains(&plain(name))
    }
}

/// A name as it is compared.
fn plain(name: &str) -> String {
    name.trim().trim_end_matches('.').to_ascii_lowercase()
}

/// Who can reach the server, and under which names.
#[derive(Debug, Clone)]
pub(crate) struct Reached {
    pub(crate) exposure: Exposure,
    pub(crate) hosts: Hosts,
}

impl Reached {
    /// True for a host that only the server itself is meant by. Where tokens are asked for, that is all the same.
    fn is_own(&self, host: &str) -> bool {
        let name = name_of(host);
        match self.exposure {
            Exposure::Tokens => true,
            Exposure::Insecure => {
                is_loopback(name) || address(name).is_some() || self.hosts.contains(name)
            }
            Exposure::Loopback => is_loopback(name) || self.hosts.contains(name),
        }
    }
}

/// Answers a request from a socket.
pub(crate) async fn answer(app: &App, reached: &Reached, mut request: Request) -> Response {
    let id = RequestId::of(request.headers());
    let (method, headers) = (request.method(), request.headers());
    let target = host(request.version(), request.uri(), headers);
    let mut response = match check(app, reached, method, headers, target).await {
        Ok(()) => {
            request.extensions_mut().insert(reached.exposure.arrival());
            request.extensions_mut().insert(id.clone());
            app.answer(request).await
        }
        Err(problem) => problem.into_response(),
    };
    mark(response.headers_mut(), id.0);
    response
}

/// A problem in place of a response that was made already, with the headers that every response has.
pub(crate) fn instead(made: &Response, problem: Problem) -> Response {
    let mut response = problem.into_response();
    let id = made.headers().get(REQUEST_ID).cloned();
    mark(response.headers_mut(), id.unwrap_or(HeaderValue::from_static("-")));
    response
}

fn mark(headers: &mut HeaderMap, id: HeaderValue) {
    headers.insert(REQUEST_ID, id);
    for (name, value) in ALWAYS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

async fn check(
    app: &App,
    reached: &Reached,
    method: &Method,
    headers: &HeaderMap,
    host: Result<Option<&str>, Problem>,
) -> Result<(), Problem> {
    // A WebSocket begins with a GET, and its page may read all that comes, whatever site it is of.
    let is_harmless = method.is_safe() && !headers.contains_key(header::UPGRADE);
    let Some(host) = host? else {
        return if is_harmless { Ok(()) } else { Err(no_host()) };
    };
    if !reached.is_own(host) && !app.keyring().is_closed().await {
        let text = format!(
            "host {host:?} is not known here: use localhost or an IP address, make a token with `windlass token \
             create`, or start the server with --host {}",
            name_of(host)
        );
        return Err(Problem::new(Slug::Forbidden, text));
    }
    if is_harmless || is_same_origin(headers, host) {
        return Ok(());
    }
    let text = "only pages of this server may change something, or open a WebSocket";
    Err(Problem::new(Slug::Forbidden, text))
}

/// The host that the request is meant for, with its port. A check of a load balancer in HTTP/1.0 may name none; a
/// browser always does.
fn host<'a>(
    version: Version,
    uri: &'a Uri,
    headers: &'a HeaderMap,
) -> Result<Option<&'a str>, Problem> {
    let mut named = headers.get_all(header::HOST).iter();
    let header = named.next().and_then(|value| value.to_str().ok());
    let target = uri.authority().map(|authority| authority.as_str());
    match (target, header, named.next()) {
        // HTTP/2 has it in the target.
        (Some(target), None, None) if version == Version::HTTP_2 => Ok(Some(target)),
        (None, Some(host), None) => Ok(Some(host)),
        (Some(target), Some(host), None) if target == host => Ok(Some(host)),
        (None, None, None)
            if version == Version::HTTP_10 && !headers.contains_key(header::HOST) =>
        {
            Ok(None)
        }
        (_, _, _) => Err(no_host()),
    }
}

fn no_host() -> Problem {
    Problem::new(Slug::Forbidden, "the request must name one host")
}

/// The host without its port.
fn name_of(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    }
}

fn address(name: &str) -> Option<IpAddr> {
    name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name).parse().ok()
}

fn is_loopback(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost") || address(name).is_some_and(|at| at.is_loopback())
}

/// True for a request of our own page, and for one that no browser sent.
fn is_same_origin(headers: &HeaderMap, host: &str) -> bool {
    if let Some(site) = headers.get(SEC_FETCH_SITE) {
        return site == "same-origin" || site == "none";
    }
    headers.get(header::ORIGIN).is_none_or(|origin| {
        // What stands before this server may speak TLS.
        let own = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
        let own = own.filter(|(scheme, _)| ["http", "https"].contains(scheme)).map(|own| own.1);
        own.is_some_and(|own| own.eq_ignore_ascii_case(host))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_host(exposure: Exposure, hosts: &str, host: &str, is_own: bool) {
        let reached = Reached { exposure, hosts: Hosts::new(hosts) };
        assert_eq!(reached.is_own(host), is_own, "{exposure:?} {hosts:?} {host:?}");
    }

    #[test]
    fn only_names_of_this_machine_are_hosts() {
        use Exposure::{Insecure, Loopback, Tokens};
        for host in ["localhost", "LOCALHOST:80", "127.0.0.1", "127.9.9.9:1", "[::1]", "[::1]:80"] {
            check_host(Loopback, "", host, true);
            check_host(Insecure, "", host, true);
        }
        for host in ["10.0.0.1", "[::2]:80", "0.0.0.0", "192.168.1.5:8080"] {
            check_host(Loopback, "", host, false);
            check_host(Insecure, "", host, true);
        }
        for host in [
            "",
            "evil.test",
            "localhost.evil.test",
            "127.0.0.1.evil.test",
            "localhost@evil.test",
            "127.0.0.1:80:evil",
        ] {
            check_host(Loopback, "", host, false);
            check_host(Insecure, "", host, false);
            check_host(Insecure, "queue.example", host, false);
            check_host(Tokens, "", host, true);
        }
    }

    #[test]
    fn names_of_the_settings_are_hosts() {
        for exposure in [Exposure::Loopback, Exposure::Insecure] {
            for host in ["queue.example", "Queue.Example:8080", "queue.example.", "windlass"] {
                check_host(exposure, "Queue.example, windlass", host, true);
            }
            check_host(exposure, "queue.example", "sub.queue.example", false);
            check_host(exposure, "*", "anything.test:1", true);
        }
    }

    fn check_origin(name: &'static str, value: &'static str, is_fine: bool) {
        let mut headers = HeaderMap::new();
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        assert_eq!(is_same_origin(&headers, "localhost:8080"), is_fine, "{name}: {value}");
    }

    #[test]
    fn only_our_own_page_may_change_something() {
        check_origin("accept", "*/*", true);
        check_origin("origin", "http://localhost:8080", true);
        check_origin("origin", "https://localhost:8080", true);
        check_origin("origin", "ftp://localhost:8080", false);
        check_origin("origin", "http://localhost:8081", false);
        check_origin("origin", "https://evil.test", false);
        check_origin("origin", "null", false);
        check_origin("sec-fetch-site", "same-origin", true);
        check_origin("sec-fetch-site", "none", true);
        check_origin("sec-fetch-site", "same-site", false);
        check_origin("sec-fetch-site", "cross-site", false);
    }
}
