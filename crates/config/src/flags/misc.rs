//! Which files a scheduler works with.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::{Arg, Args, Command, Error};
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
    #[arg(long, value_name = "URL", value_parser = Server)]
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

impl MiscOptions {
    /// The file whose changes are taken over, and how often it is looked at.
    pub fn followed(&self) -> Option<(&Path, Duration)> {
        let period = self.config_reload_period;
        self.config.as_deref().filter(|_| !period.is_zero()).map(|path| (path, period))
    }
}

/// Reads the address of a server. What is refused is not repeated, as the parser would by itself: it may have a password in it.
#[derive(Clone)]
pub(super) struct Server;

impl TypedValueParser for Server {
    type Value = Uri;

    fn parse_ref(&self, command: &Command, flag: Option<&Arg>, value: &OsStr) -> Result<Uri, Error> {
        value.to_str().and_then(server).ok_or_else(|| {
            let flag = flag.map(ToString::to_string).unwrap_or_default();
            let problem = format!("invalid value for '{flag}': {}", FlagError::Server);
            command.clone().error(ErrorKind::ValueValidation, problem)
        })
    }
}

/// The address of a server. A password has no place in it: a command line is no secret.
fn server(text: &str) -> Option<Uri> {
    let text = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let url: Uri = text.parse().ok()?;
    let is_http = matches!(url.scheme_str(), Some("http" | "https"));
    let authority = url.authority().filter(|authority| !authority.host().is_empty());
    let is_plain = authority.is_some_and(|authority| !authority.as_str().contains('@'));
    (is_http && is_plain && url.query().is_none()).then_some(url)
}
