//! Submits at a steady rate over HTTP, each timed.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::{BUSY, QUIET, QUIET_RATE};
use crate::Result;

/// Connections that submit by turns.
const CONNECTIONS: u32 = 20;

/// What was submitted.
#[derive(Default)]
pub(super) struct Submits {
    /// The id of each task, and its queue.
    pub(super) ids: Vec<(String, &'static str)>,
    pub(super) times: Vec<Duration>,
    pub(super) failed: u64,
}

impl Submits {
    /// The percentiles 50, 95 and 99, in ms.
    pub(super) fn percentiles(&self) -> [f64; 3] {
        percentiles(self.times.iter().map(Duration::as_secs_f64).map(|time| time * 1e3).collect())
    }
}

/// The percentiles 50, 95 and 99.
pub(super) fn percentiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [0.5, 0.95, 0.99].map(|share| {
        let at = (values.len() as f64 * share) as usize;
        let value = values.get(at.min(values.len().saturating_sub(1))).copied();
        (value.unwrap_or(f64::NAN) * 100.0).round() / 100.0
    })
}

/// Submits so many tasks a second, some of them into the quiet queue.
pub(super) async fn run(address: SocketAddr, rate: u32, time: Duration) -> Result<Submits> {
    let began = Instant::now();
    let turns = (0..CONNECTIONS).map(|turn| tokio::spawn(submit(address, rate, turn, began, time)));
    let mut all = Submits::default();
    for turn in turns.collect::<Vec<_>>() {
        let one = turn.await??;
        all.ids.extend(one.ids);
        all.times.extend(one.times);
        all.failed += one.failed;
    }
    Ok(all)
}

async fn submit(
    address: SocketAddr,
    rate: u32,
    turn: u32,
    began: Instant,
    time: Duration,
) -> Result<Submits> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut all = Submits::default();
    for number in (turn..).step_by(CONNECTIONS as usize) {
        let due = Duration::from_secs_f64(f64::from(number) / f64::from(rate));
        if due >= time {
            return Ok(all);
        }
        tokio::time::sleep_until(began + due).await;
        // Spread evenly: so many of each second's.
        let queue = if number % (rate / QUIET_RATE).max(1) == 0 { QUIET } else { BUSY };
        let sent = Instant::now();
        match ask(&mut stream, address, queue).await {
            Ok(Some(id)) => {
                all.times.push(sent.elapsed());
                all.ids.push((id, queue));
            }
            Ok(None) => all.failed += 1,
            Err(_) => {
                all.failed += 1;
                stream = TcpStream::connect(address).await?;
            }
        }
    }
    Ok(all)
}

/// Submits one task; answers its id.
async fn ask(stream: &mut TcpStream, address: SocketAddr, queue: &str) -> Result<Option<String>> {
    let body = format!(r#"{{"type":"noop","queue":"{queue}","payload":{{"a":1}}}}"#);
    let length = body.len();
    let request = format!(
        "POST /api/v1/tasks HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    let head = loop {
        if stream.read_buf(&mut answer).await? == 0 {
            return Err("the server has hung up".into());
        }
        if let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
    };
    let text = String::from_utf8_lossy(&answer[..head]).to_lowercase();
    let length = text.split("content-length: ").nth(1).and_then(|rest| rest.split('\r').next());
    let length: usize = length.ok_or("an answer without a length")?.parse()?;
    while answer.len() < head + length {
        if stream.read_buf(&mut answer).await? == 0 {
            return Err("the server has hung up".into());
        }
    }
    if !text.starts_with("http/1.1 201") {
        return Ok(None);
    }
    let task: serde_json::Value = serde_json::from_slice(&answer[head..])?;
    Ok(task["id"].as_str().map(str::to_owned))
}
