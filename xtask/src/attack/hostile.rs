//! What hostile clients do.

use std::future::Future;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use super::{Attack, Target};
use crate::Result;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What was seen of an attack, and whether the server did what it should.
pub(super) struct Seen {
    pub(super) is_fine: bool,
    pub(super) figures: Value,
}

pub(super) async fn run(attack: Attack, target: &Target) -> Result<Seen> {
    match attack {
        Attack::SlowBodies => slow_bodies(target).await,
        Attack::SlowReaders => slow_readers(target).await,
        Attack::SlowStreams => slow_streams(target).await,
        Attack::LargeBatches => large_batches(target).await,
        Attack::HostileNames => hostile_names(target).await,
        Attack::Rebinding => rebinding(target).await,
        Attack::LeasesWithoutId => leases_without_id(target).await,
        Attack::Waits => waits(target).await,
    }
}

/// Has so many connections do the same at once, until the time is over.
async fn crowd<F>(target: &Target, count: usize, each: impl Fn(TcpStream) -> F) -> Result<Seen>
where
    F: Future<Output = std::io::Result<()>>,
{
    let mut streams = Vec::new();
    for _ in 0..count {
        streams.push(target.client.connect().await?);
    }
    let ended = join_all(streams.into_iter().map(each)).await;
    let cut_off = ended.iter().filter(|ended| ended.is_err()).count();
    Ok(Seen { is_fine: true, figures: json!({ "connections": count, "cut_off": cut_off }) })
}

async fn slow_bodies(target: &Target) -> Result<Seen> {
    let end = Instant::now() + target.time;
    crowd(target, 64, async |mut stream| {
        let head = "POST /api/v1/tasks/batch HTTP/1.1\r\nhost: 127.0.0.1\r\n\
                    content-type: application/json\r\ncontent-length: 33554432\r\n\r\n";
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(&[b' '; 20_000]).await?;
        while Instant::now() < end {
            stream.write_all(&[b' '; 1_000]).await?;
            sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    })
    .await
}

async fn slow_readers(target: &Target) -> Result<Seen> {
    let end = Instant::now() + target.time;
    let request = format!("GET {} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n", target.large).repeat(4);
    crowd(target, 600, async |mut stream| {
        stream.write_all(request.as_bytes()).await?;
        tokio::time::sleep_until(end).await;
        // A connection that was closed takes no more.
        stream.write_all(b"\r\n").await?;
        sleep(Duration::from_millis(50)).await;
        stream.write_all(b"\r\n").await
    })
    .await
}

async fn slow_streams(target: &Target) -> Result<Seen> {
    let end = Instant::now() + target.time;
    // SETTINGS_INITIAL_WINDOW_SIZE of 0: nothing of a body may be sent, ever.
    let mut begin = PREFACE.to_vec();
    begin.extend(frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]));
    for number in 0..100 {
        begin.extend(frame(1, 5, 2 * number + 1, &head(&target.large)));
    }
    crowd(target, 16, async |mut stream| {
        stream.write_all(&begin).await?;
        tokio::time::sleep_until(end).await;
        stream.write_all(&frame(6, 0, 0, &[0; 8])).await?;
        sleep(Duration::from_millis(50)).await;
        stream.write_all(&frame(6, 0, 0, &[0; 8])).await
    })
    .await
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

async fn large_batches(target: &Target) -> Result<Seen> {
    let task = format!("{{\"queue\":\"batch\",\"payload\":\"{}\"}}", "z".repeat(1_000_000));
    let batch = format!("[{}]", vec![task; 31].join(","));
    let asked = (0..16).map(|_| target.client.post("/api/v1/tasks/batch", &batch));
    let answers = join_all(asked).await;
    let count = |wanted: &[u16]| {
        answers.iter().flatten().filter(|answer| wanted.contains(&answer.status)).count()
    };
    let (stored, refused) = (count(&[200]), count(&[408, 429, 503]));
    let figures = json!({ "batches": 16, "stored": stored, "refused": refused });
    Ok(Seen { is_fine: stored > 0, figures })
}

async fn hostile_names(target: &Target) -> Result<Seen> {
    let long = "n".repeat(129);
    let hostile = ["", " ", "{q}", "a b", "q\0", "q\n", "../q", "wl:{q}", "é", "%s", "';--", &long];
    let mut taken = 0;
    for name in hostile {
        for field in ["queue", "type"] {
            let body = json!({ field: name }).to_string();
            let answer = target.client.post("/api/v1/tasks", &body).await?;
            taken += usize::from(!(400..500).contains(&answer.status));
        }
    }
    let (mut new, mut refused) = (0, 0);
    for round in 0..10 {
        let name = |number: u32| json!({ "queue": format!("new{round}-{number}") });
        let batch = Value::Array((0..500).map(name).collect()).to_string();
        let answer = target.client.post("/api/v1/tasks/batch", &batch).await?;
        let answer: Value = serde_json::from_str(&answer.body)?;
        new += answer["created"].as_u64().unwrap_or_default();
        refused += answer["failed"].as_u64().unwrap_or_default();
    }
    let figures = json!({ "hostile_taken": taken, "new": new, "new_refused": refused });
    Ok(Seen { is_fine: taken == 0 && refused > 0 && new > 0, figures })
}

async fn rebinding(target: &Target) -> Result<Seen> {
    let mut served = 0;
    for host in ["evil.test", "localhost.evil.test", "127.0.0.1.evil.test:80", "evil.test."] {
        for line in ["GET /api/v1/tasks", "POST /api/v1/tasks", "GET /metrics"] {
            let answer = target.client.ask(line, host, "{}").await?;
            served += usize::from(answer.status != 403);
        }
    }
    Ok(Seen { is_fine: served == 0, figures: json!({ "served": served }) })
}

async fn leases_without_id(target: &Target) -> Result<Seen> {
    let calls = 2_000;
    let mut failed = 0;
    for _ in 0..calls / 20 {
        let body = r#"{"queues":["nothing"]}"#;
        let asked = (0..20).map(|_| target.client.post("/api/v1/leases", body));
        let answers = join_all(asked).await;
        let is_fine = |answer: &Result<super::client::Answer>| {
            answer.as_ref().is_ok_and(|answer| answer.status == 200)
        };
        failed += answers.iter().filter(|answer| !is_fine(answer)).count();
    }
    let workers: Value = serde_json::from_str(&target.client.get("/api/v1/workers").await?.body)?;
    let workers = workers["data"].as_array().map_or(0, Vec::len);
    let figures = json!({ "calls": calls, "failed": failed, "workers": workers });
    Ok(Seen { is_fine: workers <= 20, figures })
}

async fn waits(target: &Target) -> Result<Seen> {
    let path = format!("{}?wait={}s", target.endless, target.time.as_secs().min(20));
    let asked = (0..4_000).map(|_| target.client.get(&path));
    let answers = join_all(asked).await;
    let count = |wanted: u16| answers.iter().flatten().filter(|one| one.status == wanted).count();
    let (waited, refused) = (count(200), count(503));
    let figures = json!({ "waits": 4_000, "waited": waited, "refused": refused });
    Ok(Seen { is_fine: waited > 0 && refused > 0, figures })
}
