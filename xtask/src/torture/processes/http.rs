//! A small HTTP client that can tell three things apart: never sent, sent without an answer, answered.
//!
//! That difference is what the audit lives on, and what clients made for convenience hide: they
//! connect, send and retry in one call.

use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

/// A server that is paused keeps connections open and says nothing.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// No answer of the API to one task is larger.
const BODY_BYTES_MAX: usize = 4 << 20;

/// Where the server is at present; 0 while nobody knows.
#[derive(Debug, Clone, Default)]
pub(super) struct Port(Arc<AtomicU16>);

impl Port {
    pub(super) fn set(&self, port: u16) {
        self.0.store(port, Ordering::SeqCst);
    }

    fn get(&self) -> Option<u16> {
        Some(self.0.load(Ordering::SeqCst)).filter(|port| *port != 0)
    }
}

/// What became of a call.
#[derive(Debug)]
pub(super) enum Answer {
    /// Not a byte has left.
    Unsent,
    /// It may or may not have happened.
    Ambiguous,
    Said {
        status: u16,
        body: Vec<u8>,
    },
}

/// One request.
pub(super) struct Request<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    pub(super) body: &'a [u8],
}

/// One keep-alive connection, made anew when it is gone or the server has moved.
pub(super) struct Client {
    server: Port,
    connection: Option<(u16, BufReader<TcpStream>)>,
}

impl Client {
    pub(super) fn new(server: Port) -> Self {
        Self { server, connection: None }
    }

    /// Connects, and only then has `announce` write down what is about to be sent.
    pub(super) fn call(&mut self, request: &Request<'_>, announce: impl FnOnce()) -> Answer {
        let Some(mut connection) = self.connect() else { return Answer::Unsent };
        announce();
        match exchange(&mut connection.1, request) {
            Ok(Reply { status, body, is_last }) => {
                self.connection = Some(connection).filter(|_| !is_last);
                Answer::Said { status, body }
            }
            Err(_) => Answer::Ambiguous,
        }
    }

    fn connect(&mut self) -> Option<(u16, BufReader<TcpStream>)> {
        let port = self.server.get()?;
        if let Some(connection) = self.connection.take_if(|(its, _)| *its == port) {
            return Some(connection);
        }
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
        stream.set_read_timeout(Some(ANSWER_WITHIN)).ok()?;
        stream.set_write_timeout(Some(ANSWER_WITHIN)).ok()?;
        stream.set_nodelay(true).ok()?;
        Some((port, BufReader::new(stream)))
    }
}

struct Reply {
    status: u16,
    body: Vec<u8>,
    is_last: bool,
}

fn exchange(connection: &mut BufReader<TcpStream>, request: &Request<'_>) -> Result<Reply> {
    let Request { method, path, body } = request;
    let length = body.len();
    let mut bytes = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n{}\r\n",
        if body.is_empty() { "" } else { "content-type: application/json\r\n" },
    )
    .into_bytes();
    bytes.extend_from_slice(body);
    connection.get_mut().write_all(&bytes)?;
    read_reply(connection)
}

fn read_reply(connection: &mut impl BufRead) -> Result<Reply> {
    let broken = || Error::from(ErrorKind::InvalidData);
    let first = read_line(connection)?;
    let status = first.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or_else(broken)?;
    let (mut length, mut is_last) = (None, false);
    loop {
        let line = read_line(connection)?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').ok_or_else(broken)?;
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            length = value.parse().ok();
        } else if name.eq_ignore_ascii_case("connection") {
            is_last = value.eq_ignore_ascii_case("close");
        }
    }
    let length = length.filter(|length| *length <= BODY_BYTES_MAX).ok_or_else(broken)?;
    let mut body = vec![0; length];
    connection.read_exact(&mut body)?;
    Ok(Reply { status, body, is_last })
}

/// A line without its end; the end of the stream is an error, since an answer never ends there.
fn read_line(connection: &mut impl BufRead) -> Result<String> {
    let mut line = String::new();
    if connection.take(64 * 1024).read_line(&mut line)? == 0 || !line.ends_with('\n') {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    line.truncate(line.trim_end().len());
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Reply> {
        read_reply(&mut text.as_bytes())
    }

    #[test]
    fn an_answer_is_read() {
        let reply = read("HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}rest").unwrap();
        assert_eq!((reply.status, reply.body.as_slice(), reply.is_last), (201, &b"{}"[..], false));
        let reply =
            read("HTTP/1.1 503 No\r\nconnection: Close\r\ncontent-length: 0\r\n\r\n").unwrap();
        assert_eq!((reply.status, reply.is_last), (503, true));
    }

    #[test]
    fn an_answer_that_was_cut_off_is_none() {
        let whole = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
        for end in 0..whole.len() {
            assert!(read(&whole[..end]).is_err(), "{:?}", &whole[..end]);
        }
        assert!(read(whole).is_ok());
    }

    #[test]
    fn nothing_is_announced_that_cannot_be_sent() {
        let mut client = Client::new(Port::default());
        let request = Request { method: "GET", path: "/", body: b"" };
        let answer = client.call(&request, || panic!("announced"));
        assert!(matches!(answer, Answer::Unsent));
    }
}
