//! Live events as clients get them: over WebSockets and as server-sent events.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::handshake::client::Response;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};
use windlass_server::Bounds;

use crate::support::{Server, bounds, token};

const SOON: Duration = Duration::from_secs(20);

struct Socket(WebSocketStream<TcpStream>);

/// Opens a WebSocket with these headers.
async fn try_open(
    server: &Server,
    stream: TcpStream,
    query: &str,
    headers: &[(&'static str, String)],
) -> Result<(Socket, Response), Error> {
    let url = format!("ws://{}/ws{query}", server.address);
    let mut request = url.into_client_request().unwrap();
    for (name, value) in headers {
        request.headers_mut().append(*name, value.parse().unwrap());
    }
    let (socket, response) = client_async(request, stream).await?;
    Ok((Socket(socket), response))
}

async fn open(server: &Server, query: &str) -> Socket {
    try_open(server, server.connect().await, query, &[]).await.unwrap().0
}

async fn status(server: &Server, headers: &[(&'static str, String)]) -> u16 {
    match try_open(server, server.connect().await, "", headers).await {
        Ok(_) => 101,
        Err(Error::Http(response)) => response.status().as_u16(),
        Err(error) => panic!("{error}"),
    }
}

impl Socket {
    async fn message(&mut self) -> Message {
        loop {
            let message = timeout(SOON, self.0.next()).await.expect("something comes in time");
            match message.expect("it has not ended").unwrap() {
                Message::Ping(_) | Message::Pong(_) => {}
                message => return message,
            }
        }
    }

    async fn event(&mut self) -> Value {
        let message = self.message().await;
        serde_json::from_str(message.to_text().unwrap()).unwrap()
    }

    /// The names of the next events, with their queues.
    async fn events(&mut self, count: usize) -> Vec<(String, String)> {
        let mut events = Vec::new();
        for _ in 0..count {
            let event = self.event().await;
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            events.push((text(&event["type"]), text(&event["data"]["queue"])));
        }
        events
    }

    async fn say(&mut self, message: &str) {
        self.0.send(Message::text(message)).await.unwrap();
    }

    /// How the server ends it.
    async fn end(&mut self) -> CloseFrame {
        loop {
            if let Message::Close(frame) = self.message().await {
                return frame.unwrap();
            }
        }
    }
}

fn told(kind: &str, queue: &str) -> (String, String) {
    (format!("task.{kind}"), queue.to_owned())
}

#[tokio::test]
async fn a_socket_tells_what_happens_and_what_its_client_wants_of_it() {
    let server = Server::start(Bounds::default()).await;
    let mut all = open(&server, "?subscribe=task.*").await;
    let mut mail = open(&server, "?subscribe=task.submitted,task.cancelled&queue=mail").await;
    let mut kind = open(&server, "?type=b").await;
    let api = &server.api;
    let id = api.submit(r#"{"type":"a","queue":"mail"}"#).await;
    api.submit(r#"{"type":"b","queue":"other"}"#).await;
    api.post(&format!("/tasks/{id}/cancel"), "").await.is(200);
    let first = all.event().await;
    assert_eq!(first["type"], "task.submitted");
    assert_eq!(first["data"]["task_id"], id);
    assert_eq!(
        (&first["data"]["type"], &first["data"]["priority"]),
        (&json!("a"), &json!("normal"))
    );
    assert!(first["timestamp"].as_str().unwrap().ends_with('Z') && first["id"].is_string());
    assert_eq!(all.events(2).await, [told("submitted", "other"), told("cancelled", "mail")]);
    assert_eq!(mail.events(2).await, [told("submitted", "mail"), told("cancelled", "mail")]);
    assert_eq!(kind.events(1).await, [told("submitted", "other")]);
    server.stop().await;
}

#[tokio::test]
async fn a_worker_over_http_is_told_when_it_joins_obeys_and_leaves() {
    let server = Server::start(Bounds::default()).await;
    let mut socket = open(&server, "?subscribe=worker.*").await;
    let api = &server.api;
    api.submit(r#"{"queue":"q"}"#).await;
    let ask = json!({"worker": {"name": "far", "slots": 3}, "queues": ["q"], "max": 1});
    let leased = api.post("/leases", &ask.to_string()).await.is(200);
    let id = leased["worker"]["id"].as_str().unwrap();
    let joined = socket.event().await;
    assert_eq!(joined["type"], "worker.joined");
    let data = &joined["data"];
    assert_eq!((&data["worker_id"], &data["slots"]), (&json!(id), &json!(3)), "{data}");
    let task = &leased["tasks"][0];
    let done = json!({"id": task["id"], "epoch": task["epoch"], "outcome": "completed"});
    let done = json!({"worker_id": id, "results": [done]}).to_string();
    api.post("/results", &done).await.is(200);
    // Another server, which has not heard of it before, may speak for it.
    let (again, other) = (json!({"worker": {"id": id}, "queues": ["q"], "max": 1}), api.another());
    for (order, kind) in [("pause", "worker.paused"), ("resume", "worker.resumed")] {
        api.post(&format!("/workers/{id}/{order}"), "").await.is(200);
        other.post("/leases", &again.to_string()).await.is(200);
        let told = socket.event().await;
        assert_eq!((&told["type"], &told["data"]["name"]), (&json!(kind), &json!("far")));
    }
    other.delete(&format!("/workers/{id}")).await.is(200);
    assert_eq!(socket.event().await["type"], "worker.left");
    server.stop().await;
}

#[tokio::test]
async fn a_client_may_want_something_else_at_any_time_and_what_it_missed() {
    let server = Server::start(Bounds::default()).await;
    let mut socket = open(&server, "?queue=none").await;
    let api = &server.api;
    socket.say(r#"{"subscribe":["task.*"],"queue":"mail"}"#).await;
    // It is known to be heard when an event comes.
    let mut heard = tokio::spawn(async move { (socket.events(1).await, socket) });
    let (events, mut socket) = loop {
        api.submit(r#"{"queue":"other"}"#).await;
        api.submit(r#"{"queue":"mail"}"#).await;
        if let Ok(heard) = timeout(Duration::from_millis(50), &mut heard).await {
            break heard.unwrap();
        }
    };
    assert_eq!(events, [told("submitted", "mail")]);
    let mut other = open(&server, "?subscribe=task.submitted").await;
    api.submit(r#"{"queue":"mail"}"#).await;
    api.submit(r#"{"queue":"mail"}"#).await;
    let first = other.event().await;
    let id = first["id"].as_str().unwrap();
    let mut again = open(&server, &format!("?since={id}&subscribe=task.*")).await;
    assert_eq!(again.events(1).await, [told("submitted", "mail")]);
    again.say(&json!({"since": id, "queue": "mail"}).to_string()).await;
    assert_eq!(again.events(1).await, [told("submitted", "mail")], "once more, as it asked for");
    let mut late = open(&server, "?since=elsewhere-7").await;
    assert_eq!(late.event().await["type"], "gap");
    socket.say(r#"{"subscribe":["task.odd"]}"#).await;
    let end = socket.end().await;
    assert_eq!(u16::from(end.code), 1008);
    assert!(end.reason.contains("task.odd"), "{end:?}");
    server.stop().await;
}

#[tokio::test]
async fn what_is_no_wish_ends_the_conversation() {
    let server = Server::start(Bounds::default()).await;
    for (message, code) in [
        (Message::text("hello"), 1008),
        (Message::text(r#"{"filter":1}"#), 1008),
        (Message::binary(vec![1, 2, 3]), 1003),
        (Message::text("x".repeat(5_000)), 1009),
        (Message::Frame(Frame::message(vec![0xff], OpCode::Data(Data::Text), true)), 1007),
        (Message::Frame(Frame::message(vec![0], OpCode::Data(Data::Continue), true)), 1002),
    ] {
        let mut socket = open(&server, "?queue=none").await;
        socket.0.send(message).await.unwrap();
        assert_eq!(u16::from(socket.end().await.code), code);
    }
    // A goodbye is answered.
    let mut socket = open(&server, "?queue=none").await;
    let goodbye = CloseFrame { code: 1000.into(), reason: "".into() };
    socket.0.send(Message::Close(Some(goodbye))).await.unwrap();
    assert_eq!(u16::from(socket.end().await.code), 1000);
    let (_, answer) = server.send("GET", "/ws", "", "").await;
    answer.is_problem(426, "upgrade-required");
    for query in ["subscribe=odd", "since=1&since=2", "colour=red", "for=x"] {
        let (_, answer) = server.send("GET", &format!("/api/v1/events?{query}"), "", "").await;
        answer.is_problem(422, "invalid-request");
    }
    server.stop().await;
}

#[tokio::test]
async fn pages_of_other_sites_open_no_socket() {
    let server = Server::start(Bounds::default()).await;
    let own = format!("http://{}", server.address);
    for (name, value, expected) in [
        ("origin", "https://evil.test".to_owned(), 403),
        ("origin", "null".to_owned(), 403),
        ("sec-fetch-site", "cross-site".to_owned(), 403),
        ("origin", own, 101),
    ] {
        assert_eq!(status(&server, &[(name, value.clone())]).await, expected, "{name}: {value}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_token_opens_a_socket_and_shows_its_own_queues_only() {
    let server = Server::start(Bounds::default()).await;
    let api = &server.api;
    let wish = json!({"name": "m", "scopes": ["read"], "queues": ["mine*"]});
    let mine = token(api, wish).await;
    let submits = token(api, json!({"name": "s", "scopes": ["submit"]})).await;
    let protocol = |token: &str| ("sec-websocket-protocol", format!("windlass, bearer.{token}"));
    assert_eq!(status(&server, &[]).await, 401);
    assert_eq!(status(&server, &[protocol("wl_odd")]).await, 401);
    assert_eq!(status(&server, &[protocol(&submits)]).await, 403);
    let both = [protocol(&mine), ("authorization", format!("Bearer {submits}"))];
    assert_eq!(status(&server, &both).await, 401, "two tokens");
    let stream = server.connect().await;
    let (mut socket, response) = try_open(&server, stream, "", &[protocol(&mine)]).await.unwrap();
    assert_eq!(response.headers()["sec-websocket-protocol"], "windlass");
    api.submit(r#"{"queue":"other"}"#).await;
    api.post("/queues/other/pause", "").await.is(200);
    api.submit(r#"{"queue":"mine.1"}"#).await;
    assert_eq!(socket.events(1).await, [told("submitted", "mine.1")]);
    let depth = socket.events(1).await;
    assert_eq!(depth, [("queue.depth".to_owned(), "mine.1".to_owned())]);
    socket.say(r#"{"queue":"other"}"#).await;
    assert_eq!(u16::from(socket.end().await.code), 1008, "not its queue");
    server.stop().await;
}

#[tokio::test]
async fn a_token_that_is_revoked_ends_its_sockets_and_streams() {
    let server = Server::start(Bounds::default()).await;
    let api = &server.api;
    let token = token(api, json!({"name": "t", "scopes": ["read"]})).await;
    let bearer = [("authorization", format!("Bearer {token}"))];
    let stream = server.connect().await;
    let mut socket = try_open(&server, stream, "?queue=none", &bearer).await.unwrap().0;
    let header = format!("authorization: Bearer {token}\r\n");
    let stream = server.send("GET", "/api/v1/events?queue=none", &header, "");
    let revoke = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let id = token.split('_').nth(1).unwrap();
        api.delete(&format!("/tokens/{id}")).await.is(200);
    };
    let ended = async { tokio::join!(stream, socket.end(), revoke) };
    let ((_, stream), end, ()) = timeout(Duration::from_secs(6), ended).await.unwrap();
    assert_eq!((stream.status, u16::from(end.code)), (200, 1008));
    server.stop().await;
}

#[tokio::test]
async fn a_server_that_stops_says_so_to_all_who_listen() {
    let server = Server::start(Bounds::default()).await;
    let mut socket = open(&server, "").await;
    let mut stream = server.connect().await;
    let head = format!("GET /api/v1/events HTTP/1.1\r\nhost: {}\r\n\r\n", server.address);
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut first = [0; 15];
    stream.read_exact(&mut first).await.unwrap();
    let serving = server.stop_soon();
    assert_eq!(u16::from(socket.end().await.code), 1001);
    drop(socket);
    let mut rest = Vec::new();
    timeout(SOON, stream.read_to_end(&mut rest)).await.unwrap().unwrap();
    timeout(SOON, serving).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_stream_tells_the_same_and_goes_on_after_the_last_event_seen() {
    let server = Server::start(Bounds::default()).await;
    let path = "/api/v1/events?subscribe=task.*&for=2s";
    let submits = async {
        // After the second that the first to listen waits for.
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        server.api.submit(r#"{"queue":"a"}"#).await;
        server.api.submit(r#"{"queue":"b"}"#).await;
    };
    let ((head, answer), ()) = tokio::join!(server.send("GET", path, "", ""), submits);
    assert!(head.contains("content-type: text/event-stream"), "{head}");
    let events: Vec<_> =
        answer.text.split("\n\n").filter(|part| part.contains("data: {")).collect();
    assert_eq!(events.len(), 2, "{}", answer.text);
    let line = events[0].lines().find_map(|line| line.strip_prefix("id: ")).unwrap();
    let data = events[0].lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
    let event: Value = serde_json::from_str(data).unwrap();
    assert_eq!((&event["id"], &event["data"]["queue"]), (&json!(line), &json!("a")));
    let header = format!("last-event-id: {line}\r\n");
    let again = async |header: &str| {
        server.send("GET", "/api/v1/events?subscribe=task.*&for=0s", header, "").await.1.text
    };
    let rest = again(&header).await;
    assert!(rest.contains(r#""queue":"b""#) && !rest.contains(r#""queue":"a""#), "{rest}");
    // Who was told nothing yet can go on from where it began.
    let begun = answer.text.lines().find_map(|line| line.strip_prefix("id: ")).unwrap();
    assert_ne!(begun, line);
    let rest = again(&format!("last-event-id: {begun}\r\n")).await;
    assert!(rest.contains(r#""queue":"a""#) && rest.contains(r#""queue":"b""#), "{rest}");
    let rest = again("last-event-id: odd\r\n").await;
    assert!(rest.contains(r#""type":"gap""#), "{rest}");
    server.stop().await;
}

#[tokio::test]
async fn who_takes_nothing_is_cut_and_hurts_nobody() {
    let server = Server::start(Bounds { write_stall: Duration::from_secs(1), ..bounds() }).await;
    let lazy = TcpSocket::new_v4().unwrap();
    lazy.set_recv_buffer_size(4_096).unwrap();
    let lazy = lazy.connect(server.address).await.unwrap();
    let (mut lazy, _) = try_open(&server, lazy, "", &[]).await.unwrap();
    let mut lively = open(&server, "?subscribe=task.*").await;
    let (tasks, rounds) = (1_000, 30);
    let batch = vec![json!({"queue": "q".repeat(100), "type": "t".repeat(100)}); tasks];
    let batch = json!(batch).to_string();
    for _ in 0..rounds {
        server.api.post("/tasks/batch", &batch).await.is(200);
        let events = lively.events(tasks).await;
        assert!(events.iter().all(|(kind, _)| kind == "task.submitted"));
    }
    let end = async {
        // What it finds in its buffers, and then an end without a goodbye.
        tokio::time::sleep(Duration::from_secs(3)).await;
        while let Some(Ok(_)) = lazy.0.next().await {}
    };
    timeout(SOON, end).await.expect("it was cut");
    server.stop().await;
}

#[tokio::test]
async fn a_socket_keeps_its_seat_and_is_not_idle() {
    let bounds = Bounds { connections_max: 8, head_read: Duration::from_millis(300), ..bounds() };
    let server = Server::start(bounds).await;
    let mut sockets = Vec::new();
    for _ in 0..8 {
        sockets.push(open(&server, "?subscribe=task.*").await);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (_, answer) = server.send("GET", "/healthz", "", "").await;
    answer.is_problem(503, "too-many-connections");
    server.api.submit("{}").await;
    for socket in &mut sockets {
        assert_eq!(socket.events(1).await, [told("submitted", "default")]);
    }
    sockets.clear();
    server.stop().await;
}
