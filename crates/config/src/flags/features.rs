//! Feature gates.

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, Error, FromArgMatches};
use supercargo_framework::features::{Features, Version};

use super::value::FlagError;
use crate::Catalog;
use crate::feature_gates::{FeatureGates, emulated_version};

/// Feature gates.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Feature flags")]
pub struct FeatureOptions {
    // The first one: the others take their values out of the matches.
    #[command(flatten)]
    given: Given,
    /// Feature gates to set, as in `StorageCapacityScoring=true,SchedulerAsyncPreemption=false`.
    /// `supercargo run --help` lists the gates and their defaults at its end.
    #[arg(long, value_name = "GATES")]
    pub feature_gates: Vec<FeatureGates>,
    /// Version of kube-scheduler whose feature gate defaults apply: 1.34 to 1.37.
    #[arg(long, value_name = "VERSION", value_parser = emulated_version, default_value_t = Version::CURRENT)]
    pub emulated_version: Version,
}

/// Whether the command line sets one of the options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Given(bool);

impl Args for Given {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

impl FromArgMatches for Given {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let is_given = |id| matches.value_source(id) == Some(ValueSource::CommandLine);
        Ok(Self(is_given("feature_gates") || is_given("emulated_version")))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Default for FeatureOptions {
    fn default() -> Self {
        super::defaults()
    }
}

impl FeatureOptions {
    /// The catalog with these feature gates applied.
    pub fn applied_to(&self, catalog: &Catalog) -> Result<Catalog, FlagError> {
        Ok(catalog.clone().with_features(self.features()?))
    }

    /// Whether the command line sets one of them.
    pub fn are_given(&self) -> bool {
        self.given.0
    }

    fn features(&self) -> Result<Features, FlagError> {
        let gates: FeatureGates = self.feature_gates.iter().cloned().collect();
        gates.apply(self.emulated_version).map_err(FlagError::Gates)
    }
}
