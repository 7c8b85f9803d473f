//! The socket: who may connect, how many at once, how slow they may be, and how it ends.

mod answer;
mod crowd;
mod guest;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use windlass_core::{Error, ErrorKind, Result};

use crate::access::Arrival;
use crate::app::App;
use crate::guard::{Hosts, Reached};
use crate::tls::Tls;
use guest::{Guest, House};

/// Connections that wait to be accepted: whoever finds this full tries again after a second.
const BACKLOG: u32 = 4_096;
/// Bytes of responses that the system takes for each connection before anybody has read them; it doubles this.
const SEND_BUFFER_BYTES: u32 = 128 * 1024;
/// When fewer than one of so many seats are free, idle connections are asked to leave.
const FREE_SHARE: usize = 8;
/// How long a connection waits for the seat of one that was asked to leave.
const SEAT_PATIENCE: Duration = Duration::from_secs(1);
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
    /// Over which time a body that is not small has to keep to the least rate.
    pub body_window: Duration,
    /// Memory of all bodies that are not small, in bytes.
    pub body_bytes_max: usize,
    /// Over which time a response has to keep to the least rate.
    pub write_stall: Duration,
    /// How long a response of a known size may take to leave.
    pub response_time: Duration,
    /// Memory of all responses that are not small, in bytes.
    pub response_bytes_max: usize,
    /// The least rate of bodies and responses, in bytes per second.
    pub rate_min: usize,
    /// How long requests in flight may go on after the server was told to stop.
    pub stop: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections_max: 12_000,
            head_read: Duration::from_secs(10),
            body_read: Duration::from_secs(30),
            body_window: Duration::from_secs(5),
            body_bytes_max: 256 * 1024 * 1024,
            write_stall: Duration::from_secs(30),
            response_time: Duration::from_secs(300),
            response_bytes_max: 256 * 1024 * 1024,
            rate_min: 8 * 1024,
            stop: Duration::from_secs(10),
        }
    }
}

impl Bounds {
    /// How many bytes have to move within this time, at least.
    pub(crate) fn bytes_in(&self, time: Duration) -> usize {
        let millis = usize::try_from(time.as_millis()).unwrap_or(usize::MAX);
        self.rate_min.saturating_mul(millis) / 1_000
    }
}

/// The place of one connection among those allowed, and of one request of several on it; kept as long as anyone
/// works for it.
#[derive(Debug, Clone)]
pub(crate) struct Seat {
    _connection: Arc<OwnedSemaphorePermit>,
    _request: Arc<[OwnedSemaphorePermit]>,
}

impl Seat {
    fn new(connection: Arc<OwnedSemaphorePermit>, request: Vec<OwnedSemaphorePermit>) -> Self {
        Self { _connection: connection, _request: request.into() }
    }
}

/// Rides on requests: waits end early when the server stops.
#[derive(Debug, Clone, Default)]
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
    hosts: Hosts,
    tls: Option<Tls>,
}

