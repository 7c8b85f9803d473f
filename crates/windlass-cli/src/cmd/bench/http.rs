//! Mode `http`: connections that submit one task after the other to the API, which is served by this
//! very process, as a load generator and a server on one machine would be.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use windlass::core::{Error, ErrorKind, Result, Store};
use windlass_server::{App, Listener};

use super::Effort;
use super::report::{Percentiles, Report, per_second};
use super::scene::{KIND, Scene};
use crate::exit::Done;
use crate::table::grouped;

pub(super) async fn run(
    store: Arc<dyn Store>,
    connections: u32,
    effort: &Effort,
    report: &mut Report,
) -> Done {
    let scene = Scene::set(store, effort.payload_bytes).await?;
    let listener = Listener::bind(([127, 0, 0, 1], 0).into()).await?;
    let (address, stop) = (listener.address(), CancellationToken::new());
    let app = App::new(effort.client(scene.store()));
    let serving = tokio::spawn(listener.serve(app, stop.clone().cancelled_owned()));
    let payload = "x".repeat(effort.payload_bytes.saturating_sub(2));
    let body = json!({ "type": KIND, "queue": scene.queue(), "payload": payload }).to_string();
    let request = format!(
        "POST /api/v1/tasks HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    report.stage(&format!("{connections} connections"), 2);
    let left = Arc::new(AtomicU64::new(effort.tasks));
    let (start, mut submitters) = (Instant::now(), JoinSet::new());
    for _ in 0..connections {
        let submitter = Submitter {
            stream: BufReader::new(TcpStream::connect(address).await.map_err(failed)?),
            request: request.clone().into(),
            left: Arc::clone(&left),
            stop_at: start + effort.step,
        };
        submitters.spawn(submitter.run());
    }
    let mut calls = Vec::new();
    while let Some(ended) = submitters.join_next().await {
        let broken = |cause| Error::new(ErrorKind::Unavailable, "run a submitter").because(cause);
        calls.extend(ended.map_err(broken)??);
    }
    let took = start.elapsed();
    report.step();
    stop.cancel();
    serving.await.map_err(|cause| Error::internal("serve").because(cause))??;
    if effort.is_store_kept {
        scene.tidy().await?;
    }
    report.step();
    let tasks = calls.len() as u64;
    let latency = Percentiles::of(calls);
    report.row(
        &[
            ("connections", grouped(u64::from(connections))),
            ("tasks", grouped(tasks)),
            ("tasks/s", grouped(per_second(tasks, took))),
            ("p50 µs", grouped(latency.p50_us())),
            ("p95 µs", grouped(latency.p95_us())),
            ("p99 µs", grouped(latency.p99_us())),
        ],
        json!({
            "mode": "http",
            "tasks": tasks,
            "batch": 1,
            "concurrency": connections,
            "seconds": took.as_secs_f64(),
            "tasks_per_s": per_second(tasks, took),
            "latency_ms": latency.json(),
        }),
    )?;
    Ok(())
}

/// One connection.
struct Submitter {
    stream: BufReader<TcpStream>,
    request: Arc<str>,
    /// Tasks that nobody has submitted yet.
    left: Arc<AtomicU64>,
    stop_at: Instant,
}

impl Submitter {
    /// Submits until nothing is left or the time is over; answers how long each submit took.
    async fn run(mut self) -> Result<Vec<Duration>> {
        let mut calls = Vec::new();
        let take = |left: u64| left.checked_sub(1);
        while Instant::now() < self.stop_at
            && self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
        {
            let start = Instant::now();
            self.submit().await?;
            calls.push(start.elapsed());
        }
        Ok(calls)
    }

    async fn submit(&mut self) -> Result<()> {
        self.stream.write_all(self.request.as_bytes()).await.map_err(failed)?;
        let (mut line, mut length, mut is_created) = (String::new(), 0, false);
        loop {
            line.clear();
            self.stream.read_line(&mut line).await.map_err(failed)?;
            is_created |= line.starts_with("HTTP/1.1 201 ");
            match line.trim_end().split_once(':') {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.trim().parse().unwrap_or_default();
                }
                Some(_) => {}
                None if line.trim_end().is_empty() => break,
                None => {}
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await.map_err(failed)?;
        if is_created {
            return Ok(());
        }
        let text = format!("a submit was answered {}", String::from_utf8_lossy(&body));
        Err(Error::new(ErrorKind::Unavailable, text))
    }
}

fn failed(cause: std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "speak HTTP").because(cause)
}
