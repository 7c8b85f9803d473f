//! The application: what all requests share, and the way through it that every request takes.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, HeaderValue, Method, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::FutureExt;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tower::ServiceExt;
use tracing::{Instrument, Level};
use windlass_core::statistics::Span;
use windlass_core::store::{QueueRecord, WorkerRecord};
use windlass_core::{Error, ErrorKind, Store};
use windlass_engine::{Client, EventFilter, Period, trace};

use crate::access::veil::veiled;
use crate::access::{Arrival, Caller, Keyring};
use crate::guard::RequestId;
use crate::listen::Seat;
use crate::names::Names;
use crate::openapi;
use crate::problem::{Cause, Outcome, Problem, Slug};
use crate::remote::Remote;
use crate::routes::{self, Route, Routes};
use crate::share::{Share, Shares, TooMany};
use crate::shared_read::SharedRead;
use crate::wire::statistics::Windows;

/// Pings of the store under way at the same time, so that a store that hangs gathers no more.
const PINGS_MAX: usize = 4;

/// Different filters of events that a token may have at a time; the board has room for ten times as many.
const FILTERS_OF_TOKEN_MAX: usize = 100;

/// The header with a client's trace context.
pub(crate) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The API of windlass on one store. Cheap to clone.
#[derive(Clone)]
pub struct App {
    router: Router,
    routes: Arc<[Route]>,
    shared: Shared,
}

/// What all handlers share.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Inner>);

/// What all handlers share, as long as it is there.
pub(crate) struct WeakShared(Weak<Inner>);

impl WeakShared {
    pub(crate) fn upgrade(&self) -> Option<Shared> {
        self.0.upgrade().map(Shared)
    }
}

struct Inner {
    client: Client,
    pings: Arc<Semaphore>,
    /// Handlers that change something, each to its end, whether or not its client still listens.
    changes: TaskTracker,
    remote: Remote,
    keyring: Keyring,
    names: Names,
    /// Requests that wait for the end of a task, by their number.
    waits: Shares<u64>,
    wait_number: AtomicU64,
    /// What those want who listen to events.
    filters: Shares<EventFilter>,
    windows: Mutex<Option<ToldWindows>>,
    queues: SharedRead<Vec<QueueRecord>>,
    workers: SharedRead<Vec<WorkerRecord>>,
    routes: OnceLock<Arc<[Route]>>,
    /// The document of the routes, once somebody has asked for it.
    document: OnceLock<Bytes>,
}

/// The windows that were told last, and what they were made of.
struct ToldWindows {
    of: Arc<Vec<Span>>,
    windows: Arc<Windows>,
}

impl App {
    /// The API on the store of this client, with its settings.
    pub fn new(client: Client) -> Self {
        Self::with(client, routes::all)
    }

    /// What a worker tells of itself: metrics and health, and nothing else.
    pub fn of_worker(client: Client) -> Self {
        Self::with(client, routes::of_worker)
    }

    fn with(client: Client, routes: impl Fn(&Shared) -> Routes) -> Self {
        let keyring = Keyring::new(client.watched().clone());
        let config = &client.config().server;
        let (names, waits_max) = (Names::new(config), config.waits_max);
        let shared = Shared(Arc::new(Inner {
            client,
            keyring,
            names,
            waits: Shares::new(waits_max, waits_max.div_ceil(2)),
            wait_number: AtomicU64::new(0),
            filters: Shares::new(usize::MAX, FILTERS_OF_TOKEN_MAX),
            pings: Arc::new(Semaphore::new(PINGS_MAX)),
            changes: TaskTracker::new(),
            remote: Remote::new(),
            windows: Mutex::default(),
            queues: SharedRead::default(),
            workers: SharedRead::default(),
            routes: OnceLock::new(),
            document: OnceLock::new(),
        }));
        let handled = middleware::from_fn_with_state(shared.clone(), handle);
        let (router, table) = routes(&shared).build();
        let router = router.layer(handled).with_state(shared.clone());
        let routes: Arc<[Route]> = table.into();
        let routes = shared.0.routes.get_or_init(|| routes).clone();
        Self { router, routes, shared }
    }

    /// The client whose store this is the API of.
    pub fn client(&self) -> &Client {
        self.shared.client()
    }

