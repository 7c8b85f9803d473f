//! A TCP proxy between a store and its server, through which a test spoils connections: cut, refused,
//! stopped in one direction, slow, or cut after the server has done what it was asked and before
//! anybody hears of it.
//!
//! It knows nothing of what is said on the connections. Nothing is left of it when it is dropped.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

/// An answer is over when the server has said nothing for so long.
const QUIET: Duration = Duration::from_millis(50);
/// Longest that an ambush waits for its prey.
const AMBUSH_MAX: Duration = Duration::from_secs(60);

/// How bytes get through in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// As they come.
    Free,
    /// Not at all, while connections look healthy.
    Stopped,
    /// At most so many at once, each piece after a pause.
    Slow {
        /// `usize::MAX` for a mere delay, 1 for a trickle.
        piece_bytes: usize,
        /// Before each piece.
        pause: Duration,
    },
}

/// The direction of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the client to the server.
    Requests,
    /// From the server to the client.
    Answers,
}

/// Passes connections on to a server; closes them all when dropped.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

struct Shared {
    server_port: u16,
    rules: watch::Sender<Rules>,
    ambush: Mutex<Option<Armed>>,
}

#[derive(Debug, Clone, Copy)]
struct Rules {
    is_refusing: bool,
    requests: Flow,
    answers: Flow,
    /// Grows with each cut; a connection lives as long as it stands still.
    cuts: u64,
}

impl Rules {
    const fn flow(&self, way: Way) -> Flow {
        match way {
            Way::Requests => self.requests,
            Way::Answers => self.answers,
        }
    }
}

/// A trap that no request has sprung yet.
struct Armed {
    needle: Vec<u8>,
    /// So many that it lets pass before.
    spared: usize,
    sprung: oneshot::Sender<()>,
}

/// A trap that was set with [`Proxy::ambush`].
pub struct Ambush(oneshot::Receiver<()>);

impl Ambush {
    /// Waits until a request was answered by the server, its answer dropped and its connection cut.
    pub async fn sprung(self) {
        let sprung = tokio::time::timeout(AMBUSH_MAX, self.0).await;
        sprung.expect("a request that springs the ambush").expect("the proxy is still there");
    }
}

impl Proxy {
    /// Starts to listen on a free port of 127.0.0.1 for a server on another.
    pub async fn start(server_port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let rules =
            Rules { is_refusing: false, requests: Flow::Free, answers: Flow::Free, cuts: 0 };
        let rules = watch::Sender::new(rules);
        let shared = Arc::new(Shared { server_port, rules, ambush: Mutex::default() });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self { port, shared, accepting }
    }

    /// Where it listens.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Cuts all connections that there are.
    pub fn cut(&self) {
        self.shared.rules.send_modify(|rules| rules.cuts += 1);
    }

    /// Closes each new connection at once, or lets them through again.
    pub fn refuse(&self, is_refusing: bool) {
        self.shared.rules.send_modify(|rules| rules.is_refusing = is_refusing);
    }

    /// Lets bytes through in this way, on all connections, also those to come.
    pub fn flow(&self, way: Way, flow: Flow) {
        self.shared.rules.send_modify(|rules| match way {
            Way::Requests => rules.requests = flow,
            Way::Answers => rules.answers = flow,
        });
    }

    /// Lies in wait for the next request that contains these bytes (any, if there are none): the
    /// request gets through, the server answers, the answer is dropped and the connection cut. Other
    /// connections are left alone.
    pub fn ambush(&self, needle: &[u8]) -> Ambush {
        self.arm(needle, 0)
    }

    /// The same for a request of any sort, after so many others. What is read at once counts as one.
    pub fn ambush_after(&self, spared: usize) -> Ambush {
        self.arm(&[], spared)
    }

    fn arm(&self, needle: &[u8], spared: usize) -> Ambush {
        let (sprung, wait) = oneshot::channel();
        *self.shared.ambush.lock() = Some(Armed { needle: needle.to_vec(), spared, sprung });
        Ambush(wait)
    }

