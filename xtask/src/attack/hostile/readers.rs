//! Clients that ask for much and read little of it.

use std::io;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, sleep_until};

use super::{Seen, crowd};
use crate::Result;
use crate::attack::Target;
use crate::attack::http2::Http2;

/// Asks, and reads one byte a second until the time is over; answers the status of the first response.
async fn read_slowly(mut stream: TcpStream, request: &[u8], end: Instant) -> io::Result<u16> {
    stream.write_all(request).await?;
    let mut head = [0; 12];
    stream.read_exact(&mut head).await?;
    while Instant::now() < end {
        sleep(Duration::from_secs(1)).await;
        stream.read_u8().await?;
    }
    // What has arrived can still be read; a connection that was closed takes nothing more, though.
    stream.write_all(b"\r\n").await?;
    sleep(Duration::from_millis(50)).await;
    stream.write_all(b"\r\n").await?;
    let status = str::from_utf8(&head[9..]).ok().and_then(|status| status.parse().ok());
    status.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Large responses to so many connections, of which each asks several times.
async fn unread(target: &Target, request: &str, count: usize) -> Result<Seen> {
    let end = Instant::now() + target.time;
    let ended = crowd(target, count, |stream| read_slowly(stream, request.as_bytes(), end)).await?;
    let cut_off = super::failed(&ended);
    let of = |wanted: u16| ended.iter().flatten().filter(|status| **status == wanted).count();
    let (served, refused) = (of(200), of(429) + of(503));
    let figures = json!({ "connections": count, "cut_off": cut_off, "still_served": served, "refused": refused });
    Ok(Seen { is_fine: cut_off + refused > 0 && cut_off + refused + served == count, figures })
}

pub(super) async fn slow_readers(target: &Target) -> Result<Seen> {
    let request = format!("GET {} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n", target.large).repeat(4);
    unread(target, &request, 800).await
}

/// Nothing of a body may be sent, ever; then a byte of each at a time.
pub(super) async fn slow_streams(target: &Target) -> Result<Seen> {
    let end = Instant::now() + target.time;
    let ask = async |stream: TcpStream, window: u32| {
        let mut connection = Http2::begin(stream, window).await?;
        connection.get(&target.large, 100).await?;
        let answered = connection.answers(100, end).await;
        sleep_until(end).await;
        io::Result::Ok(answered)
    };
    let (none, one) = tokio::join!(
        crowd(target, 8, |stream| ask(stream, 0)),
        crowd(target, 8, |stream| ask(stream, 1))
    );
    let all: Vec<_> = none?.into_iter().chain(one?).flatten().collect();
    let (served, refused) =
        all.iter().fold((0, 0), |(ok, other), answered| (ok + answered.ok, other + answered.other));
    let figures =
        json!({ "connections": 16, "requests": 1_600, "served": served, "refused": refused });
    Ok(Seen { is_fine: served > 0 && served < 1_600, figures })
}

/// Lists of thousands of queues.
pub(super) async fn slow_lists(target: &Target) -> Result<Seen> {
    for round in 0..6 {
        let queue = |number: u32| json!({ "queue": format!("queue-of-a-list-{round}-{number}") });
        let batch = Value::Array((0..500).map(queue).collect()).to_string();
        target.client.post("/api/v1/tasks/batch", &batch).await?;
    }
    let request = "GET /api/v1/queues HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n";
    let listed = target.client.get("/api/v1/queues").await?.body.len();
    let mut seen = unread(target, request, 800).await?;
    seen.figures["list_bytes"] = listed.into();
    // What fits into memory is served; a name is not new for ever.
    seen.is_fine = seen.figures["connections"] == 800;
    Ok(seen)
}

/// Workers that lease as much as a lease may have, and read nothing of it.
pub(super) async fn slow_workers(target: &Target) -> Result<Seen> {
    let task = format!("{{\"queue\":\"lease\",\"payload\":\"{}\"}}", "z".repeat(1_000_000));
    let batch = format!("[{}]", vec![task; 16].join(","));
    for _ in 0..8 {
        let asked = (0..5).map(|_| target.client.post("/api/v1/tasks/batch", &batch));
        join_all(asked).await.into_iter().collect::<Result<Vec<_>>>()?;
    }
    let body = r#"{"queues":["lease"],"max":16}"#;
    let request = format!(
        "POST /api/v1/leases HTTP/1.1\r\nhost: 127.0.0.1\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    unread(target, &request, 40).await
}

/// Those who listen to events and read none, while very many happen.
pub(super) async fn slow_listeners(target: &Target) -> Result<Seen> {
    let end = Instant::now() + target.time;
    let stream = "GET /api/v1/events HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n";
    let socket = "GET /ws HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                  sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";
    let listen = |request: &'static str| {
        crowd(target, 300, move |mut connection: TcpStream| async move {
            connection.write_all(request.as_bytes()).await?;
            let mut head = [0; 12];
            connection.read_exact(&mut head).await?;
            sleep_until(end).await;
            Ok(head == *b"HTTP/1.1 200" || head == *b"HTTP/1.1 101")
        })
    };
    let tell = async {
        let batch = Value::Array(vec![json!({ "queue": "told" }); 500]).to_string();
        let mut told = 0;
        while Instant::now() < end {
            let answer = target.client.post("/api/v1/tasks/batch", &batch).await?;
            told += if answer.status == 200 { 500 } else { 0 };
        }
        let told: Result<u32> = Ok(told);
        told
    };
    let (streams, sockets, told) = tokio::join!(listen(stream), listen(socket), tell);
    let count = |all: Vec<io::Result<bool>>| all.into_iter().flatten().filter(|it| *it).count();
    let (streams, sockets) = (count(streams?), count(sockets?));
    let figures = json!({ "streams": streams, "sockets": sockets, "events": told? });
    Ok(Seen { is_fine: streams == 300 && sockets == 300, figures })
}
