//! Clients that send and read slowly: they lose their own requests, and others are served.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full};
use hyper::client::conn::http2;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use windlass_server::Bounds;
use windlass_testkit::faults::Method as Call;

use crate::support::{Server, bounds, parse, read_all};

const HEAD: &str =
    "POST /api/v1/tasks/batch HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";

/// Begins a body of which this much was announced, and so much is sent.
async fn begin_body(server: &Server, announced: usize, sent: usize) -> TcpStream {
    let mut stream = server.connect().await;
    let head = format!("{HEAD}content-length: {announced}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&vec![b' '; sent]).await.unwrap();
    stream
}

/// Submits a task with a payload of so many bytes.
async fn submit(server: &Server, bytes: usize) -> u16 {
    let json = "content-type: application/json\r\n";
    let body = format!("{{\"payload\":\"{}\"}}", "x".repeat(bytes));
    server.send("POST", "/api/v1/tasks", json, &body).await.1.status
}

#[tokio::test]
async fn announced_bytes_take_no_memory_from_others() {
    let server = Server::start(bounds()).await;
    let mut slow = Vec::new();
    for _ in 0..8 {
        slow.push(begin_body(&server, 32 * 1024 * 1024, 20_000).await);
    }
    assert_eq!(submit(&server, 20_000).await, 201);
    assert_eq!(submit(&server, 900_000).await, 201);
    drop(slow);
    server.stop().await;
}

#[tokio::test]
async fn the_slowest_body_makes_room_for_one_that_comes() {
    let server = Server::start(Bounds { body_bytes_max: 256 * 1024, ..bounds() }).await;
    let mut slow = Vec::new();
    for _ in 0..8 {
        slow.push(begin_body(&server, 1024 * 1024, 25_000).await);
    }
    assert_eq!(submit(&server, 200_000).await, 201);
    let ended = slow.iter_mut().map(async |stream| {
        let mut status = [0; 12];
        stream.read_exact(&mut status).await.unwrap();
        assert_eq!(&status, b"HTTP/1.1 408");
    });
    // Some of them, whichever: a second large body drives out more.
    futures_util::future::select_all(ended.map(Box::pin)).await;
    server.stop().await;
}

#[tokio::test]
async fn a_body_below_the_least_rate_ends_before_its_time() {
    let body_window = Duration::from_millis(100);
    let server = Server::start(Bounds { body_window, ..bounds() }).await;
    let mut slow = begin_body(&server, 1024 * 1024, 100_000).await;
    parse(&read_all(&mut slow).await).1.is_problem(408, "request-timeout");
    // What is small may take its time.
    let mut small = begin_body(&server, 10, 2).await;
    tokio::time::sleep(body_window * 3).await;
    small.write_all(b"[]      ").await.unwrap();
    let mut status = [0; 12];
    small.read_exact(&mut status).await.unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");
    server.stop().await;
}

#[tokio::test]
async fn bodies_of_one_connection_share_its_part_of_the_memory() {
    let server = Server::start(Bounds { body_bytes_max: 1024 * 1024, ..bounds() }).await;
    let stream = TokioIo::new(server.connect().await);
    let (client, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    let batch = format!("[{{\"payload\":\"{}\"}}]", "x".repeat(200_000));
    let ask = async || {
        let request = Request::post("http://localhost/api/v1/tasks/batch")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(batch.clone())))
            .unwrap();
        client.clone().send_request(request).await.unwrap().status()
    };
    server.api.faults.hold(Call::Insert);
    let (first, (_, other), ()) = tokio::join!(
        ask(),
        server.send("POST", "/api/v1/tasks/batch", "content-type: application/json\r\n", &batch),
        async {
            server.api.faults.called(Call::Insert).await;
            let (second, third) = tokio::join!(ask(), ask());
            let refused = StatusCode::TOO_MANY_REQUESTS;
            assert!(second == refused && third == refused, "{second} {third}");
            server.api.faults.release(Call::Insert);
        }
    );
    assert_eq!((first, other.status), (StatusCode::OK, 200), "others have a part of their own");
    assert_eq!(ask().await, StatusCode::OK);
    server.stop().await;
}

