//! Plugins by name, and how they are built from configuration.

use std::collections::BTreeMap;
use std::sync::Arc;

use thiserror::Error;

use crate::features::{Feature, Features};
use crate::plugin::Plugin;

/// Arguments that a plugin cannot work with.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}{}{message}", .path, if .path.is_empty() { "" } else { ": " })]
pub struct ArgsError {
    /// Where in the arguments, such as `scoringStrategy.resources[0].weight`; empty for the whole.
    pub path: String,
    /// What is wrong and what would be right.
    pub message: String,
}

impl ArgsError {
    /// An error at a path.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }
}

/// Builds a plugin from its arguments, `{}` when none are configured, and the features that are on. Unknown fields are
/// errors.
pub type Factory = fn(&serde_json::Value, &Features) -> Result<Arc<dyn Plugin>, ArgsError>;

/// Plugins by name.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    factories: BTreeMap<&'static str, Factory>,
}

impl Registry {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a plugin, replacing one of the same name.
    pub fn register(&mut self, name: &'static str, factory: Factory) {
        self.factories.insert(name, factory);
    }

    /// The factory of a plugin.
    pub fn get(&self, name: &str) -> Option<Factory> {
        self.factories.get(name).copied()
    }

    /// Every name, sorted.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.factories.keys().copied()
    }
}

/// A plugin that a profile enables by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DefaultPlugin {
    /// The name.
    pub name: &'static str,
    /// The weight of its scores; 0 for a plugin that does not score.
    pub weight: i32,
    /// The feature that must be on for the profile to enable it.
    pub feature: Option<Feature>,
}

impl DefaultPlugin {
    /// A plugin that is enabled whatever the features.
    pub const fn new(name: &'static str, weight: i32) -> Self {
        Self { name, weight, feature: None }
    }

    /// The same while a feature is on.
    #[must_use]
    pub const fn with(self, feature: Feature) -> Self {
        Self { feature: Some(feature), ..self }
    }

    /// Whether a profile enables it with these features.
    pub fn is_enabled(&self, features: &Features) -> bool {
        self.feature.is_none_or(|feature| features.enabled(feature))
    }
}
