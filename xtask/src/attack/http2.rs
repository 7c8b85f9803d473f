//! As much of a client of HTTP/2 as hostile ones need: requests by the frame, and how many were answered.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;
const END_STREAM_AND_HEADERS: u8 = 5;
/// `:status: 200` in the static table of HPACK.
const STATUS_200: u8 = 0x88;

/// A connection.
pub(super) struct Http2 {
    stream: TcpStream,
    last: u32,
}

/// How requests were answered.
#[derive(Default)]
pub(super) struct Answered {
    pub(super) ok: usize,
    pub(super) other: usize,
}

impl Http2 {
    /// Begins a connection on which so many bytes of each response may be sent.
    pub(super) async fn begin(mut stream: TcpStream, window: u32) -> io::Result<Self> {
        let mut bytes = PREFACE.to_vec();
        let [a, b, c, d] = window.to_be_bytes();
        bytes.extend(frame(SETTINGS, 0, 0, &[0, 4, a, b, c, d]));
        // The connection itself takes a lot.
        bytes.extend(frame(WINDOW_UPDATE, 0, 0, &0x3fff_0000_u32.to_be_bytes()));
        stream.write_all(&bytes).await?;
        Ok(Self { stream, last: 0 })
    }

    /// Asks so many times for the same, all at once.
    pub(super) async fn get(&mut self, path: &str, count: u32) -> io::Result<()> {
        let mut bytes = Vec::new();
        for _ in 0..count {
            let id = self.next_id();
            bytes.extend(frame(HEADERS, END_STREAM_AND_HEADERS, id, &head(path)));
        }
        self.stream.write_all(&bytes).await
    }

    /// Asks, and calls that off at once, so many times.
    pub(super) async fn get_and_reset(&mut self, path: &str, count: u32) -> io::Result<()> {
        let mut bytes = Vec::new();
        for _ in 0..count {
            let id = self.next_id();
            bytes.extend(frame(HEADERS, END_STREAM_AND_HEADERS, id, &head(path)));
            bytes.extend(frame(RST_STREAM, 0, id, &8_u32.to_be_bytes()));
        }
        self.stream.write_all(&bytes).await
    }

    fn next_id(&mut self) -> u32 {
        let id = 2 * self.last + 1;
        self.last += 1;
        id
    }

    /// Reads until so many requests are answered, the server closes, or the time is over.
    pub(super) async fn answers(&mut self, count: usize, until: Instant) -> Answered {
        let mut answered = Answered::default();
        while answered.ok + answered.other < count {
            let Ok(Ok((kind, flags, payload))) = timeout_at(until, self.read_frame()).await else {
                break;
            };
            match kind {
                HEADERS if status_of(&payload) == Some(STATUS_200) => answered.ok += 1,
                HEADERS => answered.other += 1,
                PING if flags & ACK == 0 => {
                    let _ = self.stream.write_all(&frame(PING, ACK, 0, &payload)).await;
                }
                _ => {}
            }
        }
        answered
    }

    /// True when the server has closed the connection.
    pub(super) async fn is_closed(&mut self, until: Instant) -> bool {
        loop {
            match timeout_at(until, self.read_frame()).await {
                Ok(Ok(_)) => {}
                Ok(Err(_)) => return true,
                Err(_) => return false,
            }
        }
    }

    async fn read_frame(&mut self) -> io::Result<(u8, u8, Vec<u8>)> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).await?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        self.stream.read_exact(&mut payload).await?;
        Ok((head[3], head[4], payload))
    }
}

/// The first field of a block, which is the status; before it the size of a table may be told.
fn status_of(block: &[u8]) -> Option<u8> {
    block.iter().copied().find(|byte| byte & 0xe0 != 0x20)
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// The head of a GET, in the plainest form that HPACK has.
fn head(path: &str) -> Vec<u8> {
    let mut block = vec![0x82, 0x86, 0x04, u8::try_from(path.len()).unwrap_or_default()];
    block.extend(path.as_bytes());
    block.extend([0x01, 9]);
    block.extend(b"127.0.0.1");
    block
}