impl Listener {
    /// Binds an address. Elsewhere than on loopback tokens are asked for.
    pub async fn bind(address: SocketAddr) -> Result<Self> {
        let failed = |cause| {
            Error::new(ErrorKind::Unavailable, format!("listen on {address}")).because(cause)
        };
        let socket = open(address).map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        let is_loopback = address.ip().is_loopback();
        let exposure = if is_loopback { Exposure::Loopback } else { Exposure::Tokens };
        let (bounds, hosts) = Default::default();
        Ok(Self { socket, address, exposure, bounds, hosts, tls: None })
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

    /// Reached under these names besides, with commas between them; `*` is any. While no token is asked for, a
    /// request to another name is refused: a web page could have its own name lead here.
    #[must_use]
    pub fn hosts(self, names: &str) -> Self {
        Self { hosts: Hosts::new(names), ..self }
    }

    /// Speaks TLS.
    #[must_use]
    pub fn tls(self, tls: Tls) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// Where it is reached.
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Serves whoever can reach it, also while there is no token.
    #[must_use]
    pub fn insecure(self) -> Self {
        Self { exposure: Exposure::Insecure, ..self }
    }

    /// Refuses to serve strangers without a token in the store.
    pub async fn check(&self, app: &App) -> Result<()> {
        match self.exposure {
            // Those that there are should be known before the store goes away.
            Exposure::Loopback | Exposure::Insecure => {
                app.keyring().renew().await;
                return Ok(());
            }
            Exposure::Tokens if app.keyring().has_token().await? => return Ok(()),
            Exposure::Tokens => {}
        }
        let text = format!(
            "listen on {}: there is no access token in the store, so everybody on the network would be \
             served; make one with `windlass token create` first, or say --insecure",
            self.address
        );
        Err(Error::invalid(text))
    }

    /// Serves until `stop` ends; then accepts nobody, lets requests in flight end, and returns.
    pub async fn serve(self, app: App, stop: impl Future<Output = ()> + Send) -> Result<()> {
        self.check(&app).await?;
        let Self { socket, bounds, exposure, hosts, tls, .. } = self;
        let house = Arc::new(House::new(app, Reached { exposure, hosts }, bounds, tls));
        let _renewal = house.tls.as_ref().map(Tls::renew);
        let door = Door {
            seats: Arc::new(Semaphore::new(bounds.connections_max)),
            refusals: Arc::new(Semaphore::new(REFUSALS_MAX)),
            house: house.clone(),
        };
        let mut connections = JoinSet::new();
        let mut stop = pin!(stop);
        loop {
            let accepted = tokio::select! {
                accepted = socket.accept() => accepted,
                Some(_) = connections.join_next() => continue,
                () = &mut stop => break,
            };
            match accepted {
                Ok((stream, _)) => door.let_in(stream, &mut connections),
                Err(error) => survive(&error).await,
            }
        }
        drop(socket);
        house.stopping.0.cancel();
        let ended = async {
            while connections.join_next().await.is_some() {}
            house.app.settled().await;
        };
        if tokio::time::timeout(bounds.stop, ended).await.is_err() {
            tracing::warn!(after = ?bounds.stop, "requests were cut off");
        }
        connections.shutdown().await;
        Ok(())
    }
}

/// Who comes in.
struct Door {
    seats: Arc<Semaphore>,
    refusals: Arc<Semaphore>,
    house: Arc<House>,
}

impl Door {
    fn let_in(&self, stream: TcpStream, connections: &mut JoinSet<()>) {
        let seat = self.seats.clone().try_acquire_owned();
        let is_crowded =
            self.seats.available_permits() < self.house.bounds.connections_max / FREE_SHARE;
        let will_be_free = (is_crowded || seat.is_err()) && self.house.crowd.thin_out();
        let guest = |house, seat| Guest { house, seat: Arc::new(seat) };
        let house = self.house.clone();
        if let Ok(seat) = seat {
            connections.spawn(guest(house, seat).talk(stream));
        } else if let Ok(leave) = self.refusals.clone().try_acquire_owned() {
            let seats = self.seats.clone();
            connections.spawn(async move {
                let patience = if will_be_free { SEAT_PATIENCE } else { Duration::ZERO };
                match tokio::time::timeout(patience, seats.acquire_owned()).await {
                    Ok(Ok(seat)) => {
                        drop(leave);
                        guest(house, seat).talk(stream).await;
                    }
                    // There is no telling in plain text to who expects TLS.
                    _ if house.tls.is_some() => {}
                    _ => refuse(stream, leave).await,
                }
            });
        }
    }
}

/// A socket that listens.
fn open(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Else a port could not be taken again for a minute after a server on it has ended.
    socket.set_reuseaddr(true)?;
    // What lies in the system's buffers is in no budget, and hides for as long how slow a client is.
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
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
