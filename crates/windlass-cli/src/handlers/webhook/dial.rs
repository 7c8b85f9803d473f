//! The way to a target: a name is resolved once, every address is judged, and the connection goes to a judged
//! address itself. Nothing resolves the name again, so no answer of a DNS server can be changed in between.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use url::{Host, Url};

use super::address::Allow;

/// How long everything up to the first byte of the request may take.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// How long one address of several may take to answer.
const ADDRESS_MAX: Duration = Duration::from_secs(4);
/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 4;

/// Why there is no connection.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The target is none that webhooks may be sent to.
    Forbidden(String),
    /// It cannot be reached now.
    Failed(String),
}

/// Finds the addresses of a name.
pub(super) trait Resolve: Send + Sync {
    fn resolve<'a>(&'a self, host: &'a str) -> Pin<Box<dyn Future<Output = Resolved> + Send + 'a>>;
}

type Resolved = io::Result<Vec<IpAddr>>;

/// Whatever the system asks.
pub(super) struct System;

impl Resolve for System {
    fn resolve<'a>(&'a self, host: &'a str) -> Pin<Box<dyn Future<Output = Resolved> + Send + 'a>> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((host, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// A connection, with TLS or without.
pub(super) type Wire = Box<dyn Duplex>;

pub(super) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// Makes connections to targets.
pub(super) struct Dialer {
    pub(super) allow: Allow,
    pub(super) resolver: Arc<dyn Resolve>,
    /// Made at the first need: the roots of the system are many.
    pub(super) tls: OnceLock<TlsConnector>,
}

impl Dialer {
    pub(super) fn new(allow: Allow) -> Self {
        Self { allow, resolver: Arc::new(System), tls: OnceLock::new() }
    }

    /// Connects to the host of a URL, with TLS if it is `https`.
    pub(super) async fn connect(&self, url: &Url) -> Result<Wire, Trouble> {
        let connected = tokio::time::timeout(CONNECT_MAX, self.connect_slowly(url)).await;
        connected
            .unwrap_or_else(|_| Err(Trouble::Failed(format!("no connection in {CONNECT_MAX:?}"))))
    }

    async fn connect_slowly(&self, url: &Url) -> Result<Wire, Trouble> {
        let addresses = self.addresses(url).await?;
        let stream = dial(&addresses).await?;
        // Requests are written whole; to wait for more would only delay them.
        let _ = stream.set_nodelay(true);
        if url.scheme() == "http" {
            return Ok(Box::new(stream));
        }
        let unnamed = |_| Trouble::Forbidden("the host is no name for TLS".into());
        let name = ServerName::try_from(host_text(url)).map_err(unnamed)?;
        let failed = |cause| Trouble::Failed(format!("TLS: {cause}"));
        let connector = self.connector().map_err(Trouble::Failed)?;
        Ok(Box::new(connector.connect(name, stream).await.map_err(failed)?))
    }

    /// Every address of the host, all of them allowed. A name that leads anywhere else besides is refused
    /// whole: one good address among bad ones is what an attacker would add.
    async fn addresses(&self, url: &Url) -> Result<Vec<SocketAddr>, Trouble> {
        let host = host_text(url);
        let found = match url.host() {
            Some(Host::Ipv4(address)) => vec![IpAddr::V4(address)],
            Some(Host::Ipv6(address)) => vec![IpAddr::V6(address)],
            Some(Host::Domain(name)) => {
                let failed = |cause| Trouble::Failed(format!("resolve {name}: {cause}"));
                self.resolver.resolve(name).await.map_err(failed)?
            }
            None => Vec::new(),
        };
        let port = url.port_or_known_default().unwrap_or_default();
        let found: Vec<_> = found.into_iter().map(|ip| SocketAddr::new(ip, port)).collect();
        for address in &found {
            self.allow.check(&host, *address).map_err(Trouble::Forbidden)?;
        }
        if found.is_empty() {
            return Err(Trouble::Failed(format!("{host} has no address")));
        }
        Ok(found)
    }

    fn connector(&self) -> Result<&TlsConnector, String> {
        if let Some(connector) = self.tls.get() {
            return Ok(connector);
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let connector = connector(roots)?;
        Ok(self.tls.get_or_init(|| connector))
    }
}

/// Connects to the first address that answers.
async fn dial(addresses: &[SocketAddr]) -> Result<TcpStream, Trouble> {
    let mut last = String::from("no address");
    for address in addresses.iter().take(ADDRESSES_MAX) {
        match tokio::time::timeout(ADDRESS_MAX, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(cause)) => last = format!("connect to {address}: {cause}"),
            Err(_) => last = format!("connect to {address}: no answer in {ADDRESS_MAX:?}"),
        }
    }
    Err(Trouble::Failed(last))
}

/// TLS that trusts these roots and speaks HTTP/1.1.
pub(super) fn connector(roots: RootCertStore) -> Result<TlsConnector, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let failed = |cause| format!("set up TLS: {cause}");
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(failed)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// The host without the brackets of an IPv6 address.
fn host_text(url: &Url) -> String {
    url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned()
}
