//! TLS towards clients.

use std::fmt;
use std::sync::Arc;

use tokio_rustls::rustls::client::danger::HandshakeSignatureValid;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::{
    CipherSuite, DEFAULT_VERSIONS, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme, SupportedProtocolVersion, version,
};

use super::certificate::Serving;
use crate::flags::{ServingOptions, TlsVersion};

/// Everything cryptographic, as it comes.
pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// How clients are spoken to.
pub(super) fn config(options: &ServingOptions, certificate: Arc<Serving>) -> Result<ServerConfig, Error> {
    let provider = offering(&options.tls_cipher_suites);
    let anyone = Arc::new(Anyone { provider: Arc::clone(&provider) });
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions(options.tls_min_version))?
        .with_client_cert_verifier(anyone)
        .with_cert_resolver(certificate);
    let protocols: &[&[u8]] =
        if options.disable_http2_serving { &[b"http/1.1"] } else { &[b"h2", b"http/1.1"] };
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(config)
}

static ONLY_TLS13: &[&SupportedProtocolVersion] = &[&version::TLS13];

fn versions(oldest: TlsVersion) -> &'static [&'static SupportedProtocolVersion] {
    match oldest {
        TlsVersion::Tls12 => DEFAULT_VERSIONS,
        TlsVersion::Tls13 => ONLY_TLS13,
    }
}

/// These cipher suites, or all when none is named. Those of TLS 1.3 are always there, as in Go.
fn offering(named: &[CipherSuite]) -> Arc<CryptoProvider> {
    let mut provider = ring::default_provider();
    if !named.is_empty() {
        provider.cipher_suites.retain(|suite| suite.tls13().is_some() || named.contains(&suite.suite()));
    }
    Arc::new(provider)
}

/// Takes any certificate whose key the client has. Whether anybody believes it is asked for each request, so that a client that
/// is not known gets an answer, and not a broken connection.
struct Anyone {
    provider: Arc<CryptoProvider>,
}

impl fmt::Debug for Anyone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Anyone")
    }
}

impl ClientCertVerifier for Anyone {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