    /// Every route there is, with the scope that it asks for.
    pub fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// The same API without a socket, for the command line that talks to a store directly: no token is
    /// asked for, since whoever has the store has everything. `path` is path and query, such as `/api/v1/tasks?limit=5`; a body is JSON. Answers status and body.
    pub async fn call(&self, method: Method, path: &str, body: Option<Bytes>) -> (u16, Bytes) {
        let response = match path.parse::<Uri>() {
            Ok(uri) => {
                let mut request = Request::new(Body::from(body.unwrap_or_default()));
                *request.method_mut() = method;
                *request.uri_mut() = uri;
                let json = HeaderValue::from_static("application/json");
                request.headers_mut().insert(CONTENT_TYPE, json);
                request.extensions_mut().insert(Arrival::Operator);
                self.answer(request).await
            }
            Err(_) => Problem::new(Slug::NotFound, format!("no path {path:?}")).into_response(),
        };
        let status = response.status().as_u16();
        let body = response.into_body().collect().await;
        (status, body.map(|body| body.to_bytes()).unwrap_or_default())
    }

    /// Answers a request that has passed the guard, or needs none.
    pub(crate) async fn answer(&self, request: Request) -> Response {
        match self.router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    /// The tokens that open this API.
    pub(crate) fn keyring(&self) -> &Keyring {
        self.shared.keyring()
    }

    /// Ends when no change is under way.
    pub(crate) async fn settled(&self) {
        self.shared.0.changes.close();
        self.shared.0.changes.wait().await;
    }
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "App({:?})", self.shared.0.client)
    }
}

impl Shared {
    /// The same, without keeping it.
    pub(crate) fn downgrade(&self) -> WeakShared {
        WeakShared(Arc::downgrade(&self.0))
    }

    pub(crate) fn client(&self) -> &Client {
        &self.0.client
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        self.0.client.watched()
    }

    /// All queues as they are now. Requests that come at the same time share a read.
    pub(crate) async fn queues(&self) -> Outcome<Arc<Vec<QueueRecord>>> {
        Ok(self.0.queues.get(self.store().queues()).await?)
    }

    /// All workers, likewise.
    pub(crate) async fn workers(&self) -> Outcome<Arc<Vec<WorkerRecord>>> {
        Ok(self.0.workers.get(self.store().workers()).await?)
    }

    /// What was done in the last hour, day and week; made once of what was read once.
    pub(crate) async fn windows(&self) -> Outcome<Arc<Windows>> {
        let read = self.client().statistics().read(Period::All).await?;
        if let Some(ToldWindows { of, windows }) = &*self.0.windows.lock()
            && Arc::ptr_eq(of, &read.spans)
        {
            return Ok(Arc::clone(windows));
        }
        let windows = Arc::new(Windows::new(&read));
        let told = ToldWindows { of: read.spans, windows: Arc::clone(&windows) };
        *self.0.windows.lock() = Some(told);
        Ok(windows)
    }

    /// The names of queues and types that are known here.
    pub(crate) fn names(&self) -> &Names {
        &self.0.names
    }

    /// Leave to wait for the end of a task.
    pub(crate) fn wait(&self, caller: &Caller) -> Outcome<Share<u64>> {
        let number = self.0.wait_number.fetch_add(1, Ordering::Relaxed);
        self.0.waits.take(caller, number).map_err(|too_many| match too_many {
            TooMany::All => Problem::new(Slug::Overloaded, "too many requests wait for tasks"),
            TooMany::Token => {
                let text = "too many requests of this token wait for tasks";
                Problem::new(Slug::RateLimited, text).retry_after(Duration::from_secs(1))
            }
        })
    }

    /// Leave to listen with a filter. All who have the same share one.
    pub(crate) fn filter(
        &self,
        caller: &Caller,
        filter: &EventFilter,
    ) -> Outcome<Share<EventFilter>> {
        self.0.filters.take(caller, filter.clone()).map_err(|_| {
            let text =
                format!("this token listens with {FILTERS_OF_TOKEN_MAX} different filters already");
            Problem::new(Slug::RateLimited, text).retry_after(Duration::from_secs(1))
        })
    }

    /// The workers that reach the store through here.
    pub(crate) fn remote(&self) -> &Remote {
        &self.0.remote
    }

    /// The tokens of the store.
    pub(crate) fn keyring(&self) -> &Keyring {
        &self.0.keyring
    }

    /// Runs a change of its own, of which nobody waits for the end but the server when it stops.
    pub(crate) fn detach(&self, change: impl Future<Output = ()> + Send + 'static) {
        self.0.changes.spawn(change);
    }

    /// While this is there, the server waits for its end when it stops.
    pub(crate) fn presence(&self) -> TaskTrackerToken {
        self.0.changes.token()
    }

