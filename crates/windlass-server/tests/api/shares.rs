//! What a caller may have of what there is only so much of: waits, filters of events, new names; and which names
//! are the server's.

use serde_json::json;
use windlass_core::Ending;
use windlass_server::Listener;
use windlass_testkit::faults::Method as Call;

use crate::support::{Answer, Api, Server, token};

const JSON: &str = "content-type: application/json\r\n";

#[tokio::test]
async fn waits_are_bounded_and_leave_room_for_everything_else() {
    let api = Api::with("server.waits_max = 2");
    let id = api.submit("{}").await;
    let path = format!("/tasks/{id}?wait=30s");
    let (first, second, ()) = tokio::join!(api.get(&path), api.get(&path), async {
        api.faults.called_again(Call::Wait, 2).await;
        api.get(&path).await.is_problem(503, "overloaded");
        assert_eq!(api.get(&format!("/tasks/{id}")).await.is(200)["state"], "pending");
        api.run(Ending::Completed { result: None }).await;
    });
    for answer in [first, second] {
        assert_eq!(answer.is(200)["state"], "completed");
    }
    api.get(&path).await.is(200);
}

#[tokio::test]
async fn a_token_gets_half_of_the_waits() {
    let server = Server::start_on(Api::with("server.waits_max = 2"), |listener| listener).await;
    let id = server.api.submit("{}").await;
    let made = |name: &str| json!({"name": name, "scopes": ["read"]});
    let ann = token(&server.api, made("ann")).await;
    let bob = token(&server.api, made("bob")).await;
    let path = format!("/api/v1/tasks/{id}?wait=30s");
    let ask = async |token: &str| {
        let header = format!("authorization: Bearer {token}\r\n");
        server.send("GET", &path, &header, "").await.1
    };
    let (first, second, ()) = tokio::join!(ask(&ann), ask(&bob), async {
        server.api.faults.called_again(Call::Wait, 2).await;
        ask(&ann).await.is_problem(503, "overloaded");
        server.api.run(Ending::Completed { result: None }).await;
    });
    assert_eq!((first.status, second.status), (200, 200));
    let id = server.api.submit("{}").await;
    let path = format!("/api/v1/tasks/{id}?wait=30s");
    let ask = async |token: &str| {
        let header = format!("authorization: Bearer {token}\r\n");
        server.send("GET", &path, &header, "").await.1
    };
    let (first, ()) = tokio::join!(ask(&ann), async {
        server.api.faults.called(Call::Wait).await;
        ask(&ann).await.is_problem(429, "rate-limited");
        server.api.run(Ending::Completed { result: None }).await;
    });
    assert_eq!(first.status, 200);
    server.stop().await;
}

#[tokio::test]
async fn a_token_has_so_many_filters_of_events() {
    let server = Server::start_on(Api::new(), |listener| listener).await;
    let ann = token(&server.api, json!({"name": "ann", "scopes": ["read"]})).await;
    let bob = token(&server.api, json!({"name": "bob", "scopes": ["read"]})).await;
    let listen = async |token: &str, queue: usize| {
        let head = format!(
            "GET /api/v1/events?queue=q{queue} HTTP/1.1\r\nhost: localhost\r\n\
             authorization: Bearer {token}\r\n\r\n"
        );
        let mut stream = server.connect().await;
        let mut status = [0; 12];
        tokio::io::AsyncWriteExt::write_all(&mut stream, head.as_bytes()).await.unwrap();
        tokio::io::AsyncReadExt::read_exact(&mut stream, &mut status).await.unwrap();
        (stream, String::from_utf8(status.to_vec()).unwrap())
    };
    let mut open = Vec::new();
    for queue in 0..100 {
        let (stream, status) = listen(&ann, queue).await;
        assert_eq!(status, "HTTP/1.1 200");
        open.push(stream);
    }
    assert_eq!(listen(&ann, 100).await.1, "HTTP/1.1 429");
    assert_eq!(listen(&ann, 99).await.1, "HTTP/1.1 200", "the same filter is no other");
    assert_eq!(listen(&bob, 100).await.1, "HTTP/1.1 200");
    drop(open);
    server.stop().await;
}

