//! Flag values in Go's syntax.

use std::time::Duration;

use supercargo_framework::quantity;
use thiserror::Error;

use crate::feature_gates::GateError;
use supercargo_framework::go_duration;

/// Why a flag value is rejected.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FlagError {
    /// Not a boolean.
    #[error("must be true or false")]
    Boolean,
    /// Not a duration.
    #[error("must be a duration such as 15s or 1m30s")]
    Duration,
    /// Not an amount of memory.
    #[error("must be 0 or a quantity such as 256Mi")]
    Memory,
    /// Not a supported TLS version.
    #[error("must be VersionTLS12 or VersionTLS13; older versions are not supported")]
    TlsVersion,
    /// Not a supported cipher suite. Holds the supported ones.
    #[error("unsupported cipher suite; the supported ones are {0}")]
    CipherSuite(String),
    /// Not a certificate with a key and names.
    #[error(
        "must be a certificate and its key, optionally with names after a colon: a.crt,a.key:*.example.com"
    )]
    NamedPair,
    /// Not the address of a server.
    #[error("must be a URL such as https://10.0.0.1:6443, without a user, a password or a query")]
    Server,
    /// Not an encoding of API objects.
    #[error("must be application/vnd.kubernetes.protobuf or application/json")]
    ContentType,
    /// The leader election settings contradict each other.
    #[error("{0}")]
    LeaderElection(String),
    /// A feature gate cannot be set this way.
    #[error("--feature-gates: {0}")]
    Gates(#[source] GateError),
}

/// A boolean as Go reads it.
pub(super) fn boolean(text: &str) -> Result<bool, FlagError> {
    match text {
        "1" | "t" | "T" | "true" | "True" | "TRUE" => Ok(true),
        "0" | "f" | "F" | "false" | "False" | "FALSE" => Ok(false),
        _ => Err(FlagError::Boolean),
    }
}

/// A duration as Go reads it.
pub fn length(text: &str) -> Result<Duration, FlagError> {
    go_duration::parse(text).ok_or(FlagError::Duration)
}

/// An amount of memory in bytes, as a Kubernetes quantity.
pub(super) fn memory(text: &str) -> Result<usize, FlagError> {
    let bytes = quantity::value(text).ok().and_then(|bytes| usize::try_from(bytes).ok());
    bytes.ok_or(FlagError::Memory)
}
