//! TLS settings.

use std::fmt;
use std::sync::Arc;

use tokio_rustls::rustls::client::danger::HandshakeSignatureValid;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::{
    DEFAULT_VERSIONS, DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme,
    SupportedProtocolVersion, version,
};

use super::sni::Certificates;
use supercargo_config::flags::{ServingOptions, TlsVersion};

/// The default crypto provider.
pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// The server's TLS configuration.
pub(super) fn config(
    options: &ServingOptions,
    certificates: Arc<Certificates>,
) -> Result<ServerConfig, Error> {
    let provider = offering(&options.tls_cipher_suites);
    let accept_any = Arc::new(AcceptAnyClientCert { provider: Arc::clone(&provider) });
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions(options.tls_min_version))?
        .with_client_cert_verifier(accept_any)
        .with_cert_resolver(certificates);
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

/// A provider with these cipher suites, by IANA number, or all if none is given. TLS 1.3 suites are
/// always included, as in Go.
fn offering(named: &[u16]) -> Arc<CryptoProvider> {
    let mut provider = ring::default_provider();
    if !named.is_empty() {
        provider
            .cipher_suites
            .retain(|suite| suite.tls13().is_some() || named.contains(&suite.suite().into()));
    }
    Arc::new(provider)
}

/// Accepts any client certificate whose key the client has. Trust is checked per request, so that
/// an unknown client gets a response instead of a broken connection.
struct AcceptAnyClientCert {
    provider: Arc<CryptoProvider>,
}

impl fmt::Debug for AcceptAnyClientCert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AcceptAnyClientCert")
    }
}

impl ClientCertVerifier for AcceptAnyClientCert {
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

#[cfg(test)]
mod tests {
    use std::io;

    use tokio_rustls::rustls::pki_types::ServerName;
    use tokio_rustls::rustls::pki_types::pem::PemObject as _;
    use tokio_rustls::rustls::{CipherSuite, ClientConfig, ProtocolVersion, RootCertStore};
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::*;

    const AES_128: CipherSuite = CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;
    const AES_256: CipherSuite = CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384;
    const OF_TLS13: CipherSuite = CipherSuite::TLS13_AES_128_GCM_SHA256;

    /// The negotiated version and suite for a client that supports only these.
    async fn agreed(
        options: ServingOptions,
        version: &'static SupportedProtocolVersion,
        suites: &[CipherSuite],
    ) -> io::Result<(Option<ProtocolVersion>, Option<CipherSuite>)> {
        let folder = tempfile::tempdir().unwrap();
        let options = ServingOptions { cert_dir: Some(folder.path().to_owned()), ..options };
        let certificates = Arc::new(Certificates::new(&options, "host").unwrap());
        let pem = std::fs::read(folder.path().join("kube-scheduler.crt")).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&pem).unwrap()).unwrap();
        let mut provider = ring::default_provider();
        provider.cipher_suites.retain(|suite| suites.contains(&suite.suite()));
        let client = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let server = TlsAcceptor::from(Arc::new(config(&options, certificates).unwrap()));
        let client = TlsConnector::from(Arc::new(client));
        let (near, far) = tokio::io::duplex(1 << 16);
        let name = ServerName::try_from("localhost").unwrap();
        let (accepted, connected) = tokio::join!(server.accept(far), client.connect(name, near));
        let accepted = accepted?;
        connected?;
        let session = accepted.get_ref().1;
        Ok((session.protocol_version(), session.negotiated_cipher_suite().map(|suite| suite.suite())))
    }

    #[tokio::test]
    async fn a_client_that_only_speaks_tls_12_is_refused_where_13_is_the_oldest() {
        let oldest = |tls_min_version| ServingOptions { tls_min_version, ..ServingOptions::default() };
        let (tls12, tls13) = (Some(ProtocolVersion::TLSv1_2), Some(ProtocolVersion::TLSv1_3));
        for oldest in [oldest(TlsVersion::Tls12), oldest(TlsVersion::Tls13)] {
            assert_eq!(agreed(oldest, &version::TLS13, &[OF_TLS13]).await.unwrap().0, tls13);
        }
        let served = agreed(oldest(TlsVersion::Tls12), &version::TLS12, &[AES_128]).await.unwrap();
        assert_eq!(served.0, tls12);
        assert!(agreed(oldest(TlsVersion::Tls13), &version::TLS12, &[AES_128]).await.is_err());
    }

    #[tokio::test]
    async fn a_cipher_suite_that_is_not_listed_is_refused() {
        let listed =
            || ServingOptions { tls_cipher_suites: vec![AES_256.into()], ..ServingOptions::default() };
        let served = agreed(listed(), &version::TLS12, &[AES_128, AES_256]).await.unwrap();
        assert_eq!(served.1, Some(AES_256));
        assert!(agreed(listed(), &version::TLS12, &[AES_128]).await.is_err());
        let served = agreed(listed(), &version::TLS13, &[OF_TLS13]).await.unwrap();
        assert_eq!(served.1, Some(OF_TLS13), "those of TLS 1.3 are always offered");
    }
}
