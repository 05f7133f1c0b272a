//! Who it is that asks.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};

use super::value::{boolean, length};

/// How it is found out who sends a request.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Authentication flags")]
pub struct AuthenticationOptions {
    /// How to reach the server that is asked about tokens (TokenReview). Without it: as the scheduler reaches its own, with
    /// its credentials.
    #[arg(long = "authentication-kubeconfig", id = "authentication_kubeconfig", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Do not look up client CAs and request-header settings in the cluster (the ConfigMap
    /// extension-apiserver-authentication in kube-system).
    #[arg(
        long = "authentication-skip-lookup", id = "authentication_skip_lookup", value_name = "BOOL",
        action = ArgAction::Set, num_args = 0..=1, require_equals = true,
        default_value = "false", default_missing_value = "true", value_parser = boolean
    )]
    pub skip_lookup: bool,
    /// Go on when that look-up fails; whoever would have been known by it is answered with 401.
    #[arg(
        long = "authentication-tolerate-lookup-failure", id = "authentication_tolerate_lookup_failure",
        value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true,
        default_value = "true", default_missing_value = "true", value_parser = boolean
    )]
    pub tolerate_lookup_failure: bool,
    /// How long an answer about a token is kept.
    #[arg(
        long = "authentication-token-webhook-cache-ttl", id = "authentication_token_webhook_cache_ttl",
        value_name = "DURATION", default_value = "10s", value_parser = length
    )]
    pub token_cache_ttl: Duration,
    /// Whoever has a certificate signed by one of these is known by its common name, as PEM.
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,
    /// The proxy that may say in headers who it is that asks.
    #[command(flatten)]
    pub request_header: RequestHeaderOptions,
}

impl Default for AuthenticationOptions {
    fn default() -> Self {
        super::defaults()
    }
}

/// The proxy that may say in headers who it is that asks.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Authentication flags")]
pub struct RequestHeaderOptions {
    /// Who may sign the certificate of a proxy whose headers say who it is that asks, as PEM.
    #[arg(long = "requestheader-client-ca-file", id = "requestheader_client_ca_file", value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,
    /// The common names that such a certificate may have. Without it: any.
    #[arg(
        long = "requestheader-allowed-names",
        id = "requestheader_allowed_names",
        value_name = "NAMES",
        value_delimiter = ','
    )]
    pub allowed_names: Vec<String>,
    /// The headers that may have the user's name.
    #[arg(
        long = "requestheader-username-headers",
        id = "requestheader_username_headers",
        value_name = "HEADERS",
        value_delimiter = ',',
        default_value = "x-remote-user"
    )]
    pub username_headers: Vec<String>,
    /// The headers that may have the user's UID.
    #[arg(
        long = "requestheader-uid-headers",
        id = "requestheader_uid_headers",
        value_name = "HEADERS",
        value_delimiter = ','
    )]
    pub uid_headers: Vec<String>,
    /// The headers that may have the user's groups.
    #[arg(
        long = "requestheader-group-headers",
        id = "requestheader_group_headers",
        value_name = "HEADERS",
        value_delimiter = ',',
        default_value = "x-remote-group"
    )]
    pub group_headers: Vec<String>,
    /// What the names of headers begin with that say more about the user.
    #[arg(
        long = "requestheader-extra-headers-prefix",
        id = "requestheader_extra_headers_prefix",
        value_name = "PREFIXES",
        value_delimiter = ',',
        default_value = "x-remote-extra-"
    )]
    pub extra_header_prefixes: Vec<String>,
}

impl Default for RequestHeaderOptions {
    fn default() -> Self {
        super::defaults()
    }
}
