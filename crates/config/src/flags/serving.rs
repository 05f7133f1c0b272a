//! How health, metrics and the rest are served.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use clap::{ArgAction, Args};

use super::value::{FlagError, boolean};

/// kube-scheduler's port.
const PORT: u16 = 10259;

/// The cipher suites that are served: upstream's names (some suites have two) and IANA numbers.
const CIPHER_SUITES: &[(&str, u16)] = &[
    ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", 0xc02b),
    ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", 0xc02c),
    ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", 0xcca9),
    ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305", 0xcca9),
    ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", 0xc02f),
    ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", 0xc030),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", 0xcca8),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", 0xcca8),
    ("TLS_AES_128_GCM_SHA256", 0x1301),
    ("TLS_AES_256_GCM_SHA384", 0x1302),
    ("TLS_CHACHA20_POLY1305_SHA256", 0x1303),
];

/// How health, metrics and the rest are served over HTTPS.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Secure serving flags")]
pub struct ServingOptions {
    /// The address to listen on for --secure-port; 0.0.0.0 and :: mean all.
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    pub bind_address: IpAddr,
    /// The port on which HTTPS is served, with authentication and authorization; 0 serves nothing.
    #[arg(long, value_name = "PORT", default_value_t = PORT)]
    pub secure_port: u16,
    /// The folder of the certificate (`kube-scheduler.crt`) and its key (`kube-scheduler.key`). What is not there is made and
    /// written there. Without it, a certificate is made for this process alone.
    #[arg(long, value_name = "FOLDER")]
    pub cert_dir: Option<PathBuf>,
    /// The certificate to serve with, and after it those of whoever has signed it, as PEM. Needs --tls-private-key-file.
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// The key of --tls-cert-file, as PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
    /// The oldest version of TLS that is served: VersionTLS12 or VersionTLS13.
    #[arg(long, value_name = "VERSION", default_value_t, value_parser = TlsVersion::parse)]
    pub tls_min_version: TlsVersion,
    /// The cipher suites that are offered, in no order, by the names that Go has for them. Without it: all that are
    /// safe. Those of TLS 1.3 are always offered.
    #[arg(long, value_name = "SUITES", value_delimiter = ',', value_parser = cipher_suite)]
    pub tls_cipher_suites: Vec<u16>,
    /// A certificate and its key for clients that ask for certain names, as in `a.crt,a.key:example.com,*.example.com`; without
    /// names, for those in the certificate. May be given several times.
    #[arg(long, value_name = "FILES", value_parser = NamedPair::parse)]
    pub tls_sni_cert_key: Vec<NamedPair>,
    /// The most requests at once on an HTTP/2 connection; 0 for the default.
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub http2_max_streams_per_connection: u32,
    /// Serve HTTP/1.1 only.
    #[arg(
        long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true,
        default_value = "false", default_missing_value = "true", value_parser = boolean
    )]
    pub disable_http2_serving: bool,
}

impl Default for ServingOptions {
    fn default() -> Self {
        super::defaults()
    }
}

/// A certificate for clients that ask for certain names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPair {
    /// The certificate, as PEM.
    pub certificate: PathBuf,
    /// Its key, as PEM.
    pub key: PathBuf,
    /// The names, with `*.` for any one label. None: those in the certificate.
    pub names: Vec<String>,
}

impl NamedPair {
    fn parse(text: &str) -> Result<Self, FlagError> {
        let (files, names) = text.split_once(':').map_or((text, None), |(files, names)| (files, Some(names)));
        let (certificate, key) = files.split_once(',').ok_or(FlagError::NamedPair)?;
        let (certificate, key) = (certificate.trim(), key.trim());
        let names: Vec<String> =
            names.into_iter().flat_map(|names| names.split(',')).map(|name| name.trim().to_owned()).collect();
        if certificate.is_empty() || key.is_empty() || key.contains(',') || names.iter().any(String::is_empty)
        {
            return Err(FlagError::NamedPair);
        }
        Ok(Self { certificate: certificate.into(), key: key.into(), names })
    }
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// TLS 1.2.
    #[default]
    Tls12,
    /// TLS 1.3.
    Tls13,
}

impl TlsVersion {
    fn parse(name: &str) -> Result<Self, FlagError> {
        let found = [Self::Tls12, Self::Tls13].into_iter().find(|version| version.name() == name);
        found.ok_or(FlagError::TlsVersion)
    }

    /// The name that Go has for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tls12 => "VersionTLS12",
            Self::Tls13 => "VersionTLS13",
        }
    }
}

impl std::fmt::Display for TlsVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

fn cipher_suite(name: &str) -> Result<u16, FlagError> {
    let found = CIPHER_SUITES.iter().find(|(known, _)| *known == name).map(|(_, suite)| *suite);
    found.ok_or_else(|| {
        FlagError::CipherSuite(CIPHER_SUITES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "))
    })
}