    /// Runs a change to its end, also when whoever waits for it is dropped.
    pub(crate) async fn to_its_end<T: Send + 'static>(
        &self,
        change: impl Future<Output = T> + Send + 'static,
    ) -> Outcome<T> {
        match self.0.changes.spawn(change).await {
            Ok(done) => Ok(done),
            Err(error) if error.is_panic() => {
                Err(Error::internal("a change panicked").because(error).into())
            }
            Err(_) => Err(Error::new(ErrorKind::Unavailable, "the runtime ended").into()),
        }
    }

    /// Every route there is.
    pub(crate) fn routes(&self) -> &[Route] {
        self.0.routes.get().map(|routes| &**routes).unwrap_or_default()
    }

    /// The OpenAPI document of this API.
    pub(crate) fn document(&self) -> Bytes {
        let make = || openapi::document(self.routes()).to_string().into();
        self.0.document.get_or_init(make).clone()
    }

    /// Leave to ping the store.
    pub(crate) fn pings(&self) -> &Arc<Semaphore> {
        &self.0.pings
    }
}

/// Runs a handler so that nothing it does can hurt others: a change goes on when its client has
/// gone, a panic is a problem like any other, and what went wrong is logged once.
async fn handle(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let request_id = request.extensions().get::<RequestId>().cloned();
    let (traced, began) = (traced(&request), Instant::now());
    let route = request.extensions().get::<MatchedPath>().cloned();
    let response = if routes::is_droppable(&method, &path) {
        let run = AssertUnwindSafe(next.run(request)).catch_unwind();
        run.instrument(traced.span()).await.unwrap_or_else(panicked)
    } else {
        // A client that hangs up drops this future, and a store call that is dropped half-way might
        // hold a transaction open. The seat stays taken, so that such changes cannot pile up.
        let seat = request.extensions().get::<Seat>().cloned();
        let run = async move {
            let response = next.run(request).await;
            drop(seat);
            response
        };
        match shared.0.changes.spawn(run.instrument(traced.span())).await {
            Ok(response) => response,
            Err(error) if error.is_panic() => panicked(error.into_panic()),
            Err(_) => Problem::from(Error::new(ErrorKind::Unavailable, "the runtime ended"))
                .into_response(),
        }
    };
    let status = response.status().as_u16();
    let request_id = request_id.as_ref().map_or("-", RequestId::as_str);
    // The engine has logged an outage of the store, once.
    if let Some(Cause(error)) = response.extensions().get().filter(|Cause(it)| !it.is_outage()) {
        let path = veiled(&path);
        tracing::error!(request_id, %method, %path, status, error = error.chain(), "request failed");
    }
    if tracing::enabled!(Level::DEBUG) {
        let error = response.extensions().get().map(|Cause(error)| error.chain());
        let duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        // The template, not the path: a client may have put a secret into that.
        let path = route.as_ref().map_or("-", MatchedPath::as_str);
        tracing::debug!(request_id, %method, path, status, duration_ms, error, "request");
    }
    traced.end(status);
    response
}

/// The span of a request that comes with a trace context.
fn traced(request: &Request) -> trace::Request {
    let context = request.headers().get(TRACEPARENT).and_then(|value| value.to_str().ok());
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    trace::Request::begin(request.method().as_str(), route, context)
}

fn panicked(panic: Box<dyn Any + Send>) -> Response {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = format!("a handler panicked: {}", text.unwrap_or("no text"));
    Problem::from(Error::internal(text)).into_response()
}

#[cfg(test)]
mod tests {
    use std::future;

    use axum::routing::get;
    use windlass_testkit::fleet;

    use super::*;

    async fn panics() {
        future::ready(()).await;
        panic!("secret");
    }

    async fn check(method: Method) {
        let app = App::new(Client::new(fleet::memory()));
        let handled = middleware::from_fn_with_state(app.shared.clone(), handle);
        let router = Router::new().route("/", get(panics).post(panics)).layer(handled);
        let app = App { router: router.with_state(app.shared.clone()), ..app };
        let (status, body) = app.call(method, "/", None).await;
        let body = String::from_utf8(body.to_vec()).unwrap();
        assert_eq!(status, 500);
        assert!(body.contains("/problems/internal") && !body.contains("secret"), "{body}");
    }

    #[tokio::test]
    async fn a_panic_is_a_problem_that_tells_nothing() {
        check(Method::GET).await;
        check(Method::POST).await;
    }
}
