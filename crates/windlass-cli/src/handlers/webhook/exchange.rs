//! One request and its answer, on a connection of its own, each bounded in size.

use std::time::SystemTime;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use windlass::{Context, Failure, discard};

use super::dial::{Dialer, Trouble};
use super::payload::Hook;
use super::signature::{Message, Secrets};
use super::verdict::{COMPLAINT_BYTES_MAX, Verdict, judge};

/// Largest head of an answer.
const HEAD_BYTES_MAX: usize = 64 * 1024;
const USER_AGENT: &str = concat!("windlass/", env!("CARGO_PKG_VERSION"));

/// What came back.
#[derive(Debug)]
pub(super) enum Answer {
    /// Done, and this is the result.
    Completed(Bytes),
    /// Taken on.
    Open,
}

/// Which run a request is sent for.
pub(super) struct Sender {
    task: String,
    epoch: String,
    worker: String,
    traceparent: Option<HeaderValue>,
    answer_bytes_max: usize,
}

impl Sender {
    pub(super) fn of(cx: &Context<()>) -> Self {
        Self {
            task: cx.task_id().to_string(),
            epoch: cx.epoch().to_string(),
            worker: cx.worker_id().to_string(),
            // What is no header is no trace context either.
            traceparent: cx.traceparent().and_then(|text| HeaderValue::try_from(text).ok()),
            answer_bytes_max: cx.client().config().limits.result_bytes_max,
        }
    }

    /// Sends the request and judges the answer. Redirects are answers like any other: they are not followed.
    pub(super) async fn send(
        &self,
        dialer: &Dialer,
        secrets: &Secrets,
        hook: Hook,
    ) -> Result<Answer, Failure> {
        let place = hook.place();
        let failed = |cause: &dyn std::fmt::Display| Failure::from(format!("{place}: {cause}"));
        let url = hook.url.clone();
        // Before the connection: what cannot be signed costs none.
        let request = self.request(secrets, hook)?;
        let wire = dialer.connect(&url).await.map_err(|trouble| match trouble {
            Trouble::Forbidden(why) => discard(format!("{place}: {why}")),
            Trouble::Failed(why) => failed(&why),
        })?;
        let mut client = http1::Builder::new();
        client.max_buf_size(HEAD_BYTES_MAX);
        let (mut sender, connection) =
            client.handshake(TokioIo::new(wire)).await.map_err(|cause| failed(&cause))?;
        let mut connection = std::pin::pin!(connection);
        let talk = async {
            let answer = sender.send_request(request).await.map_err(|cause| failed(&cause))?;
            self.read(&place, answer).await
        };
        let mut talk = std::pin::pin!(talk);
        // The connection is driven here and not on a task of its own: who drops this run drops it too.
        tokio::select! {
            answer = &mut talk => answer,
            _ = &mut connection => talk.await,
        }
    }

    fn request(&self, secrets: &Secrets, hook: Hook) -> Result<Request<Full<Bytes>>, Failure> {
        let Hook { url, method, mut headers, body, secret } = hook;
        let told = |text: &str| HeaderValue::try_from(text).map_err(Failure::from);
        let mut own = vec![
            ("windlass-task-id", told(&self.task)?),
            ("windlass-epoch", told(&self.epoch)?),
            ("windlass-worker-id", told(&self.worker)?),
            // What is compressed could be larger than it looks.
            ("accept-encoding", HeaderValue::from_static("identity")),
        ];
        if let Some(secret) = secret {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let timestamp = now.unwrap_or_default().as_secs();
            let message = Message { target: &url, id: &self.task, timestamp, body: &body };
            let signature = secrets.sign(&secret, &message).map_err(Failure::from)?;
            own.push(("webhook-id", told(&self.task)?));
            own.push(("webhook-timestamp", timestamp.into()));
            own.push(("webhook-signature", told(&signature)?));
        }
        headers.extend(
            own.into_iter().map(|(name, value)| (header::HeaderName::from_static(name), value)),
        );
        if let Some(traceparent) = &self.traceparent {
            headers.entry("traceparent").or_insert_with(|| traceparent.clone());
        }
        headers.entry(header::USER_AGENT).or_insert(HeaderValue::from_static(USER_AGENT));
        let host = match (url.host_str(), url.port()) {
            (Some(host), Some(port)) => format!("{host}:{port}"),
            (host, _) => host.unwrap_or_default().to_owned(),
        };
        headers.insert(header::HOST, told(&host)?);
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = url[url::Position::BeforePath..url::Position::AfterQuery].parse()?;
        *request.headers_mut() = headers;
        Ok(request)
    }

    async fn read(&self, place: &str, answer: Response<Incoming>) -> Result<Answer, Failure> {
        let (head, body) = answer.into_parts();
        let status = head.status;
        let wants = head.headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
        if status.is_success() && status != StatusCode::ACCEPTED {
            let most = self.answer_bytes_max;
            let body = gather(body, most, &head.headers).await;
            let body = body.map_err(|cause| format!("{place} answered {status}: {cause}"))?;
            let too_large = || format!("{place} answered {status} with more than {most} bytes");
            return Ok(Answer::Completed(body.ok_or_else(too_large)?));
        }
        let complaint = complaint(place, status, body).await;
        match judge(status, wants, SystemTime::now(), &complaint) {
            Verdict::Completed => Ok(Answer::Completed(Bytes::new())),
            Verdict::Open => Ok(Answer::Open),
            Verdict::Failed(failure) => Err(failure),
        }
    }
}

/// A whole body; nothing when it is larger than it may be.
async fn gather(
    mut body: Incoming,
    bytes_max: usize,
    headers: &HeaderMap,
) -> Result<Option<Bytes>, String> {
    if headers.get(header::CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        return Err("the body is compressed, which was not asked for".into());
    }
    if body.size_hint().lower() > bytes_max as u64 {
        return Ok(None);
    }
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|cause| cause.to_string())?.into_data() else { continue };
        if bytes.len() + data.len() > bytes_max {
            return Ok(None);
        }
        bytes.extend_from_slice(&data);
    }
    Ok(Some(bytes.freeze()))
}

/// The status, and the first of what the target says about it.
async fn complaint(place: &str, status: StatusCode, mut body: Incoming) -> String {
    let mut text = BytesMut::new();
    while text.len() < COMPLAINT_BYTES_MAX
        && let Some(Ok(frame)) = body.frame().await
    {
        if let Ok(data) = frame.into_data() {
            text.extend_from_slice(&data[..data.len().min(COMPLAINT_BYTES_MAX - text.len())]);
        }
    }
    let text = String::from_utf8_lossy(&text);
    let hint = if status.is_redirection() { " (redirects are not followed)" } else { "" };
    match text.trim() {
        "" => format!("{place} answered {status}{hint}"),
        text => format!("{place} answered {status}{hint}: {text}"),
    }
}
