//! Secure serving flags.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use clap::{ArgAction, Args};

use super::value::{FlagError, boolean};

/// kube-scheduler's port.
const PORT: u16 = 10259;

/// The supported cipher suites: Go's names (some suites have two) and IANA numbers.
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

/// How the HTTPS endpoints are served.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Secure serving flags")]
pub struct ServingOptions {
    /// IP address to listen on for --secure-port; 0.0.0.0 and :: mean all addresses.
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    pub bind_address: IpAddr,
    /// Port to serve HTTPS on, with authentication and authorization; 0 disables serving.
    #[arg(long, value_name = "PORT", default_value_t = PORT)]
    pub secure_port: u16,
    /// Folder of the serving certificate (`kube-scheduler.crt`) and its key (`kube-scheduler.key`).
    /// Missing files are generated and written there. Without this flag, each process generates a
    /// certificate in memory.
    #[arg(long, value_name = "FOLDER")]
    pub cert_dir: Option<PathBuf>,
    /// PEM file with the serving certificate, followed by its CA certificates. Requires
    /// --tls-private-key-file.
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// PEM file with the private key of --tls-cert-file.
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
    /// Minimum TLS version: VersionTLS12 or VersionTLS13.
    #[arg(long, value_name = "VERSION", default_value_t, value_parser = TlsVersion::parse)]
    pub tls_min_version: TlsVersion,
    /// Cipher suites to offer, by their Go names; their order has no meaning. Defaults to all
    /// secure suites. TLS 1.3 suites are always offered.
    #[arg(long, value_name = "SUITES", value_delimiter = ',', value_parser = cipher_suite)]
    pub tls_cipher_suites: Vec<u16>,
    /// Certificate and key for clients that request certain host names, as in
    /// `a.crt,a.key:example.com,*.example.com`. Without names, those of the certificate apply. May
    /// be repeated.
    #[arg(long, value_name = "FILES", value_parser = NamedPair::parse)]
    pub tls_sni_cert_key: Vec<NamedPair>,
    /// Maximum concurrent streams per HTTP/2 connection; 0 uses the default.
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

/// A certificate for clients that request certain host names (SNI).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPair {
    /// The certificate, as PEM.
    pub certificate: PathBuf,
    /// Its key, as PEM.
    pub key: PathBuf,
    /// The host names; `*.` matches exactly one label. If empty, those of the certificate apply.
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

    /// Go's name of the version.
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
