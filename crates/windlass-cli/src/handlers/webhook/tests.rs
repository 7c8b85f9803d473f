//! Webhooks from a real worker to a real HTTP server on this machine, and to names that a planted DNS resolves.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use windlass::core::config::Config;
use windlass::{Ending, Options, State};

use super::super::testing::{Scene, patiently};
use super::dial::{Resolve, connector};
use super::{Dialer, Webhook};

/// A server that answers each connection with the next of these texts.
struct Target {
    address: SocketAddr,
    requests: mpsc::UnboundedReceiver<String>,
}

impl Target {
    async fn start(answers: &[&str]) -> Self {
        Self::start_with(answers, None).await
    }

    async fn start_with(answers: &[&str], tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut answers: VecDeque<_> = answers.iter().map(|text| (*text).to_owned()).collect();
        let (told, requests) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(answer) = answers.pop_front() {
                let (mut stream, _) = listener.accept().await.unwrap();
                let told = told.clone();
                match &tls {
                    None => serve(&mut stream, &answer, &told).await,
                    Some(tls) => match tls.accept(stream).await {
                        Ok(mut stream) => serve(&mut stream, &answer, &told).await,
                        Err(_) => continue,
                    },
                }
            }
        });
        Self { address, requests }
    }

    fn url(&self) -> String {
        format!("http://{}/hook?a=1", self.address)
    }

    async fn request(&mut self) -> String {
        patiently(self.requests.recv()).await.unwrap()
    }

    fn was_asked(&mut self) -> bool {
        self.requests.try_recv().is_ok()
    }
}

/// Reads one request and writes the answer; an answer without a text is never given.
async fn serve(
    stream: &mut (impl AsyncReadExt + AsyncWriteExt + Unpin),
    answer: &str,
    told: &mpsc::UnboundedSender<String>,
) {
    let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                let _ = told.send(text);
                break;
            }
        }
        match stream.read(&mut buffer).await {
            Ok(read) if read > 0 => request.extend_from_slice(&buffer[..read]),
            _ => return,
        }
    }
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.flush().await;
    // Held open until the other side ends it, so that what is cut short is cut by the client.
    while matches!(stream.read(&mut buffer).await, Ok(read) if read > 0) {}
}

fn answer(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len())
}

/// Webhooks by these settings.
fn webhook(settings: &str) -> Webhook {
    Webhook::new(&Config::parse(settings).unwrap().webhook).unwrap()
}

fn local() -> Webhook {
    webhook("webhook.allow = \"127.0.0.1\"")
}

async fn scene(webhook: Webhook) -> Scene {
    Scene::start_with("", |builder| webhook.add(builder)).await
}

async fn run(webhook: Webhook, payload: &str) -> Ending {
    let mut scene = scene(webhook).await;
    let ending = scene.run(super::KIND, payload.as_bytes()).await;
    scene.end().await;
    ending
}

