//! Many connections that do nothing, and slow ones: others are served all the same.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use windlass_server::Bounds;
use windlass_testkit::faults::Method as Call;

use crate::support::{Server, bounds, parse, read_all};

#[tokio::test]
async fn more_connections_than_allowed_are_told_to_come_back() {
    let server = Server::start(Bounds { connections_max: 2, ..bounds() }).await;
    server.api.faults.hold(Call::List);
    let mut seated = Vec::new();
    for _ in 0..2 {
        let mut stream = server.connect().await;
        let request = b"GET /api/v1/tasks HTTP/1.1\r\nhost: localhost\r\n\r\n";
        let ((), sent) =
            tokio::join!(server.api.faults.called(Call::List), stream.write_all(request));
        sent.unwrap();
        seated.push(stream);
    }
    let (head, answer) = server.send("GET", "/healthz", "", "").await;
    answer.is_problem(503, "too-many-connections");
    assert!(head.contains("retry-after"), "{head}");
    // A flood of idle ones is refused or closed, and hurts nobody who is seated.
    let mut flood = Vec::new();
    for _ in 0..200 {
        flood.push(server.connect().await);
    }
    server.api.faults.release(Call::List);
    for mut seat in seated {
        let mut status = [0; 15];
        seat.read_exact(&mut status).await.unwrap();
        assert_eq!(&status, b"HTTP/1.1 200 OK");
    }
    drop(flood);
    server.stop().await;
}

#[tokio::test]
async fn who_is_idle_makes_room_for_who_asks_something() {
    let server = Server::start(Bounds { connections_max: 16, ..bounds() }).await;
    let mut idle = Vec::new();
    for round in 0..100 {
        let mut stream = server.connect().await;
        // Some say nothing, some do not finish, some were answered once.
        match round % 3 {
            0 => {}
            1 => stream.write_all(b"GET / HT").await.unwrap(),
            _ => ask(&mut stream).await,
        }
        idle.push(stream);
        server.send("GET", "/healthz", "", "").await.1.is(200);
    }
    // Those who came last are still there.
    let mut last = idle.pop().unwrap();
    last.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .await
        .unwrap();
    assert_eq!(parse(&read_all(&mut last).await).1.status, 200);
    assert_eq!(read_all(&mut idle[0]).await, "", "the first has made room");
    server.stop().await;
}

/// Asks something and reads the head of the answer.
async fn ask(stream: &mut TcpStream) {
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    stream.read_exact(&mut [0; 12]).await.unwrap();
}

#[tokio::test]
async fn hundreds_of_idle_connections_are_served_beside_and_closed_in_time() {
    let head_read = Duration::from_secs(2);
    let server = Server::start(Bounds { head_read, ..bounds() }).await;
    let mut idle = Vec::new();
    for _ in 0..400 {
        idle.push(server.connect().await);
    }
    for _ in 0..20 {
        server.send("GET", "/healthz", "", "").await.1.is(200);
    }
    for mut stream in idle {
        assert_eq!(read_all(&mut stream).await, "");
    }
    server.stop().await;
}

#[tokio::test]
async fn heads_and_bodies_that_come_byte_by_byte_are_bounded_as_a_whole() {
    let short = Duration::from_millis(300);
    let server = Server::start(Bounds { head_read: short, body_read: short, ..bounds() }).await;
    let head =
        "POST /api/v1/tasks HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    for (at_once, slowly) in [
        ("", format!("{head}content-length: 2\r\n\r\n{{}}")),
        (format!("{head}content-length: 9000\r\n\r\n").as_str(), " ".repeat(9_000)),
        (format!("{head}transfer-encoding: chunked\r\n\r\n").as_str(), "1\r\n \r\n".repeat(2_000)),
    ] {
        let (mut reading, mut writing) = server.connect().await.into_split();
        writing.write_all(at_once.as_bytes()).await.unwrap();
        let trickle = async {
            for byte in slowly.bytes() {
                if writing.write_all(&[byte]).await.is_err() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let mut text = Vec::new();
        // It is the server that ends this: the trickle would go on for half a minute and more.
        tokio::select! {
            _ = reading.read_to_end(&mut text) => {}
            () = trickle => panic!("nobody stopped it: {at_once}"),
        }
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(text.is_empty() || text.starts_with("HTTP/1.1 408"), "{text}");
    }
    server.stop().await;
}
