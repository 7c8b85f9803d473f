//! TLS to a real Redis: its certificate must come from someone trusted and name the host.

#![cfg(feature = "redis")]
#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

use std::net::TcpListener;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use windlass_testkit::RedisServer;
use windlass_testkit::servers::redis::Keeping;

/// Someone who signs certificates: its own certificate, in PEM, and its hand.
fn authority() -> (String, Issuer<'static, KeyPair>) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap().pem();
    (certificate, Issuer::new(params, key))
}

#[tokio::test]
async fn only_a_server_with_a_trusted_certificate_for_its_name_is_spoken_to() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (ours, hand) = authority();
    let (strangers, _) = authority();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![String::from("localhost")]).unwrap();
    let certificate = params.signed_by(&key, &hand).unwrap().pem();
    let (ours, strangers) = (write("ours.pem", &ours), write("strangers.pem", &strangers));
    let (certificate, key) =
        (write("cert.pem", &certificate), write("key.pem", &key.serialize_pem()));
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let settings = [
        "--tls-port",
        &port,
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &key,
        "--tls-ca-cert-file",
        &ours,
        "--tls-auth-clients",
        "no",
    ];
    let _server = RedisServer::start_with(Keeping::Nothing, &settings);
    for (host, trusted, is_opened) in [
        ("localhost", ours.as_str(), true),
        ("localhost", strangers.as_str(), false),
        ("127.0.0.1", ours.as_str(), false),
    ] {
        let url = format!("rediss://{host}:{port}/?sslrootcert={trusted}");
        let opened = windlass_stores::open(&url).await;
        assert_eq!(opened.is_ok(), is_opened, "{host}: {:?}", opened.err());
    }
    let url = format!("rediss://localhost:{port}/");
    assert!(windlass_stores::open(&url).await.is_err(), "the system does not trust it");
}
