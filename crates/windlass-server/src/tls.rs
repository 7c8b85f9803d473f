//! The certificate of a server, read anew when its files change: connections that are open keep theirs, new ones
//! get the new one, and a broken file changes nothing.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::task::AbortOnDropHandle;
use windlass_core::{Error, Result};

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Largest file that is read: a chain has some kilobytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// TLS with a certificate in files. Cheap to clone.
#[derive(Clone)]
pub struct Tls {
    acceptor: TlsAcceptor,
    certificate: Arc<Certificate>,
}

#[derive(Debug)]
struct Certificate {
    chain: PathBuf,
    key: PathBuf,
    provider: Arc<CryptoProvider>,
    present: Mutex<Present>,
}

#[derive(Debug)]
struct Present {
    key: Arc<CertifiedKey>,
    /// The files that were read last, whether they were good or not.
    read: blake3::Hash,
    /// What is wrong with them and was not told yet: one of two files may be new already and the other not.
    wrong: Option<Error>,
}

impl Tls {
    /// Reads the certificate, with those between it and its root, and its private key, both in PEM.
    pub fn open(chain: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Result<Self> {
        let (chain, key) = (chain.into(), key.into());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let files = Files::read(&chain, &key)?;
        let present = Present { key: files.parse(&provider)?, read: files.hash(), wrong: None };
        let present = Mutex::new(present);
        let certificate = Arc::new(Certificate { chain, key, provider: provider.clone(), present });
        let failed = |cause| Error::invalid("set up TLS").because(cause);
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(failed)?
            .with_no_client_auth()
            .with_cert_resolver(certificate.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), certificate })
    }

    /// Reads the files anew; true when there is another certificate now. On an error the old one stays.
    pub fn reload(&self) -> Result<bool> {
        let is_new = self.look()?;
        match self.certificate.present.lock().wrong.take() {
            Some(wrong) => Err(wrong),
            None => Ok(is_new),
        }
    }

    /// The same, but what is wrong is told at the second look only.
    fn look(&self) -> Result<bool> {
        let Certificate { chain, key, provider, present } = &*self.certificate;
        let files = Files::read(chain, key)?;
        let read = files.hash();
        if present.lock().read == read {
            return match present.lock().wrong.take() {
                Some(wrong) => Err(wrong),
                None => Ok(false),
            };
        }
        let parsed = files.parse(provider);
        let mut present = present.lock();
        present.read = read;
        match parsed {
            Ok(key) => {
                present.key = key;
                present.wrong = None;
                Ok(true)
            }
            Err(error) => {
                present.wrong = Some(error);
                Ok(false)
            }
        }
    }

    /// Reads the files anew whenever they have changed, until what this answers is dropped.
    pub(crate) fn renew(&self) -> AbortOnDropHandle<()> {
        let tls = self.clone();
        AbortOnDropHandle::new(tokio::spawn(async move {
            let mut is_readable = true;
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                let looking = tls.clone();
                // Files may lie on a disk that hangs.
                match tokio::task::spawn_blocking(move || looking.look()).await {
                    Ok(Ok(is_new)) => {
                        is_readable = true;
                        if is_new {
                            tracing::info!("there is a new certificate");
                        }
                    }
                    Ok(Err(error)) if is_readable => {
                        is_readable = false;
                        let error = error.chain();
                        tracing::warn!(
                            error,
                            "the new certificate cannot be used; the old one stays"
                        );
                    }
                    Ok(Err(_)) => {}
                    Err(_) => return,
                }
            }
        }))
    }

    /// Shakes hands.
    pub(crate) async fn accept<S>(&self, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        self.acceptor.accept(stream).await
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tls({})", self.certificate.chain.display())
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.present.lock().key.clone())
    }
}

/// The files as they are.
struct Files<'a> {
    chain: (&'a PathBuf, Vec<u8>),
    key: (&'a PathBuf, Vec<u8>),
}

impl<'a> Files<'a> {
    fn read(chain: &'a PathBuf, key: &'a PathBuf) -> Result<Self> {
        Ok(Self { chain: (chain, read(chain)?), key: (key, read(key)?) })
    }

    fn hash(&self) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new();
        hasher.update(blake3::hash(&self.chain.1).as_bytes());
        hasher.update(blake3::hash(&self.key.1).as_bytes());
        hasher.finalize()
    }

    fn parse(&self, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>> {
        let (path, bytes) = &self.chain;
        let unread = |cause| {
            Error::invalid(format!("read the certificate {}", path.display())).because(cause)
        };
        let chain: Vec<_> =
            CertificateDer::pem_slice_iter(bytes).collect::<Result<_, _>>().map_err(unread)?;
        if chain.is_empty() {
            return Err(Error::invalid(format!("{} holds no certificate", path.display())));
        }
        let (path, bytes) = &self.key;
        let unread = |cause| {
            Error::invalid(format!("read the private key {}", path.display())).because(cause)
        };
        let key = PrivateKeyDer::from_pem_slice(bytes).map_err(unread)?;
        let unfit = |cause| {
            let text = format!("use the certificate {} with its key", self.chain.0.display());
            Error::invalid(text).because(cause)
        };
        Ok(Arc::new(CertifiedKey::from_der(chain, key, provider).map_err(unfit)?))
    }
}

fn read(path: &PathBuf) -> Result<Vec<u8>> {
    let failed = |cause| Error::invalid(format!("read {}", path.display())).because(cause);
    let mut bytes = Vec::new();
    let mut file = io::Read::take(std::fs::File::open(path).map_err(failed)?, FILE_BYTES_MAX);
    io::Read::read_to_end(&mut file, &mut bytes).map_err(failed)?;
    Ok(bytes)
}
