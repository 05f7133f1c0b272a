//! Why the server cannot start.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use supercargo_client::connection::ConnectError;
use supercargo_client::key_pair::KeyPairError;
use thiserror::Error;

/// Why the server cannot start.
#[derive(Debug, Error)]
pub enum ServeError {
    /// Cannot listen on the address.
    #[error(
        "cannot listen on {address}: {source}; use another --bind-address or --secure-port, or --secure-port=0 to disable serving"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// A serving certificate or its key cannot be read or written.
    #[error("serving certificate: {path}: {problem}")]
    Certificate {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// A serving certificate and its key cannot be used.
    #[error("serving certificate: {0}")]
    KeyPair(#[from] KeyPairError),
    /// No certificate could be generated.
    #[error("cannot generate a serving certificate: {0}")]
    Generate(#[source] rcgen::Error),
    /// The TLS options contradict each other.
    #[error("--tls-cipher-suites and --tls-min-version: {0}")]
    Tls(#[source] tokio_rustls::rustls::Error),
    /// A CA bundle for client certificates is invalid.
    #[error("{flag}: {path}: {problem}")]
    ClientAuthority {
        /// The flag with the file.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// The lookup of client CAs in the cluster failed.
    #[error(
        "ConfigMap kube-system/extension-apiserver-authentication: {0}; \
         set --authentication-tolerate-lookup-failure=true to continue without it"
    )]
    Lookup(#[source] LookupError),
    /// No client could be created for reviews.
    #[error("{flag}: {source}")]
    Connect {
        /// The flag with the kubeconfig.
        flag: &'static str,
        /// Why.
        source: ConnectError,
    },
}

/// Why the lookup in the cluster failed.
#[derive(Debug, Error)]
pub enum LookupError {
    /// The ConfigMap could not be read.
    #[error("{0}")]
    Unread(String),
    /// The ConfigMap is malformed.
    #[error("{0}")]
    Malformed(String),
}
