//! Very many at once.

use std::io;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::{Seen, crowd};
use crate::Result;
use crate::attack::Target;
use crate::attack::client::Answer;
use crate::attack::http2::Http2;

/// Requests at once on a connection.
const STREAMS: u32 = 100;

/// Leases that never send the id they were given: of an empty queue, and of one with tasks.
pub(super) async fn leases_without_id(target: &Target) -> Result<Seen> {
    let (calls, tasks) = (2_000, 40);
    for _ in 0..tasks {
        target.client.submit(&json!({ "queue": "some" })).await?;
    }
    let (mut failed, mut leased) = (0, 0);
    for round in 0..calls / 20 {
        let some = r#"{"queues":["some"]}"#;
        let body = if round < 2 { some } else { r#"{"queues":["nothing"]}"# };
        let asked = (0..20).map(|_| target.client.post("/api/v1/leases", body));
        let answers = join_all(asked).await;
        let count = |answer: &Result<Answer>| {
            let answer = answer.as_ref().ok().filter(|answer| answer.status == 200)?;
            let leased: Value = serde_json::from_str(&answer.body).ok()?;
            Some(leased["tasks"].as_array().map_or(0, Vec::len))
        };
        failed += answers.iter().filter(|answer| count(answer).is_none()).count();
        leased += answers.iter().filter_map(count).sum::<usize>();
    }
    let workers: Value = serde_json::from_str(&target.client.get("/api/v1/workers").await?.body)?;
    let workers = workers["data"].as_array().map_or(0, Vec::len);
    let figures =
        json!({ "calls": calls, "failed": failed, "tasks_leased": leased, "workers": workers });
    // Those that got a task hold it; one more holds a task all the while.
    Ok(Seen { is_fine: failed == 0 && leased == tasks && workers <= tasks + 21, figures })
}

/// Thousands that wait for a task that never ends, a hundred on each connection.
pub(super) async fn waits(target: &Target) -> Result<Seen> {
    let seconds = target.time.as_secs().min(20);
    let path = format!("{}?wait={seconds}s", target.endless);
    let end = Instant::now() + Duration::from_secs(seconds + 30);
    let ended = crowd(target, 40, async |stream: TcpStream| {
        let mut connection = Http2::begin(stream, 65_535).await?;
        connection.get(&path, STREAMS).await?;
        io::Result::Ok(connection.answers(STREAMS as usize, end).await)
    });
    let ended: Vec<_> = ended.await?.into_iter().flatten().collect();
    let waited: usize = ended.iter().map(|answered| answered.ok).sum();
    let refused: usize = ended.iter().map(|answered| answered.other).sum();
    let figures = json!({ "waits": 4_000, "waited": waited, "refused": refused });
    Ok(Seen { is_fine: waited >= 1_000 && refused > 0 && waited + refused == 4_000, figures })
}

/// Requests that are called off as soon as they were made (CVE-2023-44487), on one connection after the other.
pub(super) async fn resets(target: &Target) -> Result<Seen> {
    let end = Instant::now() + target.time;
    let reset = async |stream: TcpStream| {
        let (mut stream, mut connections, mut closed) = (Some(stream), 0, 0);
        while Instant::now() < end {
            let stream = match stream.take() {
                Some(stream) => stream,
                None => target.client.connect().await?,
            };
            let mut connection = Http2::begin(stream, 65_535).await?;
            // A server that has had enough takes no more.
            let _ = connection.get_and_reset(&target.large, 1_000).await;
            connections += 1;
            let patience = Instant::now() + Duration::from_secs(2);
            closed += u32::from(connection.is_closed(patience).await);
        }
        io::Result::Ok((connections, closed))
    };
    let ended: Vec<_> = crowd(target, 8, reset).await?.into_iter().flatten().collect();
    let connections: u32 = ended.iter().map(|(connections, _)| connections).sum();
    let closed: u32 = ended.iter().map(|(_, closed)| closed).sum();
    let figures = json!({ "connections": connections, "closed": closed });
    Ok(Seen { is_fine: connections > 0 && closed == connections, figures })
}
