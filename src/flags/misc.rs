//! Which files a scheduler works with.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use http::Uri;

use super::value::{FlagError, length};

/// Which files a scheduler works with, and which server.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Misc flags")]
pub struct MiscOptions {
    /// A KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1). Without it: one profile, `supercargo`, with every
    /// plugin.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// How often to look whether the configuration file has changed; 0 for never.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = length)]
    pub config_reload_period: Duration,
    /// The address of the API server, instead of the kubeconfig's. Without a kubeconfig, it is asked without credentials.
    #[arg(long, value_name = "URL", value_parser = server)]
    pub master: Option<Uri>,
    /// Write the configuration with all defaults to a file, and end.
    #[arg(long, value_name = "FILE")]
    pub write_config_to: Option<PathBuf>,
    /// Record everything that the scheduler is told, for `replay`, in a new file. It grows without bound and has the pods
    /// in it.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
}

impl Default for MiscOptions {
    fn default() -> Self {
        super::defaults()
    }
}

/// The address of a server. A password has no place in it: a command line is no secret.
fn server(text: &str) -> Result<Uri, FlagError> {
    let text = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let url: Uri = text.parse().map_err(|_| FlagError::Server)?;
    let is_http = matches!(url.scheme_str(), Some("http" | "https"));
    let authority = url.authority().filter(|authority| !authority.host().is_empty());
    let is_plain = authority.is_some_and(|authority| !authority.as_str().contains('@'));
    if is_http && is_plain && url.query().is_none() { Ok(url) } else { Err(FlagError::Server) }
}
