//! What stands between a socket and the API: whom a browser may speak for, the request's id, and the
//! headers of every response.
//!
//! A server that asks for no token trusts whoever reaches its port. On loopback that is the user, or a web
//! page in the user's browser; the latter is kept out here.

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

/// Answers a request from a socket.
pub(crate) async fn answer(app: &App, exposure: Exposure, mut request: Request) -> Response {
    let id = RequestId::of(request.headers());
    let (method, headers) = (request.method(), request.headers());
    let target = host(request.version(), request.uri(), headers);
    let mut response = match check(app, exposure, method, headers, target).await {
        Ok(()) => {
            request.extensions_mut().insert(exposure.arrival());
            request.extensions_mut().insert(id.clone());
            app.answer(request).await
        }
        Err(problem) => problem.into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, id.0);
    for (name, value) in ALWAYS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

async fn check(
    app: &App,
    exposure: Exposure,
    method: &Method,
    headers: &HeaderMap,
    host: Result<Option<&str>, Problem>,
) -> Result<(), Problem> {
    // A WebSocket begins with a GET, and its page may read all that comes, whatever site it is of.
    let is_harmless = method.is_safe() && !headers.contains_key(header::UPGRADE);
    let Some(host) = host? else {
        return if is_harmless { Ok(()) } else { Err(no_host()) };
    };
    let is_of_this_machine = exposure != Exposure::Loopback || is_loopback(host);
    if !is_of_this_machine && !app.keyring().is_closed().await {
        // Else a page could have its own name resolve to this machine, and read everything.
        let text = format!("host {host:?}: use localhost, 127.0.0.1 or [::1]");
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

fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost")
        || address.parse().is_ok_and(|address: IpAddr| address.is_loopback())
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

    #[test]
    fn only_names_of_this_machine_are_hosts() {
        for host in ["localhost", "LOCALHOST:80", "127.0.0.1", "127.9.9.9:1", "[::1]", "[::1]:80"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "",
            "evil.test",
            "localhost.evil.test",
            "10.0.0.1",
            "127.0.0.1.evil.test",
            "[::2]:80",
            "0.0.0.0",
            "localhost@evil.test",
            "127.0.0.1:80:evil",
        ] {
            assert!(!is_loopback(host), "{host}");
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
