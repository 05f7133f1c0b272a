//! A certificate with its private key, and what can be wrong with the two.

use std::sync::Arc;

use thiserror::Error;
use tokio_rustls::rustls;
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::sign::CertifiedKey;
use x509_cert::Certificate;
use x509_cert::certificate::Version;
use x509_cert::der::Decode as _;

/// A certificate chain, leaf first, and its key, as PEM, with the names of their files.
#[derive(Clone, Copy, Debug)]
pub struct KeyPair<'a> {
    /// The name of the certificate in errors.
    pub certificate: &'a str,
    /// The chain.
    pub certificate_pem: &'a [u8],
    /// The name of the key in errors.
    pub key: &'a str,
    /// The key.
    pub key_pem: &'a [u8],
}

/// Why a certificate and a key cannot be used. Errors do not contain their content.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum KeyPairError {
    /// The text has no PEM block with a certificate.
    #[error("{0}: no PEM certificate found")]
    NoCertificate(String),
    /// Neither of the two has a PEM block.
    #[error("{certificate}: no PEM certificate found; {key}: no PEM private key found")]
    Neither {
        /// The name of the certificate.
        certificate: String,
        /// The name of the key.
        key: String,
    },
    /// The text has no PEM block with a private key.
    #[error("{0}: no PEM private key found")]
    NoKey(String),
    /// The certificate is older than X.509 version 3.
    #[error("{0}: version {1} certificate; version 3 is needed")]
    OldVersion(String, u8),
    /// The key belongs to another certificate.
    #[error("{key} does not belong to {certificate}")]
    Mismatch {
        /// The name of the key.
        key: String,
        /// The name of the certificate.
        certificate: String,
    },
    /// The certificate or the key is malformed, or of an unknown kind.
    #[error("{0}: {1}")]
    Unusable(String, rustls::Error),
}

impl KeyPair<'_> {
    /// Parses both, and checks that they belong together.
    pub fn parse(&self, provider: &CryptoProvider) -> Result<CertifiedKey, KeyPairError> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(self.certificate_pem).collect();
        let chain = chain.ok().filter(|chain| !chain.is_empty());
        let key = PrivateKeyDer::from_pem_slice(self.key_pem);
        let chain = chain.ok_or_else(|| match key {
            Ok(_) => KeyPairError::NoCertificate(self.certificate.to_owned()),
            Err(_) => {
                let (certificate, key) = (self.certificate.to_owned(), self.key.to_owned());
                KeyPairError::Neither { certificate, key }
            }
        })?;
        if let Some(version) = old_version(&chain[0]) {
            return Err(KeyPairError::OldVersion(self.certificate.to_owned(), version));
        }
        let key = key.map_err(|_| KeyPairError::NoKey(self.key.to_owned()))?;
        let unusable = |name: &str, error| KeyPairError::Unusable(name.to_owned(), error);
        let key = provider.key_provider.load_private_key(key).map_err(|error| unusable(self.key, error))?;
        let pair = CertifiedKey::new(chain, Arc::clone(&key));
        match pair.keys_match() {
            Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::KeyMismatch)) => {
                let (key, certificate) = (self.key.to_owned(), self.certificate.to_owned());
                Err(KeyPairError::Mismatch { key, certificate })
            }
            // The kind of the key does not tell its public key.
            Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => Ok(pair),
            Err(error) => Err(unusable(self.certificate, error)),
        }
    }
}

/// The version of a certificate, if that is not 3.
fn old_version(certificate: &CertificateDer<'_>) -> Option<u8> {
    match Certificate::from_der(certificate).ok()?.tbs_certificate.version {
        Version::V1 => Some(1),
        Version::V2 => Some(2),
        Version::V3 => None,
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair as GeneratedKey};
    use tokio_rustls::rustls::crypto::ring;

    use super::*;

    /// As `openssl x509 -req` makes them without an extension file.
    const VERSION_1: &[u8] = b"-----BEGIN CERTIFICATE-----
MIIBFDCBuwIUNPYMnYh3hdHvd8o5MqWnhI5u468wCgYIKoZIzj0EAwIwDTELMAkG
A1UEAwwCdjEwHhcNMjYxMTIzMTAwNDA1WhcNMjYxMjIzMTAwNDA1WjANMQswCQYD
VQQDDAJ2MTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABNrVQmvlu87q7S6ygHWE
5tjnhUakTStUv42GmCWDp9bn0HOMm71cwwcZOYGgSLE3Ly6vEdncOLHq++r6jYlo
QKMwCgYIKoZIzj0EAwIDSAAwRQIhAJwPvXsFGfxTWlJc4e9TA8lv0wUbecD1HPu6
4DaesdKCAiAf/RQY/2KlVgxRdn024MX5sulvCQ1apnH6x3FDy5MzaA==
-----END CERTIFICATE-----
";

    fn parse(certificate_pem: &[u8], key_pem: &[u8]) -> Result<CertifiedKey, KeyPairError> {
        let pair = KeyPair { certificate: "a.crt", certificate_pem, key: "b.key", key_pem };
        pair.parse(&ring::default_provider())
    }

    #[test]
    fn errors_name_the_file_that_is_wrong() {
        let key = GeneratedKey::generate().unwrap();
        let certificate = CertificateParams::default().self_signed(&key).unwrap().pem();
        let (certificate, key) = (certificate.as_bytes(), key.serialize_pem());
        let key = key.as_bytes();
        let other = GeneratedKey::generate().unwrap().serialize_pem();
        let truncated = &certificate[..certificate.len() - 40];
        let not_a_certificate = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(parse(certificate, key).is_ok());
        for (certificate, key, error) in [
            (
                &b"garbage"[..],
                &b"garbage"[..],
                "a.crt: no PEM certificate found; b.key: no PEM private key found",
            ),
            (b"garbage", key, "a.crt: no PEM certificate found"),
            (certificate, b"garbage", "b.key: no PEM private key found"),
            (truncated, key, "a.crt: no PEM certificate found"),
            (b"", key, "a.crt: no PEM certificate found"),
            (certificate, other.as_bytes(), "b.key does not belong to a.crt"),
            (VERSION_1, key, "a.crt: version 1 certificate; version 3 is needed"),
            (not_a_certificate, key, "a.crt: invalid peer certificate: BadEncoding"),
        ] {
            assert_eq!(parse(certificate, key).unwrap_err().to_string(), error);
        }
    }
}
