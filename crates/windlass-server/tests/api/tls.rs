//! TLS with certificates in files that change while the server runs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use windlass_server::{Bounds, Tls};

use crate::support::{Server, bounds};

/// A folder with the files of a certificate.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a new certificate, and answers it.
    fn write(&self) -> CertificateDer<'static> {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![String::from("localhost")]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        std::fs::write(self.path("cert.pem"), certificate.pem()).unwrap();
        std::fs::write(self.path("key.pem"), key.serialize_pem()).unwrap();
        certificate.der().clone()
    }

    fn open(&self) -> windlass_core::Result<Tls> {
        Tls::open(self.path("cert.pem"), self.path("key.pem"))
    }
}

fn connector(trusted: &CertificateDer<'static>, protocols: &[&str]) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    TlsConnector::from(Arc::new(config))
}

type Secure = TlsStream<TcpStream>;

async fn connect(server: &Server, trusted: &CertificateDer<'static>) -> std::io::Result<Secure> {
    let name = ServerName::try_from("localhost").unwrap();
    connector(trusted, &["http/1.1"]).connect(name, server.connect().await).await
}

/// Asks on a connection that stays open.
async fn ask(stream: &mut Secure) {
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut text = Vec::new();
    while !text.ends_with(b"}") {
        let read = stream.read_buf(&mut text).await.unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&text));
    }
    assert!(text.starts_with(b"HTTP/1.1 200"));
}

#[tokio::test]
async fn a_new_certificate_counts_for_new_connections_and_cuts_none() {
    let files = Files::new();
    let first = files.write();
    let tls = files.open().unwrap();
    let server = Server::start_with(bounds(), Some(tls.clone())).await;
    let mut open = connect(&server, &first).await.unwrap();
    ask(&mut open).await;
    // What is broken changes nothing.
    std::fs::write(files.path("cert.pem"), "nothing").unwrap();
    let error = tls.reload().unwrap_err();
    assert!(error.chain().contains("cert.pem"), "{error:?}");
    ask(&mut connect(&server, &first).await.unwrap()).await;
    // Nor does a certificate without its key, as it is while one of two files is new.
    let key = std::fs::read(files.path("key.pem")).unwrap();
    let second = files.write();
    let new_key = std::fs::read(files.path("key.pem")).unwrap();
    std::fs::write(files.path("key.pem"), key).unwrap();
    assert!(tls.reload().is_err());
    ask(&mut connect(&server, &first).await.unwrap()).await;
    // From here on the server is on its own.
    std::fs::write(files.path("key.pem"), new_key).unwrap();
    let renewed = async {
        while connect(&server, &second).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), renewed).await.expect("it looks at the files");
    assert!(connect(&server, &first).await.is_err(), "the old certificate is gone");
    ask(&mut open).await;
    assert!(!tls.reload().unwrap(), "nothing has changed since");
    server.stop().await;
}

#[tokio::test]
async fn files_that_hold_no_certificate_are_named() {
    let files = Files::new();
    assert!(files.open().unwrap_err().chain().contains("cert.pem"), "there is none");
    files.write();
    std::fs::write(files.path("key.pem"), "nothing").unwrap();
    assert!(files.open().unwrap_err().chain().contains("key.pem"));
}

#[tokio::test]
async fn both_versions_are_offered() {
    let files = Files::new();
    let certificate = files.write();
    let server = Server::start_with(bounds(), Some(files.open().unwrap())).await;
    for (offered, chosen) in [(&["h2", "http/1.1"][..], "h2"), (&["http/1.1"], "http/1.1")] {
        let name = ServerName::try_from("localhost").unwrap();
        let connector = connector(&certificate, offered);
        let stream = connector.connect(name, server.connect().await).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(chosen.as_bytes()));
    }
    server.stop().await;
}

#[tokio::test]
async fn a_handshake_that_does_not_end_is_cut_off_and_holds_up_nobody() {
    let files = Files::new();
    let certificate = files.write();
    let short = Bounds { head_read: Duration::from_millis(300), ..bounds() };
    let server = Server::start_with(short, Some(files.open().unwrap())).await;
    let mut slow = Vec::new();
    for said in [&b""[..], b"\x16\x03\x01", b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"] {
        let mut stream = server.connect().await;
        stream.write_all(said).await.unwrap();
        slow.push(stream);
    }
    ask(&mut connect(&server, &certificate).await.unwrap()).await;
    for mut stream in slow {
        let mut bytes = Vec::new();
        let read = tokio::time::timeout(Duration::from_secs(60), stream.read_to_end(&mut bytes));
        let _ = read.await.expect("it is closed");
        assert!(!bytes.starts_with(b"HTTP"), "nothing is said in plain text");
    }
    server.stop().await;
}
