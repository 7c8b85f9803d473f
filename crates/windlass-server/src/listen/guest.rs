//! One connection, from its handshake to its end.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{Method, Version};
use axum::response::{IntoResponse, Response};
use hyper::body::{Body as _, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::answer::Answer;
use super::crowd::{Crowd, Presence, look_every};
use super::{Bounds, Seat, Stopping};
use crate::app::App;
use crate::guard::{self, Reached};
use crate::memory::{Budgets, ConnectionMemory, ResponsePermit, SMALL_BYTES};
use crate::patience::Patient;
use crate::problem::{Problem, Slug};
use crate::tls::Tls;

/// Largest head of a request; hyper answers 431 to more.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Requests at once on one connection of HTTP/2.
const STREAMS_MAX: u32 = 100;
/// Requests that a client of HTTP/2 may call off before anybody has looked at them.
const RESETS_MAX: usize = 20;
/// Bytes that a client of HTTP/2 may send of one body, and of all, before they are read.
const STREAM_WINDOW_BYTES: u32 = 128 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 512 * 1024;
/// Bytes of answers that wait in a connection of HTTP/2 for each request.
const SEND_BYTES_MAX: usize = 64 * 1024;
/// How often a client of HTTP/2 is asked whether it is there, and how long it may take to say so.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_TIME: Duration = Duration::from_secs(10);
/// How long a connection may take to leave when it is idle and asked to.
const LEAVE_TIME: Duration = Duration::from_millis(250);

/// What all connections share.
pub(super) struct House {
    pub(super) app: App,
    pub(super) reached: Reached,
    pub(super) bounds: Bounds,
    pub(super) tls: Option<Tls>,
    pub(super) stopping: Stopping,
    pub(super) crowd: Arc<Crowd>,
    /// One for each request of HTTP/2 under way: the connections bound those of HTTP/1.
    requests: Arc<Semaphore>,
    budgets: Budgets,
    /// The number of the last connection.
    last: AtomicU64,
    http: Builder<TokioExecutor>,
}

impl House {
    pub(super) fn new(app: App, reached: Reached, bounds: Bounds, tls: Option<Tls>) -> Self {
        let requests = Arc::new(Semaphore::new(bounds.connections_max));
        let (stopping, crowd, last) = (Stopping::default(), Arc::default(), AtomicU64::new(0));
        let (budgets, http) = (Budgets::new(&bounds), builder());
        Self { app, reached, bounds, tls, stopping, crowd, requests, budgets, last, http }
    }

    /// Where a new connection gets its memory, and what ends it when it holds that for too long.
    fn memory(&self, ended: &CancellationToken) -> ConnectionMemory {
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        let Budgets { bodies, responses } = &self.budgets;
        ConnectionMemory::new(number, bodies, responses, ended.clone())
    }
}

fn builder() -> Builder<TokioExecutor> {
    let mut http = Builder::new(TokioExecutor::new());
    // Time is kept here, for both versions alike: hyper has no timeout for idle clients of HTTP/2, nor for who
    // has not said yet which version it speaks.
    http.http1().max_buf_size(HEAD_BYTES_MAX);
    http.http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .max_local_error_reset_streams(RESETS_MAX)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buf_size(SEND_BYTES_MAX)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIME);
    http
}

/// One client, and its seat.
pub(super) struct Guest {
    pub(super) house: Arc<House>,
    pub(super) seat: Arc<OwnedSemaphorePermit>,
}

impl Guest {
    /// Serves the client until one of both has enough.
    pub(super) async fn talk(self, stream: TcpStream) {
        // Answers are written whole; to wait for more would only delay them.
        let _ = stream.set_nodelay(true);
        let presence = Presence::new(&self.house.crowd, self.house.bounds);
        let stream = Patient::new(stream, self.house.bounds.write_stall);
        let Some(tls) = self.house.tls.clone() else {
            return self.converse(stream, presence).await;
        };
        let stopping = self.house.stopping.clone();
        tokio::select! {
            shaken = tokio::time::timeout(self.house.bounds.head_read, tls.accept(stream)) => match shaken {
                Ok(Ok(stream)) => self.converse(stream, presence).await,
                Ok(Err(error)) => tracing::debug!(%error, "no TLS"),
                Err(_) => tracing::debug!("a TLS handshake took too long"),
            },
            () = presence.asked_to_leave() => {}
            () = stopping.0.cancelled() => {}
        }
    }

