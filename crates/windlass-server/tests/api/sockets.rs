//! What only shows on a socket: headers, browsers, slow and many clients, the end of a server.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use windlass_server::{Bounds, Listener};
use windlass_testkit::faults::Method as Call;

use crate::support::{Server, bounds, parse, read_all};

const JSON: &str = "content-type: application/json\r\n";

async fn server() -> Server {
    Server::start(Bounds::default()).await
}

/// Sends bytes and waits until this call of the store was made.
async fn send_until(server: &Server, stream: &mut TcpStream, bytes: &[u8], call: Call) {
    // The call first: only one that is yet to come is noticed.
    let ((), sent) = tokio::join!(server.api.faults.called(call), stream.write_all(bytes));
    sent.unwrap();
}

#[tokio::test]
async fn a_port_in_use_is_an_error() {
    let server = server().await;
    let error = Listener::bind(server.address).await.unwrap_err();
    assert!(error.to_string().contains(&server.address.to_string()), "{error}");
    server.stop().await;
}

#[tokio::test]
async fn a_submit_answers_where_the_task_is() {
    let server = server().await;
    let (head, answer) = server.send("POST", "/api/v1/tasks", JSON, r#"{"type":"a"}"#).await;
    let task = answer.is(201);
    let location = format!("/api/v1/tasks/{}", task["id"].as_str().unwrap());
    assert!(head.contains(&format!("\r\nlocation: {location}")), "{head}");
    server.send("GET", &location, "", "").await.1.is(200);
    server.stop().await;
}

#[tokio::test]
async fn where_there_is_no_page_a_browser_gets_one_and_a_program_a_problem() {
    let server = server().await;
    let browser = "accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n";
    let text = server
        .raw(
            format!(
                "GET /nothing HTTP/1.1\r\nhost: localhost\r\n{browser}connection: close\r\n\r\n"
            )
            .as_bytes(),
        )
        .await;
    assert!(text.starts_with("HTTP/1.1 404") && text.contains("text/html"), "{text}");
    assert!(text.contains("<!doctype html>") && !text.contains("nothing"), "{text}");
    server.send("GET", "/nothing", "accept: */*\r\n", "").await.1.is_problem(404, "not-found");
    let (_, answer) = server.send("GET", "/api/v1/tasks", browser, "").await;
    answer.is(200);
    server.stop().await;
}

#[tokio::test]
async fn a_strange_host_is_told_what_to_do() {
    let server = server().await;
    let text = server
        .raw(b"GET /version HTTP/1.1\r\nhost: queue.example:80\r\nconnection: close\r\n\r\n")
        .await;
    assert!(text.starts_with("HTTP/1.1 403"), "{text}");
    assert!(
        text.contains("windlass token create") && text.contains("--host queue.example"),
        "{text}"
    );
    server.stop().await;
}

#[tokio::test]
async fn every_answer_has_an_id_and_the_headers_that_keep_browsers_honest() {
    let server = server().await;
    for path in ["/api/v1/tasks", "/nothing", "/", "/page.js", "/healthz"] {
        let (head, _) = server.send("GET", path, "", "").await;
        for header in [
            "x-request-id: ",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "content-security-policy: default-src 'none'; ",
            "frame-ancestors 'none'",
            "cache-control: no-",
        ] {
            assert!(head.contains(header), "{path}: no {header} in {head}");
        }
    }
    let (head, _) = server.send("GET", "/", "x-request-id: my-id.7\r\n", "").await;
    assert!(head.contains("x-request-id: my-id.7\r\n"), "{head}");
    let token = format!("wl_001122334455_{}", "0f".repeat(32));
    for odd in ["a b", "<script>", &"x".repeat(200), &token] {
        let (head, _) = server.send("GET", "/", &format!("x-request-id: {odd}\r\n"), "").await;
        assert!(!head.contains(odd), "{head}");
    }
    let (head, answer) = server.send("GET", "/nothing", "", "").await;
    answer.is_problem(404, "not-found");
    assert!(head.contains("content-type: application/problem+json"), "{head}");
    server.stop().await;
}

#[tokio::test]
async fn a_strange_host_is_forbidden() {
    let server = server().await;
    for host in [
        "host: evil.test\r\n",
        "host: localhost.evil.test\r\n",
        "",
        "host: localhost\r\nhost: localhost\r\n",
    ] {
        let text = server
            .raw(
                format!("GET /api/v1/tasks HTTP/1.1\r\n{host}connection: close\r\n\r\n").as_bytes(),
            )
            .await;
        let (_, answer) = parse(&text);
        answer.is_problem(403, "forbidden");
    }
    let text =
        server.raw(b"GET / HTTP/1.1\r\nhost: localhost:1\r\nconnection: close\r\n\r\n").await;
    assert_eq!(parse(&text).1.status, 200);
    // Checks of load balancers may name none.
    let text = server.raw(b"GET /healthz HTTP/1.0\r\n\r\n").await;
    assert_eq!(parse(&text).1.status, 200);
    let text = server.raw(b"DELETE /api/v1/tasks/x HTTP/1.0\r\n\r\n").await;
    parse(&text).1.is_problem(403, "forbidden");
    server.stop().await;
}

#[tokio::test]
async fn another_site_cannot_change_anything() {
    let server = server().await;
    let own = format!("origin: http://{}\r\n", server.address);
    for (header, status) in [
        ("origin: https://evil.test\r\n", 403),
        ("origin: null\r\n", 403),
        ("sec-fetch-site: cross-site\r\n", 403),
        ("sec-fetch-site: same-origin\r\n", 201),
        (own.as_str(), 201),
        ("", 201),
    ] {
        let (_, answer) =
            server.send("POST", "/api/v1/tasks", &format!("{JSON}{header}"), "{}").await;
        assert_eq!(answer.status, status, "{header}");
    }
    let (_, read) = server.send("GET", "/api/v1/tasks", "origin: https://evil.test\r\n", "").await;
    assert_eq!(read.status, 200, "the browser keeps the answer from the page");
    server.stop().await;
}

#[tokio::test]
async fn a_body_must_say_that_it_is_json() {
    let server = server().await;
    for (media, status) in [
        ("content-type: application/json\r\n", 201),
        ("content-type: application/json; charset=utf-8\r\n", 201),
        ("content-type: application/x+json\r\n", 201),
        ("content-type: text/plain\r\n", 415),
        ("content-type: application/x-www-form-urlencoded\r\n", 415),
        ("content-type: application/x-ndjson\r\n", 415),
        ("", 415),
    ] {
        let (_, answer) = server.send("POST", "/api/v1/tasks", media, "{}").await;
        assert_eq!(answer.status, status, "{media}: {}", answer.text);
    }
    let (_, bare) = server.send("POST", "/api/v1/tasks/x/cancel", "", "").await;
    bare.is_problem(404, "not-found");
    server.stop().await;
}

#[tokio::test]
async fn lines_are_a_batch() {
    let server = server().await;
    let lines = "{\"type\":\"a\"}\n\n{\"type\":\r\n{broken\n{\"type\":\"b\"}";
    let media = "content-type: application/x-ndjson\r\n";
    let answer = server.send("POST", "/api/v1/tasks/batch", media, lines).await.1.is(200);
    assert_eq!((&answer["created"], &answer["failed"]), (&2.into(), &2.into()), "{answer}");
    let broken = &answer["results"][2]["error"];
    assert_eq!((&broken["status"], &broken["line"]), (&400.into(), &4.into()), "{answer}");
    assert!(broken["detail"].as_str().is_some_and(|text| text.contains("line 4")), "{answer}");
    for nothing in ["", "\n\r\n"] {
        let answer = server.send("POST", "/api/v1/tasks/batch", media, nothing).await.1.is(200);
        assert_eq!(answer["results"], serde_json::json!([]), "as of an empty array");
    }
    server.stop().await;
}

#[tokio::test]
async fn the_idempotency_key_may_be_a_header() {
    let server = server().await;
    let header = |key: &str| format!("{JSON}idempotency-key: {key}\r\n");
    let submit = async |headers: &str, body: &str| {
        server.send("POST", "/api/v1/tasks", headers, body).await.1
    };
    assert_eq!(submit(&header("k"), "{}").await.is(201)["idempotency_key"], "k");
    submit(&header("k"), r#"{"idempotency_key":"k"}"#).await.is(200);
    submit(&header("k"), r#"{"idempotency_key":"l"}"#).await.is_problem(422, "invalid-request");
    submit(&header("k"), r#"{"type":"other","payload":1}"#).await.is(201);
    submit(&header("k"), r#"{"payload":1}"#).await.is_problem(422, "idempotency-mismatch");
    submit(&header(&"k".repeat(300)), "{}").await.is_problem(422, "invalid-request");
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let traced = submit(&format!("{JSON}traceparent: {trace}\r\n"), "{}").await.is(201);
    assert_eq!(traced["traceparent"], trace);
    // One from far away that cannot be read is left out; one in the field is meant.
    let traced = submit(&format!("{JSON}traceparent: 00-x\r\n"), "{}").await.is(201);
    assert_eq!(traced["traceparent"], serde_json::Value::Null);
    let problem = submit(JSON, r#"{"traceparent":"00-x"}"#).await;
    assert_eq!(problem.is_problem(422, "invalid-request")["field"], "traceparent");
    let problem = submit(&header("é"), "{}").await.is_problem(422, "invalid-request");
    assert_eq!(problem["field"], "Idempotency-Key");
    assert!(problem["detail"].as_str().unwrap().contains("ASCII"), "{problem}");
    server.stop().await;
}

#[tokio::test]
async fn a_body_that_is_packed_or_in_another_alphabet_is_refused() {
    let server = server().await;
    for (headers, word) in [
        ("content-type: application/json; charset=utf-16\r\n", "UTF-8"),
        ("content-type: application/json\r\ncontent-encoding: gzip\r\n", "content-encoding"),
    ] {
        for path in ["/api/v1/tasks", "/api/v1/tasks/batch", "/api/v1/leases"] {
            let answer = server.send("POST", path, headers, "{}").await.1;
            let problem = answer.is_problem(415, "unsupported-media-type");
            assert!(problem["detail"].as_str().unwrap().contains(word), "{problem}");
        }
    }
    let plain =
        "content-type: application/json; Charset=\"UTF-8\"\r\ncontent-encoding: identity\r\n";
    server.send("POST", "/api/v1/tasks", plain, "{}").await.1.is(201);
    server.stop().await;
}

#[tokio::test]
async fn a_request_with_two_lengths_is_the_last_of_its_connection() {
    let server = server().await;
    let address = server.address;
    // Whoever stands between may have read the other length: what follows must not be taken for a request.
    let sent = format!(
        "POST /api/v1/tasks HTTP/1.1\r\nhost: {address}\r\n{JSON}content-length: 4\r\n\
         transfer-encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n\
         GET /version HTTP/1.1\r\nhost: {address}\r\n\r\n"
    );
    let answers = server.raw(sent.as_bytes()).await;
    assert_eq!(answers.matches("HTTP/1.1 ").count(), 1, "{answers}");
    assert!(answers.starts_with("HTTP/1.1 201"), "{answers}");
    server.stop().await;
}

#[tokio::test]
async fn an_outage_says_when_to_come_back() {
    let server = server().await;
    server.api.faults.go_away();
    let (head, answer) = server.send("GET", "/api/v1/tasks", "", "").await;
    answer.is_problem(503, "store-unavailable");
    assert!(head.contains("retry-after: 1"), "{head}");
    server.stop().await;
}

#[tokio::test]
async fn a_body_that_says_it_is_too_large_is_not_read() {
    let server = server().await;
    let head = format!(
        "POST /api/v1/tasks HTTP/1.1\r\nhost: {}\r\n{JSON}content-length: 99999999\r\n\r\n",
        server.address
    );
    let (head, answer) = parse(&server.raw(head.as_bytes()).await);
    answer.is_problem(413, "payload-too-large");
    assert!(head.contains("connection: close"), "{head}");
    server.stop().await;
}

#[tokio::test]
async fn a_slow_head_is_cut_off() {
    let server = Server::start(Bounds { head_read: Duration::from_millis(50), ..bounds() }).await;
    assert_eq!(server.raw(b"").await, "", "an idle connection is closed");
    server.raw(b"GET / HTTP/1.1\r\nhost: loc").await;
    let mut stream = server.connect().await;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let answer = read_all(&mut stream).await;
    assert!(answer.contains("200 OK"), "answered, kept open for more, and closed when none came");
    server.stop().await;
}

#[tokio::test]
async fn a_slow_body_is_cut_off() {
    let server = Server::start(Bounds { body_read: Duration::from_millis(50), ..bounds() }).await;
    let request = format!(
        "POST /api/v1/tasks HTTP/1.1\r\nhost: {}\r\n{JSON}content-length: 100\r\n\r\n{{\"ty",
        server.address
    );
    let (head, answer) = parse(&server.raw(request.as_bytes()).await);
    answer.is_problem(408, "request-timeout");
    assert!(head.contains("connection: close"), "{head}");
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_cut_off() {
    let write_stall = Duration::from_millis(50);
    let server = Server::start(Bounds { connections_max: 1, write_stall, ..bounds() }).await;
    let payload = "x".repeat(1_000_000);
    let id = server.api.submit(&format!("{{\"payload\":\"{payload}\"}}")).await;
    let mut stream = server.connect().await;
    // More answers than all buffers on the way can hold, and none of them is read.
    let request = format!("GET /api/v1/tasks/{id} HTTP/1.1\r\nhost: localhost\r\n\r\n").repeat(200);
    send_until(&server, &mut stream, request.as_bytes(), Call::Get).await;
    // Its seat is the only one: when it is free, the client was cut off.
    while server.send("GET", "/healthz", "", "").await.1.status == 503 {}
    drop(stream);
    server.stop().await;
}

#[tokio::test]
async fn huge_heads_are_refused() {
    let server = server().await;
    let many: String = (0..150).map(|n| format!("h{n}: x\r\n")).collect();
    let text =
        server.raw(format!("GET / HTTP/1.1\r\nhost: localhost\r\n{many}\r\n").as_bytes()).await;
    assert!(text.starts_with("HTTP/1.1 431"), "{text}");
    let long = "x".repeat(1_000_000);
    let text = server
        .raw(format!("GET / HTTP/1.1\r\nhost: localhost\r\nlong: {long}\r\n\r\n").as_bytes())
        .await;
    assert!(text.is_empty() || text.starts_with("HTTP/1.1 431"), "{text}");
    let text = server.raw(b"\x16\x03\x01 this is not HTTP\r\n\r\n").await;
    assert!(text.is_empty() || text.starts_with("HTTP/1.1 400"), "{text}");
    server.stop().await;
}

#[tokio::test]
async fn a_change_goes_on_when_its_client_has_gone() {
    let server = server().await;
    server.api.faults.hold(Call::Order);
    let mut stream = server.connect().await;
    let request =
        b"POST /api/v1/queues/q/pause?create=true HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n";
    send_until(&server, &mut stream, request, Call::Order).await;
    drop(stream);
    // The connection's end is seen before the next one is answered on this one thread.
    server.send("GET", "/healthz", "", "").await.1.is(200);
    server.api.faults.release(Call::Order);
    let (client, stopping) = (server.api.client.clone(), server.stop_soon());
    stopping.await.unwrap().unwrap();
    assert!(client.store().queues().await.unwrap()[0].is_paused);
}

#[tokio::test]
async fn requests_in_flight_end_before_the_server_does() {
    let server = server().await;
    server.api.faults.hold(Call::Insert);
    let mut stream = server.connect().await;
    let request = format!(
        "POST /api/v1/tasks HTTP/1.1\r\nhost: localhost\r\n{JSON}content-length: 2\r\n\r\n{{}}"
    );
    send_until(&server, &mut stream, request.as_bytes(), Call::Insert).await;
    let (faults, address) = (server.api.faults.clone(), server.address);
    let idle = server.connect().await;
    let stopping = server.stop_soon();
    while TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(!stopping.is_finished());
    faults.release(Call::Insert);
    parse(&read_all(&mut stream).await).1.is(201);
    stopping.await.unwrap().unwrap();
    drop(idle);
}

#[tokio::test]
async fn who_waits_is_answered_when_the_server_stops() {
    let server = server().await;
    let id = server.api.submit("{}").await;
    let mut stream = server.connect().await;
    let request = format!("GET /api/v1/tasks/{id}?wait=60s HTTP/1.1\r\nhost: localhost\r\n\r\n");
    send_until(&server, &mut stream, request.as_bytes(), Call::Wait).await;
    let stopping = server.stop_soon();
    assert_eq!(parse(&read_all(&mut stream).await).1.is(200)["state"], "pending");
    stopping.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_request_that_does_not_end_is_cut_off_in_time() {
    let server = Server::start(Bounds { stop: Duration::from_millis(50), ..bounds() }).await;
    server.api.faults.hold(Call::List);
    let mut stream = server.connect().await;
    send_until(
        &server,
        &mut stream,
        b"GET /api/v1/tasks HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Call::List,
    )
    .await;
    server.stop().await;
    assert_eq!(read_all(&mut stream).await, "");
}
