//! Registered plugins, their arguments and the default plugins.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use thiserror::Error;

use crate::features::{Feature, Features};
use crate::plugin::Plugin;

/// Invalid arguments of a plugin.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}{}{message}", .path, if .path.is_empty() { "" } else { ": " })]
pub struct ArgsError {
    /// The path in the arguments, such as `scoringStrategy.resources[0].weight`; empty for the
    /// whole.
    pub path: String,
    /// The error, with what is valid.
    pub message: String,
}

impl ArgsError {
    /// An error at a path.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }
}

/// Decodes arguments; `null` means none. An error names the field at fault, from which the
/// configuration file's line and column are derived. `apiVersion` and `kind` are checked and
/// removed before a factory is called.
///
/// ```
/// use serde::Deserialize;
/// use serde_json::json;
/// use supercargo_framework::registry::decode_args;
///
/// #[derive(Deserialize)]
/// #[serde(deny_unknown_fields, rename_all = "camelCase")]
/// struct Args {
///     max_price: i64,
/// }
///
/// let args: Args = decode_args(&json!({"maxPrice": 5}))?;
/// assert_eq!(args.max_price, 5);
/// let error = decode_args::<Args>(&json!({"maxPrice": "5"})).err().map(|error| error.path);
/// assert_eq!(error.as_deref(), Some("maxPrice"));
/// # Ok::<(), supercargo_framework::registry::ArgsError>(())
/// ```
pub fn decode_args<T: DeserializeOwned>(args: &Value) -> Result<T, ArgsError> {
    let args = match args {
        Value::Null => Value::Object(Map::new()),
        Value::Object(_) => args.clone(),
        other => return Err(ArgsError::new("", format!("must be an object, not {other}"))),
    };
    serde_path_to_error::deserialize(args).map_err(|error| {
        let path = match error.path().to_string() {
            whole if whole == "." => String::new(),
            path => path,
        };
        ArgsError::new(path, error.into_inner().to_string())
    })
}

/// Builds a plugin from its arguments, `{}` if none are configured, and the feature gates. Unknown
/// fields are errors.
pub type Factory = fn(&Value, &Features) -> Result<Arc<dyn Plugin>, ArgsError>;

/// No arguments.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoArgs {}

/// The [`Factory`] of a plugin that has no arguments.
///
/// ```
/// # use supercargo_framework::registry::{ArgsError, Factory, without_args};
/// # use supercargo_framework::Plugin;
/// # fn factory<P: Plugin + Default>() -> Factory {
/// without_args::<P>
/// # }
/// ```
pub fn without_args<P: Plugin + Default>(args: &Value, _: &Features) -> Result<Arc<dyn Plugin>, ArgsError> {
    decode_args::<NoArgs>(args)?;
    Ok(Arc::new(P::default()))
}

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
    /// The feature that must be enabled.
    pub feature: Option<Feature>,
}

impl DefaultPlugin {
    /// A plugin that is enabled with any feature gates.
    pub const fn new(name: &'static str, weight: i32) -> Self {
        Self { name, weight, feature: None }
    }

    /// The same, only if a feature is enabled.
    #[must_use]
    pub const fn with(self, feature: Feature) -> Self {
        Self { feature: Some(feature), ..self }
    }

    /// Whether a profile enables it with these feature gates.
    pub fn is_enabled(&self, features: &Features) -> bool {
        self.feature.is_none_or(|feature| features.enabled(feature))
    }
}
