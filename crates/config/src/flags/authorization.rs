//! Authorization flags.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::value::length;

/// How requests are authorized.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Authorization flags")]
pub struct AuthorizationOptions {
    /// Kubeconfig file for SubjectAccessReview requests. Defaults to the connection and credentials
    /// of the scheduler.
    #[arg(long = "authorization-kubeconfig", id = "authorization_kubeconfig", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Paths that are served without authorization. A trailing * matches any suffix.
    #[arg(
        long = "authorization-always-allow-paths",
        id = "authorization_always_allow_paths",
        value_name = "PATHS",
        value_delimiter = ',',
        default_value = "/healthz,/readyz,/livez"
    )]
    pub always_allow_paths: Vec<String>,
    /// How long to cache an authorization that allows a request.
    #[arg(
        long = "authorization-webhook-cache-authorized-ttl", id = "authorization_webhook_cache_authorized_ttl",
        value_name = "DURATION", default_value = "10s", value_parser = length
    )]
    pub authorized_ttl: Duration,
    /// How long to cache an authorization that denies a request.
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
