//! TLS to a real PostgreSQL, as strict as each `sslmode` says.

#![cfg(feature = "postgres")]
#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use windlass_core::Result;
use windlass_core::store::Depth;
use windlass_testkit::servers::PostgresServer;
use windlass_testkit::servers::postgres::Care;

/// Someone who signs certificates: its own certificate, in PEM, and its hand.
fn authority() -> (String, Issuer<'static, KeyPair>) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap().pem();
    (certificate, Issuer::new(params, key))
}

/// A server with a certificate for `localhost`, and the files of those who could have signed it.
struct Scene {
    server: PostgresServer,
    folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let (ours, hand) = authority();
        let (strangers, _) = authority();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![String::from("localhost")]).unwrap();
        let certificate = params.signed_by(&key, &hand).unwrap().pem();
        let server = PostgresServer::start(Care::Careless);
        server.insist_on_tls(&certificate, &key.serialize_pem());
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ours.pem"), ours).unwrap();
        std::fs::write(folder.path().join("strangers.pem"), strangers).unwrap();
        Self { server, folder }
    }

    /// Opens a store at a host that resolves to the server, and asks something of it.
    async fn open(&self, host: &str, mode: &str, trusted: Option<&str>) -> Result<()> {
        let url = self.server.tcp_url("windlass").replace("127.0.0.1", host);
        let mut url = format!("{url}&hostaddr=127.0.0.1&sslmode={mode}");
        if let Some(name) = trusted {
            let path = self.folder.path().join(name);
            url = format!("{url}&sslrootcert={}", path.display());
        }
        let store = windlass_stores::open(&url).await?;
        store.inspect(Depth::Ping).await.map(drop)
    }
}

#[tokio::test]
async fn each_mode_checks_what_it_says() {
    let scene = Scene::new();
    let cases = [
        ("localhost", "disable", None, false),
        ("localhost", "prefer", None, true),
        ("elsewhere", "require", None, true),
        // A certificate to trust has the server's checked, as in libpq, but not its name.
        ("localhost", "require", Some("strangers.pem"), false),
        ("localhost", "prefer", Some("strangers.pem"), false),
        ("elsewhere", "require", Some("ours.pem"), true),
        ("localhost", "verify-full", Some("ours.pem"), true),
        ("elsewhere", "verify-full", Some("ours.pem"), false),
        ("elsewhere", "verify-ca", Some("ours.pem"), true),
        ("localhost", "verify-ca", Some("strangers.pem"), false),
        ("localhost", "verify-full", Some("strangers.pem"), false),
        // Nobody whom this machine trusts has signed it.
        ("localhost", "verify-full", None, false),
    ];
    for (host, mode, trusted, is_let_in) in cases {
        let opened = scene.open(host, mode, trusted).await;
        assert_eq!(opened.is_ok(), is_let_in, "{host} {mode} {trusted:?}: {opened:?}");
    }
}

#[tokio::test]
async fn a_file_that_holds_no_certificate_is_named() {
    let scene = Scene::new();
    std::fs::write(scene.folder.path().join("empty.pem"), "nothing\n").unwrap();
    for name in ["empty.pem", "missing.pem"] {
        let error = scene.open("localhost", "verify-full", Some(name)).await.unwrap_err();
        assert!(error.chain().contains(name), "{error:?}");
    }
}
