//! Responses that nobody reads: all of them together have a bound, whichever request they answer.

use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncWriteExt;
use windlass_server::Bounds;
use windlass_testkit::faults::Method as Call;

use crate::support::{Api, Server, bounds, read_all};

const JSON: &str = "content-type: application/json\r\n";
const RESPONSE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// A server with little memory for responses.
async fn small_server() -> Server {
    Server::start(Bounds { response_bytes_max: RESPONSE_BYTES_MAX, ..bounds() }).await
}

/// A task with a payload of nearly a megabyte.
fn large_task() -> String {
    json!({"queue": "large", "payload": "x".repeat(900_000)}).to_string()
}

/// Sends a request over each of `count` connections and reads none of the responses until an honest request was served.
/// Returns how many responses then arrive complete.
async fn count_whole(server: &Server, count: usize, path: &str, body: &str) -> usize {
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         {JSON}content-length: {length}\r\n\r\n{body}"
    );
    let mut unread = Vec::new();
    for _ in 0..count {
        let mut stream = server.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        unread.push(stream);
    }
    let (_, honest) = server.send("POST", path, JSON, body).await;
    assert!(honest.status < 300, "{}", honest.text);
    let mut whole = 0;
    for mut stream in unread {
        let text = read_all(&mut stream).await;
        whole += usize::from(text.starts_with("HTTP/1.1 20") && text.ends_with('}'));
    }
    whole
}

#[tokio::test]
async fn leases_that_nobody_reads_are_bounded() {
    let server = small_server().await;
    for _ in 0..60 {
        server.api.submit(&large_task()).await;
    }
    let ask = json!({"queues": ["large"], "max": 3}).to_string();
    let whole = count_whole(&server, 16, "/api/v1/leases", &ask).await;
    assert!(whole < 16, "all of {} MB were held at once", 16 * 27 / 10);
    server.stop().await;
}

#[tokio::test]
async fn a_claim_waits_for_the_memory_of_claims_under_way() {
    let server = small_server().await;
    for _ in 0..6 {
        server.api.submit(&large_task()).await;
    }
    let ask = json!({"queues": ["large"], "max": 3}).to_string();
    let lease = async || server.send("POST", "/api/v1/leases", JSON, &ask).await.1;
    server.api.faults.hold(Call::Claim);
    let (first, second, ()) = tokio::join!(lease(), lease(), async {
        server.api.faults.called_again(Call::Claim, 2).await;
        // Each of the two may bring 3 MiB, and a quarter of 8 MiB is left to what is not large.
        let third = tokio::time::timeout(Duration::from_secs(30), lease()).await;
        third.expect("it is refused").is_problem(503, "overloaded");
        server.api.faults.release(Call::Claim);
    });
    for answer in [first, second] {
        assert_eq!(answer.is(200)["tasks"].as_array().unwrap().len(), 3);
    }
    server.stop().await;
}

#[tokio::test]
async fn submits_whose_responses_nobody_reads_are_bounded() {
    let server = small_server().await;
    let whole = count_whole(&server, 30, "/api/v1/tasks", &large_task()).await;
    assert!(whole < 30, "all of 27 MB were held at once");
    server.stop().await;
}

#[tokio::test]
async fn results_count_although_there_is_no_memory_for_the_next_tasks() {
    let server = small_server().await;
    server.api.submit(r#"{"queue":"small"}"#).await;
    for _ in 0..12 {
        server.api.submit(&large_task()).await;
    }
    let lease = async |ask: &str| server.send("POST", "/api/v1/leases", JSON, ask).await.1.is(200);
    let leased = lease(r#"{"queues":["small"]}"#).await;
    let (worker, task) = (&leased["worker"]["id"], &leased["tasks"][0]);
    // Three responses of 2.7 MB are all that fits, and nobody reads them.
    let ask = r#"{"queues":["large"],"max":3}"#;
    let mut unread = Vec::new();
    for _ in 0..3 {
        let mut stream = server.connect().await;
        let request = format!(
            "POST /api/v1/leases HTTP/1.1\r\nhost: localhost\r\n{JSON}content-length: {}\r\n\r\n{ask}",
            ask.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.readable().await.unwrap();
        unread.push(stream);
    }
    let result = json!({"id": task["id"], "epoch": task["epoch"], "outcome": "completed"});
    let next = json!({"queues": ["large"], "max": 3});
    let report = json!({"worker_id": worker, "results": [result], "lease": next}).to_string();
    let (_, answer) = server.send("POST", "/api/v1/results", JSON, &report).await;
    assert_eq!(answer.is(200)["results"][0]["status"], "applied", "{}", answer.text);
    server.stop().await;
}

#[tokio::test]
async fn those_who_list_queues_at_the_same_time_share_a_read() {
    let server = Server::start_on(Api::new(), |listener| listener).await;
    server.api.submit("{}").await;
    server.api.faults.hold(Call::Queues);
    let before = server.api.faults.calls(Call::Queues);
    let ask = async || server.send("GET", "/api/v1/queues", "", "").await.1.is(200);
    let all = futures_util::future::join_all((0..50).map(|_| ask()));
    let release = async {
        server.api.faults.called(Call::Queues).await;
        server.api.faults.release(Call::Queues);
    };
    let (lists, ()) = tokio::join!(all, release);
    assert!(lists.iter().all(|list| list["data"][0]["name"] == "default"));
    assert!(server.api.faults.calls(Call::Queues) - before < 50);
    server.stop().await;
}
