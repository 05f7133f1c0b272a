//! Feature gates.

use clap::Args;
use supercargo_framework::features::{Features, Version};

use super::value::FlagError;
use crate::Catalog;
use crate::feature_gates::{FeatureGates, emulated_version};

/// Feature gates.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Feature flags")]
pub struct FeatureOptions {
    /// Feature gates to set, as in `StorageCapacityScoring=true,SchedulerAsyncPreemption=false`.
    /// `supercargo run --help` lists the gates and their defaults at its end.
    #[arg(long, value_name = "GATES")]
    pub feature_gates: Vec<FeatureGates>,
    /// Version of kube-scheduler whose feature gate defaults apply: 1.34 to 1.37.
    #[arg(long, value_name = "VERSION", value_parser = emulated_version, default_value_t = Version::CURRENT)]
    pub emulated_version: Version,
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

    fn features(&self) -> Result<Features, FlagError> {
        let gates: FeatureGates = self.feature_gates.iter().cloned().collect();
        gates.apply(self.emulated_version).map_err(FlagError::Gates)
    }
}
