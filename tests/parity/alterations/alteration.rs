//! A scheduler that breaks one rule.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Map, Value};
use supercargo_config::{Config, PluginSet};
use supercargo_framework::Features;

use super::altered_plugin::{self, AlterPoints, Altered};

/// A broken rule, and the scenarios that should detect it.
pub(super) struct Alteration {
    /// The change.
    pub(super) what: &'static str,
    /// The rule, with its section in the specification.
    pub(super) rule: &'static str,
    pub(super) change: Change,
    /// The scenarios, one of which at least must detect it.
    pub(super) detected_by: &'static [&'static str],
}

/// How the configuration changes.
pub(super) enum Change {
    /// Wraps a plugin in every profile.
    Plugin(&'static str, AlterPoints),
    /// Rebuilds a plugin with other arguments or features.
    Built(&'static str, fn(&mut Map<String, Value>, &mut Features)),
    /// Changes the plugins of each profile.
    Plugins(fn(&mut PluginSet)),
    /// Any other change.
    Config(fn(&mut Config)),
}

impl Alteration {
    /// The changed configuration.
    pub(super) fn apply(&self, config: &Config) -> Result<Config> {
        let mut config = config.clone();
        self.change.apply(&mut config).with_context(|| format!("alter: {}", self.what))?;
        Ok(config)
    }
}

impl Change {
    fn apply(&self, config: &mut Config) -> Result<()> {
        match self {
            Self::Plugin(name, alter) => {
                let mut altered = 0;
                for profile in &mut config.profiles {
                    if let Some(plugin) = profile.plugins.instances.get_mut(*name) {
                        *plugin = Altered::wrap(Arc::clone(plugin), Arc::clone(alter));
                        altered += 1;
                    }
                }
                ensure!(altered > 0, "no profile has {name}");
            }
            Self::Built(name, change) => {
                let factory = supercargo_plugins::registry().get(name);
                let factory = factory.with_context(|| format!("there is no {name}"))?;
                for profile in &mut config.profiles {
                    let (mut args, mut features) = (Map::new(), config.features.clone());
                    args.extend(
                        profile.args.get(*name).and_then(Value::as_object).cloned().into_iter().flatten(),
                    );
                    change(&mut args, &mut features);
                    if let Some(plugin) = profile.plugins.instances.get_mut(*name) {
                        *plugin = factory(&Value::Object(args), &features)?;
                    }
                }
            }
            Self::Plugins(change) => {
                config.profiles.iter_mut().for_each(|profile| change(&mut profile.plugins));
            }
            Self::Config(change) => change(config),
        }
        Ok(())
    }
}

/// A configuration with every plugin wrapped and unaltered.
pub(super) fn wrapped(config: &Config) -> Config {
    let mut config = config.clone();
    for profile in &mut config.profiles {
        for plugin in profile.plugins.instances.values_mut() {
            *plugin = Altered::wrap(Arc::clone(plugin), altered_plugin::nothing());
        }
    }
    config
}