    async fn converse(
        self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        presence: Arc<Presence>,
    ) {
        let Self { house, seat } = self;
        let streams = Arc::new(Semaphore::new(STREAMS_MAX as usize));
        let ended = CancellationToken::new();
        let memory = house.memory(&ended);
        let (house_too, presence_too) = (house.clone(), presence.clone());
        let asker = Asker { house: house_too, seat, presence: presence_too, streams, memory };
        let asker = Arc::new(asker);
        let service = service_fn(move |request| {
            let asker = asker.clone();
            async move { Ok::<_, Infallible>(asker.answer(request).await) }
        });
        let connection = house.http.serve_connection_with_upgrades(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        let (bounds, mut leaves_at, mut is_stopping) = (&house.bounds, None, false);
        let mut look = pin!(tokio::time::sleep(look_every(bounds)));
        loop {
            tokio::select! {
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "a connection ended early");
                    }
                    return;
                }
                () = ended.cancelled() => {
                    tracing::debug!("a connection was closed: it took its answer too slowly");
                    return;
                }
                () = house.stopping.0.cancelled(), if !is_stopping => {
                    is_stopping = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = presence.asked_to_leave(), if leaves_at.is_none() => {
                    leaves_at = Some(Instant::now() + LEAVE_TIME);
                    connection.as_mut().graceful_shutdown();
                    look.as_mut().reset(Instant::now() + LEAVE_TIME);
                }
                () = look.as_mut() => {
                    let now = Instant::now();
                    let has_left = leaves_at.is_some_and(|at| at <= now) && presence.is_idle();
                    let ends_at = presence.ends_at();
                    if has_left || ends_at.is_some_and(|at| at <= now) {
                        return;
                    }
                    let next = now + look_every(bounds);
                    look.as_mut().reset(ends_at.map_or(next, |at| at.min(next)));
                }
            }
        }
    }
}

/// Who asks on one connection.
struct Asker {
    house: Arc<House>,
    seat: Arc<OwnedSemaphorePermit>,
    presence: Arc<Presence>,
    /// One for each request of HTTP/2 on this connection.
    streams: Arc<Semaphore>,
    memory: ConnectionMemory,
}

impl Asker {
    async fn answer(&self, request: hyper::Request<Incoming>) -> Response<Answer> {
        let asked = self.presence.begin();
        let method = request.method().clone();
        let (app, reached) = (&self.house.app, &self.house.reached);
        let response = match self.leave(request.version()) {
            Some(request_leave) => {
                let mut request = Request::map(request, Body::new);
                let extensions = request.extensions_mut();
                extensions.insert(self.house.bounds);
                extensions.insert(self.memory.clone());
                extensions.insert(Seat::new(self.seat.clone(), request_leave));
                extensions.insert(self.house.stopping.clone());
                guard::answer(app, reached, request).await
            }
            None => {
                let text = "there are too many requests at once; try again";
                let wait = Duration::from_secs(1);
                Problem::new(Slug::RateLimited, text).retry_after(wait).into_response()
            }
        };
        let (response, permit) = self.weigh(&method, response).await;
        response.map(|body| Answer::new(body, asked, permit))
    }

    /// Counts the memory of an answer, now that its size is known. Where a change was made, the answer says so
    /// whatever it needs.
    async fn weigh(
        &self,
        method: &Method,
        mut response: Response,
    ) -> (Response, Option<Arc<ResponsePermit>>) {
        let held = response.extensions_mut().remove::<Arc<ResponsePermit>>();
        let bytes = response.body().size_hint().exact().unwrap_or_default();
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        if bytes <= SMALL_BYTES {
            return (response, None);
        }
        let permit = held.unwrap_or_else(|| Arc::new(self.memory.response(None)));
        if !method.is_safe() {
            permit.memory.set(bytes);
        } else if let Err(problem) = permit.memory.hold(bytes).await {
            return (guard::instead(&response, problem), None);
        }
        (response, Some(permit))
    }

    /// Leave for a request. It goes with what the request changes, also when the client has called it off: else
    /// calling off would be a way to have any number of changes under way.
    fn leave(&self, version: Version) -> Option<Vec<OwnedSemaphorePermit>> {
        if version != Version::HTTP_2 {
            return Some(Vec::new());
        }
        let of_connection = self.streams.clone().try_acquire_owned().ok()?;
        let of_all = self.house.requests.clone().try_acquire_owned().ok()?;
        Some(vec![of_connection, of_all])
    }
}
