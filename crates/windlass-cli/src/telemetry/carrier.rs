//! Sends spans to the collector, and says now and then when that fails.

use std::path::Path;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use opentelemetry_http::{HttpClient, HttpError, Request, Response};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::caller::{http_client, innermost};
use crate::exit::Done;

/// How often the same trouble is told.
const COMPLAIN_EVERY: Duration = Duration::from_secs(60);
/// The most of an answer that is read.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Sends on the runtime of the process: spans come from a thread that has none.
#[derive(Debug)]
pub(super) struct Carrier {
    http: reqwest::Client,
    runtime: Handle,
    complained: Mutex<Option<Instant>>,
}

impl Carrier {
    pub(super) fn new(
        timeout: Duration,
        certificate: Option<&Path>,
        runtime: Handle,
    ) -> Done<Self> {
        let http = http_client(certificate, Some(timeout))?;
        Ok(Self { http, runtime, complained: Mutex::new(None) })
    }

    /// Tells what went wrong, without anything of the request: its headers may hold secrets.
    fn complain(&self, why: &str) {
        let mut complained = self.complained.lock();
        if complained.is_none_or(|at| at.elapsed() >= COMPLAIN_EVERY) {
            *complained = Some(Instant::now());
            tracing::warn!(error = why, "traces cannot be handed on, and are dropped");
        }
    }
}

#[async_trait]
impl HttpClient for Carrier {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let sent = self.runtime.spawn(send(self.http.clone(), request)).await;
        match sent.unwrap_or_else(|ended| Err(ended.to_string())) {
            Ok(answer) => {
                if !answer.status().is_success() {
                    self.complain(&format!("the collector answers {}", answer.status()));
                }
                Ok(answer)
            }
            Err(why) => {
                self.complain(&why);
                Err(why.into())
            }
        }
    }
}

async fn send(http: reqwest::Client, request: Request<Bytes>) -> Result<Response<Bytes>, String> {
    // The cause names the URL with all that may be in it; its own causes do not.
    let told = |cause: reqwest::Error| innermost(&cause.without_url());
    let mut answer = http.execute(request.try_into().map_err(told)?).await.map_err(told)?;
    let mut body = BytesMut::new();
    while body.len() < ANSWER_BYTES_MAX
        && let Some(piece) = answer.chunk().await.map_err(told)?
    {
        body.extend_from_slice(&piece);
    }
    let mut response = Response::new(body.freeze());
    *response.status_mut() = answer.status();
    *response.headers_mut() = std::mem::take(answer.headers_mut());
    Ok(response)
}
