//! What the payload of a webhook says.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::Method;
use serde::Deserialize;
use serde_json::value::RawValue;
use url::Url;

use super::signature;

const LIKE: &str = r#"{"url": "https://example.com/hook", "body": {"order": 7}}"#;
const URL_BYTES_MAX: usize = 8 * 1024;
const HEADERS_MAX: usize = 64;
const HEADERS_BYTES_MAX: usize = 16 * 1024;
const METHODS: [Method; 6] =
    [Method::POST, Method::PUT, Method::PATCH, Method::GET, Method::HEAD, Method::DELETE];

/// Headers that belong to the connection, or whose truth receivers rely on.
const OURS: [HeaderName; 11] = [
    header::HOST,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::CONNECTION,
    header::UPGRADE,
    header::EXPECT,
    header::TE,
    header::TRAILER,
    header::ACCEPT_ENCODING,
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("keep-alive"),
];
const OUR_PREFIXES: [&str; 3] = ["windlass-", "webhook-", "proxy-"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Payload {
    url: String,
    method: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<Box<RawValue>>,
    body_base64: Option<String>,
    secret: Option<String>,
}

/// A request to send.
#[derive(Debug)]
pub(super) struct Hook {
    pub(super) url: Url,
    pub(super) method: Method,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// The name of the secret to sign it with.
    pub(super) secret: Option<String>,
}

impl Hook {
    /// Reads a payload; an error says what would do, and what is wrong with this one.
    pub(super) fn read(payload: &[u8]) -> Result<Self, String> {
        let wrong =
            |what: String| format!("the payload of http.webhook must be like {LIKE}: {what}");
        let payload: Payload =
            serde_json::from_slice(payload).map_err(|cause| wrong(cause.to_string()))?;
        Self::of(payload).map_err(wrong)
    }

    fn of(payload: Payload) -> Result<Self, String> {
        let Payload { url, method, headers, body, body_base64, secret } = payload;
        let url = target(&url)?;
        let method = match method {
            None => Method::POST,
            Some(text) => {
                METHODS.into_iter().find(|method| method.as_str() == text).ok_or_else(|| {
                    String::from("method must be POST, PUT, PATCH, GET, HEAD or DELETE")
                })?
            }
        };
        let mut headers = read_headers(headers)?;
        let body = match (body, body_base64) {
            (Some(_), Some(_)) => return Err("give body or body_base64, not both".into()),
            (Some(json), None) => {
                let json_type = HeaderValue::from_static("application/json");
                headers.entry(header::CONTENT_TYPE).or_insert(json_type);
                Bytes::from(Box::<str>::from(json).into_string())
            }
            (None, Some(text)) => {
                STANDARD.decode(text).map_err(|_| String::from("body_base64 is not base64"))?.into()
            }
            (None, None) => Bytes::new(),
        };
        if let Some(name) = &secret {
            signature::check_name(name)?;
        }
        Ok(Self { url, method, headers, body, secret })
    }

    /// The target without what may be secret in it: path and query.
    pub(super) fn place(&self) -> String {
        format!("{} {}", self.method, self.url.origin().ascii_serialization())
    }
}

/// Reads a URL as browsers do: an IPv4 address is one in every spelling (`0x7f.1`, `2130706433`, `0177.0.0.1`),
/// an IPv6 address has no zone.
fn target(text: &str) -> Result<Url, String> {
    if text.len() > URL_BYTES_MAX {
        return Err(format!("url has more than {URL_BYTES_MAX} bytes"));
    }
    let url = Url::parse(text).map_err(|cause| format!("url: {cause}"))?;
    if !["http", "https"].contains(&url.scheme()) {
        return Err("url must begin with https:// or http://".into());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("url must hold no user or password; a header can".into());
    }
    if url.port() == Some(0) || url.host().is_none() {
        return Err("url must name a host, and no port 0".into());
    }
    Ok(url)
}

fn read_headers(given: BTreeMap<String, String>) -> Result<HeaderMap, String> {
    let bytes: usize = given.iter().map(|(name, value)| name.len() + value.len()).sum();
    if given.len() > HEADERS_MAX || bytes > HEADERS_BYTES_MAX {
        return Err(format!(
            "there may be {HEADERS_MAX} headers of {HEADERS_BYTES_MAX} bytes in all"
        ));
    }
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        let shown = name.escape_default().to_string();
        let name = HeaderName::try_from(name).map_err(|_| format!("{shown} is no header"))?;
        let is_ours = OURS.contains(&name)
            || OUR_PREFIXES.iter().any(|prefix| name.as_str().starts_with(prefix));
        if is_ours {
            return Err(format!("the header {name} cannot be set"));
        }
        let mut value = HeaderValue::try_from(value)
            .map_err(|_| format!("the header {name} has a value that no header may have"))?;
        value.set_sensitive(true);
        if headers.insert(name, value).is_some() {
            return Err(format!("the header {shown} is given twice"));
        }
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(payload: &str, why: &str) {
        let error = Hook::read(payload.as_bytes()).unwrap_err();
        assert!(error.contains(why), "{payload}: {error}");
    }

    #[test]
    fn a_secret_is_named_by_a_plain_name() {
        for name in ["../tokens", "", ".hidden", "a/b"] {
            let payload = format!(r#"{{"url":"https://a.test","secret":"{name}"}}"#);
            refused(&payload, "secret must be the name of one");
        }
    }

    #[test]
    fn only_a_url_is_needed() {
        let hook = Hook::read(br#"{"url":"https://a.test/x?y=1"}"#).unwrap();
        assert_eq!((hook.method, hook.body.len(), hook.headers.len()), (Method::POST, 0, 0));
        assert_eq!(hook.url.as_str(), "https://a.test/x?y=1");
    }

    #[test]
    fn a_body_of_json_goes_byte_for_byte() {
        let hook =
            Hook::read(br#"{"url":"http://a.test","body":{"n":1.50, "big":9007199254740993}}"#);
        let hook = hook.unwrap();
        assert_eq!(hook.body, r#"{"n":1.50, "big":9007199254740993}"#);
        assert_eq!(hook.headers[header::CONTENT_TYPE], "application/json");
        let raw =
            br#"{"url":"http://a.test","body_base64":"AP8=","headers":{"content-type":"x/y"}}"#;
        let hook = Hook::read(raw).unwrap();
        assert_eq!(
            (&hook.body[..], &hook.headers[header::CONTENT_TYPE]),
            (&b"\0\xff"[..], &"x/y".parse().unwrap())
        );
    }

    #[test]
    fn an_address_is_known_in_every_spelling() {
        for host in [
            "127.0.0.1",
            "2130706433",
            "0x7f000001",
            "0x7F.1",
            "0177.0.0.1",
            "127.1",
            "127.0.1",
            "127.0.0.1.",
            "%31%32%37.0.0.1",
            "１２７.0.0.1",
            "127。0。0。1",
        ] {
            let hook = Hook::read(format!(r#"{{"url":"http://{host}/"}}"#).as_bytes()).unwrap();
            assert_eq!(hook.url.host_str(), Some("127.0.0.1"), "{host}");
        }
        let hook = Hook::read(br#"{"url":"http://[0:0:0:0:0:ffff:7f00:0001]/"}"#).unwrap();
        assert_eq!(hook.url.host_str(), Some("[::ffff:7f00:1]"));
    }

    #[test]
    fn what_cannot_be_sent_is_told() {
        refused("{}", "missing field `url`");
        refused(r#"{"url":"http://a.test","bdy":1}"#, "unknown field `bdy`");
        refused(r#"{"url":"ftp://a.test"}"#, "https://");
        refused(r#"{"url":"file:///etc/passwd"}"#, "https://");
        refused(r#"{"url":"/relative"}"#, "url");
        refused(r#"{"url":"http://ann:pw@a.test"}"#, "user");
        refused(r#"{"url":"http://[fe80::1%25eth0]/"}"#, "url");
        refused(r#"{"url":"http://1.2.3.4.5/"}"#, "url");
        refused(r#"{"url":"http://256.1.1.1/"}"#, "url");
        refused(r#"{"url":"http://a.test:0/"}"#, "port");
        refused(r#"{"url":"http://a.test","method":"CONNECT"}"#, "method");
        refused(r#"{"url":"http://a.test","body":1,"body_base64":""}"#, "both");
        refused(r#"{"url":"http://a.test","body_base64":"*"}"#, "base64");
        for name in ["host", "Content-Length", "webhook-signature", "windlass-epoch", "proxy-x"] {
            refused(
                &format!(r#"{{"url":"http://a.test","headers":{{"{name}":"x"}}}}"#),
                "cannot be set",
            );
        }
        refused(r#"{"url":"http://a.test","headers":{"a b":"x"}}"#, "no header");
        refused(r#"{"url":"http://a.test","headers":{"a":"x\r\nb: y"}}"#, "value");
    }
}
