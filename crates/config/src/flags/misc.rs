//! Configuration file, API server, recording.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, Args, Command, Error};
use http::Uri;

use super::value::{FlagError, boolean, length, memory};

/// Configuration file, API server, recording.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Misc flags")]
pub struct MiscOptions {
    /// Configuration file: a KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1). Default:
    /// one profile, `supercargo`, with the default plugins.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// How often to check the configuration file for changes; 0 disables reloading.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = length)]
    pub config_reload_period: Duration,
    /// Address of the API server; overrides the kubeconfig. Without a kubeconfig, requests carry no
    /// credentials.
    #[arg(long, value_name = "URL", value_parser = Server)]
    pub master: Option<Uri>,
    /// Write the configuration with all defaults to a file and exit.
    #[arg(long, value_name = "FILE")]
    pub write_config_to: Option<PathBuf>,
    /// Record every input of the scheduler, for `replay`, in at most 16 files of 256 MiB, named
    /// FILE.TIME.NUMBER. They contain the pods. When they are full, recording ends with an error in
    /// the log.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Answer `why`, `what-if` and other questions from the running scheduler, under /insight/ on
    /// the HTTPS port.
    #[arg(
        long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true,
        default_value = "false", default_missing_value = "true", value_parser = boolean
    )]
    pub insight: bool,
    /// Memory limit of evaluation tables; 0 switches them off. Default: a quarter of the
    /// container's memory limit, at most 256Mi.
    #[arg(long, value_name = "QUANTITY", value_parser = memory)]
    pub table_memory: Option<usize>,
    /// Memory limit of the log of what happened to pods, for `timeline`; 0 switches it off.
    #[arg(long, value_name = "QUANTITY", default_value = "8Mi", value_parser = memory)]
    pub timeline_memory: usize,
}

impl Default for MiscOptions {
    fn default() -> Self {
        super::defaults()
    }
}

impl MiscOptions {
    /// The configuration file to watch, and the period between two checks.
    pub fn followed(&self) -> Option<(&Path, Duration)> {
        let period = self.config_reload_period;
        self.config.as_deref().filter(|_| !period.is_zero()).map(|path| (path, period))
    }
}

/// Parses the address of a server. Errors do not repeat the value, as clap does by default: it may
/// contain a password.
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

/// Parses the address of a server. A user or password is rejected: command lines are not secret.
fn server(text: &str) -> Option<Uri> {
    let text = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let url: Uri = text.parse().ok()?;
    let is_http = matches!(url.scheme_str(), Some("http" | "https"));
    let authority = url.authority().filter(|authority| !authority.host().is_empty());
    let is_plain = authority.is_some_and(|authority| !authority.as_str().contains('@'));
    (is_http && is_plain && url.query().is_none()).then_some(url)
}
