//! Values of flags, as Go reads and writes them.

use std::time::Duration;

use thiserror::Error;

use crate::duration;
use crate::feature_gates::GateError;

/// Why the value of a flag is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FlagError {
    /// It is neither true nor false.
    #[error("say true or false")]
    Boolean,
    /// It is no length of time.
    #[error("say a duration such as 15s or 1m30s")]
    Duration,
    /// It is no version of TLS that is served.
    #[error("say VersionTLS12 or VersionTLS13; older ones are not served")]
    TlsVersion,
    /// It is no cipher suite that is served. Holds those that are.
    #[error("this cipher suite is not offered; those that can be chosen are {0}")]
    CipherSuite(String),
    /// It is no certificate with a key and names.
    #[error(
        "say a certificate and its key, and names after a colon if it is not for its own: a.crt,a.key:*.example.com"
    )]
    NamedPair,
    /// It is no address of a server.
    #[error("say a URL such as https://10.0.0.1:6443, without a user, a password or a query")]
    Server,
    /// It is no encoding of API objects.
    #[error("say application/vnd.kubernetes.protobuf or application/json")]
    ContentType,
    /// There can be no election like this.
    #[error("--leader-elect-…: {0}")]
    LeaderElection(String),
    /// The feature gates cannot be set like this.
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
    duration::parse(text).ok_or(FlagError::Duration)
}
