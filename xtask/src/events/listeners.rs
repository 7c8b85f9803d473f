//! Clients that follow events over WebSockets, and what each of them has heard.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::StreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_tungstenite::client_async_with_config;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use windlass_core::Timestamp;

use super::submits::{Submits, percentiles};
use super::{QUIET, ids};
use crate::Result;

/// Connections that are opened at the same time.
const AT_ONCE: usize = 50;
/// How many of the last tasks must have been told although connections were cut before.
const LAST: usize = 100;

/// All clients.
pub(super) struct Crowd {
    all: Vec<Client>,
    filtered: Vec<Client>,
    _silent: Vec<TcpStream>,
}

/// One client that reads.
struct Client {
    heard: Arc<Mutex<Heard>>,
    reading: JoinHandle<()>,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

/// What one client has heard.
#[derive(Default)]
struct Heard {
    /// How far each task has come.
    tasks: HashMap<Box<str>, u8>,
    events: u64,
    out_of_order: u64,
    gaps: u64,
    has_ended: bool,
    delays_ms: Vec<f64>,
}

/// What all of them have heard.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) events: u64,
    /// Tasks that a client has not heard of to their end.
    pub(super) missing: u64,
    /// Of the last tasks.
    pub(super) last_missing: u64,
    /// Missing with a client that saw no gap.
    pub(super) unannounced: u64,
    pub(super) out_of_order: u64,
    pub(super) gaps: u64,
    /// Clients whose connection has ended.
    pub(super) lost: u64,
    pub(super) delay_ms: [f64; 3],
}

impl Crowd {
    pub(super) async fn gather(
        address: SocketAddr,
        all: usize,
        filtered: usize,
        silent: usize,
    ) -> Result<Self> {
        let query = format!("?subscribe=task.*&queue={QUIET}");
        Ok(Self {
            all: open_all(address, "?subscribe=*", all).await?,
            filtered: open_all(address, &query, filtered).await?,
            _silent: open_silent(address, silent).await?,
        })
    }

    /// Waits until everybody has heard everything, or for so long.
    pub(super) async fn settle(&self, submits: &Submits, at_most: Duration) -> Found {
        let end = Instant::now() + at_most;
        loop {
            let found = self.found(submits);
            if found.missing == 0 || Instant::now() >= end {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    fn found(&self, submits: &Submits) -> Found {
        let everything: Vec<_> = submits.ids.iter().map(|(id, _)| id.as_str()).collect();
        let quiet: Vec<_> = ids(submits, QUIET).into_iter().collect();
        let mut found = Found::default();
        let mut delays = Vec::new();
        let groups = [(&self.all, &everything), (&self.filtered, &quiet)];
        for (clients, wanted) in groups {
            for client in clients {
                let heard = client.heard.lock().expect("no client has panicked");
                let is_missing = |id: &&&str| heard.tasks.get(**id).copied().unwrap_or(0) < 3;
                let missing = wanted.iter().filter(is_missing).count() as u64;
                // Submits come in the order of connections: the last of each are the last.
                let last = wanted.iter().rev().take(LAST);
                found.last_missing += last.filter(is_missing).count() as u64;
                found.missing += missing;
                found.unannounced += if heard.gaps == 0 { missing } else { 0 };
                found.events += heard.events;
                found.out_of_order += heard.out_of_order;
                found.gaps += heard.gaps;
                found.lost += u64::from(heard.has_ended);
                delays.extend_from_slice(&heard.delays_ms);
            }
        }
        found.delay_ms = percentiles(delays);
        found
    }
}

async fn open_all(address: SocketAddr, query: &str, count: usize) -> Result<Vec<Client>> {
    let mut clients = Vec::with_capacity(count);
    while clients.len() < count {
        let these = (clients.len()..count.min(clients.len() + AT_ONCE)).map(|number| {
            // The delay of a few tells enough.
            tokio::spawn(open(address, query.to_owned(), number % 100 == 0))
        });
        for client in these.collect::<Vec<_>>() {
            clients.push(client.await??);
        }
    }
    Ok(clients)
}

async fn open(address: SocketAddr, query: String, is_timed: bool) -> Result<Client> {
    let stream = TcpStream::connect(address).await?;
    let config = WebSocketConfig::default().read_buffer_size(16 * 1024);
    let url = format!("ws://{address}/ws{query}");
    let (mut socket, _) = client_async_with_config(url, stream, Some(config)).await?;
    let heard = Arc::new(Mutex::new(Heard::default()));
    let hears = heard.clone();
    let reading = tokio::spawn(async move {
        while let Some(Ok(message)) = socket.next().await {
            if let Message::Text(text) = message {
                hears.lock().expect("nobody has panicked").hear(&text, is_timed);
            }
        }
        hears.lock().expect("nobody has panicked").has_ended = true;
    });
    Ok(Client { heard, reading })
}

/// Clients that shake hands and read nothing after that.
async fn open_silent(address: SocketAddr, count: usize) -> Result<Vec<TcpStream>> {
    let mut streams = Vec::new();
    for _ in 0..count {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!(
            "GET /ws HTTP/1.1\r\nhost: {address}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut first = [0; 12];
        stream.read_exact(&mut first).await?;
        if !first.ends_with(b"101") {
            return Err("a handshake was refused".into());
        }
        streams.push(stream);
    }
    Ok(streams)
}

impl Heard {
    fn hear(&mut self, event: &str, is_timed: bool) {
        self.events += 1;
        let stage = match field(event, "\"type\":\"") {
            Some("task.submitted") => 1,
            Some("task.started") => 2,
            Some("task.completed") => 3,
            Some("gap") => {
                self.gaps += 1;
                return;
            }
            _ => return,
        };
        let Some(id) = field(event, "\"task_id\":\"") else { return };
        let before = self.tasks.insert(id.into(), stage).unwrap_or(0);
        // After a gap a task may begin anywhere, but never go back.
        let is_fine = stage == before + 1 || (self.gaps > 0 && stage > before);
        self.out_of_order += u64::from(!is_fine);
        if is_timed && stage == 3 {
            self.delays_ms.extend(age_ms(event));
        }
    }
}

/// How long ago an event was.
fn age_ms(event: &str) -> Option<f64> {
    let at: Timestamp = field(event, "\"timestamp\":\"")?.parse().ok()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    Some(now.as_secs_f64() * 1e3 - at.as_millis() as f64)
}

/// What stands behind a name, up to the next quote: the texts that are looked for have none in them.
fn field<'a>(event: &'a str, name: &str) -> Option<&'a str> {
    event.split_once(name)?.1.split('"').next()
}
