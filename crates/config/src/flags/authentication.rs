//! Authentication flags.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};

use super::value::{boolean, length};

/// How the user of a request is determined.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Authentication flags")]
pub struct AuthenticationOptions {
    /// Kubeconfig file for TokenReview requests. Defaults to the connection and credentials of the
    /// scheduler.
    #[arg(long = "authentication-kubeconfig", id = "authentication_kubeconfig", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Do not read client CAs and request-header settings from the cluster (the ConfigMap
    /// extension-apiserver-authentication in kube-system).
    #[arg(
        long = "authentication-skip-lookup", id = "authentication_skip_lookup", value_name = "BOOL",
        action = ArgAction::Set, num_args = 0..=1, require_equals = true,
        default_value = "false", default_missing_value = "true", value_parser = boolean
    )]
    pub skip_lookup: bool,
    /// Continue if the lookup of these settings fails. Clients that depend on them get 401.
    #[arg(
        long = "authentication-tolerate-lookup-failure", id = "authentication_tolerate_lookup_failure",
        value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true,
        default_value = "true", default_missing_value = "true", value_parser = boolean
    )]
    pub tolerate_lookup_failure: bool,
    /// How long to cache the result of a TokenReview.
    #[arg(
        long = "authentication-token-webhook-cache-ttl", id = "authentication_token_webhook_cache_ttl",
        value_name = "DURATION", default_value = "10s", value_parser = length
    )]
    pub token_cache_ttl: Duration,
    /// PEM bundle of CAs for client certificates. The common name of a verified certificate is the
    /// user name.
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,
    /// Settings of an authenticating front proxy.
    #[command(flatten)]
    pub request_header: RequestHeaderOptions,
}

impl Default for AuthenticationOptions {
    fn default() -> Self {
        super::defaults()
    }
}

/// Settings of an authenticating front proxy.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Authentication flags")]
pub struct RequestHeaderOptions {
    /// PEM bundle of CAs for client certificates of front proxies. Only a verified proxy may name
    /// the user in headers.
    #[arg(long = "requestheader-client-ca-file", id = "requestheader_client_ca_file", value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,
    /// Common names allowed in the certificate of a front proxy. Defaults to any.
    #[arg(
        long = "requestheader-allowed-names",
        id = "requestheader_allowed_names",
        value_name = "NAMES",
        value_delimiter = ','
    )]
    pub allowed_names: Vec<String>,
    /// Request headers to read the user name from.
    #[arg(
        long = "requestheader-username-headers",
        id = "requestheader_username_headers",
        value_name = "HEADERS",
        value_delimiter = ',',
        default_value = "x-remote-user"
    )]
    pub username_headers: Vec<String>,
    /// Request headers to read the user's UID from.
    #[arg(
        long = "requestheader-uid-headers",
        id = "requestheader_uid_headers",
        value_name = "HEADERS",
        value_delimiter = ','
    )]
    pub uid_headers: Vec<String>,
    /// Request headers to read the user's groups from.
    #[arg(
        long = "requestheader-group-headers",
        id = "requestheader_group_headers",
        value_name = "HEADERS",
        value_delimiter = ',',
        default_value = "x-remote-group"
    )]
    pub group_headers: Vec<String>,
    /// Prefixes of request headers with extra user attributes.
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
