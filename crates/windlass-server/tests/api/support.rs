//! An API on a store in memory, with and without a socket.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use windlass_core::config::Config;
use windlass_core::dice::Dice;
use windlass_core::retry::Backoff;
use windlass_core::store::{ApplyParams, Beat, ClaimParams, Quota, WorkerCard};
use windlass_core::{Claimed, Ending, ManualClock, QueueName, Store, WorkerId, state};
use windlass_engine::Client;
use windlass_server::{App, Bounds, Listener, Method, Tls};
use windlass_testkit::faults::{Faults, FaultyStore};
use windlass_testkit::fleet;

use crate::contract;

/// An API without a socket.
pub(crate) struct Api {
    pub(crate) app: App,
    pub(crate) client: Client,
    pub(crate) faults: Faults,
}

/// The status and the body of an answer.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) text: String,
}

impl Answer {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// Checks the status, and the slug of a problem.
    #[track_caller]
    pub(crate) fn is_problem(&self, status: u16, slug: &str) -> Value {
        let json = self.json();
        assert_eq!(self.status, status, "{json}");
        assert_eq!(json["type"], format!("/problems/{slug}"), "{json}");
        assert_eq!(json["status"], status, "{json}");
        assert!(json["title"].is_string() && json["detail"].is_string(), "{json}");
        json
    }

    #[track_caller]
    pub(crate) fn is(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        self.json()
    }
}

impl Api {
    pub(crate) fn new() -> Self {
        Self::with("")
    }

    pub(crate) fn with(settings: &str) -> Self {
        Self::on(fleet::memory(), settings)
    }

    /// One whose store has a clock that only the test moves.
    pub(crate) fn timed() -> (Self, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::default());
        (Self::on(fleet::memory_at(clock.clone()), ""), clock)
    }

    fn on(store: Arc<dyn Store>, settings: &str) -> Self {
        let (store, faults) = FaultyStore::around(store);
        let client = Client::with_config(store, Config::parse(settings).unwrap());
        Self { app: App::new(client.clone()), client, faults }
    }

    /// Another server on the same store.
    pub(crate) fn another(&self) -> Self {
        let (client, faults) = (self.client.clone(), self.faults.clone());
        Self { app: App::new(client.clone()), client, faults }
    }

    pub(crate) async fn call(&self, method: Method, path: &str, body: Option<&str>) -> Answer {
        let body = body.map(|text| Bytes::copy_from_slice(text.as_bytes()));
        let (status, body) = self.app.call(method.clone(), path, body).await;
        let answer = Answer { status, text: String::from_utf8(body.to_vec()).unwrap() };
        contract::check(method.as_str(), path, &answer).await;
        answer
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call(Method::GET, &format!("/api/v1{path}"), None).await
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Answer {
        self.call(Method::POST, &format!("/api/v1{path}"), Some(body)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.call(Method::DELETE, &format!("/api/v1{path}"), None).await
    }

    /// Submits and answers the id.
    pub(crate) async fn submit(&self, body: &str) -> String {
        let task = self.post("/tasks", body).await;
        assert!(task.status < 300, "{}", task.text);
        task.json()["id"].as_str().unwrap().to_owned()
    }
}

/// Bounds of which each test shortens one.
pub(crate) fn bounds() -> Bounds {
    let long = Duration::from_secs(60);
    Bounds { head_read: long, body_read: long, write_stall: long, ..Bounds::default() }
}

/// A server with a socket.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) api: Api,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<windlass_core::Result<()>>,
}

impl Server {
    pub(crate) async fn start(bounds: Bounds) -> Self {
        Self::start_with(bounds, None).await
    }

    pub(crate) async fn start_with(bounds: Bounds, tls: Option<Tls>) -> Self {
        Self::start_on(Api::new(), |listener| {
            let listener = listener.bounds(bounds);
            match tls {
                Some(tls) => listener.tls(tls),
                None => listener,
            }
        })
        .await
    }

    /// A server of this API, with a socket that is set up like this.
    pub(crate) async fn start_on(api: Api, set_up: impl FnOnce(Listener) -> Listener) -> Self {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let listener = set_up(listener);
        let (address, app) = (listener.address(), api.app.clone());
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(listener.serve(app, async move {
            let _ = stopped.await;
        }));
        Self { address, api, stop, serving }
    }

    /// Tells the server to stop and waits for its end.
    pub(crate) async fn stop(self) {
        self.stop.send(()).unwrap();
        self.serving.await.unwrap().unwrap();
    }

    /// Tells the server to stop.
    pub(crate) fn stop_soon(self) -> JoinHandle<windlass_core::Result<()>> {
        self.stop.send(()).unwrap();
        self.serving
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends bytes on a connection of their own and reads to the end.
    pub(crate) async fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect().await;
        stream.write_all(bytes).await.unwrap();
        read_all(&mut stream).await
    }

    /// Sends a request with these further header lines, each with its line end.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: &str,
    ) -> (String, Answer) {
        let (address, length) = (self.address, body.len());
        let text = self
            .raw(
                format!(
                    "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\
                     content-length: {length}\r\n{headers}\r\n{body}"
                )
                .as_bytes(),
            )
            .await;
        let (head, answer) = parse(&text);
        contract::check(method, path, &answer).await;
        (head, answer)
    }
}

/// Makes a token.
pub(crate) async fn token(api: &Api, wish: Value) -> String {
    let made = api.post("/tokens", &wish.to_string()).await.is(201);
    made["token"].as_str().unwrap().to_owned()
}

pub(crate) async fn read_all(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    // A reset after the answer is an end like any other.
    let _ = stream.read_to_end(&mut bytes).await;
    String::from_utf8(bytes).unwrap()
}

/// The head, in lower case, and the answer.
pub(crate) fn parse(text: &str) -> (String, Answer) {
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.unwrap_or_else(|| panic!("no answer: {text:?}"));
    (head.to_lowercase(), Answer { status, text: body.to_owned() })
}

impl Api {
    /// Has a worker of this name claim every pending task of the queue `default`.
    pub(crate) async fn claim(&self, worker: &str) -> Vec<Claimed> {
        let (worker, store) = (WorkerId::new(worker), self.client.store());
        let card =
            WorkerCard { name: "hand".into(), slots: 9, slots_used: 1, ..Default::default() };
        let lease = Duration::from_secs(60);
        let beat = Beat { worker: worker.clone(), card, lease, held: None, progress: vec![] };
        store.beat(beat).await.unwrap();
        let quotas = vec![Quota::of(QueueName::stored("default"), 1_000)];
        let params = ClaimParams { worker, quotas, limit: 1_000, suspects_at_most: 9 };
        store.claim(params).await.unwrap().tasks
    }

    /// Has a worker run every pending task of the queue `default` to this end.
    pub(crate) async fn run(&self, ending: Ending) {
        let end = |task: &Claimed| {
            state::finish(task, ending.clone(), &Backoff::default(), &mut Dice::seeded(1))
        };
        let transitions = self.claim("hand-1").await.iter().map(end).collect();
        let worker = WorkerId::new("hand-1");
        let params = ApplyParams { worker, transitions, then_claim: None };
        self.client.store().apply(params).await.unwrap();
    }

    /// Submits a task of the queue `default` that ends as a dead letter.
    pub(crate) async fn dead(&self, body: &str) -> String {
        let id = self.submit(body).await;
        self.run(Ending::Discarded { error: "no use".into() }).await;
        id
    }
}
