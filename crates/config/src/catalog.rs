//! What can be configured: plugins by name, the default plugins, and features.

use supercargo_framework::Features;
use supercargo_framework::registry::{DefaultPlugin, Factory, Registry};

/// The registered plugins, the default plugins, and the enabled features.
#[derive(Clone, Debug)]
pub struct Catalog {
    /// Every registered plugin.
    pub registry: Registry,
    /// The plugins that a profile enables by default.
    pub defaults: Vec<DefaultPlugin>,
    /// The enabled features.
    pub features: Features,
}

impl Catalog {
    /// A catalog of these plugins, with the feature defaults of the current version.
    pub fn new(registry: Registry, defaults: &[DefaultPlugin]) -> Self {
        Self { registry, defaults: defaults.to_vec(), features: Features::default() }
    }

    /// The in-tree plugins.
    pub fn in_tree() -> Self {
        Self::new(supercargo_plugins::registry(), supercargo_plugins::DEFAULT_PLUGINS)
    }

    /// Adds a plugin. It is disabled until a profile enables it.
    #[must_use]
    pub fn with_plugin(mut self, name: &'static str, factory: Factory) -> Self {
        self.registry.register(name, factory);
        self
    }

    /// Replaces the features.
    #[must_use]
    pub fn with_features(mut self, features: Features) -> Self {
        self.features = features;
        self
    }
}