async fn check_answer(text: &str, check: impl FnOnce(&Ending) -> bool) {
    let target = Target::start(&[text]).await;
    let ending = run(local(), &format!(r#"{{"url":"{}"}}"#, target.url())).await;
    assert!(check(&ending), "{text}: {ending:?}");
}

fn completed(result: &'static [u8]) -> impl FnOnce(&Ending) -> bool {
    move |ending| *ending == Ending::Completed { result: Some(result.into()) }
}

#[tokio::test]
async fn the_request_is_what_the_payload_says_and_names_its_run() {
    let mut target = Target::start(&[&answer("200 OK", "", r#"{"ok":true}"#)]).await;
    let mut scene = scene(local()).await;
    let payload = format!(
        r#"{{"url":"{}","method":"PUT","headers":{{"X-Shop":"7"}},"body":{{"n": 1.50}}}}"#,
        target.url()
    );
    let id = scene.submit(super::KIND, payload.as_bytes(), Options::new()).await;
    assert!(completed(br#"{"ok":true}"#)(&scene.ended().await));
    let request = target.request().await;
    assert!(request.starts_with("PUT /hook?a=1 HTTP/1.1\r\n"), "{request}");
    assert!(request.ends_with("\r\n\r\n{\"n\": 1.50}"), "{request}");
    let record = scene.client.get(&id).await.unwrap().unwrap();
    let worker = record.worker.unwrap();
    for line in [
        format!("host: {}", target.address),
        "content-type: application/json".into(),
        "x-shop: 7".into(),
        "accept-encoding: identity".into(),
        format!("windlass-task-id: {id}"),
        format!("windlass-epoch: {}", record.epoch.unwrap()),
        format!("windlass-worker-id: {worker}"),
    ] {
        assert!(request.contains(&format!("\r\n{line}\r\n")), "no {line} in {request}");
    }
    assert!(!request.contains("webhook-"), "unsigned: {request}");
    scene.end().await;
}

#[tokio::test]
async fn the_answer_is_the_end_of_the_run() {
    check_answer(&answer("200 OK", "", "not JSON"), completed(b"not JSON")).await;
    check_answer("HTTP/1.1 204 No Content\r\n\r\n", completed(b"null")).await;
    let chunked =
        "HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n2\r\n[1\r\n1\r\n]\r\n0\r\n\r\n";
    check_answer(chunked, completed(b"[1]")).await;
    let is_discarded = |ending: &Ending| matches!(ending, Ending::Discarded { error } if error.contains("no such hook"));
    check_answer(&answer("410 Gone", "", "no such hook"), is_discarded).await;
    check_answer(&answer("422 Unprocessable Entity", "", "no such hook"), is_discarded).await;
    let later = |ending: &Ending| matches!(ending, Ending::Failed { retry_after: Some(after), .. } if *after == Duration::from_secs(7));
    check_answer(&answer("429 Too Many Requests", "retry-after: 7\r\n", ""), later).await;
    check_answer(&answer("503 Service Unavailable", "retry-after: 7\r\n", ""), later).await;
    let is_failed = |ending: &Ending| matches!(ending, Ending::Failed { error, retry_after: None } if error.contains("answered 5"));
    check_answer(&answer("500 Internal Server Error", "retry-after: 7\r\n", "boom"), is_failed)
        .await;
    check_answer(&answer("503 Service Unavailable", "", ""), is_failed).await;
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let mut elsewhere = Target::start(&[&answer("200 OK", "", "")]).await;
    for status in
        ["301 Moved Permanently", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"]
    {
        let location = format!("location: {}\r\n", elsewhere.url());
        let told = |ending: &Ending| matches!(ending, Ending::Failed { error, .. } if error.contains("not followed"));
        check_answer(&answer(status, &location, ""), told).await;
    }
    assert!(!elsewhere.was_asked());
}

#[tokio::test]
async fn an_answer_is_bounded_in_size_and_time() {
    let failed = |text: &'static str| move |ending: &Ending| matches!(ending, Ending::Failed { error, .. } if error.contains(text));
    let large = "x".repeat(2 << 20);
    check_answer(&answer("200 OK", "", &large), failed("more than 1048576 bytes")).await;
    let chunked = format!(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n200000\r\n{large}\r\n0\r\n\r\n"
    );
    check_answer(&chunked, failed("more than 1048576 bytes")).await;
    check_answer(
        &answer("500 No", "", &large),
        |ending| matches!(ending, Ending::Failed { error, .. } if error.len() < 2_000),
    )
    .await;
    check_answer(
        &format!("HTTP/1.1 200 OK\r\nlong: {large}\r\n\r\n"),
        failed("POST http://127.0.0.1"),
    )
    .await;
    check_answer(&answer("200 OK", "content-encoding: gzip\r\n", "zip"), failed("compressed"))
        .await;
    check_answer("no HTTP\r\n\r\n", failed("POST http://127.0.0.1")).await;
    // Neither one that never comes nor one that never ends.
    for text in ["", "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhal"] {
        let target = Target::start(&[text]).await;
        let hasty = webhook("webhook.allow = \"127.0.0.1\"\nwebhook.timeout = \"100ms\"");
        let ending = run(hasty, &format!(r#"{{"url":"{}"}}"#, target.url())).await;
        assert!(failed("no answer in 100ms")(&ending), "{ending:?}");
    }
}

#[tokio::test]
async fn a_webhook_under_way_is_cancelled() {
    let mut target = Target::start(&[""]).await;
    let mut scene = scene(local()).await;
    let payload = format!(r#"{{"url":"{}"}}"#, target.url());
    let id = scene.submit(super::KIND, payload.as_bytes(), Options::new()).await;
    target.request().await;
    scene.client.cancel(&id).await.unwrap();
    assert_eq!(scene.ended().await, Ending::Cancelled);
    scene.end().await;
}

#[tokio::test]
async fn what_is_not_public_is_no_target_in_any_spelling() {
    let mut target = Target::start(&[&answer("200 OK", "", "")]).await;
    let port = target.address.port();
    let mut scene = scene(webhook("")).await;
    for host in [
        "127.0.0.1",
        "localhost",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "0x7f.0x0.0x0.0x1",
        "127.0.0.1.",
        "%31%32%37.0.0.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "0.0.0.0",
        "0",
        "[::]",
        "169.254.169.254",
        "10.0.0.1",
    ] {
        let ending = scene
            .run(super::KIND, format!(r#"{{"url":"http://{host}:{port}/"}}"#).as_bytes())
            .await;
        let Ending::Discarded { error } = &ending else { panic!("{host}: {ending:?}") };
        assert!(error.contains("which webhooks may not be sent to"), "{host}: {error}");
    }
    assert!(!target.was_asked());
    scene.end().await;
}

/// A DNS whose answers follow each other.
struct Planted(Mutex<VecDeque<Vec<IpAddr>>>);

impl Resolve for Planted {
    fn resolve<'a>(
        &'a self,
        _host: &'a str,
    ) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>> {
        let answer = self.0.lock().pop_front();
        Box::pin(async move { answer.ok_or_else(|| io::Error::other("asked once too often")) })
    }
}

fn planted(webhook: Webhook, answers: &[&[&str]]) -> Webhook {
    let read = |answer: &&[&str]| answer.iter().map(|text| text.parse().unwrap()).collect();
    let resolver = Arc::new(Planted(Mutex::new(answers.iter().map(read).collect())));
    Webhook { dialer: Dialer { resolver, ..webhook.dialer }, ..webhook }
}

#[tokio::test]
async fn a_name_is_resolved_once_and_the_address_that_was_judged_is_the_one_connected_to() {
    let mut target = Target::start(&[&answer("200 OK", "", "1")]).await;
    let url = format!("http://rebind.test:{}/", target.address.port());
    // The second answer would be that of a name that was changed between the check and the connection.
    let once = planted(local(), &[&["127.0.0.1"], &["127.0.0.9"]]);
    let ending = run(once, &format!(r#"{{"url":"{url}"}}"#)).await;
    assert!(completed(b"1")(&ending), "{ending:?}");
    assert!(target.request().await.contains("\r\nhost: rebind.test:"), "its own name is sent");
}

#[tokio::test]
async fn a_name_with_one_forbidden_address_is_refused_whole() {
    let mut target = Target::start(&[&answer("200 OK", "", "1")]).await;
    let port = target.address.port();
    for answers in [
        &["1.1.1.1", "127.0.0.1"][..],
        &["127.0.0.1", "10.0.0.1"],
        &["::ffff:127.0.0.1"],
        &["169.254.169.254"],
    ] {
        let nowhere = planted(webhook(""), &[answers]);
        let ending = run(nowhere, &format!(r#"{{"url":"http://evil.test:{port}/"}}"#)).await;
        assert!(matches!(&ending, Ending::Discarded { .. }), "{answers:?}: {ending:?}");
    }
    assert!(!target.was_asked());
    let none = run(planted(webhook(""), &[&[]]), r#"{"url":"http://empty.test/"}"#).await;
    assert!(
        matches!(&none, Ending::Failed { error, .. } if error.contains("no address")),
        "{none:?}"
    );
}

#[tokio::test]
async fn an_allowed_name_may_lead_here() {
    let target = Target::start(&[&answer("200 OK", "", "1")]).await;
    let named = planted(webhook("webhook.allow = \"hooks.internal\""), &[&["127.0.0.1"]]);
    let url = format!("http://hooks.internal:{}/", target.address.port());
    assert!(completed(b"1")(&run(named, &format!(r#"{{"url":"{url}"}}"#)).await));
}

#[tokio::test]
async fn a_request_is_signed_with_a_secret_of_the_worker() {
    let folder = tempfile::tempdir().unwrap();
    let settings = format!("[webhook]\nallow = \"127.0.0.1\"\nsecrets = {:?}", folder.path());
    let mut target = Target::start(&[&answer("200 OK", "", "")]).await;
    let text = format!("host {}\nwhsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", target.url());
    std::fs::write(folder.path().join("shop"), text).unwrap();
    let url = url::Url::parse(&target.url()).unwrap();
    let payload =
        |secret: &str| format!(r#"{{"url":"{}","body":1,"secret":"{secret}"}}"#, target.url());
    let missing = run(webhook(&settings), &payload("none")).await;
    assert!(
        matches!(&missing, Ending::Failed { error, .. } if error.contains("secret none")),
        "{missing:?}"
    );
    let signed = payload("shop");
    assert!(completed(b"null")(&run(webhook(&settings), &signed).await));
    let request = target.request().await;
    let header = |name: &str| {
        let line = request.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        line.unwrap_or_else(|| panic!("no {name} in {request}")).to_owned()
    };
    assert_eq!(header("webhook-id"), header("windlass-task-id"));
    let timestamp = header("webhook-timestamp").parse().unwrap();
    let id = header("webhook-id");
    let message = super::signature::Message { target: &url, id: &id, timestamp, body: b"1" };
    let secrets = super::Secrets::of(&folder.path().display().to_string());
    assert_eq!(header("webhook-signature"), secrets.sign("shop", &message).unwrap());
    assert!(!request.contains("MfKQ9r8GKYqr"), "{request}");
}

#[tokio::test]
async fn https_goes_only_to_a_server_with_a_trusted_certificate_for_its_name() {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![String::from("hooks.test")]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)
        .unwrap();
    let tls = TlsAcceptor::from(Arc::new(config));
    let text = answer("200 OK", "", "1");
    let target = Target::start_with(&[&text, &text, &text], Some(tls)).await;
    for (name, is_trusted, is_fine) in
        [("hooks.test", true, true), ("hooks.test", false, false), ("other.test", true, false)]
    {
        let mut secure = planted(local(), &[&["127.0.0.1"]]);
        if is_trusted {
            let mut roots = RootCertStore::empty();
            roots.add(certificate.der().clone()).unwrap();
            secure.dialer.tls = connector(roots).unwrap().into();
        }
        let url = format!("https://{name}:{}/", target.address.port());
        let ending = run(secure, &format!(r#"{{"url":"{url}"}}"#)).await;
        let is_done = completed(b"1")(&ending);
        assert_eq!(is_done, is_fine, "{name}: {ending:?}");
        let says_tls = matches!(&ending, Ending::Failed { error, .. } if error.contains("TLS"));
        assert!(is_fine || says_tls, "{name}: {ending:?}");
    }
}

#[tokio::test]
async fn a_run_that_was_taken_on_stays_open_until_it_is_reported_or_cancelled() {
    let accepted = answer("202 Accepted", "", "");
    let mut target = Target::start(&[&accepted, &accepted]).await;
    let mut scene = scene(local()).await;
    let app = windlass_server::App::new(scene.client.clone());
    let payload = format!(r#"{{"url":"{}"}}"#, target.url());
    let id = scene.submit(super::KIND, payload.as_bytes(), Options::new()).await;
    let request = target.request().await;
    let header = |name: &str| {
        let line =
            request.lines().find_map(|line| line.strip_prefix(&format!("windlass-{name}: ")));
        line.unwrap().to_owned()
    };
    let report = format!(
        r#"{{"worker_id":"{}","results":[{{"id":"{id}","epoch":"{}","outcome":"completed","result":[7]}}]}}"#,
        header("worker-id"),
        header("epoch")
    );
    let call =
        || app.call(windlass_server::Method::POST, "/api/v1/results", Some(report.clone().into()));
    let (status, told) = call().await;
    assert_eq!(status, 200);
    assert!(String::from_utf8_lossy(&told).contains("applied"), "{told:?}");
    // The slot is free again: its run has heard of it.
    scene.ended().await;
    let (_, told) = call().await;
    assert!(String::from_utf8_lossy(&told).contains("already"), "{told:?}");
    let called_off = scene.submit(super::KIND, payload.as_bytes(), Options::new()).await;
    target.request().await;
    scene.client.cancel(&called_off).await.unwrap();
    assert_eq!(scene.ended().await, Ending::Cancelled);
    scene.end().await;
    let record = scene.client.get(&id).await.unwrap().unwrap();
    assert_eq!((record.state, record.result.as_deref()), (State::Completed, Some(&b"[7]"[..])));
}
