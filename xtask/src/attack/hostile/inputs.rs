//! What nobody should send.

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::Seen;
use crate::Result;
use crate::attack::Target;

pub(super) async fn large_batches(target: &Target) -> Result<Seen> {
    let task = format!("{{\"queue\":\"batch\",\"payload\":\"{}\"}}", "z".repeat(1_000_000));
    let batch = format!("[{}]", vec![task; 31].join(","));
    let asked = (0..16).map(|_| target.client.post("/api/v1/tasks/batch", &batch));
    let answers = join_all(asked).await;
    let count = |wanted: &[u16]| {
        answers.iter().flatten().filter(|answer| wanted.contains(&answer.status)).count()
    };
    let (stored, refused) = (count(&[200]), count(&[408, 429, 503]));
    let figures = json!({ "batches": 16, "stored": stored, "refused": refused });
    Ok(Seen { is_fine: stored > 0 && stored + refused == 16, figures })
}

pub(super) async fn hostile_names(target: &Target) -> Result<Seen> {
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

/// JSON that is deep, double, half, or has far too much of something.
pub(super) async fn hostile_json(target: &Target) -> Result<Seen> {
    let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let many = |item: &str, count: usize| format!("[{}]", vec![item; count].join(","));
    let fields: Vec<_> = (0..100_000).map(|number| format!("\"f{number}\":1")).collect();
    let (one, batch) = ("/api/v1/tasks", "/api/v1/tasks/batch");
    let bodies = [
        (one, format!("{{\"payload\":{}}}", deep(400_000))),
        (one, format!("{{\"metadata\":{}}}", deep(100_000))),
        (one, deep(400_000)),
        (one, r#"{"queue":"a","queue":"b"}"#.into()),
        (one, r#"{"queue":"a","\u0071ueue":"b"}"#.into()),
        (one, r#"{"queue":"\ud800"}"#.into()),
        (one, r#"{"idempotency_key":"a\u0000"}"#.into()),
        (one, format!("{{\"max_retries\":1{}}}", "0".repeat(400))),
        (one, r#"{"delay":1e400}"#.into()),
        (one, format!("{{{}}}", fields.join(","))),
        (one, format!("{{\"{}\":1}}", "f".repeat(1_000_000))),
        (batch, many("{}", 100_000)),
        (batch, many("1", 10_000_000)),
        (batch, format!("[{}]", ",".repeat(16_000_000))),
        ("/api/v1/leases", format!("{{\"queues\":{}}}", many("\"q\"", 100_000))),
        ("/api/v1/results", format!("{{\"results\":{}}}", many("{}", 100_000))),
    ];
    let (mut refused, count) = (0, bodies.len());
    for (path, body) in bodies {
        let answer = target.client.post(path, &body).await?;
        refused += usize::from((400..500).contains(&answer.status));
    }
    let figures = json!({ "bodies": count, "refused": refused });
    Ok(Seen { is_fine: refused == count, figures })
}

pub(super) async fn rebinding(target: &Target) -> Result<Seen> {
    let hosts = [
        "evil.test",
        "EVIL.test:80",
        "evil.test.",
        "localhost.evil.test",
        "127.0.0.1.evil.test:80",
        "localhost@evil.test",
        "evil@localhost",
        "127.0.0.1:80@evil.test",
        "[::1].evil.test",
        "localhost,evil.test",
        "127.1",
        "2130706433",
        "foo.localhost",
        "",
    ];
    let absolute = "GET http://evil.test/api/v1/tasks";
    let (mut served, mut asked) = (0, 0);
    let lines = ["GET /api/v1/tasks", "POST /api/v1/tasks", "GET /metrics", "GET /ws"];
    let all = hosts.iter().flat_map(|host| lines.map(|line| (line, *host)));
    for (line, host) in all.chain([(absolute, "localhost"), (absolute, "evil.test")]) {
        let answer = target.client.ask(line, host, "{}").await?;
        served += usize::from(answer.status != 403);
        asked += 1;
    }
    let mut refused = 0;
    for host in ["localhost", "LOCALHOST:80", "127.0.0.1", "[::1]:8080", "192.168.0.7"] {
        let answer = target.client.ask("GET /api/v1/tasks", host, "").await?;
        refused += usize::from(answer.status != 200);
    }
    let figures = json!({ "asked": asked, "served": served, "own_refused": refused });
    Ok(Seen { is_fine: served == 0 && refused == 0, figures })
}