#[tokio::test]
async fn new_names_over_http_are_few_a_minute() {
    let settings = "server.new_names_per_minute = 3";
    let server = Server::start_on(Api::with(settings), |listener| listener).await;
    // What is in the store is not new, whoever brought it.
    server.api.submit(r#"{"queue":"known","type":"a"}"#).await;
    let submit = async |queue: &str, kind: &str| -> Answer {
        let body = json!({"queue": queue, "type": kind}).to_string();
        server.send("POST", "/api/v1/tasks", JSON, &body).await.1
    };
    submit("known", "a").await.is(201);
    for queue in ["q1", "q2", "q3"] {
        submit(queue, "a").await.is(201);
    }
    submit("q4", "a").await.is_problem(429, "rate-limited");
    submit("known", "b").await.is(201);
    submit("known", "c").await.is(201);
    submit("known", "d").await.is_problem(429, "rate-limited");
    let batch = json!([{"queue": "q1", "type": "b"}, {"queue": "q5", "type": "b"}]).to_string();
    let answer = server.send("POST", "/api/v1/tasks/batch", JSON, &batch).await.1.is(200);
    assert_eq!((&answer["created"], &answer["failed"]), (&json!(1), &json!(1)));
    assert_eq!(answer["results"][1]["error"]["status"], 429);
    server.api.submit(r#"{"queue":"q6","type":"e"}"#).await;
    // A pause makes a queue, too.
    let pause = async |queue: &str| -> Answer {
        server.send("POST", &format!("/api/v1/queues/{queue}/pause?create=true"), "", "").await.1
    };
    pause("known").await.is(200);
    pause("q7").await.is_problem(429, "rate-limited");
    server.stop().await;
}

#[tokio::test]
async fn a_name_that_is_not_the_servers_is_refused_also_when_insecure() {
    let get = async |server: &Server, host: &str| {
        let head =
            format!("GET /api/v1/tasks HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        crate::support::parse(&server.raw(head.as_bytes()).await).1
    };
    let server = Server::start_on(Api::new(), Listener::insecure).await;
    for host in ["localhost", "127.0.0.1:8080", "192.168.1.5"] {
        assert_eq!(get(&server, host).await.status, 200, "{host}");
    }
    get(&server, "evil.test").await.is_problem(403, "forbidden");
    get(&server, "queue.example").await.is_problem(403, "forbidden");
    // Where a token is asked for, a page of another site has none.
    token(&server.api, json!({"name": "ann", "scopes": ["admin"]})).await;
    get(&server, "queue.example").await.is_problem(401, "unauthorized");
    server.stop().await;
    let named = |listener: Listener| listener.insecure().hosts("queue.example,other");
    let server = Server::start_on(Api::new(), named).await;
    assert_eq!(get(&server, "queue.example:8080").await.status, 200);
    get(&server, "evil.test").await.is_problem(403, "forbidden");
    server.stop().await;
}

#[tokio::test]
async fn a_token_speaks_for_no_worker_that_holds_tasks_of_other_queues() {
    let server = Server::start_on(Api::new(), |listener| listener).await;
    let api = &server.api;
    for queue in ["mine", "other"] {
        api.submit(&json!({"queue": queue}).to_string()).await;
    }
    let limited = token(api, json!({"name": "m", "scopes": ["work"], "queues": ["mine"]})).await;
    let header = format!("{JSON}authorization: Bearer {limited}\r\n");
    let ask = json!({"queues": ["other"]}).to_string();
    let leased = api.post("/leases", &ask).await.is(200);
    let worker = leased["worker"]["id"].as_str().unwrap();
    // It holds a task of the other queue, and now asks only for tasks of this one.
    let ask = json!({"queues": ["mine"], "worker": {"id": worker}}).to_string();
    let second = api.post("/leases", &ask).await.is(200);
    let task = &second["tasks"][0];
    let result = json!({"id": task["id"], "epoch": task["epoch"], "outcome": "completed"});
    let results = json!({"worker_id": worker, "results": [result]}).to_string();
    let path = format!("/api/v1/workers/{worker}");
    for (method, path, body) in [
        ("POST", "/api/v1/results", results.as_str()),
        ("POST", "/api/v1/leases", ask.as_str()),
        ("POST", &format!("{path}/heartbeat"), "{}"),
        ("DELETE", &path, ""),
    ] {
        let (_, answer) = server.send(method, path, &header, body).await;
        answer.is_problem(403, "forbidden");
    }
    server.stop().await;
}
