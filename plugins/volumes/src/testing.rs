//! Drivers of this crate's plugins by name.

use serde_json::Value;
use supercargo_framework::Features;
use supercargo_framework::registry::Factory;
use supercargo_framework::testing::Driver;

fn factory(plugin: &str) -> Factory {
    let named = crate::PLUGINS.iter().find(|(name, _)| *name == plugin);
    named.expect("tests name plugins that exist").1
}

/// The plugin with default arguments and features.
pub(crate) fn driver(plugin: &str) -> Driver {
    Driver::build(factory(plugin), &Value::Null, &Features::default())
}

/// The plugin with these features.
pub(crate) fn driver_with_features(plugin: &str, features: &Features) -> Driver {
    Driver::build(factory(plugin), &Value::Null, features)
}