    /// Gives an ambush up; true when nobody has walked into it.
    pub fn call_off(&self) -> bool {
        self.shared.ambush.lock().take().is_some()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.refuse(true);
        self.cut();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // A client that gives up between its connect and our accept is no reason to stop.
    loop {
        if let Ok((client, _)) = listener.accept().await {
            let rules = shared.rules.subscribe();
            let cuts = rules.borrow().cuts;
            tokio::spawn(carry(client, Arc::clone(&shared), rules, cuts));
        }
    }
}

/// One connection, until either side ends it or it is cut.
async fn carry(
    client: TcpStream,
    shared: Arc<Shared>,
    mut rules: watch::Receiver<Rules>,
    cuts: u64,
) {
    if rules.borrow().is_refusing {
        return;
    }
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, shared.server_port)).await else {
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let fate = Fate { shared, doom: Mutex::default() };
    let pump = |way, from, to| Pump { way, from, to, rules: rules.clone(), fate: &fate };
    let requests = pump(Way::Requests, from_client, to_server);
    let answers = pump(Way::Answers, from_server, to_client);
    tokio::select! {
        _ = async { tokio::try_join!(requests.run(), answers.run()) } => {}
        _ = rules.wait_for(|rules| rules.cuts != cuts) => {}
    }
}

/// What both directions of a connection know of its end.
struct Fate {
    shared: Arc<Shared>,
    /// Set when a request has walked into the ambush: whom to tell when its answer was dropped.
    doom: Mutex<Option<oneshot::Sender<()>>>,
}

impl Fate {
    /// Looks whether a request walks into the ambush.
    fn watch(&self, request: &[u8]) {
        let mut ambush = self.shared.ambush.lock();
        let Some(armed) = ambush.as_mut().filter(|armed| contains(request, &armed.needle)) else {
            return;
        };
        if armed.spared > 0 {
            armed.spared -= 1;
        } else if let Some(armed) = ambush.take() {
            *self.doom.lock() = Some(armed.sprung);
        }
    }
}

fn contains(bytes: &[u8], needle: &[u8]) -> bool {
    needle.is_empty() || bytes.windows(needle.len()).any(|window| window == needle)
}

/// One direction of a connection.
struct Pump<'f> {
    way: Way,
    from: OwnedReadHalf,
    to: OwnedWriteHalf,
    rules: watch::Receiver<Rules>,
    fate: &'f Fate,
}

impl Pump<'_> {
    /// Carries bytes to the end of the stream; an error ends the whole connection.
    async fn run(mut self) -> io::Result<()> {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let way = self.way;
            let is_open = |rules: &Rules| rules.flow(way) != Flow::Stopped;
            self.rules.wait_for(is_open).await.map_err(io::Error::other)?;
            let count = tokio::select! {
                // First: what was stopped must not let through what came a moment later.
                biased;
                _ = self.rules.changed() => continue,
                count = self.from.read(&mut buffer) => count?,
            };
            if count == 0 {
                return self.to.shutdown().await;
            }
            let bytes = &buffer[..count];
            match way {
                Way::Requests => self.fate.watch(bytes),
                Way::Answers => {
                    let doom = self.fate.doom.lock().take();
                    if let Some(sprung) = doom {
                        self.swallow_the_rest().await;
                        let _ = sprung.send(());
                        return Err(io::ErrorKind::ConnectionAborted.into());
                    }
                }
            }
            self.send(bytes).await?;
        }
    }

    async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let flow = self.rules.borrow().flow(self.way);
        let Flow::Slow { piece_bytes, pause } = flow else {
            return self.to.write_all(bytes).await;
        };
        for piece in bytes.chunks(piece_bytes) {
            tokio::time::sleep(pause).await;
            self.to.write_all(piece).await?;
        }
        Ok(())
    }

    /// Reads until the server has nothing more to say.
    async fn swallow_the_rest(&mut self) {
        let mut buffer = [0; 4096];
        while let Ok(Ok(1..)) = tokio::time::timeout(QUIET, self.from.read(&mut buffer)).await {}
    }
}

#[cfg(test)]
mod tests;
