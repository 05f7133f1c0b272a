//! The flags of `supercargo run`: those of kube-scheduler, with its names and defaults, and a few
//! of supercargo's own.
//!
//! Each group of flags is a plain struct. Its `Default` equals a command line without flags; the
//! defaults are declared in the clap attributes. [`Flags::configuration`] merges the flags with the
//! configuration file.

mod authentication;
mod authorization;
mod deprecated;
mod features;
mod flagz;
mod leader_election;
mod logs;
mod misc;
mod serving;
#[cfg(test)]
mod tests;
mod traces;
mod value;
mod without_effect;

use std::path::Path;

use anyhow::{Context as _, Result};
use clap::{Args, Command};

pub use authentication::{AuthenticationOptions, RequestHeaderOptions};
pub use authorization::AuthorizationOptions;
pub use deprecated::DeprecatedOptions;
pub use features::FeatureOptions;
pub use leader_election::LeaderElectionOptions;
pub use logs::{LogFormat, LogOptions};
pub use misc::MiscOptions;
pub use serving::{NamedPair, ServingOptions, TlsVersion};
pub use traces::TraceOptions;
pub use value::FlagError;
pub use value::length;
pub use without_effect::WithoutEffect;

use crate::Catalog;
use crate::config::Config;
use flagz::Texts;

/// The flags of `supercargo run`.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct Flags {
    // Must be the first field: clap removes each match that a later field reads.
    #[command(flatten)]
    texts: Texts,
    /// Configuration file, API server, recording.
    #[command(flatten)]
    pub misc: MiscOptions,
    /// HTTPS endpoints for health and metrics.
    #[command(flatten)]
    pub serving: ServingOptions,
    /// Authentication of requests to the endpoints.
    #[command(flatten)]
    pub authentication: AuthenticationOptions,
    /// Authorization of requests to the endpoints.
    #[command(flatten)]
    pub authorization: AuthorizationOptions,
    /// Leader election.
    #[command(flatten)]
    pub leader_election: LeaderElectionOptions,
    /// Feature gates.
    #[command(flatten)]
    pub features: FeatureOptions,
    /// Traces of scheduling attempts.
    #[command(flatten)]
    pub traces: TraceOptions,
    /// Flags that the configuration file replaces.
    #[command(flatten)]
    pub deprecated: DeprecatedOptions,
    /// Flags of kube-scheduler that are accepted and ignored.
    #[command(flatten)]
    pub without_effect: WithoutEffect,
}

impl Default for Flags {
    fn default() -> Self {
        defaults()
    }
}

impl Flags {
    /// The effective configuration: the file's, or the default one without a file, with the flags
    /// applied. The features are the catalog's.
    ///
    /// Leader election flags take precedence over the file. Deprecated flags apply only without a
    /// file. Ignored flags are logged.
    pub fn configuration(&self, catalog: &Catalog) -> Result<Config> {
        let file = self.misc.config.as_deref();
        let mut of_flags = Ok(());
        let mut config =
            Config::load_with(file, catalog, &mut |election| of_flags = self.leader_election.over(election))?;
        of_flags?;
        config.table_memory = self.misc.table_memory;
        config.timeline_memory = self.misc.timeline_memory;
        let ignored = self.deprecated.over(&mut config, file.is_some());
        for flag in &self.without_effect.given {
            tracing::warn!("--{flag} is ignored: supercargo does not implement it");
        }
        for flag in ignored {
            let file = file.unwrap_or(Path::new("")).display();
            tracing::warn!("{flag} is ignored: {file} takes precedence");
        }
        Ok(config)
    }

    /// Writes the effective configuration to the file given by `--write-config-to`. Returns false
    /// without that flag.
    pub fn write_configuration(&self, catalog: &Catalog) -> Result<bool> {
        let Some(path) = &self.misc.write_config_to else { return Ok(false) };
        let text = self.configuration(catalog)?.to_yaml();
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(true)
    }
}

/// The flags of an empty command line.
fn defaults<T: Args>() -> T {
    let matches = T::augment_args(Command::new("supercargo").no_binary_name(true)).get_matches_from([""; 0]);
    T::from_arg_matches(&matches).expect("every flag is optional")
}
