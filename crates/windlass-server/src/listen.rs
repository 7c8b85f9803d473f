//! The socket: who may connect, how many at once, how slow they may be, and how it ends.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use windlass_core::{Error, ErrorKind, Result};

use crate::access::Arrival;
use crate::app::App;
use crate::guard;
use crate::patience::Patient;

/// Largest head of a request; hyper answers 431 to more.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Connections over the limit that are told so at the same time; more are just closed.
const REFUSALS_MAX: usize = 64;
/// How long a connection is kept open to tell it that there are too many.
const REFUSAL_TIME: Duration = Duration::from_secs(1);
/// After a failed accept, which most often means that no file descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const TOO_MANY: &str = concat!(
    "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\n",
    "retry-after: 1\r\nconnection: close\r\n\r\n",
    r#"{"type":"/problems/too-many-connections","title":"There are too many connections","#,
    r#""status":503,"detail":"there are too many connections; try again"}"#
);

/// How many clients at once, and how slow they may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Connections at a time; more are told to come back later.
    pub connections_max: usize,
    /// How long the head of a request may take, also to begin: an idle connection is closed.
    pub head_read: Duration,
    /// How long the body of a request may take.
    pub body_read: Duration,
    /// How long a client may take nothing of its answer.
    pub write_stall: Duration,
    /// How long requests in flight may go on after the server was told to stop.
    pub stop: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections_max: 1_024,
            head_read: Duration::from_secs(10),
            body_read: Duration::from_secs(30),
            write_stall: Duration::from_secs(30),
            stop: Duration::from_secs(10),
        }
    }
}

/// The place of one connection among those allowed; kept as long as anyone works for it.
pub(crate) type Seat = Arc<OwnedSemaphorePermit>;

/// Rides on requests: waits end early when the server stops.
#[derive(Debug, Clone)]
pub(crate) struct Stopping(pub(crate) CancellationToken);

/// Who can reach a socket, and what keeps strangers out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposure {
    /// Whoever is on this machine; a token is asked for as soon as there is one in the store.
    Loopback,
    /// Whoever is on the network; a token is always asked for, and without one in the store nothing is served.
    Tokens,
    /// Whoever is on the network; a token is asked for as soon as there is one in the store.
    Insecure,
}

impl Exposure {
    pub(crate) fn arrival(self) -> Arrival {
        match self {
            Self::Loopback | Self::Insecure => Arrival::Open,
            Self::Tokens => Arrival::Closed,
        }
    }
}

/// A bound socket.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    exposure: Exposure,
    bounds: Bounds,
}

impl Listener {
    /// Binds an address. Elsewhere than on loopback tokens are asked for.
    pub async fn bind(address: SocketAddr) -> Result<Self> {
        let failed = |cause| {
            Error::new(ErrorKind::Unavailable, format!("listen on {address}")).because(cause)
        };
        let socket = TcpListener::bind(address).await.map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        let is_loopback = address.ip().is_loopback();
        let exposure = if is_loopback { Exposure::Loopback } else { Exposure::Tokens };
        Ok(Self { socket, address, exposure, bounds: Bounds::default() })
    }

    /// The address, with the port that was given where none was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// With bounds of its own.
    #[must_use]
    pub fn bounds(self, bounds: Bounds) -> Self {
        Self { bounds, ..self }
    }

    /// Serves whoever can reach it, also while there is no token.
    #[must_use]
    pub fn insecure(self) -> Self {
        Self { exposure: Exposure::Insecure, ..self }
    }

    /// Refuses to serve strangers without a token in the store.
    pub async fn check(&self, app: &App) -> Result<()> {
        if self.exposure != Exposure::Tokens || app.keyring().has_token().await? {
            return Ok(());
        }
        let text = format!(
            "listen on {}: there is no access token in the store, so everybody on the network could do \
             everything; make one with `windlass token create` first, or say --insecure",
            self.address
        );
        Err(Error::invalid(text))
    }

    /// Serves until `stop` ends; then accepts nobody, lets requests in flight end, and returns.
    pub async fn serve(self, app: App, stop: impl Future<Output = ()> + Send) -> Result<()> {
        self.check(&app).await?;
        let Self { socket, bounds, exposure, .. } = self;
        let seats = Arc::new(Semaphore::new(bounds.connections_max));
        let refusals = Arc::new(Semaphore::new(REFUSALS_MAX));
        let (graceful, stopping) = (GracefulShutdown::new(), CancellationToken::new());
        let mut connections = JoinSet::new();
        let mut stop = pin!(stop);
        loop {
            let accepted = tokio::select! {
                accepted = socket.accept() => accepted,
                Some(_) = connections.join_next() => continue,
                () = &mut stop => break,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    survive(&error).await;
                    continue;
                }
            };
            if let Ok(seat) = seats.clone().try_acquire_owned() {
                let guest = Guest { app: app.clone(), seat: Arc::new(seat), exposure, bounds };
                let connection = guest.talk(stream, &graceful, Stopping(stopping.clone()));
                connections.spawn(connection);
            } else if let Ok(leave) = refusals.clone().try_acquire_owned() {
                connections.spawn(refuse(stream, leave));
            }
        }
        drop(socket);
        stopping.cancel();
        let ended = async {
            graceful.shutdown().await;
            app.settled().await;
        };
        if tokio::time::timeout(bounds.stop, ended).await.is_err() {
            tracing::warn!("requests were cut off after {:?}", bounds.stop);
        }
        connections.shutdown().await;
        Ok(())
    }
}

/// One client, and what it may do.
struct Guest {
    app: App,
    seat: Seat,
    exposure: Exposure,
    bounds: Bounds,
}

impl Guest {
    fn talk(
        self,
        stream: TcpStream,
        graceful: &GracefulShutdown,
        stopping: Stopping,
    ) -> impl Future<Output = ()> + Send + use<> {
        let Self { app, seat, exposure, bounds } = self;
        // Answers are written whole; to wait for more would only delay them.
        let _ = stream.set_nodelay(true);
        let service = service_fn(move |request: hyper::Request<Incoming>| {
            let (app, mut request) = (app.clone(), Request::map(request, Body::new));
            let extensions = request.extensions_mut();
            extensions.insert(bounds);
            extensions.insert(Seat::clone(&seat));
            extensions.insert(stopping.clone());
            async move { Ok::<_, Infallible>(guard::answer(&app, exposure, request).await) }
        });
        let connection = http1::Builder::new()
            // Without a timer the header timeout is silently off.
            .timer(TokioTimer::new())
            .header_read_timeout(bounds.head_read)
            .max_buf_size(HEAD_BYTES_MAX)
            .serve_connection(TokioIo::new(Patient::new(stream, bounds.write_stall)), service);
        let connection = graceful.watch(connection);
        async move {
            if let Err(error) = connection.await {
                tracing::debug!(error = %error, "a connection ended early");
            }
        }
    }
}

/// Tells a client that there are too many, and takes what it sends meanwhile: closing over unread
/// bytes would reset the connection before the answer is read.
async fn refuse(mut stream: TcpStream, leave: OwnedSemaphorePermit) {
    let tell = async {
        stream.write_all(TOO_MANY.as_bytes()).await?;
        stream.shutdown().await?;
        let mut ignored = [0; 4096];
        while stream.read(&mut ignored).await? > 0 {}
        io::Result::Ok(())
    };
    let _ = tokio::time::timeout(REFUSAL_TIME, tell).await;
    drop(leave);
}

/// Goes on after an accept that failed; when it was for want of something, after a while.
async fn survive(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    if matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
    {
        return;
    }
    tracing::error!(error = %error, "cannot accept connections; trying again");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}
