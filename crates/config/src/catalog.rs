//! What there is to configure: plugins by name, those that are on by default, and features.

use supercargo_framework::Features;
use supercargo_framework::registry::{DefaultPlugin, Factory, Registry};

/// The plugins there are, those that are on unless a profile says otherwise, and the features that are on.
#[derive(Clone, Debug)]
pub struct Catalog {
    /// Every plugin.
    pub registry: Registry,
    /// Those that a profile enables by default.
    pub defaults: Vec<DefaultPlugin>,
    /// The features.
    pub features: Features,
}

impl Catalog {
    /// These plugins, with the features of the current version.
    pub fn new(registry: Registry, defaults: &[DefaultPlugin]) -> Self {
        Self { registry, defaults: defaults.to_vec(), features: Features::default() }
    }

    /// The in-tree plugins.
    pub fn in_tree() -> Self {
        Self::new(supercargo_plugins::registry(), supercargo_plugins::DEFAULT_PLUGINS)
    }

    /// The same with one more plugin, which is off until a profile enables it.
    #[must_use]
    pub fn with_plugin(mut self, name: &'static str, factory: Factory) -> Self {
        self.registry.register(name, factory);
        self
    }

    /// The same with these features.
    #[must_use]
    pub fn with_features(mut self, features: Features) -> Self {
        self.features = features;
        self
    }
}
