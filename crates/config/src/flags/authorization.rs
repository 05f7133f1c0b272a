//! Whether whoever asks may.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::value::length;

/// How it is found out whether a request is allowed.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Authorization flags")]
pub struct AuthorizationOptions {
    /// How to reach the server that is asked what is allowed (SubjectAccessReview). Without it: as the scheduler reaches its
    /// own, with its credentials.
    #[arg(long = "authorization-kubeconfig", id = "authorization_kubeconfig", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Paths that everybody may ask for. One that ends in * stands for all that begin so.
    #[arg(
        long = "authorization-always-allow-paths",
        id = "authorization_always_allow_paths",
        value_name = "PATHS",
        value_delimiter = ',',
        default_value = "/healthz,/readyz,/livez"
    )]
    pub always_allow_paths: Vec<String>,
    /// How long it is kept that something is allowed.
    #[arg(
        long = "authorization-webhook-cache-authorized-ttl", id = "authorization_webhook_cache_authorized_ttl",
        value_name = "DURATION", default_value = "10s", value_parser = length
    )]
    pub authorized_ttl: Duration,
    /// How long it is kept that something is not allowed.
    #[arg(
        long = "authorization-webhook-cache-unauthorized-ttl", id = "authorization_webhook_cache_unauthorized_ttl",
        value_name = "DURATION", default_value = "10s", value_parser = length
    )]
    pub unauthorized_ttl: Duration,
}

impl Default for AuthorizationOptions {
    fn default() -> Self {
        super::defaults()
    }
}
