//! HTTP/2, spoken well by a client and badly by hand.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use windlass_server::Bounds;
use windlass_testkit::faults::Method as Call;

use crate::support::{Server, bounds};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// The head of a request without a body, in the plainest form that HPACK has.
fn head(method: u8, path: &str) -> Vec<u8> {
    let mut block = vec![method, 0x86, 0x04, u8::try_from(path.len()).unwrap()];
    block.extend(path.as_bytes());
    block.extend([0x01, 9]);
    block.extend(b"localhost");
    block
}

/// `:method` in HPACK.
const GET: u8 = 0x82;
const POST: u8 = 0x83;

/// A request, called off right away.
fn called_off(number: u32, method: u8, path: &str) -> Vec<u8> {
    let stream = 2 * number + 1;
    let mut bytes = frame(HEADERS, END_HEADERS | END_STREAM, stream, &head(method, path));
    bytes.extend(frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
    bytes
}

async fn greet(server: &Server, settings: &[u8]) -> TcpStream {
    let mut stream = server.connect().await;
    stream.write_all(PREFACE).await.unwrap();
    stream.write_all(&frame(SETTINGS, 0, 0, settings)).await.unwrap();
    stream
}

/// Reads until the server closes the connection.
async fn read_to_its_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut bytes));
    // A reset is an end like any other.
    let _ = read.await.expect("it is closed by the server");
    bytes
}

async fn answered(server: &Server) {
    server.send("GET", "/healthz", "", "").await.1.is(200);
}

#[tokio::test]
async fn http2_is_spoken_without_tls() {
    let server = Server::start(bounds()).await;
    let stream = TokioIo::new(server.connect().await);
    let (mut client, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    let mut ask = async |authority: &str, path: &str| {
        let uri = format!("http://{authority}{path}");
        let request = Request::get(uri).body(Empty::<Bytes>::new()).unwrap();
        let answer = client.send_request(request).await.unwrap();
        let (head, body) = answer.into_parts();
        (head, body.collect().await.unwrap().to_bytes())
    };
    let (head, body) = ask("localhost", "/healthz").await;
    assert_eq!(head.status, StatusCode::OK);
    assert!(head.headers.contains_key("x-request-id") && !body.is_empty());
    assert_eq!(ask("evil.test", "/healthz").await.0.status, StatusCode::FORBIDDEN);
    let payload = "x".repeat(500_000);
    let id = server.api.submit(&format!("{{\"payload\":\"{payload}\"}}")).await;
    let (_, body) = ask("localhost", &format!("/api/v1/tasks/{id}")).await;
    assert!(body.len() > payload.len(), "a large answer comes whole: {}", body.len());
    server.stop().await;
}

#[tokio::test]
async fn requests_that_are_called_off_at_once_end_the_connection_and_hurt_nobody() {
    let server = Server::start(bounds()).await;
    let mut stream = greet(&server, &[]).await;
    for number in 0..20_000 {
        if stream.write_all(&called_off(number, GET, "/api/v1/tasks")).await.is_err() {
            break;
        }
    }
    answered(&server).await;
    let told = read_to_its_end(&mut stream).await;
    assert!(!told.is_empty());
    answered(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn changes_that_are_called_off_cannot_pile_up() {
    let server = Server::start(bounds()).await;
    server.api.faults.hold(Call::Order);
    let mut stream = greet(&server, &[]).await;
    for number in 0..150 {
        let text = called_off(number, POST, "/api/v1/queues/q/pause?create=true");
        let (head, reset) = text.split_at(text.len() - 13);
        // Each is begun before it is called off, as long as any more is begun.
        if number < 100 {
            let begun = server.api.faults.called(Call::Order);
            let ((), sent) = tokio::join!(begun, stream.write_all(head));
            sent.unwrap();
        } else {
            stream.write_all(head).await.unwrap();
            answered(&server).await;
        }
        stream.write_all(reset).await.unwrap();
    }
    answered(&server).await;
    assert_eq!(server.api.faults.calls(Call::Order), 100, "so many and no more are under way");
    server.api.faults.release(Call::Order);
    drop(stream);
    server.stop().await;
}

#[tokio::test]
async fn an_idle_connection_is_closed_whatever_it_has_said() {
    let server = Server::start(Bounds { head_read: Duration::from_millis(100), ..bounds() }).await;
    read_to_its_end(&mut greet(&server, &[]).await).await;
    for said in [&PREFACE[..5], PREFACE] {
        let mut stream = server.connect().await;
        stream.write_all(said).await.unwrap();
        read_to_its_end(&mut stream).await;
    }
    // A head that does not end.
    let mut stream = greet(&server, &[]).await;
    stream.write_all(&frame(HEADERS, 0, 1, &head(GET, "/healthz"))).await.unwrap();
    read_to_its_end(&mut stream).await;
    server.stop().await;
}

#[tokio::test]
async fn an_answer_that_its_client_leaves_no_room_for_ends_the_connection() {
    let write_stall = Duration::from_millis(100);
    let server = Server::start(Bounds { connections_max: 1, write_stall, ..bounds() }).await;
    let payload = "x".repeat(1_000_000);
    let id = server.api.submit(&format!("{{\"payload\":\"{payload}\"}}")).await;
    let path = format!("/api/v1/tasks/{id}");
    // SETTINGS_INITIAL_WINDOW_SIZE: so many bytes of a body may be sent, and the rest never.
    for window in [0, 1, 40_000_u32] {
        let mut settings = vec![0, 4];
        settings.extend(window.to_be_bytes());
        let mut stream = greet(&server, &settings).await;
        for stream_id in [1, 3, 5] {
            let request = frame(HEADERS, END_HEADERS | END_STREAM, stream_id, &head(GET, &path));
            stream.write_all(&request).await.unwrap();
        }
        read_to_its_end(&mut stream).await;
    }
    server.stop().await;
}
