//! TLS to the server, as strict as the URL asks for.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use tokio_postgres_rustls::MakeRustlsConnect;
use windlass_core::{Error, ErrorKind, Result};

use super::options::Trust;

/// What the driver needs to speak TLS.
pub(super) fn connector(trust: &Trust) -> Result<MakeRustlsConnect> {
    let failed = |cause: rustls::Error| Error::invalid("set up TLS to postgres").because(cause);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let strict = match trust.is_verified() {
        false => None,
        true => {
            let roots = Arc::new(roots(trust)?);
            let verifier =
                WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider)).build();
            Some(
                verifier.map_err(|cause| {
                    Error::invalid("read the certificates to trust").because(cause)
                })?,
            )
        }
    };
    let verifier =
        Verifier { strict, checks_name: trust.checks_name, provider: Arc::clone(&provider) };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(failed)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

fn roots(trust: &Trust) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    match &trust.authorities {
        Some(path) => {
            let unreadable = |cause: rustls::pki_types::pem::Error| {
                let text = format!("read the certificates in {}", path.display());
                Error::new(ErrorKind::Invalid, text).because(cause)
            };
            for certificate in CertificateDer::pem_file_iter(path).map_err(unreadable)? {
                let certificate = certificate.map_err(unreadable)?;
                roots.add(certificate).map_err(|cause| {
                    Error::invalid("read a certificate to trust").because(cause)
                })?;
            }
            if roots.is_empty() {
                return Err(Error::invalid(format!("no certificate in {}", path.display())));
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    Ok(roots)
}

/// Checks as much as `sslmode` asks for: nothing, the authority, or also the name.
#[derive(Debug)]
struct Verifier {
    strict: Option<Arc<WebPkiServerVerifier>>,
    checks_name: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(strict) = &self.strict else {
            return Ok(ServerCertVerified::assertion());
        };
        let verified =
            strict.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.checks_name => Ok(ServerCertVerified::assertion()),
            answer => answer,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
