//! The flags of `supercargo run`: upstream's, by their names and with their defaults, and a few of our own.
//!
//! Each group of flags is a plain struct. Its `Default` is what a command line without any of them means, and the
//! command line itself is where those defaults stand. What both a flag and the configuration can say is settled in
//! [`Flags::configuration`].

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

use crate::{Catalog, Config};
use flagz::Texts;

/// The flags of `supercargo run`.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct Flags {
    // First of all: the parser takes away what the others read.
    #[command(flatten)]
    texts: Texts,
    /// Files, and the server.
    #[command(flatten)]
    pub misc: MiscOptions,
    /// How health and metrics are served.
    #[command(flatten)]
    pub serving: ServingOptions,
    /// How it is found out who asks.
    #[command(flatten)]
    pub authentication: AuthenticationOptions,
    /// How it is found out who may.
    #[command(flatten)]
    pub authorization: AuthorizationOptions,
    /// Which of several schedulers leads.
    #[command(flatten)]
    pub leader_election: LeaderElectionOptions,
    /// Which features are on.
    #[command(flatten)]
    pub features: FeatureOptions,
    /// Where traces of attempts go.
    #[command(flatten)]
    pub traces: TraceOptions,
    /// What the configuration says better.
    #[command(flatten)]
    pub deprecated: DeprecatedOptions,
    /// Upstream's flags that mean nothing here.
    #[command(flatten)]
    pub without_effect: WithoutEffect,
}

impl Default for Flags {
    fn default() -> Self {
        defaults()
    }
}

impl Flags {
    /// The configuration that counts: the file's, else the default one, with what these flags say. The features are the
    /// catalog's.
    ///
    /// A flag of leader election wins over the file, a deprecated one only counts without a file. What is without effect
    /// is logged.
    pub fn configuration(&self, catalog: &Catalog) -> Result<Config> {
        let file = self.misc.config.as_deref();
        let mut config = Config::load_or_default(file, catalog)?;
        self.leader_election.over(&mut config.leader_election)?;
        let ignored = self.deprecated.over(&mut config, file.is_some());
        for flag in &self.without_effect.given {
            tracing::warn!("--{flag} has no effect here");
        }
        for flag in ignored {
            let file = file.unwrap_or(Path::new("")).display();
            tracing::warn!("{flag} has no effect: {file} counts");
        }
        for warning in &config.warnings {
            tracing::warn!("{warning}");
        }
        Ok(config)
    }

    /// Writes the configuration that counts where `--write-config-to` says; false where it says nothing.
    pub fn write_configuration(&self, catalog: &Catalog) -> Result<bool> {
        let Some(path) = &self.misc.write_config_to else { return Ok(false) };
        let text = self.configuration(catalog)?.to_yaml();
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(true)
    }
}

/// These flags as a command line without any leaves them.
fn defaults<T: Args>() -> T {
    let matches = T::augment_args(Command::new("supercargo").no_binary_name(true)).get_matches_from([""; 0]);
    T::from_arg_matches(&matches).expect("every flag can be left out")
}