#[tokio::test]
async fn a_batch_holds_its_memory_until_it_is_answered() {
    let server = Server::start(Bounds { body_bytes_max: 256 * 1024, ..bounds() }).await;
    let batch = format!("[{{\"payload\":\"{}\"}}]", "x".repeat(200_000));
    let json = "content-type: application/json\r\n";
    server.api.faults.hold(Call::Insert);
    let ((), (_, first), ()) = tokio::join!(
        server.api.faults.called(Call::Insert),
        server.send("POST", "/api/v1/tasks/batch", json, &batch),
        async {
            server.api.faults.called(Call::Insert).await;
            // The first is read and parsed, and the store has not answered.
            let (head, second) = server.send("POST", "/api/v1/tasks/batch", json, &batch).await;
            second.is_problem(503, "overloaded");
            assert!(head.contains("retry-after: 1"), "{head}");
            server.api.faults.release(Call::Insert);
        },
    );
    first.is(200);
    assert_eq!(server.send("POST", "/api/v1/tasks/batch", json, &batch).await.1.status, 200);
    server.stop().await;
}

/// A task whose record is a response of half a megabyte.
async fn large_task(server: &Server) -> String {
    let id = server.api.submit(&format!("{{\"payload\":\"{}\"}}", "x".repeat(500_000))).await;
    format!("/api/v1/tasks/{id}")
}

#[tokio::test]
async fn responses_that_nobody_reads_leave_memory_for_others() {
    let server = Server::start(Bounds { response_bytes_max: 16 * 1024 * 1024, ..bounds() }).await;
    let path = large_task(&server).await;
    // Several at once on a connection: the system's buffers have no room for them.
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n");
    let requests = format!("{request}\r\n").repeat(7) + &request + "connection: close\r\n\r\n";
    let mut slow = Vec::new();
    for _ in 0..60 {
        let mut stream = server.connect().await;
        stream.write_all(requests.as_bytes()).await.unwrap();
        slow.push(stream);
    }
    for _ in 0..5 {
        let (_, answer) = server.send("GET", &path, "", "").await;
        assert_eq!(answer.is(200)["payload"].as_str().unwrap().len(), 500_000);
    }
    // 60 responses do not fit: some of those who read nothing were cut off, or are told to come back.
    let mut whole = 0;
    for mut stream in slow {
        let text = read_all(&mut stream).await;
        whole += usize::from(text.matches("HTTP/1.1 200").count() == 8);
    }
    assert!(whole < 60, "nobody was cut off");
    server.stop().await;
}

#[tokio::test]
async fn responses_on_one_connection_share_its_part_of_the_memory() {
    let server = Server::start(Bounds { response_bytes_max: 16 * 1024 * 1024, ..bounds() }).await;
    let path = large_task(&server).await;
    let stream = TokioIo::new(server.connect().await);
    let (client, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(1_000)
        .handshake(stream)
        .await
        .unwrap();
    tokio::spawn(connection);
    let ask = async || {
        let request = Request::get(format!("http://localhost{path}"));
        let request = request.body(Empty::<Bytes>::new()).unwrap();
        client.clone().send_request(request).await.unwrap()
    };
    let answers = futures_util::future::join_all((0..50).map(|_| ask())).await;
    let count = |status| answers.iter().filter(|answer| answer.status() == status).count();
    let (given, refused) = (count(StatusCode::OK), count(StatusCode::TOO_MANY_REQUESTS));
    assert!((1..=8).contains(&given) && given + refused == 50, "{given} and {refused}");
    let (_, answer) = server.send("GET", &path, "", "").await;
    assert_eq!(answer.status, 200);
    // Who reads gets all of it, and room for the next.
    for answer in answers {
        let is_given = answer.status() == StatusCode::OK;
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body.len() > 500_000, is_given);
    }
    assert_eq!(ask().await.status(), StatusCode::OK);
    server.stop().await;
}
